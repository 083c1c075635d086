"""The Spark source behind Capture: offsets close windows, tasks stage files, rows report what was written.

The driver's reader decides (`windows`) and puts its decisions into the offset. One input partition is one file: the
task that reads it stages the file and yields one row, a JSON text, with which the driver publishes the file. A file
that is already published, under its name and with its span, is not written again. Exactly one action may run on each
micro-batch, since reading has an effect.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost
from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.destinations import NameTaken, Upload, destination_of
from hubmere.pipeline.capture.files.content import content_of
from hubmere.pipeline.capture.files.names import Span
from hubmere.pipeline.capture.offsets import CaptureOffset
from hubmere.pipeline.capture.plan import HubPlan, read_hub
from hubmere.pipeline.capture.probe import HubProbe
from hubmere.pipeline.capture.windows import LogView, Planned, Window, first_window, plan
from hubmere.pipeline.decode import visible_batches
from hubmere.pipeline.ranges import check_hub

log = logging.getLogger("hubmere.capture")

NAME: Final = "hubmere_capture"
# Spark redacts options whose names contain words such as "secret" (`spark.redaction.regex`).
PLAN_OPTION: Final = "secret.plan"
COLUMN: Final = "file"
# How many used names are skipped (files of an earlier incarnation of the hub); more mean that the folder belongs to
# something else.
_MOST_TAKEN: Final = 1000


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


class CaptureSource(DataSource):
    """The data source that the job registers with Spark."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return NAME

    def schema(self) -> str:
        """One row for each file."""
        return f"{COLUMN} string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Reads a hub."""
        return CaptureReader(read_hub(json.loads(self.options[PLAN_OPTION])))


class FilePartition(InputPartition):
    """One file."""

    def __init__(self, span: Span, name: str, encoding: CaptureEncoding, next_s: int) -> None:
        super().__init__(name)
        self.span = span
        self.name = name
        self.encoding = encoding
        self.next_s = next_s


class CaptureReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance exists on the driver as long as its query; copies of it write files on executors."""

    def __init__(self, hub: HubPlan) -> None:
        self._hub = hub
        self._probe: HubProbe | None = None
        # Where a run with Trigger.AvailableNow ends.
        self._target: dict[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State that is sent to executors: without the connection."""
        return self.__dict__ | {"_probe": None}

    # --- called by Spark on the driver ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Where capture of the hub was enabled."""
        views = self._open_probe().views(self._partitions(), self._target)
        now_s = int(time.time())
        partitions = {
            index: Planned((), first_window(view, self._hub.since.get(index, 0), now_s))
            for index, view in views.items()
        }
        return self._offset(partitions).to_json()

    def latestOffset(  # noqa: N802  Spark's name
        self, start: Mapping[str, Any], limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Close the windows that are due; if there are none, return the same offset as before."""
        begun = CaptureOffset.from_json(start)
        now_s = int(time.time())
        views = self._open_probe().views(self._partitions(), self._target)
        planned: dict[int, Planned] = {}
        for index, view in views.items():
            known = begun.partitions.get(index)
            window = known.window if known else first_window(view, self._hub.since.get(index, 0), now_s)
            planned[index] = self._plan_files(index, window, view, now_s)
        if not any(each.files for each in planned.values()):
            return dict(start)
        check_hub(self._open_probe().reader, self._hub.hub, self._hub.topic_id)
        untouched = begun.without_files().partitions
        return self._offset({**untouched, **planned}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Windows are the limits."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Record the present end of the hub as the end of the run."""
        self._target = {index: view.end for index, view in self._open_probe().views(self._partitions()).items()}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """One task per file of a micro-batch, from its offset."""
        offset = CaptureOffset.from_json(end)
        names = self._hub.names(offset.format, offset.encoding)
        found: list[InputPartition] = []
        for index, (files, window) in sorted(offset.partitions.items()):
            begins = (*(file.second for file in files[1:]), window.start_s)
            for file, next_s in zip(files, begins, strict=False):
                span = Span(self._hub.id, index, file.first, file.end)
                found.append(FilePartition(span, names.name_of(index, file.second), offset.encoding, next_s))
        return found

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        """The query has ended: close the connection."""
        if self._probe is not None:
            self._probe.close()

    def _partitions(self) -> range:
        return range(self._hub.partition_count)

    def _open_probe(self) -> HubProbe:
        if self._probe is None:
            self._probe = HubProbe(Client(self._hub.account), self._hub.hub)
        return self._probe

    def _plan_files(self, index: int, window: Window, view: LogView, now_s: int) -> Planned:
        """The files to write now, under unused names: an earlier incarnation of the hub may have used the same
        second."""
        destination = destination_of(self._hub.target.url, self._hub.target.options)
        names = self._hub.names(self._hub.format, self._hub.encoding)
        for _ in range(_MOST_TAKEN):
            planned = plan(window, view, self._hub.rules, now_s, closes_all=self._target is not None)
            taken = [file.second for file in planned.files if destination.has(names.name_of(index, file.second))]
            if not taken:
                return planned
            window = Window(window.at, max(taken) + 1)
        raise NameTaken(destination.url_of(names.name_of(index, window.start_s - 1)))

    def _offset(self, partitions: Mapping[int, Planned]) -> CaptureOffset:
        return CaptureOffset(format=self._hub.format, encoding=self._hub.encoding, partitions=partitions)

    # --- called by Spark on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stage one file."""
        # Without any file, Spark calls with an empty partition of its own.
        if isinstance(partition, FilePartition):
            written = write_file(self._hub, partition, _attempt())
            yield pa.RecordBatch.from_pydict({COLUMN: [json.dumps(asdict(written))]})


def _attempt() -> str:
    """A unique name of this attempt, with the micro-batch and the attempt number."""
    task = TaskContext.get()
    assert task is not None, "Spark reads inside tasks"
    return f"{task.getLocalProperty('streaming.sql.batchId')}-{task.attemptNumber()}-{uuid4().hex[:12]}"


def write_file(hub: HubPlan, file: FilePartition, attempt: str) -> WrittenFile:
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


def _write_events(hub: HubPlan, file: FilePartition, upload: Upload) -> WrittenFile:
    _, index, first, end = file.span
    sink = _Counted(upload)
    content = content_of(file.encoding, sink, file.name, file.span.text(), index)  # type: ignore[arg-type]
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


def _published_file(hub: HubPlan, file: FilePartition) -> WrittenFile:
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
