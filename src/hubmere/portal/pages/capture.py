"""Capture page: state, window and destination of every captured hub, and a dialog to change them."""

from collections.abc import Callable
from dataclasses import replace

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubCaptureStatus, HubView, JobState
from hubmere.model.entity import CaptureDescription, CaptureEncoding, Rights
from hubmere.model.spec import CAPTURE_DESTINATIONS, CAPTURE_INTERVAL_S, CAPTURE_SIZE_BYTES, HubSpec
from hubmere.portal import formatting, theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import CAPTURED_PATH, HUB_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_MIB = 1024 * 1024
_EDIT = "Edit"
_FILES = "Files"
_NONE = CaptureDescription()


@page("/capture", "Capture")
def capture(context: PageContext, _: Request) -> None:
    """The capture job and the table of hubs."""
    if not context.namespace.limits.has_capture:
        theme.note(f"Capture is not included in the tier {context.namespace.entity.tier}.")
    job = theme.note("")
    states = _States(context)

    def act(action: str, key: str) -> None:
        if action == _FILES:
            ui.navigate.to(context.url(CAPTURED_PATH, hub=key))
        else:
            _edit(context, key)

    def actions(hub: HubView) -> list[str]:
        has_files = _is_described(hub) and context.may(Rights.LISTEN, hub)
        return [*([_FILES] if has_files else []), *([_EDIT] if context.may(Rights.MANAGE, hub) else [])]

    with theme.card():
        table = PagedTable[HubView](
            _columns(states.get),
            key=lambda hub: str(hub.name),
            href=lambda hub: context.prefix + context.url(HUB_PATH, hub=hub.name),
            actions=actions,
            on_act=act,
            sorted_by="name",
            empty_text="There are no event hubs yet.",
        )

    def refresh() -> None:
        job.text = _job_text(context)
        states.clear()
        table.show(context.hubs())

    theme.refresh_regularly(refresh)


class _States:
    """Cache of the capture states of one refresh, so that the columns of a row share one query."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._known: dict[str, HubCaptureStatus] = {}

    def get(self, hub: HubView) -> HubCaptureStatus:
        """The capture state of a hub."""
        uid = hub.uid
        if uid not in self._known:
            self._known[uid] = status(self._context, hub)
        return self._known[uid]

    def clear(self) -> None:
        """Clear the cache before the next refresh."""
        self._known.clear()


def _columns(of: Callable[[HubView], HubCaptureStatus]) -> tuple[Column[HubView], ...]:
    return (
        Column("name", "Event hub", lambda hub: hub.name, lambda hub: hub.name.lower(), wraps=True),
        Column("state", "Capture", lambda hub: state_text(of(hub)), lambda hub: str(of(hub).state), wraps=True),
        Column("lag", "Pending", lambda hub: _lag_text(of(hub)), lambda hub: of(hub).lag_events, True),
        Column("window", "Window", _window),
        Column("encoding", "Encoding", lambda hub: str(_of(hub).encoding) if _is_described(hub) else ""),
        Column("destination", "Destination", _destination, wraps=True),
        Column("files", "Files", lambda hub: _files_text(of(hub)), lambda hub: of(hub).files, True),
        Column("written", "Last file (UTC)", lambda hub: _last_file_text(of(hub)), wraps=True),
    )


def status(context: PageContext, hub: HubView) -> HubCaptureStatus:
    """The current capture state of a hub."""
    return context.session.broker.captures.hub_status(hub, context.session.clock.monotonic())


def state_text(one: HubCaptureStatus) -> str:
    """The state of a hub, with its reason."""
    return f"{one.state}: {one.reason}" if one.reason else str(one.state)


def _lag_text(one: HubCaptureStatus) -> str:
    if one.state is JobState.OFF:
        return ""
    beyond = f", {formatting.size(one.held_bytes)} beyond retention" if one.held_bytes else ""
    return f"{formatting.quantity(one.lag_events, 'event')}, {formatting.size(one.backlog_bytes)}{beyond}"


def _files_text(one: HubCaptureStatus) -> str:
    return f"{formatting.number(one.files)}, {formatting.size(one.size_bytes)}" if one.files else ""


def _last_file_text(one: HubCaptureStatus) -> str:
    newest = one.last_file
    return "" if newest is None else f"{formatting.timestamp(one.last_written_ms)} {newest.name}"


def _job_text(context: PageContext) -> str:
    """The state of the job that writes the files; empty while no hub is captured."""
    captures = context.session.broker.captures
    job = captures.job_status(context.session.clock.monotonic())
    if job.state in (JobState.OFF, JobState.UNSUPERVISED) and not captures.hubs():
        return ""
    spark = f" on Spark {captures.job.spark_version}" if captures.job.spark_version else ""
    restarts = f", restarted {formatting.quantity(job.restarts, 'time')}" if job.restarts else ""
    reason = f": {job.reason}" if job.reason else ""
    return f"The capture job is {str(job.state).lower()}{spark}{restarts}{reason}."


def _of(hub: HubView) -> CaptureDescription:
    return hub.entity.capture or _NONE


def _is_described(hub: HubView) -> bool:
    return hub.entity.capture is not None


def _window(hub: HubView) -> str:
    described = hub.entity.capture
    return "" if described is None else f"{described.interval_s} s or {formatting.size(described.size_limit_bytes)}"


def _destination(hub: HubView) -> str:
    described = hub.entity.capture
    if described is None:
        return ""
    where = described.destination
    named = [part for part in (where.storage_account, where.container or where.data_lake_folder) if part]
    return " / ".join(named) or "the folder of the node"


def _edit(context: PageContext, name: str) -> None:
    """Show the capture settings of a hub in a dialog and save the changes."""
    hub = context.hub(name)
    context.require(Rights.MANAGE, hub)
    with theme.dialog(f"Capture of {name}") as dialog:
        form = _Form(_of(hub))

        async def save() -> None:
            current = context.hub(name)
            context.require(Rights.MANAGE, current)
            spec = replace(HubSpec.of(current.entity), capture=form.description(_of(current)))
            manager, namespace = context.session.broker.manager, context.namespace_name
            await context.session.submit(
                lambda actor, on_done: manager.update_hub(namespace, name, spec, actor, on_done)
            )
            dialog.close()
            ui.notify(f"Capture settings of {name} were saved.", type="positive")

        theme.dialog_buttons(dialog, "Save", save)


class _Form:
    """The fields of the capture settings."""

    def __init__(self, described: CaptureDescription) -> None:
        where = described.destination
        self._enabled = ui.switch("Enabled", value=described.enabled)
        self._encoding = ui.select(
            [str(each) for each in CaptureEncoding], value=str(described.encoding), label="Encoding"
        )
        self._interval = ui.number(
            f"Time window in seconds ({CAPTURE_INTERVAL_S.start} to {CAPTURE_INTERVAL_S[-1]})",
            value=described.interval_s,
            precision=0,
        )
        self._size = ui.number(
            f"Size window in MB ({CAPTURE_SIZE_BYTES.start // _MIB} to {CAPTURE_SIZE_BYTES[-1] // _MIB})",
            value=described.size_limit_bytes // _MIB,
            precision=0,
        )
        self._skip = ui.switch("Skip empty files", value=described.skip_empty)
        self._cold = ui.switch("Cold reads: readers get events that only files still hold", value=described.cold_reads)
        self._kind = ui.select(list(CAPTURE_DESTINATIONS), value=where.name, label="Destination type")
        self._account = ui.input(
            "Storage account or URL", placeholder="the folder of the node", value=where.storage_account
        )
        self._container = ui.input("Container", value=where.container)
        self._format = ui.input("File name format", value=where.archive_name_format)
        fields = (self._encoding, self._interval, self._size, self._kind, self._account, self._container, self._format)
        for field in fields:
            field.props("outlined dense")

    def description(self, before: CaptureDescription) -> CaptureDescription:
        """The settings in the form; settings without a field are unchanged."""
        return replace(
            before,
            enabled=bool(self._enabled.value),
            encoding=CaptureEncoding(self._encoding.value),
            interval_s=int(self._interval.value or 0),
            size_limit_bytes=int(self._size.value or 0) * _MIB,
            skip_empty=bool(self._skip.value),
            cold_reads=bool(self._cold.value),
            destination=replace(
                before.destination,
                name=self._kind.value,
                storage_account=self._account.value,
                container=self._container.value,
                archive_name_format=self._format.value,
            ),
        )
