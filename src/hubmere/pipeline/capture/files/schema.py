"""What a captured Avro file says about itself and its events: schema, header, times and maps as bytes.

Nothing here reads or writes a file. Formats: Avro 1.11 binary encoding and object container files; schema and texts as
the service writes them (reference: service 6).
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Final

from hubmere.translate.captured import Scalar, captured_maps
from hubmere.translate.columns import Headers

_SCALARS: Final = ["long", "double", "string", "bytes"]
SCHEMA: Final = {
    "type": "record",
    "name": "EventData",
    "namespace": "Microsoft.ServiceBus.Messaging",
    "fields": [
        {"name": "SequenceNumber", "type": "long"},
        {"name": "Offset", "type": "string"},
        {"name": "EnqueuedTimeUtc", "type": "string"},
        {"name": "SystemProperties", "type": {"type": "map", "values": _SCALARS}},
        {"name": "Properties", "type": {"type": "map", "values": [*_SCALARS, "null"]}},
        {"name": "Body", "type": ["null", "bytes"]},
    ],
}
MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
EMPTY_MAP: Final = b"\x00"
_DOUBLE: Final = Struct("<d")
# Which branch of the union follows: the zig-zag of 0 to 4.
_LONG, _DOUBLE_KIND, _STRING, _BYTES, _NULL = b"\x00", b"\x02", b"\x04", b"\x06", b"\x08"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_SECOND: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
# Times of one file come in order: few are asked for again, and those at once.
_TEXTS: Final = 1024


def long_of(number: int) -> bytes:
    """A long: zig-zag, then seven bits a byte, the lowest first."""
    bits = (number << 1) ^ (number >> 63)
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def sized(data: bytes) -> bytes:
    """A string or bytes: the length, then the bytes."""
    return long_of(len(data)) + data


@lru_cache(maxsize=_TEXTS)
def time_text(second: int) -> bytes:
    """A time as `EnqueuedTimeUtc` has it, `M/d/yyyy h:mm:ss AM`; what lies outside of the calendar is its edge."""
    at = _EPOCH + timedelta(seconds=min(max(second, _FIRST_SECOND), _LAST_SECOND))
    half = "AM" if at.hour < 12 else "PM"
    return f"{at.month}/{at.day}/{at.year:04d} {at.hour % 12 or 12}:{at:%M:%S} {half}".encode()


def encoded_maps(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """SystemProperties and Properties of a record, one behind the other."""
    maps = captured_maps(key, value, headers)
    return map_of(maps.system) + map_of(maps.properties)


def map_of(entries: Mapping[str, Scalar | None]) -> bytes:
    """A map in one block; its end is a block without entries."""
    if not entries:
        return EMPTY_MAP
    parts = [long_of(len(entries))]
    for name, value in entries.items():
        parts += (sized(name.encode()), _scalar(value))
    return b"".join((*parts, EMPTY_MAP))


def _scalar(value: Scalar | None) -> bytes:
    if value is None:
        return _NULL
    if isinstance(value, int):
        return _LONG + long_of(value)
    if isinstance(value, float):
        return _DOUBLE_KIND + _DOUBLE.pack(value)
    if isinstance(value, str):
        return _STRING + sized(value.encode())
    return _BYTES + sized(value)


def sync_marker(name: str, identity: str) -> bytes:
    """What stands between the blocks of a file: made from its name, so that a repeat gives the same bytes."""
    return sha256(f"{name}\n{identity}".encode()).digest()[:SYNC_BYTES]


def file_header(codec: str, about: Mapping[str, str], sync: bytes) -> bytes:
    """What a container file begins with; `about` is what it says of itself beside schema and codec."""
    texts = {"avro.schema": json.dumps(SCHEMA, separators=(",", ":")), "avro.codec": codec, **about}
    parts = [MAGIC, long_of(len(texts))]
    for name, text in texts.items():
        parts += (sized(name.encode()), sized(text.encode()))
    return b"".join((*parts, EMPTY_MAP, sync))
