"""The work of a task of Capture: stages one file, and returns a description of it.

A file that is already published, under its name and with its span, is not written again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost
from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.destinations import Upload, destination_of
from hubmere.pipeline.capture.files.content import content_of
from hubmere.pipeline.capture.files.names import Span
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.probe import HubProbe
from hubmere.pipeline.decode import visible_batches
from hubmere.pipeline.ranges import check_hub

log = logging.getLogger("hubmere.capture")


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to write: its events, its name and encoding, and the start of the window after it."""

    span: Span
    name: str
    encoding: CaptureEncoding
    next_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that a task has staged or found published; `next_s` is the start of the next window."""

    partition: int
    first: int
    end: int
    name: str
    encoding: str
    next_s: int
    size_bytes: int
    events: int
    first_us: int
    last_us: int
    lost: int  # events of the range that could not be read: deleted by retention, or damaged on the node
    token: Mapping[str, Any] | None  # None: already published


def write_file(hub: HubPlan, file: FileTask, attempt: str) -> WrittenFile:
    """Stage a file unless it was already published."""
    destination = destination_of(hub.target.url, hub.target.options)
    if destination.span_of(file.name) == file.span:
        return _published_file(hub, file)
    upload = destination.upload(file.name, file.span, attempt)
    try:
        return _write_events(hub, file, upload)
    except BaseException:
        upload.abandon()
        raise


class _Counted:
    """File-like wrapper of an upload that counts the bytes."""

    closed = False

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        """Write bytes."""
        count = self._upload.write(data)
        self.size_bytes += count
        return count

    def flush(self) -> None:
        """Nothing to do."""


def _write_events(hub: HubPlan, file: FileTask, upload: Upload) -> WrittenFile:
    _, index, first, end = file.span
    sink = _Counted(upload)
    content = content_of(file.encoding, sink, file.name, file.span.text(), index, hub.topic_id)  # type: ignore[arg-type]
    lost = 0
    with Client(hub.account) as client:
        reader = HubReader(client, hub.hub)
        at = first
        while at < end:
            try:
                for fetched in reader.read_range(index, at, end):
                    lost += _count_damaged(hub, index, fetched.missing_between(at, end))
                    for batch in visible_batches(fetched, at, end):
                        content.add(batch, index, at, end)
                    at = fetched.next_sequence
            except RangeLost as loss:
                behind = min(loss.first, end) if loss.first > loss.wanted else end
                lost, at = lost + behind - loss.wanted, behind
                log.warning("%s: %s", hub, loss)
        # If the hub was created again meanwhile, the new one has a query of its own.
        check_hub(reader, hub.hub, hub.topic_id)
    content.close()
    first_us, last_us = content.times_us or (0, 0)
    return WrittenFile(
        partition=index, first=first, end=end, name=file.name, encoding=str(file.encoding), next_s=file.next_s,
        size_bytes=sink.size_bytes, events=content.events, first_us=first_us, last_us=last_us, lost=lost,
        token=upload.finish(),
    )  # fmt: skip


def _count_damaged(hub: HubPlan, index: int, missing: Sequence[tuple[int, int]]) -> int:
    """Log each missing range; returns the number of missing events."""
    for first, behind in missing:
        log.warning("%s: partition %d: events %d to %d are damaged on the node", hub, index, first, behind - 1)
    return sum(behind - first for first, behind in missing)


def _published_file(hub: HubPlan, file: FileTask) -> WrittenFile:
    """A file that an earlier attempt has published; its counts are taken from the log."""
    _, index, first, end = file.span
    destination = destination_of(hub.target.url, hub.target.options)
    size_bytes = next((each.size_bytes for each in destination.files(file.name) if each.name == file.name), 0)
    with Client(hub.account) as client:
        view = HubProbe(client, hub.hub).views([index])[index]
        times = [view.second_at(at) * 1_000_000 for at in (first, end - 1)] if view.first <= first < end else [0, 0]
    return WrittenFile(
        partition=index, first=first, end=end, name=file.name, encoding=str(file.encoding), next_s=file.next_s,
        size_bytes=size_bytes, events=end - first, first_us=times[0], last_us=times[1], lost=0, token=None,
    )  # fmt: skip
