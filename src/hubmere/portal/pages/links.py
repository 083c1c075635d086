"""Links: who reads and who publishes at this moment, and a doctor who names what is wrong."""

from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
from hubmere.model.entity import Rights
from hubmere.model.names import fold
from hubmere.portal import texts, theme
from hubmere.portal.doctor import Finding, Observer, Scene, findings
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place

# Findings that are shown; whoever has more begins with these.
_SHOWN_FINDINGS = 50


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
    tables = _Tables(place)

    def refresh() -> None:
        namespace = place.namespace
        hubs = [hub for hub in place.desk.hubs(namespace) if place.desk.may(Rights.LISTEN, namespace, hub)]
        now = place.desk.clock.monotonic()
        place.desk.sampler.look(namespace)
        observer.observe(hubs, now)
        rows = [row for hub in hubs for row in _rows(place, hub, observer, now)]
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
                )
            )
        )
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
