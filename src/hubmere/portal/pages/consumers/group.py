"""Page of one consumer group: members, position and lag of each partition, reset and deletion."""

from collections.abc import Callable

from fastapi import Request
from nicegui import ui

from hubmere.broker import GroupPosition, HubView, MemberView, Reset
from hubmere.model.entity import Rights
from hubmere.model.names import DEFAULT_GROUP, fold
from hubmere.portal import formatting, theme
from hubmere.portal.events import search
from hubmere.portal.history.boards import LagBoard
from hubmere.portal.history.consumer_lag import KAFKA, ConsumerPosition, amqp_positions
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.consumers.groups import administration, known_lag_text, position_url
from hubmere.portal.pages.consumers.reset_dialog import ResetForm, preview_table
from hubmere.portal.pages.routes import GROUP_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import assigned_partitions

_ALL_HUBS = "(all hubs of the group)"
# Maximum number of hubs of one group with a chart.
_MAX_CHARTS = 4


@page(GROUP_PATH, "Consumer group")
def group(context: PageContext, request: Request) -> None:
    """The page of a Kafka group, or of a consumer group of a hub."""
    name = request.query_params.get("group", "")
    if request.query_params.get("protocol") == KAFKA:
        context.require_view()
        administration(context).describe(name)
        _KafkaGroup(context, name)
    else:
        hub = context.hub(request.query_params.get("hub", ""))
        context.require_view(hub)
        entity = context.session.broker.entities.group(hub.entity, name)
        _AmqpGroup(context, hub.name, str(entity.name))


class _KafkaGroup:
    """A Kafka group."""

    def __init__(self, context: PageContext, group_id: str) -> None:
        self._context = context
        self._group_id = group_id
        self._tiles = _tiles("State", "Protocol", "Members", "Total lag")
        if context.may(Rights.MANAGE):
            with theme.row():
                ui.button("Reset offsets", on_click=theme.action_handler(self._reset)).props("no-caps unelevated")
                ui.button("Delete group", on_click=theme.action_handler(self._delete)).props(
                    "no-caps flat color=negative"
                )
        self._boards = [
            LagBoard(context, _hub_getter(context, hub), only=group_id, title=f"Lag in {hub}")
            for hub in administration(context).overview(group_id).hubs[:_MAX_CHARTS]
        ]
        with theme.card("Members"):
            self._members = _member_table()
        with theme.card("Partitions"):
            self._positions = _kafka_table(context)
        theme.refresh_regularly(self._refresh)

    def _refresh(self) -> None:
        self._context.require_view()
        admin = administration(self._context)
        described, found = admin.describe(self._group_id), admin.overview(self._group_id)
        protocol = ", ".join(filter(None, ("Kafka", str(found.type), described.protocol)))
        values = (str(found.state), protocol, formatting.number(found.member_count))
        for tile, text in zip(self._tiles, (*values, formatting.number(found.lag)), strict=True):
            tile.text = text
        self._members.show(described.members)
        self._positions.show(admin.positions(self._group_id))
        for board in self._boards:
            board.show()

    def _reset(self) -> None:
        self._context.require(Rights.MANAGE)
        _reset_dialog(self._context, self._group_id)

    async def _delete(self) -> None:
        question = f"Delete the group {self._group_id} and its committed offsets?"
        if not await theme.confirm(question, "Delete", typed=self._group_id):
            return
        self._context.require(Rights.MANAGE)
        admin = administration(self._context)
        await self._context.session.submit(lambda actor, on_done: admin.delete(self._group_id, actor, on_done))
        ui.navigate.to(self._context.url("/groups"))


def _hub_getter(context: PageContext, name: str) -> Callable[[], HubView]:
    return lambda: context.hub(name)


def _tiles(*titles: str) -> list[ui.label]:
    with ui.element("div").classes("h-tiles"):
        return [theme.tile(title) for title in titles]


def _member_table() -> PagedTable[MemberView]:
    return PagedTable[MemberView](
        (
            Column("client", "Client", lambda row: row.client_id, lambda row: row.client_id, wraps=True),
            Column("host", "From", lambda row: row.client_host.lstrip("/"), lambda row: row.client_host),
            Column("instance", "Instance", lambda row: row.instance_id or "", wraps=True),
            Column("partitions", "Partitions", _assignment_text, wraps=True),
            Column("member", "Member ID", lambda row: row.member_id, wraps=True),
        ),
        key=lambda row: row.member_id,
        sorted_by="client",
        empty_text="No member is connected.",
    )


def _assignment_text(member: MemberView) -> str:
    by_hub: dict[str, list[int]] = {}
    for hub, partition in assigned_partitions(member.assignment):
        by_hub.setdefault(hub, []).append(partition)
    return "; ".join(f"{hub}: {', '.join(map(str, sorted(numbers)))}" for hub, numbers in sorted(by_hub.items()))


def _kafka_table(context: PageContext) -> PagedTable[GroupPosition]:
    return PagedTable[GroupPosition](
        (
            Column("hub", "Event hub", lambda row: row.hub, lambda row: row.hub, wraps=True),
            Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
            Column("committed", "Committed offset", lambda row: _number(row.committed), is_number=True),
            Column("end", "End", lambda row: _number(row.end if row.end >= 0 else None), is_number=True),
            Column("lag", "Lag", _lag_text, lambda row: row.lag, True),
            Column(
                "at",
                "Committed at (UTC)",
                lambda row: "" if row.committed_ms is None else formatting.timestamp(row.committed_ms),
            ),
            Column(
                "owner",
                "Member",
                lambda row: f"{row.client_id} at {row.client_host}" if row.member_id else "",
                wraps=True,
            ),
        ),
        key=lambda row: f"{row.hub}/{row.partition}",
        href=lambda row: context.prefix + position_url(context, row.hub, row.partition, row.committed),
        empty_text="The group has committed no offset.",
    )


def _lag_text(row: GroupPosition) -> str:
    return "unknown" if row.committed is None else formatting.number(row.lag)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


# --- reset -----------------------------------------------------------------------------------------------------------


def _reset_dialog(context: PageContext, group_id: str) -> None:
    """Show the dialog that resets offsets: choose, preview, reset."""
    found = administration(context).overview(group_id)
    hubs = [_ALL_HUBS, *(hub.name for hub in context.hubs())]
    with theme.dialog(f"Reset offsets of {group_id}", has_close=True) as dialog:
        if found.member_count:
            members = formatting.quantity(found.member_count, "active member")
            theme.note(f"The group has {members}. Stop the group first: a reset is refused.")
        hub = theme.choice(hubs, _ALL_HUBS, "Event hub")
        form = ResetForm()
        table = preview_table()

        def chosen_reset() -> Reset:
            context.require(Rights.MANAGE)
            return form.reset(None if hub.value == _ALL_HUBS else hub.value)

        async def preview() -> None:
            asked = chosen_reset()
            await _open_logs(context, group_id, asked)
            table.show(administration(context).plan_reset(group_id, asked))

        async def reset() -> None:
            admin, asked = administration(context), chosen_reset()
            await _open_logs(context, group_id, asked)
            planned = await context.session.submit(lambda actor, on_done: admin.reset(group_id, asked, actor, on_done))
            dialog.close()
            ui.notify(f"The offsets of {formatting.quantity(len(planned), 'partition')} were reset.", type="positive")

        with theme.row():
            ui.space()
            ui.button("Preview", on_click=theme.action_handler(preview)).props("no-caps outline").classes("h-default")
            ui.button("Reset", on_click=theme.action_handler(reset)).props("no-caps unelevated color=negative")


async def _open_logs(context: PageContext, group_id: str, reset: Reset) -> None:
    """Wait until the logs are open whose positions a reset needs."""
    names = administration(context).overview(group_id).hubs if reset.hub is None else [reset.hub]
    for name in names:
        hub = context.hub(name)
        await search.until_open(hub, range(hub.partition_count))


# --- consumer groups of hubs (AMQP) ----------------------------------------------------------------------------------


class _AmqpGroup:
    """A consumer group of a hub: readers and owners of partitions, and the last positions that the node knows."""

    def __init__(self, context: PageContext, hub: str, name: str) -> None:
        self._context = context
        self._hub = hub
        self._name = name
        self._tiles = _tiles("Event hub", "Protocol", "Readers", "Total lag")
        if context.may(Rights.MANAGE, context.hub(hub)) and fold(name) != fold(DEFAULT_GROUP):
            with theme.row():
                ui.button("Delete group", on_click=theme.action_handler(self._delete)).props(
                    "no-caps flat color=negative"
                )
        self._board = LagBoard(context, lambda: context.hub(hub), only=name, title="Lag in events")
        with theme.card("Partitions"):
            theme.note(
                "Clients of this protocol keep checkpoints in a store of their own. The node knows the position of "
                "open readers, and checkpoints that were stored on this node."
            )
            self._table = _amqp_table()
        theme.refresh_regularly(self._refresh)

    def _refresh(self) -> None:
        hub = self._context.hub(self._hub)
        self._context.require_view(hub)
        session = self._context.session
        names = self._context.reader_names(hub)
        rows = amqp_positions(session.broker, hub, self._name, session.clock.now_ms(), names)
        readers = len([row for row in rows if row.epoch is not None or row.reader])
        lag = known_lag_text(rows)
        for tile, text in zip(self._tiles, (hub.name, "AMQP", formatting.number(readers), lag), strict=True):
            tile.text = text
        self._table.show(rows)
        self._board.show()

    async def _delete(self) -> None:
        question = f"Delete the consumer group {self._name}? Its readers are disconnected."
        if not await theme.confirm(question, "Delete"):
            return
        context, hub = self._context, self._context.hub(self._hub)
        context.require(Rights.MANAGE, hub)
        manager, namespace = context.session.broker.manager, context.namespace_name
        await context.session.submit(
            lambda actor, on_done: manager.delete_group(namespace, self._hub, self._name, actor, on_done)
        )
        ui.navigate.to(context.url("/groups"))


def _amqp_table() -> PagedTable[ConsumerPosition]:
    return PagedTable[ConsumerPosition](
        (
            Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
            Column("source", "Source", lambda row: "open reader" if row.protocol == "AMQP" else "checkpoint"),
            Column("owner", "Owner or reader", lambda row: row.reader, lambda row: row.reader, wraps=True),
            Column("epoch", "Epoch", lambda row: _number(row.epoch), is_number=True),
            Column("position", "Next event", lambda row: _number(row.position), is_number=True),
            Column("lag", "Lag", lambda row: row.lag_text, lambda row: row.lag, True),
        ),
        key=lambda row: f"{row.partition}/{row.protocol}/{row.reader}",
        sorted_by="partition",
        empty_text="No reader is connected, and this node has no checkpoint of the group.",
    )
