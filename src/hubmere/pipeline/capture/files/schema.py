"""Avro encoding of captured files: schema, header, times and maps.

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

from hubmere.pipeline.capture.files.originals import RECORD, TIME, is_implied, pack
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
# Metadata of a file: its span, and the id of the hub as Kafka's clients see it (topic id), which is another one after
# the hub was deleted and created again.
SPAN_KEY: Final = "hubmere.span"
HUB_KEY: Final = "hubmere.hub"
SYNC_BYTES: Final = 16
EMPTY_MAP: Final = b"\x00"
_DOUBLE: Final = Struct("<d")
# Which branch of the union follows: the zig-zag of 0 to 4.
_LONG, _DOUBLE_KIND, _STRING, _BYTES, _NULL = b"\x00", b"\x02", b"\x04", b"\x06", b"\x08"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_SECOND: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
# Times of one file are in order, so a small cache is enough.
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


def with_length(data: bytes) -> bytes:
    """A string or bytes: the length, then the bytes."""
    return long_of(len(data)) + data


@lru_cache(maxsize=_TEXTS)
def time_text(second: int) -> bytes:
    """A time as `EnqueuedTimeUtc` has it, `M/d/yyyy h:mm:ss AM`; a time outside the calendar becomes the nearest valid
    one."""
    at = _EPOCH + timedelta(seconds=min(max(second, _FIRST_SECOND), _LAST_SECOND))
    half = "AM" if at.hour < 12 else "PM"
    return f"{at.month}/{at.day}/{at.year:04d} {at.hour % 12 or 12}:{at:%M:%S} {half}".encode()


def encoded_maps(key: bytes | None, value: bytes | None, headers: Headers, time_ms: int | None = None) -> bytes:
    """SystemProperties and Properties of a record, and `time_ms` if the text of the time does not say it."""
    maps = captured_maps(key, value, headers)
    system = {name: content for name, content in maps.system.items() if name not in (TIME, RECORD)}
    if not is_implied(key, headers, maps.system, maps.properties):
        system[RECORD] = pack(key, headers)
    if time_ms is not None:
        system[TIME] = time_ms
    return map_of(system) + map_of(maps.properties)


def implied_time_ms(second: int, before: tuple[int, int] | None) -> int | None:
    """The time in ms that a reader takes from the text of a second; `before` has second and time of the event before.

    None if the text cannot say the second at all.
    """
    if not _FIRST_SECOND <= second <= _LAST_SECOND:
        return None
    return before[1] if before is not None and before[0] == second else second * 1000


def time_of_text(text: str) -> int:
    """The second that `time_text` has written."""
    at = datetime.strptime(text, "%m/%d/%Y %I:%M:%S %p").replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(seconds=1)


def map_of(entries: Mapping[str, Scalar | None]) -> bytes:
    """A map in one block; its end is a block without entries."""
    if not entries:
        return EMPTY_MAP
    parts = [long_of(len(entries))]
    for name, value in entries.items():
        parts += (with_length(name.encode()), _scalar(value))
    return b"".join((*parts, EMPTY_MAP))


def _scalar(value: Scalar | None) -> bytes:
    if value is None:
        return _NULL
    if isinstance(value, int):
        return _LONG + long_of(value)
    if isinstance(value, float):
        return _DOUBLE_KIND + _DOUBLE.pack(value)
    if isinstance(value, str):
        return _STRING + with_length(value.encode())
    return _BYTES + with_length(value)


def sync_marker(name: str, identity: str) -> bytes:
    """The sync marker of a file: derived from its name, so that a repeat gives the same bytes."""
    return sha256(f"{name}\n{identity}".encode()).digest()[:SYNC_BYTES]


def file_header(codec: str, about: Mapping[str, str], sync: bytes) -> bytes:
    """The header of a container file; `about` is its metadata besides schema and codec."""
    texts = {"avro.schema": json.dumps(SCHEMA, separators=(",", ":")), "avro.codec": codec, **about}
    parts = [MAGIC, long_of(len(texts))]
    for name, text in texts.items():
        parts += (with_length(name.encode()), with_length(text.encode()))
    return b"".join((*parts, EMPTY_MAP, sync))
