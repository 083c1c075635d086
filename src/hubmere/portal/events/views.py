"""An event as each protocol delivers it, and as a captured file holds it: texts for people."""

import json
import uuid
from dataclasses import replace

from hubmere.portal import formatting
from hubmere.translate import EventView, TypedValue, event_json


def amqp_view(event: EventView) -> str:
    """Annotations and properties that an AMQP receiver gets."""
    system = {
        "x-opt-sequence-number-epoch": -1,
        "x-opt-sequence-number": event.sequence,
        "x-opt-offset": str(event.offset),
        "x-opt-enqueued-time": formatting.timestamp(event.enqueued_ms),
    }
    lines = ["Annotations and properties", *(f"  {name} = {value}" for name, value in system.items())]
    lines += [f"  {name} = {_typed_text(value)}" for name, value in event.system_properties.items()]
    lines += [
        "",
        "Application properties",
        *(f"  {name} = {_typed_text(value)}" for name, value in event.properties.items()),
    ]
    return "\n".join(lines)


def captured_view(event: EventView) -> str:
    """What a captured file says about an event besides its body."""
    lines = [
        f"SequenceNumber = {event.sequence}",
        f"Offset = {event.offset}",
        f"EnqueuedTimeUtc = {formatting.timestamp(event.enqueued_ms)}",
        "",
        "SystemProperties",
        *(f"  {name} = {_typed_text(value)}" for name, value in event.system_properties.items()),
        "",
        "Properties",
        *(f"  {name} = {_typed_text(value)}" for name, value in event.properties.items()),
    ]
    return "\n".join(lines)


def kafka_view(event: EventView) -> str:
    """The record that a Kafka consumer gets."""
    size = "null" if event.body is None else formatting.size(len(event.body))
    lines = [
        f"offset = {event.sequence}",
        f"timestamp = {event.enqueued_ms}",
        f"key = {formatting.value_text(event.key)}",
        f"value = {size}",
        "",
        "headers",
    ]
    lines += [f"  {name} = {formatting.value_text(value)}" for name, value in event.headers]
    return "\n".join(lines)


def http_view(event: EventView) -> str:
    """The event as the HTTP API returns it; of a large body, the part that a page displays."""
    shown = replace(event, body=_beginning(event.body)) if formatting.is_shortened(event.body) else event
    return json.dumps(event_json(shown), indent=2, ensure_ascii=False)


def _beginning(body: bytes | None) -> bytes:
    """The displayed part of a large body. Of a text, no character is cut in two: the rest would not be text."""
    whole = body or b""
    text = formatting.to_text(whole).encode()
    return text if whole.startswith(text) else whole[: formatting.MAX_DISPLAYED_BODY_BYTES]


def _typed_text(typed: TypedValue) -> str:
    text = formatting.value_text(typed.value)
    return text if isinstance(typed.value, (str, uuid.UUID)) else f"{text} ({typed.type})"
