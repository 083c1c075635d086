"""An event as the HTTP API returns it: values that JSON can represent."""

import base64
import uuid
from datetime import UTC, datetime

from hubmere.translate.view import EventView, TypedValue

# The last time that ISO 8601 can name in four digits of a year. Kafka producers may send any timestamp.
_LAST_MS = 253_402_300_799_999


def event_json(event: EventView) -> dict[str, object]:
    """One event. Its body and its key are texts if they are UTF-8, else base64."""
    text, encoding = _text_of(event.body)
    key, key_encoding = _text_of(event.key)
    return {
        "sequenceNumber": event.sequence,
        "offset": str(event.offset),
        "enqueuedTime": _time_text(event.enqueued_ms),
        "partitionKey": event.partition_key,
        "key": key,
        "keyEncoding": key_encoding,
        "publisher": event.publisher,
        "body": text,
        "bodyEncoding": encoding,
        "properties": {name: _value_json(value) for name, value in event.properties.items()},
        "systemProperties": {name: _value_json(value) for name, value in event.system_properties.items()},
    }


def _time_text(at_ms: int) -> str:
    """A time in UTC; the nearest one that can be written."""
    seconds, rest_ms = divmod(min(max(at_ms, 0), _LAST_MS), 1000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ms * 1000)
    return at.isoformat(timespec="milliseconds")


def _text_of(body: bytes | None) -> tuple[str | None, str]:
    if body is None:
        return None, "none"
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _value_json(typed: TypedValue) -> dict[str, object]:
    return {"type": typed.type, "value": _json_value(typed.value)}


def _json_value(value: object) -> object:
    """A value that JSON can represent: binary as base64; integers beyond 53 bits and unknown types as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else str(int(value))
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    return str(value) if isinstance(value, (str, uuid.UUID)) else repr(value)
