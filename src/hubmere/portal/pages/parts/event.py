"""Dialog with one event: body as text, JSON and hex, and the event as each protocol delivers it."""

import base64
import json
import uuid
from collections.abc import Mapping

from nicegui import ui

from hubmere.portal import formatting, theme
from hubmere.portal.events.search import FoundEvent
from hubmere.translate import EventView, TypedValue

_NO_BODY = "This event has no body. In a compacted hub it deletes its key."


def open_event(hub: str, hit: FoundEvent, *, on_resend: theme.Action | None = None, is_captured: bool = False) -> None:
    """Show an event in a dialog. `on_resend` adds a button; a captured event has no views of protocols."""
    event = hit.event
    views = _views(event, is_captured=is_captured)
    with theme.dialog(f"Event {event.sequence} of {hub}, partition {hit.partition}", has_close=True):
        with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
            for name in views:
                ui.tab(name)
        with ui.tab_panels(tabs, value=next(iter(views)), animated=False).style("background: transparent; width: 100%"):
            for name, text in views.items():
                with ui.tab_panel(name).style("padding: 8px 0"):
                    theme.code(text)
        if formatting.is_shortened(event.body):
            whole, shown = map(formatting.size, (len(event.body or b""), formatting.MAX_DISPLAYED_BODY_BYTES))
            theme.note(f"The body has {whole}; the first {shown} are shown. An export has all of it.")
        if on_resend is not None:
            with theme.row():
                ui.space()
                ui.button("Resend", on_click=theme.action_handler(on_resend)).props("no-caps outline")


def _views(event: EventView, *, is_captured: bool) -> Mapping[str, str]:
    """All views of an event, by name. JSON is included if the body is JSON."""
    body = event.body
    to_json = None if body is None else formatting.to_json(body)
    views = {"Text": _NO_BODY if body is None else formatting.to_text(body)}
    if to_json is not None:
        views = {"JSON": to_json, **views}
    if body is not None:
        views["Hex"] = formatting.to_hex(body)
    if is_captured:
        return {**views, "Properties": captured_view(event)}
    views["AMQP"] = amqp_view(event)
    views["Kafka"] = kafka_view(event)
    views["HTTP"] = http_view(event)
    return views


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
    key = "null" if event.key is None else _bytes_text(event.key)
    lines = [
        f"offset = {event.sequence}",
        f"timestamp = {event.enqueued_ms}",
        f"key = {key}",
        f"value = {size}",
        "",
        "headers",
    ]
    lines += [f"  {name} = {'null' if value is None else _bytes_text(value)}" for name, value in event.headers]
    return "\n".join(lines)


def http_view(event: EventView) -> str:
    """The event as the HTTP API returns it."""
    shown = {
        "sequenceNumber": event.sequence,
        "offset": str(event.offset),
        "enqueuedTime": formatting.timestamp(event.enqueued_ms),
        "partitionKey": event.partition_key,
        "publisher": event.publisher,
        "properties": {name: _typed_text(value) for name, value in event.properties.items()},
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _typed_text(typed: TypedValue) -> str:
    value = typed.value
    text = _bytes_text(bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else str(value)
    return f"{text} ({typed.type})" if not isinstance(value, (str, uuid.UUID)) else text


def _bytes_text(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return text if formatting.is_text(text) else f"base64:{base64.b64encode(value).decode()}"
