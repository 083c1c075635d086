"""Records as rows of a table, and rows as records: how an event's key, headers and envelope map to columns.

An event has the same row whichever protocol published it. Texts stay as they are; other AMQP values become JSON, as
Microsoft's Spark connector writes them: numbers and booleans as JSON, binary as an array of signed bytes, unsigned
numbers, symbols and characters as plain text. Headers of a Kafka producer are bytes without a type; valid UTF-8 is
treated as text, which it nearly always is. Reference: service 10, kafka 4.3.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from hubmere.records import kernels
from hubmere.records.kernels.record_layout import length_of, with_length
from hubmere.records.varint import write_uvarint
from hubmere.wire.amqp.codec import types as amqp
from hubmere.wire.amqp.codec.decode import decode_value
from hubmere.wire.amqp.codec.encode import write_string
from hubmere.wire.amqp.codec.message import RawSection, split_message
from hubmere.wire.amqp.codec.performatives import Properties
from hubmere.wire.amqp.errors import RemoteProtocolError

Headers = list[tuple[bytes, bytes | None]]

PARTITION_KEY: Final = "x-opt-partition-key"
PUBLISHER: Final = "x-opt-publisher"
KAFKA_KEY: Final = "x-opt-kafka-key"

# AMQP 1.0, 3.2.4, in the order of the list: `message-id`, `user-id` and so on.
PROPERTY_NAMES: Final = tuple(field.name.replace("_", "-") for field in fields(Properties))
_ENVELOPE: Final = kernels.ENVELOPE_NAME.decode()
_ENVELOPE_HEAD: Final = with_length(kernels.ENVELOPE_NAME)
# Overhead of a header besides its name and value.
_HEADER_BYTES: Final = 4

_NULL: Final = b"\x40"
# A string of less than 256 bytes, which nearly every property is: its code, its length, its text.
_STRING8: Final = 0xA1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTUAL: Final = (amqp.UByte, amqp.UShort, amqp.UInt, amqp.ULong)
_DECIMALS: Final = (amqp.Decimal32, amqp.Decimal64, amqp.Decimal128)


class Row(NamedTuple):
    """The columns of an event besides its body, its position and its time."""

    partition_key: str | None
    publisher: str | None
    properties: dict[str, str]
    system_properties: dict[str, str]


BARE: Final = Row(None, None, {}, {})


def row_of(key: bytes | None, value: bytes | None, headers: Headers) -> Row:
    """The row of a record."""
    if not headers:
        return BARE if key is None else Row(None, None, {}, {KAFKA_KEY: _bytes_text(key)})
    name, envelope = headers[-1]
    if name != kernels.ENVELOPE_NAME or envelope is None:
        return _kafka_row(key, headers)
    row = _plain_row(key, headers, envelope) if value is not None else None
    return row if row is not None else _message_row(key, value, headers)


def _plain_row(key: bytes | None, headers: Headers, envelope: bytes) -> Row | None:
    """The row of an event with a body, a key and properties that are short strings; None for any other."""
    count = len(headers) - 1
    if count > 0x7F or envelope != bytes((kernels.ENVELOPE_VERSION, 0, count, 0)):
        return None
    properties: dict[str, str] = {}
    try:
        for name, content in headers[:-1]:
            if not content or content[0] != _STRING8 or len(content) < 2 or content[1] != len(content) - 2:
                return None
            properties[name.decode()] = content[2:].decode()
        if key is None:
            return Row(None, None, properties, {})
        text = key.decode()
    except UnicodeDecodeError:
        return None
    return Row(text, None, properties, {PARTITION_KEY: text})


def _kafka_row(key: bytes | None, headers: Headers) -> Row:
    """The last value of a repeated name counts, as for AMQP readers."""
    properties = {
        name.decode("utf-8", "replace"): "null" if content is None else _bytes_text(content)
        for name, content in headers
    }
    return Row(None, None, properties, {} if key is None else {KAFKA_KEY: _bytes_text(key)})


def _message_row(key: bytes | None, value: bytes | None, headers: Headers) -> Row:
    """The row of any event, read from the message that an AMQP receiver would get."""
    fields = read_message(key, value, headers)
    if fields is None:
        return _kafka_row(key, headers)
    return Row(
        _text_or_none(fields.system.get(PARTITION_KEY)),
        _text_or_none(fields.system.get(PUBLISHER)),
        {name: text_of(content) for name, content in fields.properties.items()},
        {name: text_of(content) for name, content in fields.system.items()},
    )


class MessageFields(NamedTuple):
    """The fields of an event for an AMQP receiver: annotations and message properties, and application properties."""

    system: dict[str, amqp.Value]
    properties: dict[str, amqp.Value]


def read_message(key: bytes | None, value: bytes | None, headers: Headers) -> MessageFields | None:
    """The fields of the message that a record stores; None for the record of a Kafka producer."""
    sections = split_message(kernels.message_of(key, value, headers))
    annotations = {str(name): content for name, content in section_value(sections.message_annotations, {}).items()}
    application = section_value(sections.application_properties, {})
    if KAFKA_KEY in annotations or _ENVELOPE in application:
        # The header has the name of an envelope but is not a valid one.
        return None
    named = zip(PROPERTY_NAMES, section_value(sections.properties, []), strict=False)
    system = annotations | {name: content for name, content in named if content is not None}
    return MessageFields(system, {str(name): content for name, content in application.items()})


def section_value(section: RawSection | None, absent: amqp.Value) -> amqp.Value:
    """The decoded value of a section; one that the generic codec refuses, such as invalid UTF-8, counts as absent."""
    if section is None:
        return absent
    try:
        return decode_value(section.value_bytes)[0]
    except RemoteProtocolError:
        return absent


def _text_or_none(value: amqp.Value) -> str | None:
    return None if value is None else text_of(value)


# --- headers of a row ------------------------------------------------------------------------------------------------


def encode_headers(properties: Sequence[tuple[str, str | None]], *, has_body: bool) -> tuple[bytes, int]:
    """The headers of a record: those of the same event published over AMQP; and their size as texts and values."""
    pieces, size_bytes = [length_of(len(properties) + 1)], 0
    for name, text in properties:
        value = _NULL if text is None else write_string(text)
        pieces += (with_length(name.encode()), with_length(value))
        size_bytes += len(name) + len(value) + _HEADER_BYTES
    envelope = _envelope(len(properties), has_body=has_body)
    pieces += (_ENVELOPE_HEAD, with_length(envelope))
    return b"".join(pieces), size_bytes + len(_ENVELOPE) + len(envelope) + _HEADER_BYTES


@lru_cache(maxsize=256)
def _envelope(count: int, *, has_body: bool) -> bytes:
    """`count` application properties; a body in one data section, or none at all."""
    out = bytearray((kernels.ENVELOPE_VERSION, kernels.KIND_DATA if has_body else kernels.KIND_MANY_DATA))
    write_uvarint(out, count)
    out += b"\x00" if has_body else b"\x00\x00"
    return bytes(out)


# --- values ----------------------------------------------------------------------------------------------------------


def text_of(value: amqp.Value) -> str:
    """An AMQP value as the text of a cell."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, _TEXTUAL):
        return str(int(value))
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, amqp.Described):
        return text_of(value.value)
    return json.dumps(_jsonable(value), separators=(",", ":"), ensure_ascii=False)


def _jsonable(value: amqp.Value) -> object:
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, amqp.Timestamp):
        return _instant(int(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, _DECIMALS):
        return int.from_bytes(value, "big")
    if isinstance(value, bytes):
        return _signed_bytes(value)
    if isinstance(value, dict):
        return {text_of(name): _jsonable(content) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, amqp.Array):
        return [_jsonable(item) for item in value.items]
    return text_of(value)


def _signed_bytes(raw: bytes) -> list[int]:
    return [byte - 256 if byte > 127 else byte for byte in raw]


def _bytes_text(raw: bytes) -> str:
    """Bytes without a type: text if they are UTF-8, otherwise an array as the connector writes it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return json.dumps(_signed_bytes(raw), separators=(",", ":"))


def _instant(time_ms: int) -> str:
    """A time in ISO 8601, or its milliseconds outside the years of the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"
    except OverflowError:
        return str(time_ms)
