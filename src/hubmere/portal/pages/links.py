"""Links: who is connected, reads and publishes at this moment, and a doctor who names what is wrong.

Connections show addresses and names of rules, so they are for those who manage the namespace; connections that have
proven nothing yet belong to no namespace and are the administrator's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
from hubmere.broker.management.connections import MAX_DESCRIBED, ConnectionView, LinkView, Role
from hubmere.model.entity import Rights
from hubmere.model.names import fold
from hubmere.portal import texts, theme
from hubmere.portal.doctor import Finding, Observer, Scene, findings, held_by
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place

# Findings that are shown; whoever has more begins with these.
_SHOWN_FINDINGS = 50
_SHOWN_CHARACTERS = 30
_CLOSED = "The connection was closed in the portal."


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
    still_s: float


@page("/links", "Links")
def links(place: Place, _: Request) -> None:
    """Numbers, the doctor, readers, publishers."""
    place.desk.require(Rights.LISTEN, place.namespace, _only_hub(place))
    observer = Observer()
    with ui.element("div").classes("h-tiles"):
        connections, readers, publishers = (theme.tile(name) for name in ("Connections", "Readers", "Publishing links"))
    doctor = _Doctor()
    connected = _Connections(place) if place.may(Rights.MANAGE) else None
    tables = _Tables(place)

    def refresh() -> None:
        namespace = place.namespace
        hubs = place.desk.hubs(namespace)
        # Whoever may listen to the namespace may listen to all of it; each of a thousand hubs is not asked for anew.
        if not place.desk.may(Rights.LISTEN, namespace):
            hubs = [hub for hub in hubs if place.desk.may(Rights.LISTEN, namespace, hub)]
        now = place.desk.clock.monotonic()
        place.desk.sampler.look(namespace)
        observer.observe(hubs, now, place.desk.clock.now_ms())
        rows = [row for hub in hubs for row in _rows(place, hub, observer, now)]
        views = [] if connected is None else connected.look()
        connections.text = texts.number(place.desk.broker.counters.active_connections)
        readers.text = texts.number(len(rows))
        publishers.text = texts.number(sum(len(hub.publishers) for hub in hubs))
        doctor.show(
            findings(
                Scene(
                    namespace=namespace,
                    hubs=hubs,
                    observer=observer,
                    rates=place.desk.sampler.rates,
                    now=now,
                    now_ms=place.desk.clock.now_ms(),
                    conditions=place.desk.broker.conditions.all(),
                    connections=views,
                    held=held_by(views),
                )
            )
        )
        if connected is not None:
            connected.show(views)
        tables.show(rows, hubs)

    theme.follow(refresh)


def _only_hub(place: Place) -> LiveHub | None:
    """The hub to which a person is bound, if they are."""
    if place.desk.sees_all(place.namespace):
        return None
    return next(iter(place.desk.hubs(place.namespace)), None)


def _rows(place: Place, hub: LiveHub, observer: Observer, now: float) -> list[_Reader]:
    readers = hub.readers.all()
    if not readers:
        return []
    names = {fold(group.name): str(group.name) for group in place.desk.broker.catalog.view.groups(hub.entity)}
    return [
        _Reader(
            hub=hub.name,
            partition=reader.partition,
            group=names.get(reader.group, reader.group),
            name=reader.name,
            epoch=reader.epoch,
            position=reader.next_sequence,
            lag=max(reader.lag, 0),
            still_s=observer.stalled_for(hub, reader, now),
        )
        for reader in readers
    ]


class _Connections:
    """Open connections: who they are, what they do, and the way to close one."""

    def __init__(self, place: Place) -> None:
        self._place = place
        with theme.card("Connections"):
            self._table = PagedTable[ConnectionView](
                (
                    Column("number", "Number", lambda row: row.number, lambda row: row.number),
                    Column("protocol", "Protocol", _protocol, _protocol),
                    Column("rule", "Identity", lambda row: row.rule or "none yet", lambda row: row.rule),
                    Column("peer", "From", lambda row: row.peer, lambda row: row.peer),
                    Column("doing", "Does", _doing),
                    Column("credit", "Credit", _credit, is_number=True),
                    Column("lag", "Lag", lambda row: texts.number(_lag(row)), _lag, True),
                    Column("idle", "Heard", lambda row: f"{row.idle_s:.0f} s ago", lambda row: row.idle_s, True),
                    Column("client", "Client", lambda row: _short(row.client), lambda row: row.client),
                    Column("software", "Software", lambda row: _short(row.software), lambda row: row.software),
                ),
                key=lambda row: str(row.number),
                actions=lambda row: ("Links", "Close") if row.links else ("Close",),
                on_act=self._act,
                sorted_by="number",
            )
            self._note = theme.note("")
            self._beside = ui.element("div")

    def look(self) -> list[ConnectionView]:
        """The connections that this person may know of."""
        desk, namespace = self._place.desk, self._place.namespace
        desk.require(Rights.MANAGE, namespace)
        return [
            view
            for view in desk.broker.connections.snapshots()
            if view.namespace == namespace.entity.key[0]
            or (not view.namespace and desk.principal.is_admin and not self._is_our_own(view))
        ]

    def _is_our_own(self, view: ConnectionView) -> bool:
        """Whether a browser loads this portal over it: half a dozen for each, which say nothing about the namespace."""
        return any(link.address.startswith(f"{self._place.prefix}/") for link in view.links)

    def show(self, views: Sequence[ConnectionView]) -> None:
        """Show them."""
        self._table.show(views)
        count = len(self._place.desk.broker.connections)
        self._note.text = f"The oldest {MAX_DESCRIBED:,} of {count:,} are looked at." if count > MAX_DESCRIBED else ""

    async def _act(self, action: str, key: str) -> None:
        view = next((view for view in self.look() if view.number == int(key)), None)
        if view is None:
            ui.notify("This connection has gone.", type="info")
        elif action == "Close":
            await self._close(view)
        else:
            _show_links(view)

    async def _close(self, view: ConnectionView) -> None:
        with self._beside:
            if not await theme.confirmed(f"Close {view.label}? Its client may come back.", "Close"):
                return
        # Asked again: the connection, and the right to close it, may have gone meanwhile.
        if any(other.number == view.number for other in self.look()):
            self._place.desk.broker.connections.disconnect(view.number, _CLOSED)
            self._place.desk.note("close connection", f"{view.namespace}/connections/{view.number}")
        ui.notify(f"Connection {view.number} is closed.", type="positive")


def _short(text: str) -> str:
    """As much of a name as a column has room for; the whole is shown with the links."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _protocol(view: ConnectionView) -> str:
    return f"{view.protocol}, TLS" if view.is_secure else view.protocol


def _doing(view: ConnectionView) -> str:
    """How many links of each kind, and on what when there is one; questions only where there is nothing else."""
    on_hubs = [link for link in view.links if link.role is not Role.ASKS]
    told = []
    for role in Role:
        links = [link for link in on_hubs or view.links if link.role is role]
        if links:
            told.append(f"{role} {_what(links[0]) if len(links) == 1 else f'{len(links)} partitions or hubs'}")
    return ", ".join(told)


def _what(link: LinkView) -> str:
    return f"{link.hub}/{link.partition} as {link.group}" if link.group else _short(link.address)


def _credit(view: ConnectionView) -> str:
    given = [link.credit for link in view.links if link.role is Role.READS and link.credit is not None]
    return texts.number(sum(given)) if given else ""


def _lag(view: ConnectionView) -> int:
    return sum(link.lag or 0 for link in view.links)


def _show_links(view: ConnectionView) -> None:
    with theme.dialog(f"Links of {view.label}", has_close=True):
        theme.note(f"Open since {texts.instant(view.opened_ms)} UTC. {view.software}")
        table = PagedTable[LinkView](
            (
                Column("role", "Does", lambda row: str(row.role), lambda row: row.role),
                Column("address", "Address", lambda row: row.address, lambda row: row.address),
                Column("name", "Name", lambda row: row.name, lambda row: row.name),
                Column("credit", "Credit", lambda row: _given(row.credit), is_number=True),
                Column("position", "Position", lambda row: _given(row.position), is_number=True),
                Column("lag", "Lag", lambda row: _given(row.lag), lambda row: row.lag or 0, True),
                Column("epoch", "Epoch", lambda row: _given(row.epoch), is_number=True),
            ),
            key=lambda row: f"{row.role}/{row.address}/{row.name}",
            sorted_by="address",
        )
        table.show(view.links)


def _given(number: int | None) -> str:
    return "" if number is None else str(number)


class _Doctor:
    """What is wrong, in words."""

    def __init__(self) -> None:
        self._shown: list[Finding] | None = None
        with theme.card("Doctor"):
            self._body = ui.column().style("gap: 10px; width: 100%").props('role="status"')

    def show(self, found: list[Finding]) -> None:
        """Show the findings, unless they are the same as before."""
        if found == self._shown:
            return
        self._shown = found
        self._body.clear()
        with self._body:
            if not found:
                ui.label("Nothing is wrong.").classes("h-badge good")
            for finding in found[:_SHOWN_FINDINGS]:
                with ui.column().classes(f"h-finding {finding.severity}"):
                    ui.label(f"{finding.ailment}: {finding.where}").style("font-weight: 650")
                    ui.label(finding.what)
                    theme.note(finding.remedy)


class _Tables:
    """Readers and publishers."""

    def __init__(self, place: Place) -> None:
        with theme.card("Readers"):
            self._readers = PagedTable[_Reader](
                (
                    Column("hub", "Event hub", lambda row: row.hub, lambda row: row.hub.lower()),
                    Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
                    Column("group", "Consumer group", lambda row: row.group, lambda row: row.group),
                    Column("name", "Reader", lambda row: row.name, lambda row: row.name),
                    Column("epoch", "Epoch", lambda row: "" if row.epoch is None else row.epoch, is_number=True),
                    Column("position", "Position", lambda row: row.position, is_number=True),
                    Column("lag", "Lag", lambda row: texts.number(row.lag), lambda row: row.lag, True),
                    Column("still", "Standing still", lambda row: f"{row.still_s:.0f} s" if row.still_s > 1 else ""),
                ),
                key=lambda row: f"{row.hub}/{row.partition}/{row.group}/{row.name}",
                href=lambda row: place.prefix + place.url(HUB_PATH, hub=row.hub),
                sorted_by="hub",
            )
        with theme.card("Publishers"):
            self._publishers = PagedTable[LiveHub](
                (
                    Column("hub", "Event hub", lambda hub: hub.name, lambda hub: hub.name.lower()),
                    Column(
                        "links", "Open links", lambda hub: len(hub.publishers), lambda hub: len(hub.publishers), True
                    ),
                    Column("names", "Publishers", _publisher_names),
                    Column("revoked", "Revoked", lambda hub: len(hub.revoked), lambda hub: len(hub.revoked), True),
                ),
                key=lambda hub: str(hub.name),
                href=lambda hub: place.prefix + place.url(HUB_PATH, hub=hub.name),
                sorted_by="hub",
            )

    def show(self, rows: list[_Reader], hubs: list[LiveHub]) -> None:
        """Show who is there."""
        self._readers.show(rows)
        self._publishers.show([hub for hub in hubs if hub.publishers or hub.revoked])


def _publisher_names(hub: LiveHub) -> str:
    names = sorted({name for name in hub.publishers.values() if name})
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
