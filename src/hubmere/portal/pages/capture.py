"""Capture: which hubs are captured, in which windows and where to; switched and changed here."""

from dataclasses import replace

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
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

    def edit(_action: str, key: str) -> None:
        _edit(place, key)

    def actions(hub: LiveHub) -> list[str]:
        return [_EDIT] if place.may(Rights.MANAGE, hub) else []

    with theme.card():
        table = PagedTable[LiveHub](
            (
                Column("name", "Event hub", lambda hub: hub.name, lambda hub: hub.name.lower()),
                Column(
                    "state", "Capture", lambda hub: "on" if _of(hub).enabled else "off", lambda hub: _of(hub).enabled
                ),
                Column("window", "Window", _window),
                Column("encoding", "Encoding", lambda hub: str(_of(hub).encoding) if _is_described(hub) else ""),
                Column("destination", "Destination", _destination),
                Column("written", "Last written (UTC)", lambda hub: _last_written(place, hub)),
            ),
            key=lambda hub: str(hub.name),
            href=lambda hub: place.prefix + place.url(HUB_PATH, hub=hub.name),
            actions=actions,
            on_act=edit,
            sorted_by="name",
        )
    theme.follow(lambda: table.show(place.desk.hubs(place.namespace)))


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
    return " / ".join(part for part in (where.storage_account, where.container or where.data_lake_folder) if part)


def _last_written(place: Place, hub: LiveHub) -> str:
    states = place.desk.broker.catalog.view.capture_states(hub.entity.uid)
    return texts.instant(max((state.modified_ms for state in states), default=-1))


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
            await place.desk.carry_out(lambda by, done: manager.update_hub(namespace, name, spec, by, done))
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
        self._account = ui.input("Storage account, or its resource id", value=where.storage_account)
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
