"""Events posted over HTTPS become record batches: each is first an AMQP message, so that every reader sees the same.

Decides which AMQP field a broker property fills and which AMQP type a user property gets. Parsing of requests belongs
to the endpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hubmere.model.errors import InvalidArgument
from hubmere.translate.ingest import Publication, checked_partition_key, publication_of
from hubmere.wire.amqp.errors import LocalProtocolError
from hubmere.wire.amqp.types import Int, Long, Symbol, UInt, ULong, Value
from hubmere.wire.amqp.writing import encode_value, write_binary

UserProperty = str | int | float | bool

_MAX_TTL_MS = 0xFFFF_FFFF
_INT32 = range(-0x8000_0000, 0x8000_0000)
_INT64 = range(-0x8000_0000_0000_0000, 0x8000_0000_0000_0000)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEvent:
    """One posted event: its body, its user properties and what `BrokerProperties` said."""

    body: bytes
    properties: Mapping[str, UserProperty] = field(default_factory=dict)
    partition_key: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    label: str | None = None
    to: str | None = None
    reply_to: str | None = None
    session_id: str | None = None
    time_to_live_ms: int | None = None


def publication_from_http(events: Sequence[HttpEvent], *, publisher: str | None = None) -> Publication:
    """The events of one request as one atomic publication; they must agree on the partition key."""
    if not events:
        raise InvalidArgument("batch", "[]", "at least one event")
    keys = {event.partition_key or None for event in events}
    if len(keys) > 1:
        raise InvalidArgument(
            "partition key", ", ".join(sorted(str(key) for key in keys)), "the same for all events of a batch"
        )
    key = checked_partition_key(keys.pop(), publisher)
    return publication_of([_message(event) for event in events], key, publisher, size_bytes=_size_bytes(events))


def _size_bytes(events: Sequence[HttpEvent]) -> int:
    return sum(len(event.body) for event in events)


def _message(event: HttpEvent) -> bytes:
    try:
        return _encoded(event)
    except LocalProtocolError as error:
        # JSON can name half a character; AMQP text cannot.
        raise InvalidArgument("event", str(error), "properties that can be written as AMQP values") from error


def _encoded(event: HttpEvent) -> bytes:
    return b"".join(
        (
            _header(event.time_to_live_ms),
            _properties(event),
            _user_properties(event.properties),
            _section(0x75, event.body),
        )
    )


def _section(code: int, value: Value) -> bytes:
    encoded = write_binary(value) if code == 0x75 else encode_value(value)
    return b"\x00" + encode_value(ULong(code)) + encoded


def _header(time_to_live_ms: int | None) -> bytes:
    if time_to_live_ms is None:
        return b""
    # durable, priority, ttl: the first two keep their defaults.
    return _section(0x70, [None, None, UInt(min(max(time_to_live_ms, 0), _MAX_TTL_MS))])


def _properties(event: HttpEvent) -> bytes:
    """The properties section (AMQP 1.0, 3.2.4) up to its last set field."""
    content_type = event.content_type
    if content_type is not None and not content_type.isascii():
        raise InvalidArgument("content type", content_type, "ASCII text")
    fields: list[Value] = [
        event.message_id,
        None,  # user-id
        event.to,
        event.label,
        event.reply_to,
        event.correlation_id,
        None if content_type is None else Symbol(content_type),
        None,  # content-encoding
        None,  # absolute-expiry-time
        None,  # creation-time
        event.session_id,
    ]
    while fields and fields[-1] is None:
        fields.pop()
    return _section(0x73, fields) if fields else b""


def _user_properties(properties: Mapping[str, UserProperty]) -> bytes:
    if not properties:
        return b""
    return _section(0x74, {name: _typed(name, value) for name, value in properties.items()})


def _typed(name: str, value: UserProperty) -> Value:
    """The AMQP form of a property: a number is int when it fits, else long."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if value in _INT32:
        return Int(value)
    if value in _INT64:
        return Long(value)
    raise InvalidArgument(f"value of property '{name}'", value, "a number of at most 64 bits")
