"""Decode request bodies, of one event or of a JSON batch, and headers into events (reference: service 3).

A single event is the raw body with custom headers as its properties. A batch is a JSON array whose elements have their
own properties. This module decides what a header or a JSON value means; `translate` decides which AMQP field it fills.
A publication with any part that cannot be decoded is refused as a whole.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from hubmere.endpoints.http.errors import MalformedRequest
from hubmere.translate import HttpEvent, UserProperty, parse_typed_value

BATCH_TYPE = b"application/vnd.microsoft.servicebus.json"

# Headers that belong to the request and not to the event. The reference names the first group; the second are standard
# headers that browsers, proxies and tracing add to every request.
_EXCLUDED = frozenset(
    {
        b"host", b"connection", b"authorization", b"user-agent", b"expect", b"transfer-encoding", b"date",
        b"brokerproperties", b"partitionkey", b"traceparent", b"tracestate", b"baggage", b"request-id",
        b"correlation-context",
        b"http2-settings", b"keep-alive", b"te", b"trailer", b"upgrade", b"via", b"cookie", b"cache-control", b"pragma",
        b"origin", b"referer", b"forwarded", b"from", b"range", b"dnt", b"priority", b"max-forwards",
        b"upgrade-insecure-requests",
    }
)  # fmt: skip
_EXCLUDED_PREFIXES = (b"content-", b"accept", b"x-forwarded-", b"x-ms-", b"proxy-", b"sec-", b"if-")

# Only a text that is the canonical form of a number is a number: a device id such as 007 or 1e5 stays text.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,15})\.[0-9]{1,17}(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False}
_INT64 = range(-(2**63), 2**63)
_TIME_SPAN = re.compile(r"(?:([0-9]{1,8})\.)?([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?")

# Broker properties and the fields that they fill; others are ignored.
_TEXT_FIELDS: Mapping[str, str] = {
    "PartitionKey": "partition_key",
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "ContentType": "content_type",
    "Label": "label",
    "To": "to",
    "ReplyTo": "reply_to",
    "SessionId": "session_id",
}
_NAME_AND_VALUE = frozenset({"Name", "Value"})
# Types of simple JSON values: an object with only these is used unchanged.
_SIMPLE = frozenset({str, int, float, bool})
_NO_PROPERTIES: Mapping[str, UserProperty] = MappingProxyType({})


def is_property(name: bytes) -> bool:
    """Whether a request header (in lower case) becomes a property of the event."""
    return name not in _EXCLUDED and not name.startswith(_EXCLUDED_PREFIXES)


def is_batch(content_type: bytes) -> bool:
    """Whether the body is a JSON array of events."""
    return content_type.partition(b";")[0].strip().lower() == BATCH_TYPE


def decode_header(value: bytes) -> str:
    """The value of a header: UTF-8, or Latin-1 from older clients."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def parse_property(text: str) -> UserProperty:
    """A header value with the type that the service gives it: integer, double or bool if it is one, else text."""
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if number in _INT64 else text
    if _DECIMAL.fullmatch(text):
        return float(text)
    return _BOOLEANS.get(text.lower(), text)


def parse_header_properties(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, UserProperty]:
    """Custom headers as properties, with names as sent; repeated headers are joined (RFC 9110, 5.3)."""
    texts: dict[str, str] = {}
    for raw_name, value in pairs:
        name = raw_name.decode("latin-1")
        text = decode_header(value)
        texts[name] = f"{texts[name]}, {text}" if name in texts else text
    return {name: parse_property(text) for name, text in texts.items()}


def single_event(
    body: bytes, content_type: str, broker_properties: str | None, key: str | None, properties: dict[str, UserProperty]
) -> HttpEvent:
    """The event of a plain POST."""
    fields: dict[str, Any] = {}
    if content_type:
        fields["content_type"] = content_type
    if key is not None:
        fields["partition_key"] = key
    if broker_properties is not None:
        fields.update(_parse_broker_properties(_parse_json(broker_properties, "BrokerProperties"), "BrokerProperties"))
    return HttpEvent(body=body, properties=properties, **fields)


def parse_batch(body: bytes) -> list[HttpEvent]:
    """The events of a batch, in order."""
    array = _parse_json(body, "the batch")
    if not isinstance(array, list):
        raise MalformedRequest("a batch is a JSON array")
    return [_parse_element(index, element) for index, element in enumerate(array)]


def _parse_element(index: int, element: object) -> HttpEvent:
    if not isinstance(element, dict) or "Body" not in element:
        raise MalformedRequest(f"element {index} of the batch is not an object with a Body")
    values, broker = element.get("UserProperties"), element.get("BrokerProperties")
    body = _parse_body(element["Body"], element.get("IsBodyBase64") is True, index)
    properties = _parse_user_properties(values, index) if values else _NO_PROPERTIES
    if types := element.get("UserPropertyTypes"):
        properties = {**properties, **dict(_parse_types(types, values, index))}
    if not broker:
        return HttpEvent(body, properties)
    return HttpEvent(body, properties, **_parse_broker_properties(broker, f"element {index} of the batch"))


def _encode_text(text: str, index: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedRequest(f"the Body of element {index} of the batch is not valid text") from None


def _parse_body(value: object, is_base64: bool, index: int) -> bytes:
    # A body that is not a text is stored as compact JSON: clients post objects where the API expects a serialized text.
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if not is_base64:
        return _encode_text(text, index)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedRequest(f"the Body of element {index} of the batch is not base64") from None


def _parse_user_properties(value: object, index: int) -> Mapping[str, UserProperty]:
    if type(value) is dict and _SIMPLE.issuperset(map(type, value.values())) and value.keys() != _NAME_AND_VALUE:
        return value
    properties: dict[str, UserProperty] = {}
    for name, content in _to_mapping(value, f"UserProperties of element {index} of the batch").items():
        if isinstance(content, (str, int, float)):
            properties[name] = content
        elif content is not None:
            raise MalformedRequest(f"the property '{name[:80]}' of element {index} of the batch has no simple value")
    return properties


def _parse_types(types: object, values: object, index: int) -> Iterator[tuple[str, UserProperty]]:
    """The properties whose type is named: copies of events keep types that JSON has not."""
    where = f"of element {index} of the batch"
    given = _to_mapping(values or {}, f"UserProperties {where}")
    for name, kind in _to_mapping(types, f"UserPropertyTypes {where}").items():
        if not isinstance(kind, str) or name not in given:
            raise MalformedRequest(f"UserPropertyTypes {where} has '{name[:80]}', which is not a type of a property")
        try:
            yield name, parse_typed_value(kind, given[name])
        except ValueError as error:
            raise MalformedRequest(f"the property '{name[:80]}' {where} is no {kind[:40]}: {error}") from None


def _parse_broker_properties(value: object, where: str) -> dict[str, Any]:
    values = _to_mapping(value, where)
    fields: dict[str, Any] = {}
    for name, field in _TEXT_FIELDS.items():
        content = values.get(name)
        if content is None:
            continue
        if not isinstance(content, (str, int)) or isinstance(content, bool):
            raise MalformedRequest(f"{name} in {where} is not a text")
        fields[field] = str(content)
    if (lifetime := values.get("TimeToLive", values.get("TimeToLiveTimeSpan"))) is not None:
        fields["time_to_live_ms"] = _parse_time_to_live_ms(lifetime, where)
    return fields


def _parse_time_to_live_ms(value: object, where: str) -> int:
    """A time to live: seconds as a number, or a time span `d.hh:mm:ss`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return round(value * 1000)
    span = _TIME_SPAN.fullmatch(value) if isinstance(value, str) else None
    if span is None:
        raise MalformedRequest(f"TimeToLive in {where} is neither seconds nor a time span")
    days, hours, minutes, seconds = (int(part or 0) for part in span.groups()[:4])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _to_mapping(value: object, where: str) -> Mapping[str, object]:
    """An object, or its older form as a list of Name and Value pairs (reference: service 12)."""
    if isinstance(value, list):
        return {name: content for pair in value for name, content in _to_mapping(pair, where).items()}
    if not isinstance(value, dict):
        raise MalformedRequest(f"{where} is not a JSON object")
    if value.keys() == _NAME_AND_VALUE and isinstance(value["Name"], str):
        return {value["Name"]: value["Value"]}
    return value


def _parse_json(text: str | bytes, what: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise MalformedRequest(f"{what} is not valid JSON") from None


def _refuse_constant(name: str) -> NoReturn:
    # NaN and Infinity are Python's extension of JSON; other parsers refuse them.
    raise ValueError(name)
