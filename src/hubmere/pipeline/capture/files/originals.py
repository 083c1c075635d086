"""What a captured Avro file adds to the service's schema, so that an event can be read back exactly.

The schema has seconds and four kinds of property values; a log has milliseconds, and AMQP more kinds. Two system
properties carry the difference, each only where it is needed. Files keep the service's schema, and readers that do not
know these names see two entries more in a map.

1. `x-hubmere-enqueued-time`, a long: the enqueued time in milliseconds. Without it, the time is that of the event
   before in the same block if that has the same `EnqueuedTimeUtc`, else the whole second that `EnqueuedTimeUtc` says.
2. `x-hubmere-record`, bytes: key and headers of the record. Without it they follow from the maps (`key_and_headers`).
"""

from collections.abc import Mapping
from typing import Final

from hubmere.records import kernels
from hubmere.translate.captured import Scalar
from hubmere.translate.columns import KAFKA_KEY, PARTITION_KEY, Headers
from hubmere.wire.amqp.codec.encode import write_string

TIME: Final = "x-hubmere-enqueued-time"
RECORD: Final = "x-hubmere-record"
# A null among the lengths of the packed record.
_NULL: Final = 0xFFFF_FFFF
_SIZE: Final = 4
# Above this a string has another encoding in AMQP, and the count of headers another in the envelope.
_MOST_SHORT: Final = 0x7F

KeyAndHeaders = tuple[bytes | None, Headers]


def key_and_headers(system: Mapping[str, Scalar], properties: Mapping[str, Scalar | None]) -> KeyAndHeaders:
    """The record's key and headers that the two maps of a captured event came from.

    Bytes and nulls are headers of a Kafka record, texts are the properties of an AMQP event that has no others.
    """
    packed = system.get(RECORD)
    if isinstance(packed, bytes):
        return unpack(packed)
    own = {name: value for name, value in system.items() if name != TIME}
    if all(value is None or isinstance(value, bytes) for value in properties.values()) and PARTITION_KEY not in own:
        key = own.get(KAFKA_KEY)
        headers: Headers = [(name.encode(), value) for name, value in properties.items()]  # type: ignore[misc]
        return key if isinstance(key, bytes) else None, headers
    key_text = own.get(PARTITION_KEY)
    key = str(key_text).encode() if key_text is not None else None
    headers = [(name.encode(), write_string(str(text))) for name, text in properties.items()]
    envelope = bytes((kernels.ENVELOPE_VERSION, kernels.KIND_DATA, min(len(headers), _MOST_SHORT), 0))
    return key, [*headers, (kernels.ENVELOPE_NAME, envelope)]


def is_implied(
    key: bytes | None, headers: Headers, system: Mapping[str, Scalar], properties: Mapping[str, Scalar | None]
) -> bool:
    """Whether the maps alone lead back to the key and the headers."""
    if system.keys() - {KAFKA_KEY} and system.keys() - {PARTITION_KEY}:
        return False
    try:
        return key_and_headers(system, properties) == (key, headers)
    except UnicodeError:
        return False


def pack(key: bytes | None, headers: Headers) -> bytes:
    """Key and headers as bytes: each with its size before it."""
    parts = [key] + [part for header in headers for part in header]
    return b"".join(_NULL.to_bytes(_SIZE) if part is None else len(part).to_bytes(_SIZE) + part for part in parts)


def unpack(packed: bytes) -> KeyAndHeaders:
    """The key and the headers of `pack`."""
    parts: list[bytes | None] = []
    at = 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + _SIZE])
        at += _SIZE
        parts.append(None if size == _NULL else packed[at : at + size])
        at += 0 if size == _NULL else size
    key, *rest = parts
    return key, list(zip((name or b"" for name in rest[::2]), rest[1::2], strict=True))
