"""Generates `write(it, out) -> chunks`: the writer of one struct in one version.

It appends to the given bytearray and returns the buffers of the message: one, unless a `records` field is too large to
be copied. Fixed-width fields are collected and packed together; tagged fields are written only when they differ from
their default (KIP-482). A value that cannot be encoded raises LocalProtocolError.
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from hubmere.records.varint import write_uvarint
from hubmere.wire.kafka import primitives
from hubmere.wire.kafka.errors import LocalProtocolError
from hubmere.wire.kafka.primitives import Buffer
from hubmere.wire.kafka.schema import Array, EncodedStruct, Kind, WireField, WireType
from hubmere.wire.kafka.source import Source

Writer = Callable[[Any, bytearray], list[Buffer]]

# Records up to this size are copied between their neighbours: an extra buffer costs the socket more than the copy.
INLINE_RECORDS_BYTES: Final = 4096

_BUFFER_TYPES: Final = frozenset({bytes, bytearray, memoryview})


def _size_of(records: Any) -> int:
    return len(records) if type(records) in _BUFFER_TYPES else sum(map(len, records))


def _put_records(chunks: list[Buffer], out: bytearray, records: Any, size_bytes: int) -> bytearray:
    """Append records; returns the bytearray for the fields after them."""
    is_one = type(records) in _BUFFER_TYPES
    if size_bytes <= INLINE_RECORDS_BYTES:
        out += records if is_one else b"".join(records)
        return out
    chunks.append(out)
    chunks += (records,) if is_one else records
    return bytearray()


_NAMES: Final[dict[str, Any]] = {
    "LocalProtocolError": LocalProtocolError,
    "struct_error": struct.error,
    "put_uvarint": write_uvarint,
    "put_tag": primitives.write_tag,
    "put_records": _put_records,
    "size_of": _size_of,
    "EncodedStruct": EncodedStruct,
}


class WriterSource(Source):
    """Builds `write(it, out) -> chunks`."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible, _NAMES)
        self.out = "out"
        # Fixed-width values that will be packed together.
        self.run: list[tuple[str, str]] = []

    def compile(self, cls: type) -> Writer:
        """The whole function."""
        self.emit("chunks = []")
        self.emit("try:")
        self.indent += 1
        self.struct(cls, "it")
        self.flush()
        self.emit("chunks.append(out)")
        self.emit("return chunks")
        self.indent -= 1
        self.emit("except struct_error as broken:")
        self.emit(f"    raise LocalProtocolError(f'{cls.__name__} v{self.version}: {{broken}}') from None")
        writer: Writer = self.finish("write(it, out)", cls.__name__)
        return writer

    def struct(self, cls: type, it: str) -> None:
        """Write a struct inline, including its tag section."""
        plain, tagged, _ = self.fields_of(cls)
        for spec in plain:
            self.value(spec.type, f"{it}.{spec.name}", spec.is_nullable_in(self.version), spec.name)
        if self.flexible:
            self.tags(it, tagged)

    def flush(self) -> None:
        """Pack the waiting run."""
        if not self.run:
            return
        layout = Struct(">" + "".join(code for code, _ in self.run))
        values = ", ".join(expression for _, expression in self.run if expression)
        if values:
            self.emit(f"{self.out} += {self.constant('pack', layout.pack)}({values})")
        else:
            self.emit(f"{self.out} += {bytes(layout.size)!r}")
        self.run = []

    def value(self, wire_type: WireType, source: str, nullable: bool, what: str) -> None:
        """Write anything; fixed widths only join the run."""
        if isinstance(wire_type, Kind) and wire_type.is_fixed:
            self.run.append((wire_type.value, f"{source}.bytes" if wire_type is Kind.UUID else source))
        elif isinstance(wire_type, Array):
            self.array(wire_type, source, nullable)
        elif isinstance(wire_type, Kind):
            self.blob(wire_type, source, nullable, what)
        else:
            self.struct_value(wire_type, source, nullable)

    def unless_null(self, name: str, nullable: bool, null: bytes) -> None:
        """Write null, or open the branch for a value."""
        if nullable:
            self.flush()
            self.emit(f"if {name} is None:")
            self.emit(f"    {self.out} += {null!r}")
            self.emit("else:")
            self.indent += 1

    def end_unless_null(self, nullable: bool) -> None:
        """Close that branch."""
        if nullable:
            self.flush()
            self.indent -= 1

    def length(self, code: str, expression: str) -> None:
        """Write a length: compact, or as an integer that joins the run."""
        if not self.flexible:
            self.run.append((code, expression))
            return
        self.flush()
        self.emit(f"size = {expression} + 1")
        self.emit(f"if size < 128: {self.out}.append(size)")
        self.emit(f"else: put_uvarint({self.out}, size)")

    def blob(self, kind: Kind, source: str, nullable: bool, what: str) -> None:
        """Write a string, bytes or records."""
        name = self.fresh("value")
        code = "h" if kind is Kind.STRING else "i"
        self.emit(f"{name} = {source}")
        if not nullable:
            complaint = f"{what} must not be null in version {self.version}"
            self.emit(f"if {name} is None: raise LocalProtocolError({complaint!r})")
        self.unless_null(name, nullable, b"\x00" if self.flexible else b"\xff" * struct.calcsize(code))
        if kind is Kind.RECORDS:
            size = self.fresh("size")
            self.emit(f"{size} = size_of({name})")
            self.length(code, size)
            self.flush()
            self.emit(f"{self.out} = put_records(chunks, {self.out}, {name}, {size})")
        else:
            if kind is Kind.STRING:
                self.emit(f"{name} = {name}.encode()")
            self.length(code, f"len({name})")
            self.flush()
            self.emit(f"{self.out} += {name}")
        self.end_unless_null(nullable)

    def array(self, wire_type: Array, source: str, nullable: bool) -> None:
        """Write the count and the elements."""
        items = self.fresh("items")
        self.emit(f"{items} = {source}")
        self.unless_null(items, nullable, b"\x00" if self.flexible else b"\xff\xff\xff\xff")
        self.length("i", f"len({items})")
        self.flush()
        item = self.fresh("item")
        self.emit(f"for {item} in {items}:")
        self.indent += 1
        if wire_type.preencoded:
            self.emit(f"if type({item}) is EncodedStruct:")
            self.emit(f"    {self.out} += {item}")
            self.emit("    continue")
        if isinstance(wire_type.element, Kind):
            self.value(wire_type.element, item, nullable=False, what="an array's element")
        else:
            self.struct(wire_type.element, item)
        self.flush()
        self.indent -= 1
        self.end_unless_null(nullable)

    def struct_value(self, cls: type, source: str, nullable: bool) -> None:
        """Write a struct that is not in an array; a nullable one has an int8 before it, negative for null."""
        name = self.fresh("part")
        self.emit(f"{name} = {source}")
        self.unless_null(name, nullable, b"\xff")
        if nullable:
            self.run.append(("b", "1"))
        self.struct(cls, name)
        self.end_unless_null(nullable)

    def tags(self, it: str, tagged: list[WireField]) -> None:
        """Write the tag section: only fields that differ from their default."""
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        number, section = self.fresh("number"), self.fresh("section")
        defaults = {spec.name: spec.stand_in for spec in tagged}
        usual = " and ".join(
            f"{it}.{name} is None" if value is None else f"{it}.{name} == {self.constant('default', value)}"
            for name, value in defaults.items()
        )
        self.emit(f"if {usual}:")
        self.emit(f"    {self.out}.append(0)")
        self.emit("else:")
        self.indent += 1
        self.emit(f"{number} = 0")
        self.emit(f"{section} = bytearray()")
        for spec in tagged:
            self.tagged_field(spec, it, number, section)
        self.emit(f"put_uvarint({self.out}, {number})")
        self.emit(f"{self.out} += {section}")
        self.indent -= 1

    def tagged_field(self, spec: WireField, it: str, number: str, section: str) -> None:
        """Write one tagged field into a separate buffer, since its size precedes it."""
        default = self.constant("default", spec.stand_in)
        outer, self.out = self.out, self.fresh("tagged")
        self.emit(f"if {it}.{spec.name} != {default}:")
        self.indent += 1
        self.emit(f"{number} += 1")
        self.emit(f"{self.out} = bytearray()")
        self.value(spec.type, f"{it}.{spec.name}", spec.is_nullable_in(self.version), spec.name)
        self.flush()
        self.emit(f"put_tag({section}, {spec.tag}, {self.out})")
        self.indent -= 1
        self.out = outer
