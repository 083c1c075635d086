"""Generates `read(buf, at) -> (value, at)`: the reader of one struct in one version.

Nested structs are inlined, neighbouring fields of fixed width become one `struct` call, a field that the version lacks
costs one assignment. A length is compared with the bytes that are left before anything is allocated for it; invalid
input raises RemoteProtocolError. Tagged fields that are not declared are skipped (KIP-482).
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from hubmere.wire.kafka import primitives
from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.primitives import Buffer, refuse_null, refuse_short
from hubmere.wire.kafka.schema import Array, Kind, WireField, WireType, wire_fields
from hubmere.wire.kafka.source import Source

Reader = Callable[[Buffer, int], tuple[Any, int]]


def _take_many(code: str, width: int, buffer: Buffer, at: int, count: int) -> tuple[Any, ...]:
    if count * width > len(buffer) - at:
        raise refuse_short("an array", count, len(buffer) - at)
    return struct.unpack_from(f">{count}{code}", buffer, at)


_NAMES: Final[dict[str, Any]] = {
    "RemoteProtocolError": RemoteProtocolError,
    "struct_error": struct.error,
    "new": object.__new__,
    "short": refuse_short,
    "null": refuse_null,
    "uvarint": primitives.read_uvarint,
    "skip_tags": primitives.skip_tags,
    "uuid_from": primitives.uuid_from,
    "take_many": _take_many,
}


class ReaderSource(Source):
    """Builds `read(buf, at) -> (value, at)`."""

    def __init__(self, version: int, flexible: bool, *, copies: bool) -> None:
        super().__init__(version, flexible, _NAMES)
        # Parsing bytes is faster than parsing a view; messages with records stay a view, so that the records are not
        # copied.
        self.copies = copies
        self.text = "buf[at:stop].decode()" if copies else "str(buf[at:stop], 'utf-8')"
        self.blob = "buf[at:stop]" if copies else "bytes(buf[at:stop])"
        # Fixed-width values that will be unpacked together: their formats and their targets.
        self.run: list[tuple[str, str]] = []

    def compile(self, cls: type) -> Reader:
        """The whole function."""
        wanted = "bytes" if self.copies else "memoryview"
        self.emit(f"if type(buf) is not {wanted}: buf = {wanted}(buf)")
        self.emit("end = len(buf)")
        self.emit("try:")
        self.indent += 1
        value = self.struct(cls)
        self.flush()
        self.emit(f"return {value}, at")
        self.indent -= 1
        self.emit("except (struct_error, IndexError, UnicodeDecodeError) as broken:")
        self.emit(f"    raise RemoteProtocolError(f'{cls.__name__} v{self.version}: {{broken}}') from None")
        reader: Reader = self.finish("read(buf, at)", cls.__name__)
        return reader

    def struct(self, cls: type) -> str:
        """Read a struct inline; returns the name of its local variable."""
        it = self.fresh("it")
        plain, tagged, lacking = self.fields_of(cls)
        self.emit(f"{it} = new({self.constant(cls.__name__, cls)})")
        for spec in [*lacking, *tagged]:
            self.emit(f"{it}.{spec.name} = {self.constant('default', spec.stand_in)}")
        for spec in plain:
            self.value(spec.type, f"{it}.{spec.name}", spec.is_nullable_in(self.version), spec.name)
        if self.flexible:
            self.tags(it, tagged)
        return it

    def flush(self) -> None:
        """Unpack the waiting run."""
        if not self.run:
            return
        layout = Struct(">" + "".join(code for code, _ in self.run))
        targets = ", ".join(target for _, target in self.run)
        self.emit(f"{targets}, = {self.constant('unpack', layout.unpack_from)}(buf, at)")
        self.emit(f"at += {layout.size}")
        for code, target in self.run:
            if code == Kind.UUID.value:
                self.emit(f"{target} = uuid_from({target})")
        self.run = []

    def value(self, wire_type: WireType, target: str, nullable: bool, what: str) -> None:
        """Read anything into `target`; fixed widths only join the run."""
        if isinstance(wire_type, Kind) and wire_type.is_fixed:
            self.run.append((wire_type.value, target))
        elif isinstance(wire_type, Array):
            self.length("i")
            self.unless_null(target, nullable, what)
            self.array(wire_type, target, what)
            self.indent -= 1
        elif isinstance(wire_type, Kind):
            self.length("h" if wire_type is Kind.STRING else "i")
            self.unless_null(target, nullable, what)
            self.emit("stop = at + count")
            self.emit(f"if stop > end: raise short({what!r}, count, end - at)")
            taken = {Kind.STRING: self.text, Kind.BYTES: self.blob, Kind.RECORDS: "buf[at:stop]"}[wire_type]
            self.emit(f"{target} = {taken}")
            self.emit("at = stop")
            self.indent -= 1
        else:
            self.struct_value(wire_type, target, nullable)

    def length(self, code: str) -> None:
        """Read a length into `count`, negative for null; a classic one ends the run before it."""
        if not self.flexible:
            self.run.append((code, "count"))
            self.flush()
            return
        self.flush()
        self.emit("count = buf[at] - 1")
        self.emit("at += 1")
        self.emit("if count > 126:")
        self.emit("    count, at = uvarint(buf, at - 1)")
        self.emit("    count -= 1")

    def unless_null(self, target: str, nullable: bool, what: str) -> None:
        """Handle null and open the branch for a value."""
        self.emit("if count < 0:")
        self.emit(f"    {target} = None" if nullable else f"    raise null({what!r})")
        self.emit("else:")
        self.indent += 1

    def array(self, wire_type: Array, target: str, what: str) -> None:
        """Read `count` elements."""
        element = wire_type.element
        if isinstance(element, Kind) and element.is_fixed:
            width = struct.calcsize(">" + element.value)
            self.emit(f"{target} = take_many({element.value!r}, {width}, buf, at, count)")
            self.emit(f"at += count * {width}")
            return
        least = _least_size(element, self.version, self.flexible)
        self.emit(f"if count * {least} > end - at: raise short({what!r}, count, end - at)")
        items = self.fresh("items")
        self.emit(f"{items} = []")
        self.emit("for _ in range(count):")
        self.indent += 1
        if isinstance(element, Kind):
            self.value(element, "item", nullable=False, what=what)
            self.emit(f"{items}.append(item)")
        else:
            item = self.struct(element)
            self.flush()
            self.emit(f"{items}.append({item})")
        self.indent -= 1
        self.emit(f"{target} = tuple({items})")

    def struct_value(self, cls: type, target: str, nullable: bool) -> None:
        """Read a struct that is not in an array; a nullable one has an int8 before it, negative for null."""
        if nullable:
            self.flush()
            self.emit("at += 1")
            self.emit("if buf[at - 1] > 127:")
            self.emit(f"    {target} = None")
            self.emit("else:")
            self.indent += 1
        self.emit(f"{target} = {self.struct(cls)}")
        if nullable:
            self.flush()
            self.indent -= 1

    def tags(self, it: str, tagged: list[WireField]) -> None:
        """Read the tag section: declared fields, and unknown ones of newer peers."""
        self.flush()
        self.emit("count = buf[at]")
        self.emit("at += 1")
        self.emit("if count:")
        self.indent += 1
        self.emit("if count > 127: count, at = uvarint(buf, at - 1)")
        if tagged:
            self.known_tags(it, tagged)
        else:
            self.emit("at = skip_tags(buf, at, count)")
        self.indent -= 1

    def known_tags(self, it: str, tagged: list[WireField]) -> None:
        """One branch for each declared tag."""
        stop = self.fresh("stop")
        self.emit("for _ in range(count):")
        self.indent += 1
        self.emit("tag, at = uvarint(buf, at)")
        self.emit("size, at = uvarint(buf, at)")
        self.emit(f"{stop} = at + size")
        self.emit(f"if {stop} > end: raise short('a tagged field', size, end - at)")
        for spec in tagged:
            self.emit(f"if tag == {spec.tag}:")
            self.indent += 1
            self.value(spec.type, f"{it}.{spec.name}", spec.is_nullable_in(self.version), spec.name)
            self.flush()
            self.emit(f"if at != {stop}: raise short({spec.name!r}, at, {stop})")
            self.indent -= 1
        self.emit(f"at = {stop}")
        self.indent -= 1


def _least_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """The minimum size of a value, with which the length of an array is checked."""
    if isinstance(wire_type, Array):
        return 1 if flexible else 4
    if isinstance(wire_type, Kind):
        if wire_type.is_fixed:
            return struct.calcsize(">" + wire_type.value)
        return 1 if flexible else 2 if wire_type is Kind.STRING else 4
    least = 1 if flexible else 0
    for spec in wire_fields(wire_type):
        if spec.is_in(version) and spec.tag is None:
            is_one_byte = spec.is_nullable_in(version) and isinstance(spec.type, type)
            least += 1 if is_one_byte else _least_size(spec.type, version, flexible)
    return least
