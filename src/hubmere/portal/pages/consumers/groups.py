"""Consumer groups page: one row per group with its members, total lag and trend.

Kafka groups and the consumer groups of hubs (AMQP) are listed together. The values of a row are computed for the
visible rows only; sorting by lag uses the values that the recorder keeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from hubmere.broker import GroupAdministration, GroupOverview, HubView
from hubmere.portal import formatting, theme
from hubmere.portal.history.consumer_lag import (
    AMQP,
    KAFKA,
    ConsumerPosition,
    amqp_label,
    amqp_positions,
    kafka_label,
    lag_by_group,
)
from hubmere.portal.history.recorder import LAG_WIDTH, lag_series
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import GROUP_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_TREND_SECONDS = 600
_TREND_REFRESH_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Row:
    """A group in the list; `hub` is empty for a Kafka group, which may read several hubs."""

    protocol: str
    group: str
    hub: str = ""

    @property
    def key(self) -> str:
        """Identifies the row."""
        return f"{self.protocol}/{self.hub}/{self.group}"


@page("/groups", "Consumer groups")
def groups(context: PageContext, _: Request) -> None:
    """The table of groups."""
    hub = None if context.covers_namespace else next(iter(context.hubs()), None)
    context.require_view(hub)
    table = _Groups(context)
    theme.refresh_regularly(table.show)


class _Groups:
    """The table, and what it has computed for its visible rows."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._search_text = ""
        self._trends: dict[str, str] = {}
        self._overviews: dict[str, GroupOverview | None] = {}
        self._visible: Sequence[Row] = ()
        with theme.card():
            with theme.row(between=True):
                theme.note("Kafka groups, and the consumer groups of each hub that AMQP clients use.")
                ui.space()
                search = ui.input(placeholder="Search groups", on_change=self._find)
                search.props('dense outlined clearable debounce=200 aria-label="Search groups"')
            self._table = PagedTable[Row](
                (
                    Column("group", "Group", lambda row: row.group, lambda row: row.group.lower(), wraps=True),
                    Column("protocol", "Protocol", lambda row: row.protocol, lambda row: row.protocol),
                    Column("hubs", "Event hubs", self._hubs_text, wraps=True),
                    Column("state", "State", self._state_text),
                    Column("members", "Members", self._member_count, is_number=True),
                    Column("lag", "Total lag", self._lag_text, self._known_lag, True),
                    Column("trend", "Trend, 10 min", lambda row: self._trends.get(row.key, "")),
                ),
                key=lambda row: row.key,
                href=lambda row: (
                    context.prefix + context.url(GROUP_PATH, protocol=row.protocol, group=row.group, hub=row.hub)
                ),
                sorted_by="group",
                empty_text="There are no groups yet, or none has this name. Each event hub brings its first one.",
            )
        ui.timer(1.0, theme.action_handler(self._update_trends), once=True)
        ui.timer(_TREND_REFRESH_SECONDS, theme.action_handler(self._update_trends))

    def _find(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._search_text = (event.value or "").strip().lower()
        self.show()

    def show(self) -> None:
        """Display the groups that match the search."""
        rows = [row for row in all_groups(self._context) if self._search_text in f"{row.group} {row.hub}".lower()]
        self._overviews.clear()
        self._table.show(rows)
        self._visible = self._table.visible(rows)

    # --- values of a row ---

    def _overview(self, row: Row) -> GroupOverview | None:
        """What the coordinator knows of a Kafka group; None for others."""
        if row.protocol != KAFKA:
            return None
        if row.key not in self._overviews:
            self._overviews[row.key] = administration(self._context).overview(row.group)
        return self._overviews[row.key]

    def _hubs_text(self, row: Row) -> str:
        found = self._overview(row)
        return row.hub if found is None else ", ".join(found.hubs)

    def _state_text(self, row: Row) -> str:
        found = self._overview(row)
        return str(found.state) if found is not None else "Active" if self._reader_names(row) else "Idle"

    def _member_count(self, row: Row) -> int:
        found = self._overview(row)
        return len(self._reader_names(row)) if found is None else found.member_count

    def _reader_names(self, row: Row) -> list[str]:
        hub = self._context.hub(row.hub)
        return [reader.name for reader in hub.readers() if reader.group == row.group.lower()]

    def _lag_text(self, row: Row) -> str:
        found = self._overview(row)
        if found is not None:
            return formatting.number(found.lag)
        session = self._context.session
        positions = amqp_positions(session.broker, self._context.hub(row.hub), row.group, session.clock.now_ms())
        return known_lag_text(positions)

    def _known_lag(self, row: Row) -> int:
        lags = self._context.session.recorder.lags
        return sum(lags.get(series, 0) for series in _series(row, self._hubs_of(row)))

    def _hubs_of(self, row: Row) -> list[HubView]:
        found = self._overview(row)
        names = [row.hub] if found is None else found.hubs
        return [self._context.hub(name) for name in names]

    async def _update_trends(self) -> None:
        recorder = self._context.session.recorder
        trends = {}
        for row in self._visible:
            first = last = 0.0
            is_known = False
            for series in _series(row, self._hubs_of(row)):
                rows = await recorder.read(series, _TREND_SECONDS, width=LAG_WIDTH)
                if rows:
                    first, last, is_known = first + rows[0][1][0], last + rows[-1][1][0], True
            trends[row.key] = trend_text(round(last - first)) if is_known else ""
        self._trends = trends


def _series(row: Row, hubs: Sequence[HubView]) -> list[str]:
    label = kafka_label(row.group) if row.protocol == KAFKA else amqp_label(row.group)
    return [lag_series(hub.uid, label) for hub in hubs]


def known_lag_text(positions: Sequence[ConsumerPosition]) -> str:
    """The total lag of a consumer group of a hub; unknown if nobody reads with it and it has no checkpoint."""
    return formatting.number(sum(lag_by_group(positions).values())) if positions else "unknown"


def trend_text(change: int) -> str:
    """How the lag has changed."""
    if change == 0:
        return "steady"
    return f"▲ {change:,}" if change > 0 else f"▼ {-change:,}"


def all_groups(context: PageContext) -> list[Row]:
    """Every group that the credential covers. Kafka groups need a credential of the namespace."""
    entities = context.session.broker.entities
    rows = [Row(AMQP, str(group.name), hub.name) for hub in context.hubs() for group in entities.groups(hub.entity)]
    if context.covers_namespace and context.may_view():
        rows += [Row(KAFKA, group_id) for group_id in administration(context).group_ids()]
    return rows


def position_url(context: PageContext, hub: str, partition: int, sequence: int | None) -> str:
    """The URL of a partition in Explorer, from the event that a consumer is at."""
    start = {} if sequence is None else {"from": "sequence", "at": str(sequence)}
    return context.url("/explorer", hub=hub, partition=str(partition), **start)


def administration(context: PageContext) -> GroupAdministration:
    """The administration of the namespace's Kafka groups."""
    clock = context.session.clock
    return context.caller.coordinator(clock.monotonic(), clock.now_ms()).administration
