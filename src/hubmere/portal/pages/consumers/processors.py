"""Event processors page: checkpoints, owners and lag of processors whose state is in blobs of this node; resets."""

from dataclasses import dataclass

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from hubmere.broker import ProcessorGroup, ProcessorState, Reset
from hubmere.model.entity import Rights
from hubmere.portal import formatting, theme
from hubmere.portal.doctor.findings_card import FindingsCard
from hubmere.portal.doctor.processor_checks import processor_findings
from hubmere.portal.events import search
from hubmere.portal.history.consumer_lag import group_label
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.consumers.groups import position_url
from hubmere.portal.pages.consumers.reset_dialog import ResetForm, preview_table
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_RESET = "Reset"
_SEPARATOR = "\n"
# Reading every blob costs more than a look at a counter.
_REFRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The processors of one consumer group in one container."""

    hub: str
    group: str
    container: str
    states: tuple[ProcessorState, ...]

    @property
    def key(self) -> str:
        return _SEPARATOR.join((self.hub, self.group, self.container))

    @property
    def lag(self) -> int:
        return sum(state.lag or 0 for state in self.states)

    @property
    def owners(self) -> int:
        return len({state.stored.owner for state in self.states if state.stored.owner})

    @property
    def moves(self) -> int:
        return sum(state.owner_moves for state in self.states)


@page("/processors", "Event processors")
def processors(context: PageContext, _: Request) -> None:
    """Groups of processors, and their partitions."""
    hub = None if context.covers_namespace else next(iter(context.hubs()), None)
    context.require_view(hub)
    _Processors(context)


class _Processors:
    """The tables, and what needs attention."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._search_text = ""
        self._findings = FindingsCard("What needs attention")
        with theme.card("Groups of processors"):
            with theme.row(between=True):
                theme.note("Processors of the Azure SDKs that keep checkpoints and ownership in blobs of this node.")
                ui.space()
                field = ui.input(placeholder="Search processors", on_change=self._find)
                field.props('dense outlined clearable debounce=200 aria-label="Search processors"')
            self._groups = self._group_table()
        with theme.card("Partitions"):
            self._partitions = _partition_table(context)
        theme.refresh_regularly(self._refresh, _REFRESH_SECONDS)

    def _find(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._search_text = (event.value or "").strip().lower()
        self._refresh()

    def _refresh(self) -> None:
        states = [state for state in _states(self._context) if self._search_text in _search_text(state)]
        self._findings.show(list(processor_findings(states)))
        self._groups.show(_groups_of(states))
        self._partitions.show(states)

    def _group_table(self) -> PagedTable[_Group]:
        context = self._context

        def act(_action: str, key: str) -> None:
            hub, group, container = key.split(_SEPARATOR)
            _reset_dialog(context, ProcessorGroup(hub=hub, group=group, container=container))

        return PagedTable[_Group](
            (
                Column("hub", "Event hub", lambda row: row.hub, lambda row: row.hub, wraps=True),
                Column(
                    "group",
                    "Consumer group",
                    lambda row: _group_text(context, row.hub, row.group),
                    lambda row: row.group,
                    wraps=True,
                ),
                Column("container", "Container", lambda row: row.container, lambda row: row.container, wraps=True),
                Column("owners", "Owners", lambda row: row.owners, lambda row: row.owners, True),
                Column("partitions", "Partitions", lambda row: len(row.states), lambda row: len(row.states), True),
                Column("moves", "Owner moves, 1 min", lambda row: row.moves, lambda row: row.moves, True),
                Column("lag", "Total lag", lambda row: formatting.number(row.lag), lambda row: row.lag, True),
            ),
            key=lambda row: row.key,
            href=lambda row: context.prefix + context.url(HUB_PATH, hub=row.hub),
            actions=lambda row: [_RESET] if context.may(Rights.MANAGE, context.hub(row.hub)) else [],
            on_act=act,
            sorted_by="hub",
            empty_text="No processor has stored a checkpoint or an ownership in blobs of this node.",
        )


def _states(context: PageContext) -> list[ProcessorState]:
    session = context.session
    found = session.broker.processors.states(context.namespace_name, session.clock.now_ms())
    if context.may_view():
        return found
    visible = {str(hub.name) for hub in context.hubs() if context.may_view(hub)}
    return [state for state in found if state.hub in visible]


def _search_text(state: ProcessorState) -> str:
    stored = state.stored
    return f"{state.hub} {stored.group} {stored.container} {stored.owner or ''}".lower()


def _groups_of(states: list[ProcessorState]) -> list[_Group]:
    found: dict[tuple[str, str, str], list[ProcessorState]] = {}
    for state in states:
        found.setdefault((state.hub, state.stored.group, state.stored.container), []).append(state)
    return [
        _Group(hub=hub, group=group, container=container, states=tuple(part))
        for (hub, group, container), part in found.items()
    ]


def _partition_table(context: PageContext) -> PagedTable[ProcessorState]:
    return PagedTable[ProcessorState](
        (
            Column("hub", "Event hub", lambda row: row.hub, lambda row: row.hub, wraps=True),
            Column(
                "group",
                "Consumer group",
                lambda row: _group_text(context, row.hub, row.stored.group),
                lambda row: row.stored.group,
                wraps=True,
            ),
            Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
            Column("owner", "Owner", _owner, _owner, wraps=True),
            Column("checkpoint", "Checkpoint", lambda row: _number(row.stored.sequence), is_number=True),
            Column("at", "Written (UTC)", lambda row: formatting.timestamp(_time(row.stored.checkpoint_ms))),
            Column("lag", "Lag", lambda row: _lag(row.lag), lambda row: row.lag or 0, True),
            Column("problems", "Problems", lambda row: "; ".join(row.problems), wraps=True),
        ),
        key=lambda row: f"{row.stored.container}/{row.hub}/{row.stored.group}/{row.partition}",
        href=lambda row: context.prefix + position_url(context, row.hub, row.partition, row.stored.sequence),
    )


def _group_text(context: PageContext, hub: str, group: str) -> str:
    return group_label(context.session.broker, context.hub(hub), group)


def _owner(state: ProcessorState) -> str:
    return state.stored.owner or ""


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _lag(value: int | None) -> str:
    return "" if value is None else formatting.number(value)


def _time(value_ms: int | None) -> int:
    return -1 if value_ms is None else value_ms


# --- reset -----------------------------------------------------------------------------------------------------------


def _reset_dialog(context: PageContext, group: ProcessorGroup) -> None:
    """Show the dialog that resets checkpoints: choose, preview, reset."""
    context.require(Rights.MANAGE, context.hub(group.hub))
    name = _group_text(context, group.hub, group.group)
    with theme.dialog(f"Reset processors of {group.hub}, {name}", has_close=True) as dialog:
        theme.note("Stop the processors first: a reset is refused while one of them owns or reads a partition.")
        form = ResetForm()
        table = preview_table()

        async def chosen_reset() -> Reset:
            hub = context.hub(group.hub)
            context.require(Rights.MANAGE, hub)
            await search.until_open(hub, range(hub.partition_count))
            return form.reset()

        async def preview() -> None:
            reset = await chosen_reset()
            table.show(context.session.broker.processors.plan_reset(context.namespace_name, group, reset))

        async def run() -> None:
            reset, administration = await chosen_reset(), context.session.broker.processors
            planned = await context.session.submit(
                lambda actor, on_done: administration.reset(context.namespace_name, group, reset, actor, on_done)
            )
            dialog.close()
            ui.notify(
                f"The checkpoints of {formatting.quantity(len(planned), 'partition')} were reset.", type="positive"
            )

        with theme.row():
            ui.space()
            ui.button("Preview", on_click=theme.action_handler(preview)).props("no-caps outline").classes("h-default")
            ui.button("Reset", on_click=theme.action_handler(run)).props("no-caps unelevated color=negative")
