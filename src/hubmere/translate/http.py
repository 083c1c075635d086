"""Events posted over HTTPS become AMQP messages, from which `ingest` makes record batches like those of AMQP.

Decides which AMQP field a broker property fills and which AMQP type a user property gets. Parsing of requests belongs
to the endpoint.
"""

import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from hubmere.model.errors import InvalidArgument
from hubmere.translate.ingest import Publication, ResolveKey, accept_key, publication_of
from hubmere.wire.amqp.codec.encode import encode_value
from hubmere.wire.amqp.codec.types import Symbol, UInt, Value
from hubmere.wire.amqp.errors import LocalProtocolError

# JSON has the first four; an event that is sent again may have the others, and subclasses for the types of AMQP.
UserProperty = str | int | float | bool | bytes | uuid.UUID | None

_MAX_TTL_MS = 0xFFFF_FFFF
_INT8 = range(-0x80, 0x80)
_INT32 = range(-0x8000_0000, 0x8000_0000)
_INT64 = range(-0x8000_0000_0000_0000, 0x8000_0000_0000_0000)
# Bounds of the caches of encoded content types and property names: clients use few of them, and short ones.
_CACHED_TEXTS = 1024
_CACHED_CHARACTERS = 64

# Section descriptors and fixed-width values (AMQP 1.0, 1.6 and 3.2), written by hand for speed.
_HEADER, _PROPERTIES, _APPLICATION, _DATA = b"\x00\x53\x70", b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75"
_SMALL_INT = Struct(">Bb")
_INT = Struct(">Bi")
_LONG = Struct(">Bq")
_DOUBLE = Struct(">Bd")
_WIDE = Struct(">BI")
_WIDE_MAP = Struct(">BII")
_MAP_COUNT_BYTES = 4
_BOOLEANS = {True: b"\x41", False: b"\x42"}
# The bytes of a data section before its content: one byte of length for short content, otherwise four.
_DATA8 = tuple(_DATA + bytes((0xA0, size)) for size in range(256))
_DATA32 = _DATA + b"\xb0"
# The fields of an event whose `BrokerProperties` have at most a partition key.
_NO_FIELDS = [None] * 8


class HttpEvent(NamedTuple):
    """One posted event: its body, its user properties and its `BrokerProperties`."""

    body: bytes
    properties: Mapping[str, UserProperty] = MappingProxyType({})
    partition_key: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    label: str | None = None
    to: str | None = None
    reply_to: str | None = None
    session_id: str | None = None
    time_to_live_ms: int | None = None


def publication_from_http(
    events: Sequence[HttpEvent], *, publisher: str | None = None, resolve_key: ResolveKey = accept_key
) -> Publication:
    """The events of one request as one atomic publication; they must agree on the partition key."""
    if not events:
        raise InvalidArgument("batch", "[]", "at least one event")
    keys = {event.partition_key or None for event in events}
    if len(keys) > 1:
        raise InvalidArgument(
            "partition key", ", ".join(sorted(str(key) for key in keys)), "the same for all events of a batch"
        )
    key = resolve_key(keys.pop())
    return publication_of(
        [message_from_http(event) for event in events], key, publisher, size_bytes=_size_bytes(events)
    )


def _size_bytes(events: Sequence[HttpEvent]) -> int:
    return sum(len(event.body) for event in events)


def message_from_http(event: HttpEvent) -> bytes:
    """A posted event as an encoded AMQP message, without its partition key."""
    body, properties, _, *fields = event
    size = len(body)
    data = _DATA8[size] if size < len(_DATA8) else _DATA32 + size.to_bytes(4, "big")
    try:
        application = _user_properties(properties) if properties else b""
        if fields == _NO_FIELDS:
            return application + data + body
        return b"".join((_header(event.time_to_live_ms), _properties(event), application, data, body))
    except (LocalProtocolError, UnicodeEncodeError) as error:
        # JSON can contain a lone surrogate; AMQP text cannot.
        raise InvalidArgument("event", str(error), "properties that can be written as AMQP values") from error


def _encode_sized(narrow: int, wide: int, data: bytes) -> bytes:
    """A value of variable width, with one byte of length if that is enough, otherwise four."""
    size = len(data)
    return bytes((narrow, size)) + data if size < 256 else _WIDE.pack(wide, size) + data


def _header(time_to_live_ms: int | None) -> bytes:
    if time_to_live_ms is None:
        return b""
    # durable, priority, ttl: the first two keep their defaults.
    return _HEADER + encode_value([None, None, UInt(min(max(time_to_live_ms, 0), _MAX_TTL_MS))])


def _properties(event: HttpEvent) -> bytes:
    """The properties section (AMQP 1.0, 3.2.4) up to its last set field."""
    _, _, _, message_id, correlation_id, content_type, label, to, reply_to, session_id, _ = event
    if message_id is correlation_id is label is to is reply_to is session_id is None:
        return b"" if content_type is None else _content_type_alone(content_type)
    fields: list[Value] = [
        message_id,
        None,  # user-id
        to,
        label,
        reply_to,
        correlation_id,
        None if content_type is None else Symbol(_ascii(content_type)),
        None,  # content-encoding
        None,  # absolute-expiry-time
        None,  # creation-time
        session_id,
    ]
    while fields[-1] is None:
        fields.pop()
    return _PROPERTIES + encode_value(fields)


def _content_type_alone(content_type: str) -> bytes:
    is_short = len(content_type) <= _CACHED_CHARACTERS
    return _encode_short_content_type(content_type) if is_short else _encode_content_type(content_type)


def _encode_content_type(content_type: str) -> bytes:
    return _PROPERTIES + encode_value([None] * 6 + [Symbol(_ascii(content_type))])


_encode_short_content_type = lru_cache(maxsize=_CACHED_TEXTS)(_encode_content_type)


def _ascii(content_type: str) -> str:
    if not content_type.isascii():
        raise InvalidArgument("content type", content_type, "ASCII text")
    return content_type


def _user_properties(properties: Mapping[str, UserProperty]) -> bytes:
    pieces: list[bytes] = []
    for name, value in properties.items():
        pieces.append(_encode_short_name(name) if len(name) <= _CACHED_CHARACTERS else _encode_name(name))
        pieces.append(_encode_sized(0xA1, 0xB1, value.encode()) if type(value) is str else _encode_other(name, value))
    entries = b"".join(pieces)
    if len(entries) < 255 and len(pieces) < 256:
        return _APPLICATION + bytes((0xC1, len(entries) + 1, len(pieces))) + entries
    return _APPLICATION + _WIDE_MAP.pack(0xD1, len(entries) + _MAP_COUNT_BYTES, len(pieces)) + entries


def _encode_name(name: str) -> bytes:
    return _encode_sized(0xA1, 0xB1, name.encode())


_encode_short_name = lru_cache(maxsize=_CACHED_TEXTS)(_encode_name)


def _encode_other(name: str, value: UserProperty) -> bytes:
    """The AMQP encoding of a value: a plain integer becomes an int if it fits, otherwise a long."""
    if isinstance(value, bool):
        return _BOOLEANS[value]
    if type(value) is float:
        return _DOUBLE.pack(0x82, value)
    if type(value) is not int:
        return encode_value(value)
    if value in _INT8:
        return _SMALL_INT.pack(0x54, value)
    if value in _INT32:
        return _INT.pack(0x71, value)
    if value in _INT64:
        return _LONG.pack(0x81, value)
    raise InvalidArgument(f"value of property '{name}'", value, "a number of at most 64 bits")
