"""Links page: open connections, readers and publishers, and the findings of the doctor.

Connections show addresses and names of rules, so they need the Manage right on the namespace. Connections that have not
authenticated yet belong to no namespace and are shown to the administrator only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from hubmere.broker import MAX_DESCRIBED, ConnectionView, HubView, LinkRole, LinkView, Reader
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.model.names import fold
from hubmere.portal import formatting, theme
from hubmere.portal.doctor.diagnosis import Observer
from hubmere.portal.doctor.findings_card import Doctor, FindingsCard
from hubmere.portal.history.consumer_lag import ReaderNames, group_label
from hubmere.portal.history.reader_names import product, reader_label, reader_names
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_MAX_CHARACTERS = 30
_CLOSE_REASON = "The connection was closed in the portal."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """A row of the table of readers."""

    hub: str
    partition: int
    group: str
    name: str
    epoch: int | None
    position: int
    lag: int
    idle_s: float


@page("/links", "Links")
def links(context: PageContext, _: Request) -> None:
    """Tiles, findings, connections, readers and publishers."""
    context.require_view(_only_hub(context))
    theme.refresh_regularly(_LinksPage(context).refresh)


class _LinksPage:
    """The sections of the page, and what was observed since it was opened."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._doctor = Doctor(context)
        with ui.element("div").classes("h-tiles"):
            self._connection_count = theme.tile("Connections")
            self._reader_count = theme.tile("Readers")
            self._publisher_count = theme.tile("Publishing links")
        self._findings = FindingsCard("Doctor")
        self._connections = _Connections(context) if context.may(Rights.MANAGE) else None
        self._tables = _Tables(context)

    def refresh(self) -> None:
        """Observe the readers once more and display the current state."""
        now = self._context.session.clock.monotonic()
        views = [] if self._connections is None else self._connections.visible()
        self._findings.show(self._doctor.examine(views))
        names, observer, hubs = reader_names(views), self._doctor.observer, self._doctor.hubs
        rows = [row for found in observer.readers() for row in _rows(self._context, *found, observer, names, now)]
        self._connection_count.text = formatting.number(self._context.namespace.counters.active_connections)
        self._reader_count.text = formatting.number(len(rows))
        self._publisher_count.text = formatting.number(sum(len(hub.publisher_names()) for hub in hubs))
        if self._connections is not None:
            self._connections.show(views)
        self._tables.show(rows, hubs)


def _only_hub(context: PageContext) -> HubView | None:
    """The hub of a credential that covers one hub only, else None."""
    if context.covers_namespace:
        return None
    return next(iter(context.hubs()), None)


def _rows(
    context: PageContext,
    hub: HubView,
    readers: Sequence[Reader],
    observer: Observer,
    names: ReaderNames,
    now: float,
) -> list[_Reader]:
    groups = {fold(group.name): str(group.name) for group in context.session.broker.entities.groups(hub.entity)}
    return [
        _Reader(
            hub=hub.name,
            partition=reader.partition,
            group=groups.get(reader.group, reader.group),
            name=names.get(reader) or reader_label(reader.name),
            epoch=reader.epoch,
            position=reader.next_sequence,
            lag=max(reader.lag, 0),
            idle_s=observer.stalled_for(hub, reader, now),
        )
        for reader in readers
    ]


class _Connections:
    """The table of connections, with a button that closes one."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with theme.card("Connections"):
            self._table = PagedTable[ConnectionView](
                (
                    Column("number", "Number", lambda row: row.number, lambda row: row.number),
                    Column("protocol", "Protocol", _protocol, _protocol),
                    Column("rule", "Identity", _identity, _identity, wraps=True),
                    Column("peer", "From", lambda row: row.peer, lambda row: row.peer),
                    Column("links", "Activity", lambda row: _links_text(context, row), wraps=True),
                    Column("lag", "Lag", lambda row: formatting.number(_lag(row)), _lag, True),
                    Column(
                        "idle", "Last received", lambda row: f"{row.idle_s:.0f} s ago", lambda row: row.idle_s, True
                    ),
                    Column("client", "Client", _client, _client, wraps=True),
                ),
                key=lambda row: str(row.number),
                actions=lambda row: ("Links", "Close") if row.links else ("Close",),
                on_act=self._on_action,
                sorted_by="number",
                empty_text="No client is connected.",
            )
            self._note = theme.note("")
            self._dialogs = ui.element("div")

    def visible(self) -> list[ConnectionView]:
        """The connections that the person may see."""
        context = self._context
        context.require(Rights.MANAGE)
        namespace, is_admin = fold(context.namespace.name), context.caller.is_admin
        return [
            view
            for view in context.session.broker.connections.snapshots()
            if view.namespace == namespace or (not view.namespace and is_admin and not self._is_portal(view))
        ]

    def _is_portal(self, view: ConnectionView) -> bool:
        """Whether it is a browser that uses this portal. Each browser opens about six connections."""
        return any(link.address.startswith(f"{self._context.prefix}/") for link in view.links)

    def show(self, views: Sequence[ConnectionView]) -> None:
        """Display connections."""
        self._table.show(views)
        count = len(self._context.session.broker.connections)
        self._note.text = (
            f"Only the oldest {MAX_DESCRIBED:,} of {count:,} connections are shown." if count > MAX_DESCRIBED else ""
        )

    async def _on_action(self, action: str, key: str) -> None:
        view = next((view for view in self.visible() if view.number == int(key)), None)
        if view is None:
            ui.notify("This connection is already closed.", type="info")
        elif action == "Close":
            await self._close(view)
        else:
            _show_links(view)

    async def _close(self, view: ConnectionView) -> None:
        with self._dialogs:
            if not await theme.confirm(f"Close {view.label}? The client may reconnect.", "Close"):
                return
        # Check again: the connection or the right to close it may be gone since the dialog was opened.
        if any(other.number == view.number for other in self.visible()):
            self._context.session.broker.connections.disconnect(view.number, _CLOSE_REASON)
            await self._context.session.write_audit("close connection", f"{view.namespace}/connections/{view.number}")
        ui.notify(f"Connection {view.number} was closed.", type="positive")


def _short(text: str) -> str:
    """A name, shortened to fit a column; the dialog with the links has the full name."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _client(view: ConnectionView) -> str:
    """The software of the client, else the name that it gave itself; the dialog with the links has both in full."""
    return _short(product(view.software) or view.client)


def _protocol(view: ConnectionView) -> str:
    return f"{view.protocol}, TLS" if view.is_secure else view.protocol


def _links_text(context: PageContext, view: ConnectionView) -> str:
    """The links by role: the address of a single link, the number of several. Request links only if no others."""
    on_hubs = [link for link in view.links if link.role is not LinkRole.ASKS]
    parts = []
    for role in LinkRole:
        links = [link for link in on_hubs or view.links if link.role is role]
        if links:
            parts.append(
                f"{role} {_target(context, links[0]) if len(links) == 1 else f'{len(links)} partitions or hubs'}"
            )
    return ", ".join(parts)


def _target(context: PageContext, link: LinkView) -> str:
    if not link.group:
        return _short(link.address)
    try:
        group = group_label(context.session.broker, context.hub(link.hub), link.group)
    except Refusal:
        # The hub has just been deleted.
        group = link.group
    return f"{link.hub}/{link.partition} as {group}"


def _lag(view: ConnectionView) -> int:
    return sum(link.lag or 0 for link in view.links)


def _show_links(view: ConnectionView) -> None:
    with theme.dialog(f"Links of {view.label}", has_close=True):
        theme.note(f"Open since {formatting.timestamp(view.opened_ms)} UTC. {view.client} {view.software}")
        table = PagedTable[LinkView](
            (
                Column("role", "Activity", lambda row: str(row.role), lambda row: row.role),
                Column("address", "Address", lambda row: row.address, lambda row: row.address, wraps=True),
                Column("name", "Name", lambda row: row.name, lambda row: row.name, wraps=True),
                Column("credit", "Credit", lambda row: _number_text(row.credit), is_number=True),
                Column("position", "Position", lambda row: _number_text(row.position), is_number=True),
                Column("lag", "Lag", lambda row: _number_text(row.lag), lambda row: row.lag or 0, True),
                Column("epoch", "Epoch", lambda row: _number_text(row.epoch), is_number=True),
            ),
            key=lambda row: f"{row.role}/{row.address}/{row.name}",
            sorted_by="address",
        )
        table.show(view.links)


def _number_text(number: int | None) -> str:
    return "" if number is None else str(number)


class _Tables:
    """The tables of readers and publishers."""

    def __init__(self, context: PageContext) -> None:
        with theme.card("Readers"):
            self._readers = PagedTable[_Reader](
                (
                    Column("hub", "Event hub", lambda row: row.hub, lambda row: row.hub.lower(), wraps=True),
                    Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
                    Column("group", "Consumer group", lambda row: row.group, lambda row: row.group, wraps=True),
                    Column("name", "Reader", lambda row: row.name, lambda row: row.name, wraps=True),
                    Column("epoch", "Epoch", lambda row: "" if row.epoch is None else row.epoch, is_number=True),
                    Column("position", "Position", lambda row: row.position, is_number=True),
                    Column("lag", "Lag", lambda row: formatting.number(row.lag), lambda row: row.lag, True),
                    Column("idle", "No progress for", lambda row: f"{row.idle_s:.0f} s" if row.idle_s > 1 else ""),
                ),
                key=lambda row: f"{row.hub}/{row.partition}/{row.group}/{row.name}",
                href=lambda row: context.prefix + context.url(HUB_PATH, hub=row.hub),
                sorted_by="hub",
                empty_text="No AMQP reader is connected.",
            )
        with theme.card("Publishers"):
            self._publishers = PagedTable[HubView](
                (
                    Column("hub", "Event hub", lambda hub: hub.name, lambda hub: hub.name.lower(), wraps=True),
                    Column("links", "Open links", _link_count, _link_count, True),
                    Column("names", "Publishers", _publisher_names, wraps=True),
                    Column("revoked", "Revoked", _revoked_count, _revoked_count, True),
                ),
                key=lambda hub: str(hub.name),
                href=lambda hub: context.prefix + context.url(HUB_PATH, hub=hub.name),
                sorted_by="hub",
                empty_text="No AMQP client publishes.",
            )

    def show(self, rows: list[_Reader], hubs: list[HubView]) -> None:
        """Display readers, and hubs with publishers."""
        self._readers.show(rows)
        self._publishers.show([hub for hub in hubs if _link_count(hub) or _revoked_count(hub)])


def _identity(connection: ConnectionView) -> str:
    return connection.rule or "not authenticated"


def _link_count(hub: HubView) -> int:
    return len(hub.publisher_names())


def _revoked_count(hub: HubView) -> int:
    return hub.revoked_publisher_count


def _publisher_names(hub: HubView) -> str:
    names = sorted({name for name in hub.publisher_names() if name})
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
