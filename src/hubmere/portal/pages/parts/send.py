"""Dialog that sends an event: a new one, or one of the hub again."""

import json

from nicegui import ui

from hubmere.model.errors import InvalidArgument
from hubmere.portal import formatting, theme
from hubmere.portal.events.publishing import publish
from hubmere.portal.events.search import FoundEvent
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import EventView, HttpEvent

_ANY = "any"


def send_dialog(context: PageContext, name: str, original: FoundEvent | None = None) -> None:
    """Show the dialog that publishes an event; with `original`, its fields have the values of that event."""
    ids = context.hub(name).entity.partition_ids
    event = None if original is None else original.event
    has_text = event is None or formatting.is_text((event.body or b"").decode("utf-8", "replace"))
    title = f"Send event to {name}" if original is None else f"Resend event to {name}"
    with theme.dialog(title) as dialog:
        body = ui.textarea("Body", value=_body_text(event, has_text=has_text))
        body.props("outlined dense autofocus input-class=h-mono").set_enabled(has_text)
        content_type = ui.input("Content type", value="application/json" if event is None else _content_type(event))
        key = ui.input("Partition key (optional)", value="" if event is None else event.partition_key or "")
        partition = ui.select([_ANY, *ids], value=_ANY, label="Partition")
        properties = ui.input("Properties as a JSON object (optional)", placeholder='{"room": "kitchen"}')
        properties.value = "" if event is None else _properties_text(event)
        for field in (content_type, key, partition, properties):
            field.props("outlined dense")

        async def send() -> None:
            sent = HttpEvent(
                body=(body.value or "").encode() if has_text or event is None else event.body or b"",
                properties=_properties(properties.value or ""),
                partition_key=key.value or None,
                content_type=content_type.value or None,
            )
            receipt = await publish(context, name, sent, None if partition.value == _ANY else partition.value)
            dialog.close()
            ui.notify(f"Event {receipt.sequence_number} was sent.", type="positive")

        theme.dialog_buttons(dialog, "Send", send)


def _body_text(event: EventView | None, *, has_text: bool) -> str:
    if event is None:
        return '{"hello": "world"}'
    body = event.body or b""
    return body.decode() if has_text else f"({formatting.size(len(body))} of binary data, sent unchanged)"


def _content_type(event: EventView) -> str:
    typed = event.system_properties.get("content-type")
    return "" if typed is None else str(typed.value)


def _properties_text(event: EventView) -> str:
    """The properties that JSON can carry."""
    plain = {
        name: typed.value
        for name, typed in event.properties.items()
        if isinstance(typed.value, (str, int, float, bool))
    }
    return json.dumps(plain, ensure_ascii=False) if plain else ""


def _properties(text: str) -> dict[str, str | int | float | bool]:
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(isinstance(value, (str, int, float, bool)) for value in parsed.values()):
        raise InvalidArgument("properties", text, "a JSON object with strings, numbers and booleans")
    return parsed
