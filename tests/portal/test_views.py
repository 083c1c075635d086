"""An event as each protocol delivers it."""

import asyncio
import json
import uuid
from dataclasses import replace

import pytest

from hubmere.model.position import Position
from hubmere.portal import formatting
from hubmere.portal.events.scan import EventFilter, Scan
from hubmere.portal.events.views import amqp_view, captured_view, http_view, kafka_view
from hubmere.translate import EventView, TypedValue
from hubmere.wire.amqp.codec.types import Int, ULong
from portal.builders import PortalHarness

_PROPERTIES = {
    "count": TypedValue("int", Int(30)),
    "flag": TypedValue("boolean", True),
    "nothing": TypedValue("null", None),
    "parts": TypedValue("list", [Int(1), {"a": ULong(2)}]),
    "raw": TypedValue("binary", b"\x00room"),
    "room": TypedValue("string", "kitchen"),
}
_LARGE = formatting.MAX_DISPLAYED_BODY_BYTES


def an_event(harness: PortalHarness, body: bytes = b"x") -> EventView:
    """An event with properties of many types."""
    harness.publish(body)
    scan = Scan(harness.a_page_context(), harness.hub.view, EventFilter(), newest_first=True)
    scan.start({0: Position.first()})
    [hit] = asyncio.run(scan.next_page(1))
    return replace(hit.event, properties=_PROPERTIES)


def test_values_are_shown_without_names_of_classes(harness: PortalHarness) -> None:
    """`Int(30)` is no value that a client has sent."""
    event = an_event(harness)

    for text in (amqp_view(event), captured_view(event)):
        assert "  count = 30 (int)" in text
        assert "  flag = true (boolean)" in text
        assert "  nothing = null (null)" in text
        assert "  parts = [1, {a: 2}] (list)" in text
        assert "  raw = base64:AHJvb20= (binary)" in text
        assert "  room = kitchen" in text.splitlines()


def test_identifier_is_shown_without_its_type(harness: PortalHarness) -> None:
    """Everybody sees what it is."""
    value = uuid.UUID(int=7)

    shown = amqp_view(replace(an_event(harness), properties={"id": TypedValue("uuid", value)}))

    assert f"  id = {value}" in shown.splitlines()


def test_http_view_is_the_answer_of_the_http_api(harness: PortalHarness) -> None:
    """Somebody writes a client by it."""
    shown = json.loads(http_view(an_event(harness, b"hello")))

    assert (shown["body"], shown["bodyEncoding"]) == ("hello", "utf-8")
    assert shown["properties"]["count"] == {"type": "int", "value": 30}
    assert shown["enqueuedTime"].endswith("+00:00")


@pytest.mark.parametrize(
    ("body", "encoding"), [("x" + "\u00e9" * _LARGE, "utf-8"), ("\ufffd" * _LARGE, "utf-8"), (None, "base64")]
)
def test_http_view_has_the_beginning_of_a_large_body(harness: PortalHarness, body: str | None, encoding: str) -> None:
    """A character that is cut in two would turn the text into base64."""
    whole = b"\xff" * (_LARGE + 1) if body is None else body.encode()

    shown = json.loads(http_view(replace(an_event(harness), body=whole)))

    assert shown["bodyEncoding"] == encoding
    assert len(shown["body"]) < _LARGE * 2


def test_kafka_view_has_headers_of_any_content(harness: PortalHarness) -> None:
    """Null is not an empty text."""
    event = replace(an_event(harness), headers=(("a", b"1"), ("b", b"\xff"), ("c", None)))

    assert kafka_view(event).splitlines()[-3:] == ["  a = 1", "  b = base64:/w==", "  c = null"]


def test_text_is_found_in_values_as_they_are_shown(harness: PortalHarness) -> None:
    """The name of a class is in every event with a number; text amid binary data is found."""
    event = replace(an_event(harness), system_properties={})

    assert EventFilter(text="30").matches(event)
    assert EventFilter(text="room").matches(replace(event, properties={"raw": _PROPERTIES["raw"]}))
    assert not EventFilter(text="int(").matches(event)
