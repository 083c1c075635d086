"""Dialog that sends an event: a new one, or one of the hub again."""

import json
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from hubmere.model.errors import InvalidArgument
from hubmere.portal import formatting, theme
from hubmere.portal.events.publishing import publish, publish_again
from hubmere.portal.events.search import FoundEvent
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import EventView, HttpEvent, text_key

_ANY = "any"
# Maximum characters of a body in the form. NiceGUI sends no larger change of a field than 1 MB from the browser, and a
# character takes up to six bytes there: after a larger one the node would still have the text before it.
_MAX_BODY_CHARACTERS = 150_000
# Fields of an event that the form does not show, by the AMQP properties that they come from.
_KEPT_FIELDS = {
    "message_id": "message-id",
    "correlation_id": "correlation-id",
    "label": "subject",
    "to": "to",
    "reply_to": "reply-to",
    "session_id": "group-id",
}


def send_dialog(context: PageContext, name: str) -> None:
    """Show the dialog that publishes a new event."""
    ids = context.hub(name).entity.partition_ids
    with theme.dialog(f"Send event to {name}") as dialog:
        form = _Form(None, [_ANY, *ids], _ANY)

        async def send() -> None:
            partition = None if form.partition.value == _ANY else form.partition.value
            receipt = await publish(context, name, form.event(), partition)
            dialog.close()
            ui.notify(f"Event {receipt.sequence_number} was sent.", type="positive")

        theme.dialog_buttons(dialog, "Send", send)


def resend_dialog(context: PageContext, name: str, original: FoundEvent) -> None:
    """Show the dialog that publishes an event of the hub again. Without a change, it is an exact copy."""
    same, by_key = f"{original.partition} (the same)", "chosen by the key" if text_key(original.event) else _ANY
    with theme.dialog(f"Resend event {original.event.sequence} to {name}") as dialog:
        form = _Form(original.event, [same, by_key], same)
        theme.note("Without a change, the new event is an exact copy: same key, body and properties of any type.")

        async def send() -> None:
            changed = form.event() if form.is_changed else None
            is_same = form.partition.value == same
            receipt = await publish_again(context, name, original, changed, keep_partition=is_same)
            dialog.close()
            ui.notify(f"Event {receipt.sequence_number} was sent.", type="positive")

        theme.dialog_buttons(dialog, "Send", send)


class _Form:
    """The fields of an event; with `original`, they have its values."""

    def __init__(self, original: EventView | None, partitions: list[str], partition: str) -> None:
        self._original = original
        self._body = ui.textarea("Body", value='{"hello": "world"}' if original is None else _body_text(original))
        self._body.props("outlined dense autofocus input-class=h-mono")
        self._body.set_enabled(original is None or _is_editable(original))
        self._body_characters = 0
        # The length arrives even if the text is too large to arrive.
        self._body.on("update:modelValue", self._on_body_length, js_handler="(text) => emit((text ?? '').length)")
        self._type = ui.input("Content type", value="application/json" if original is None else _content_type(original))
        self._key = ui.input("Partition key (optional)", value="" if original is None else text_key(original) or "")
        self.partition = ui.select(partitions, value=partition, label="Partition")
        self._properties = ui.input("Properties as a JSON object (optional)", placeholder='{"room": "kitchen"}')
        self._properties.value = "" if original is None else _properties_text(original)
        for field in (self._type, self._key, self.partition, self._properties):
            field.props("outlined dense")
        self._texts = self._values()
        if original is not None and (kept := _kept_properties(original)):
            theme.note(f"Properties that stay as they are, because JSON has no such type: {', '.join(kept)}.")

    def _on_body_length(self, event: GenericEventArguments) -> None:
        self._body_characters = int(event.args)

    def _values(self) -> tuple[str, ...]:
        return tuple(field.value or "" for field in (self._body, self._type, self._key, self._properties))

    @property
    def is_changed(self) -> bool:
        """Whether the person has changed the event."""
        self._check_body()
        return self._values() != self._texts

    def _check_body(self) -> None:
        """Refuse a body that is too large for the form."""
        if self._body_characters > _MAX_BODY_CHARACTERS:
            raise InvalidArgument(
                "body",
                formatting.quantity(self._body_characters, "character"),
                f"at most {_MAX_BODY_CHARACTERS:,} characters in this form; `hubmere send` sends larger events",
            )

    def event(self) -> HttpEvent:
        """The event in the form; what has no field is that of the original."""
        self._check_body()
        original = self._original
        is_same_body = self._values()[0] == self._texts[0]
        kept = {} if original is None else _kept_properties(original)
        properties: dict[str, Any] = {**kept, **_properties(self._properties.value or "")}
        if original is not None:
            # A value that was not changed keeps its AMQP type.
            same = {name: typed.value for name, typed in original.properties.items() if name in properties}
            properties |= {name: value for name, value in same.items() if _is_same(value, properties[name])}
        return HttpEvent(
            # A text field turns every line end into a line feed.
            body=(original.body or b"") if original is not None and is_same_body else (self._body.value or "").encode(),
            properties=properties,
            partition_key=self._key.value or None,
            content_type=self._type.value or None,
            **({} if original is None else _kept_fields(original)),
        )


def _is_editable(event: EventView) -> bool:
    """Whether the body is text of a size that a form can carry."""
    body = event.body or b""
    return len(body) <= formatting.MAX_DISPLAYED_BODY_BYTES and formatting.is_text(body.decode("utf-8", "replace"))


def _body_text(event: EventView) -> str:
    body = event.body or b""
    return body.decode() if _is_editable(event) else f"({formatting.size(len(body))}, sent unchanged)"


def _content_type(event: EventView) -> str:
    typed = event.system_properties.get("content-type")
    return "" if typed is None else str(typed.value)


def _kept_fields(event: EventView) -> dict[str, Any]:
    found = {field: event.system_properties.get(name) for field, name in _KEPT_FIELDS.items()}
    return {field: str(typed.value) for field, typed in found.items() if typed is not None}


def _kept_properties(event: EventView) -> dict[str, object]:
    """The properties that JSON cannot carry."""
    return {name: typed.value for name, typed in event.properties.items() if not _is_plain(typed.value)}


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool))


def _is_same(value: object, text: object) -> bool:
    # In Python, True equals 1.
    return value == text and isinstance(value, bool) == isinstance(text, bool)


def _properties_text(event: EventView) -> str:
    """The properties that JSON can carry."""
    plain = {name: typed.value for name, typed in event.properties.items() if _is_plain(typed.value)}
    return json.dumps(plain, ensure_ascii=False) if plain else ""


def _properties(text: str) -> dict[str, str | int | float | bool]:
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or not all(map(_is_plain, parsed.values())):
        raise InvalidArgument("properties", text, "a JSON object with strings, numbers and booleans")
    return parsed
