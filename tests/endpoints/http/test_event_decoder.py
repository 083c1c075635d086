"""Headers and JSON become events."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.endpoints.http.errors import MalformedRequest
from hubmere.endpoints.http.publish.event_decoder import (
    is_batch,
    is_property,
    parse_batch,
    parse_header_properties,
    parse_property,
    single_event,
)
from hubmere.translate import HttpEvent, message_from_http
from hubmere.wire.amqp.codec.decode import decode_value
from hubmere.wire.amqp.codec.types import Long


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", "9223372036854775808"),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("true", True),
        ("False", False),
        ("007", "007"),
        ("1e5", "1e5"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("\u0665", "\u0665"),
        ("", ""),
        ("Strong Wind", "Strong Wind"),
    ],
)
def test_header_values_are_typed_as_the_service_does(text: str, value: object) -> None:
    """Only the canonical form of a number or a boolean is typed."""
    assert parse_property(text) == value
    assert type(parse_property(text)) is type(value)


@given(st.text(max_size=60))
def test_typing_never_fails(text: str) -> None:
    """Any header value is a valid property."""
    assert isinstance(parse_property(text), (str, int, float, bool))


@pytest.mark.parametrize(
    "name",
    ["host", "content-type", "content-encoding", "accept-language", "x-ms-retrypolicy", "x-forwarded-for",
     "traceparent", "authorization", "brokerproperties", "user-agent", "expect", "if-match"],
)  # fmt: skip
def test_headers_of_the_request_are_not_properties(name: str) -> None:
    """The list of service 3."""
    assert not is_property(name.encode())


def test_a_repeated_header_is_one_property() -> None:
    """RFC 9110, 5.3: repeated fields are one list."""
    assert parse_header_properties([(b"Tag", b"a"), (b"Tag", b"b")]) == {"Tag": "a, b"}


def test_a_header_value_may_be_utf8_or_latin1() -> None:
    """Older clients send Latin-1."""
    given_headers = [(b"City", "Köln".encode()), (b"Town", "Köln".encode("latin-1"))]

    assert parse_header_properties(given_headers) == {"City": "Köln", "Town": "Köln"}


def test_broker_properties_fill_their_fields() -> None:
    """Service 3, the BrokerProperties header."""
    given_text = json.dumps(
        {"PartitionKey": "k", "MessageId": 7, "Label": "l", "TimeToLive": 1.5, "Unknown": {}, "SessionId": None}
    )

    event = single_event(b"x", "text/plain", given_text, None, {})

    assert (event.partition_key, event.message_id, event.label) == ("k", "7", "l")
    assert (event.time_to_live_ms, event.session_id, event.content_type) == (1500, None, "text/plain")


@pytest.mark.parametrize("text", ["{", "[]x", "5", '"a"', '{"PartitionKey":{}}', '{"TimeToLive":"soon"}', "NaN"])
def test_bad_broker_properties_are_refused(text: str) -> None:
    """Service 3: 400."""
    with pytest.raises(MalformedRequest):
        single_event(b"", "", text, None, {})


def test_a_time_span_is_a_time_to_live() -> None:
    """.NET writes `d.hh:mm:ss`."""
    event = single_event(b"", "", '{"TimeToLiveTimeSpan":"1.00:00:02"}', None, {})

    assert event.time_to_live_ms == 86_402_000


def _batch(*elements: Any) -> bytes:
    return json.dumps(elements).encode()


def test_a_batch_keeps_order_bodies_and_properties() -> None:
    """Each element is an event of its own."""
    events = parse_batch(_batch({"Body": "a", "UserProperties": {"n": 5, "f": 1.5, "b": True}}, {"Body": "b"}))

    assert [event.body for event in events] == [b"a", b"b"]
    assert dict(events[0].properties) == {"n": 5, "f": 1.5, "b": True}
    assert not events[1].properties


def test_a_body_that_is_not_a_text_is_stored_as_compact_json() -> None:
    """Clients post objects where the API expects a text."""
    events = parse_batch(_batch({"Body": {"a": [1, 2]}}, {"Body": 5}, {"Body": None}))

    assert [event.body for event in events] == [b'{"a":[1,2]}', b"5", b"null"]


def test_a_base64_body_is_decoded() -> None:
    """A service engineer described this option."""
    encoded = base64.b64encode(b"\x00\xff").decode()

    assert parse_batch(_batch({"Body": encoded, "IsBodyBase64": True}))[0].body == b"\x00\xff"


def test_the_older_form_of_properties_is_accepted() -> None:
    """The 2016 page shows Name and Value pairs."""
    events = parse_batch(
        _batch(
            {
                "Body": "",
                "UserProperties": [{"Name": "a", "Value": 1}],
                "BrokerProperties": {"Name": "PartitionKey", "Value": "k"},
            }
        )
    )

    assert dict(events[0].properties) == {"a": 1}
    assert events[0].partition_key == "k"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[1]", b'["a"]', b"[{}]", b'[{"Body":"a"}', b'[{"Body":"a","UserProperties":5}]',
        b'[{"Body":"a","UserProperties":{"x":[]}}]', b'[{"Body":"!","IsBodyBase64":true}]', b'[{"Body":"\\ud800"}]',
        b'[{"Body":NaN}]', b"[" * 100_000, b'[{"Body":' + b"9" * 5000 + b"}]", b"\xff\xfe",
    ],
)  # fmt: skip
def test_an_invalid_batch_is_refused_as_a_whole(body: bytes) -> None:
    """Service 3: 400, and nothing is stored."""
    with pytest.raises(MalformedRequest):
        parse_batch(body)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/vnd.microsoft.servicebus.json", True),
        (b"Application/VND.microsoft.servicebus.JSON; charset=utf-8", True),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_only_the_services_type_means_a_batch(content_type: bytes, expected: bool) -> None:
    """A JSON body of any other type is one event."""
    assert is_batch(content_type) is expected


_TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=300)
_VALUE = _TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)


@given(
    st.binary(max_size=600),
    st.dictionaries(_TEXT, _VALUE, max_size=6),
    st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300),
    st.none() | _TEXT,
)
def test_an_event_reads_back_as_it_was_posted(
    body: bytes, properties: dict[str, Any], content_type: str | None, label: str | None
) -> None:
    """Sections are written by hand for speed; the generic codec must read the same event."""
    event = HttpEvent(body=body, properties=properties, content_type=content_type, label=label)

    message = message_from_http(event)

    sections: dict[int, Any] = {}
    at = 0
    while at < len(message):
        section, at = decode_value(message, at)
        sections[int(section.descriptor)] = section.value
    fields = [*sections.get(0x73, []), *[None] * 7]
    assert sections[0x75] == body
    assert sections.get(0x74, {}) == properties
    assert [isinstance(value, bool) for value in sections.get(0x74, {}).values()] == [
        isinstance(value, bool) for value in properties.values()
    ]
    assert (fields[3], fields[6]) == (label, content_type)


# --- named types ---


def test_named_types_override_those_of_json() -> None:
    """A copy of an event keeps types that JSON has not; properties that are not named keep the type of JSON."""
    element = {
        "Body": "b",
        "UserProperties": {"raw": "/wA=", "n": 5, "m": 5, "none": None},
        "UserPropertyTypes": {"raw": "binary", "n": "long", "none": "null"},
    }

    (event,) = parse_batch(json.dumps([element]).encode())

    assert event.properties == {"raw": b"\xff\x00", "n": 5, "m": 5, "none": None}
    assert (type(event.properties["n"]), type(event.properties["m"])) == (Long, int)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"n": "shape"}, "the property 'n' of element 0 of the batch is no shape: there is no type 'shape'"),
        ({"n": "uuid"}, "the property 'n' of element 0 of the batch is no uuid: expected a text"),
        ({"other": "uuid"}, "has 'other', which is not a type of a property"),
        ({"n": 5}, "has 'n', which is not a type of a property"),
        (["n"], "UserPropertyTypes of element 0 of the batch is not a JSON object"),
    ],
)
def test_wrong_named_type_is_refused(types: object, message: str) -> None:
    """The whole publication is refused, as for every other mistake."""
    element = {"Body": "b", "UserProperties": {"n": 5}, "UserPropertyTypes": types}

    with pytest.raises(MalformedRequest) as refusal:
        parse_batch(json.dumps([element]).encode())

    assert message in str(refusal.value)
