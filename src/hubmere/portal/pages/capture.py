"""Capture: which hubs are captured, in which windows and where to, and how that goes; switched and changed here."""

from collections.abc import Callable
from dataclasses import replace

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
from hubmere.broker.management.capture import HubStanding, JobState
from hubmere.model.entity import CaptureDescription, CaptureEncoding, Rights
from hubmere.model.spec import CAPTURE_DESTINATIONS, CAPTURE_INTERVAL_S, CAPTURE_SIZE_BYTES, HubSpec
from hubmere.portal import texts, theme
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place

_MIB = 1024 * 1024
_EDIT = "Edit"
_NONE = CaptureDescription()


@page("/capture", "Capture")
def capture(place: Place, _: Request) -> None:
    """The hubs and what is captured of them."""
    if not place.namespace.limits.has_capture:
        theme.note(f"Capture is not part of the tier {place.namespace.entity.tier}.")
    job = theme.note("")
    standings = _Standings(place)

    def edit(_action: str, key: str) -> None:
        _edit(place, key)

    def actions(hub: LiveHub) -> list[str]:
        return [_EDIT] if place.may(Rights.MANAGE, hub) else []

    with theme.card():
        table = PagedTable[LiveHub](
            _columns(standings.of),
            key=lambda hub: str(hub.name),
            href=lambda hub: place.prefix + place.url(HUB_PATH, hub=hub.name),
            actions=actions,
            on_act=edit,
            sorted_by="name",
        )

    def refresh() -> None:
        job.text = _shown_job(place)
        standings.forget()
        table.show(place.desk.hubs(place.namespace))

    theme.follow(refresh)


class _Standings:
    """How the hubs of one refresh stand: asked once for each that is shown, for all of its columns."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: dict[str, HubStanding] = {}

    def of(self, hub: LiveHub) -> HubStanding:
        """How one hub stands."""
        uid = hub.entity.uid
        if uid not in self._known:
            self._known[uid] = standing(self._place, hub)
        return self._known[uid]

    def forget(self) -> None:
        """The next refresh asks anew."""
        self._known.clear()


def _columns(of: Callable[[LiveHub], HubStanding]) -> tuple[Column[LiveHub], ...]:
    return (
        Column("name", "Event hub", lambda hub: hub.name, lambda hub: hub.name.lower()),
        Column("state", "Capture", lambda hub: shown_state(of(hub)), lambda hub: str(of(hub).state)),
        Column("lag", "PendingResponse", lambda hub: _shown_lag(of(hub)), lambda hub: of(hub).lag_events, True),
        Column("window", "Window", _window),
        Column("encoding", "Encoding", lambda hub: str(_of(hub).encoding) if _is_described(hub) else ""),
        Column("destination", "Destination", _destination),
        Column("files", "Files", lambda hub: _shown_files(of(hub)), lambda hub: of(hub).files, True),
        Column("written", "Last file (UTC)", lambda hub: _last_file(of(hub))),
    )


def standing(place: Place, hub: LiveHub) -> HubStanding:
    """How the capture of a hub goes now."""
    return place.desk.broker.captures.standing(hub, place.desk.clock.monotonic())


def shown_state(one: HubStanding) -> str:
    """The state in a word or a sentence."""
    return f"{one.state}: {one.reason}" if one.reason else str(one.state)


def _shown_lag(one: HubStanding) -> str:
    if one.state is JobState.OFF:
        return ""
    held = f", {texts.size(one.held_bytes)} past retention" if one.held_bytes else ""
    return f"{texts.number(one.lag_events)} events, {texts.size(one.backlog_bytes)}{held}"


def _shown_files(one: HubStanding) -> str:
    return f"{texts.number(one.files)}, {texts.size(one.size_bytes)}" if one.files else ""


def _last_file(one: HubStanding) -> str:
    newest = one.last_file
    return "" if newest is None else f"{texts.instant(one.last_written_ms)} {newest.name}"


def _shown_job(place: Place) -> str:
    """The job that writes the files of all hubs; empty while nothing is captured."""
    captures = place.desk.broker.captures
    told = captures.job_standing(place.desk.clock.monotonic())
    if told.state in (JobState.OFF, JobState.UNSUPERVISED) and next(captures.hubs(), None) is None:
        return ""
    spark = f" on Spark {captures.job.spark_version}" if captures.job.spark_version else ""
    restarts = f", restarted {told.restarts} times" if told.restarts else ""
    reason = f": {told.reason}" if told.reason else ""
    return f"The job that writes the files is {str(told.state).lower()}{spark}{restarts}{reason}."


def _of(hub: LiveHub) -> CaptureDescription:
    return hub.entity.capture or _NONE


def _is_described(hub: LiveHub) -> bool:
    return hub.entity.capture is not None


def _window(hub: LiveHub) -> str:
    described = hub.entity.capture
    return "" if described is None else f"{described.interval_s} s or {texts.size(described.size_limit_bytes)}"


def _destination(hub: LiveHub) -> str:
    described = hub.entity.capture
    if described is None:
        return ""
    where = described.destination
    named = [part for part in (where.storage_account, where.container or where.data_lake_folder) if part]
    return " / ".join(named) or "the node's own folder"


def _edit(place: Place, name: str) -> None:
    """Show the description of a hub and take a changed one."""
    hub = place.hub(name)
    place.desk.require(Rights.MANAGE, place.namespace, hub)
    with theme.dialog(f"Capture of {name}") as dialog:
        form = _Form(_of(hub))

        async def save() -> None:
            current = place.hub(name)
            place.desk.require(Rights.MANAGE, place.namespace, current)
            spec = replace(HubSpec.of(current.entity), capture=form.described(_of(current)))
            manager, namespace = place.desk.broker.manager, place.namespace_name
            await place.desk.carry_out(lambda actor, done: manager.update_hub(namespace, name, spec, actor, done))
            dialog.close()
            ui.notify(f"Capture of {name} is saved.", type="positive")

        theme.dialog_buttons(dialog, "Save", save)


class _Form:
    """The fields of a description."""

    def __init__(self, described: CaptureDescription) -> None:
        where = described.destination
        self._enabled = ui.switch("On", value=described.enabled)
        self._encoding = ui.select(
            [str(each) for each in CaptureEncoding], value=str(described.encoding), label="Encoding"
        )
        self._interval = ui.number(
            f"Close a file after seconds ({CAPTURE_INTERVAL_S.start} to {CAPTURE_INTERVAL_S[-1]})",
            value=described.interval_s,
            precision=0,
        )
        self._size = ui.number(
            f"or at MB ({CAPTURE_SIZE_BYTES.start // _MIB} to {CAPTURE_SIZE_BYTES[-1] // _MIB})",
            value=described.size_limit_bytes // _MIB,
            precision=0,
        )
        self._skip = ui.switch("Write no empty files", value=described.skip_empty)
        self._kind = ui.select(list(CAPTURE_DESTINATIONS), value=where.name, label="Kind of destination")
        self._account = ui.input(
            "Storage account, its resource id, or a URL (empty: the node's own folder)", value=where.storage_account
        )
        self._container = ui.input("Container", value=where.container)
        self._format = ui.input("Names of files", value=where.archive_name_format)
        fields = (self._encoding, self._interval, self._size, self._kind, self._account, self._container, self._format)
        for field in fields:
            field.props("outlined dense")

    def described(self, before: CaptureDescription) -> CaptureDescription:
        """What the fields say; parts that are not shown stay as they were."""
        return replace(
            before,
            enabled=bool(self._enabled.value),
            encoding=CaptureEncoding(self._encoding.value),
            interval_s=int(self._interval.value or 0),
            size_limit_bytes=int(self._size.value or 0) * _MIB,
            skip_empty=bool(self._skip.value),
            destination=replace(
                before.destination,
                name=self._kind.value,
                storage_account=self._account.value,
                container=self._container.value,
                archive_name_format=self._format.value,
            ),
        )
