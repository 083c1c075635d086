"""Dialog with one event: body as text, JSON and hex, and the event as each protocol delivers it."""

from collections.abc import Mapping

from nicegui import ui

from hubmere.portal import formatting, theme
from hubmere.portal.events.search import FoundEvent
from hubmere.portal.events.views import amqp_view, captured_view, http_view, kafka_view
from hubmere.translate import EventView

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
