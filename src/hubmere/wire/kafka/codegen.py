"""The reader and the writer of any declared struct in any version: generated once, then cached.

A declaration becomes the Python function that one would write by hand for that version (`reader_source`,
`writer_source`), so one declaration serves both roles and both directions at the speed of hand-written code.
"""

from functools import lru_cache
from typing import Any, Final

from hubmere.wire.kafka.reader_source import Reader, ReaderSource
from hubmere.wire.kafka.schema import Array, EncodedStruct, Kind, WireType, wire_fields
from hubmere.wire.kafka.writer_source import Writer, WriterSource

# More than all declared (struct, version) pairs: the bound shows that the cache cannot grow with traffic.
_MAX_DERIVED: Final = 1024


@lru_cache(maxsize=_MAX_DERIVED)
def reader_of(cls: type, version: int, flexible: bool) -> Reader:
    """The reader of a struct in one version: (buffer, at) -> (value, next position)."""
    return ReaderSource(version, flexible, copies=not holds_records(cls)).compile(cls)


@lru_cache(maxsize=_MAX_DERIVED)
def writer_of(cls: type, version: int, flexible: bool) -> Writer:
    """The writer of a struct in one version: (value, bytearray to append to) -> buffers."""
    return WriterSource(version, flexible).compile(cls)


@lru_cache(maxsize=_MAX_DERIVED)
def holds_records(cls: type) -> bool:
    """Whether a struct contains record batches; its reader then returns views of the input instead of copies."""
    return any(_type_holds_records(spec.type) for spec in wire_fields(cls))


def _type_holds_records(wire_type: WireType) -> bool:
    if isinstance(wire_type, Array):
        return _type_holds_records(wire_type.element)
    return wire_type is Kind.RECORDS if isinstance(wire_type, Kind) else holds_records(wire_type)


def encode_struct(cls: type, version: int, flexible: bool, value: Any) -> EncodedStruct:
    """Encode one struct, for arrays that accept encoded elements."""
    return EncodedStruct(b"".join(writer_of(cls, version, flexible)(value, bytearray())))
