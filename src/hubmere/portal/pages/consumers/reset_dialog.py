"""What the dialogs share that reset Kafka groups and event processors: where to go on, and the preview."""

from nicegui import ui

from hubmere.broker import PlannedOffset, Reset, ResetKind
from hubmere.model.errors import InvalidArgument
from hubmere.portal import formatting
from hubmere.portal.events import search
from hubmere.portal.paged_table import Column, PagedTable

_KINDS = {
    ResetKind.EARLIEST: "Earliest event",
    ResetKind.LATEST: "Latest event",
    ResetKind.TIME: "Time (UTC)",
    ResetKind.OFFSET: "Offset",
    ResetKind.SHIFT: "Shift by events",
}
_PLAIN = (ResetKind.EARLIEST, ResetKind.LATEST)


class ResetForm:
    """The fields that say where a group goes on."""

    def __init__(self) -> None:
        kinds = {str(key): text for key, text in _KINDS.items()}
        self._kind = ui.select(kinds, value=str(ResetKind.EARLIEST), label="To")
        self._value = ui.input("Value", placeholder="a time, an offset, or a number of events such as -100")
        self._value.bind_visibility_from(self._kind, "value", lambda chosen: ResetKind(chosen) not in _PLAIN)
        for field in (self._kind, self._value):
            field.props("outlined dense")

    def reset(self, hub: str | None = None) -> Reset:
        """The reset in the form; InvalidArgument if the value is not one of its kind."""
        chosen = ResetKind(self._kind.value)
        return Reset(kind=chosen, value=_reset_value(chosen, (self._value.value or "").strip()), hub=hub)


def _reset_value(kind: ResetKind, text: str) -> int:
    if kind in _PLAIN:
        return 0
    if kind is ResetKind.TIME:
        return search.parse_position("time", text).value
    digits = text.removeprefix("-") if kind is ResetKind.SHIFT else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        allowed = "a whole number such as 100 or -100" if kind is ResetKind.SHIFT else "a whole number"
        raise InvalidArgument(str(kind), text, allowed)
    return int(text)


def preview_table() -> PagedTable[PlannedOffset]:
    """The new position of every partition."""
    return PagedTable[PlannedOffset](
        (
            Column("hub", "Event hub", lambda row: row.hub, wraps=True),
            Column("partition", "Partition", lambda row: row.partition),
            Column("current", "Committed", lambda row: "" if row.current is None else row.current, is_number=True),
            Column("target", "New", lambda row: row.target, is_number=True),
            Column("lag", "Lag afterwards", lambda row: formatting.number(row.lag), is_number=True),
        ),
        key=lambda row: f"{row.hub}/{row.partition}",
    )
