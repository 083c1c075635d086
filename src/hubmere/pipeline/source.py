"""The Spark data source `eventhubs`: options and columns of Microsoft's connector, without a jar.

The driver plans which sequence numbers each micro-batch and each task reads; executors read them (`ranges`). A batch
reads from its starting to its ending positions as they were when it was planned; a stream keeps its offsets in Spark's
checkpoint and reads in each trigger what the limits admit. Runs on Spark 4.0 to 4.3; features that an older version
lacks (admission control, Arrow stream writers, filters) are not used there.
"""

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from hubmere.client.connection import Client
from hubmere.client.consumer import Bounds, ByteRange, HubDescription, HubReader
from hubmere.client.facts import consumer_groups
from hubmere.client.failures import ClientFailure
from hubmere.client.pool import pooled_client
from hubmere.client.progress import commit_offsets
from hubmere.pipeline import offsets
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.offsets import DataLost, HubOffset, HubRecreated, Range
from hubmere.pipeline.options import PREFIX, InvalidOption, Options, read_options
from hubmere.pipeline.positions import resolve
from hubmere.pipeline.ranges import read_ranges

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # before Spark 4.2
    HAS_ADMISSION_CONTROL = False
    if not TYPE_CHECKING:

        class SupportsTriggerAvailableNow:
            """Placeholder for Spark versions without it."""

        ReadLimit = object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from hubmere.pipeline.history.location import Location
    from hubmere.pipeline.pushdown import Narrowing

log = logging.getLogger("hubmere.spark")

NAME: Final = "eventhubs"
# The columns in Spark SQL (reference: service 10).
COLUMNS: Final = (
    "body binary, partition string, offset string, sequenceNumber bigint, enqueuedTime timestamp, publisher string, "
    "partitionKey string, properties map<string,string>, systemProperties map<string,string>"
)
# How often a query checks for new partitions.
_DISCOVERY_INTERVAL_S: Final = 1.0
# The Spark module that calls `reader` when filter pushdown is on (Spark 4.1 and later, `filterPushdown.enabled`). With
# pushdown off, the default, Spark rejects a reader that accepts filters, so only this module gets one.
_PUSHDOWN_MODULE: Final = "data_source_pushdown_filters"


class UnknownColumn(ValueError):
    """The source cannot provide the requested schema."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(name, wanted)
        self.name = name
        self.wanted = wanted

    def __str__(self) -> str:
        return f"column '{self.name} {self.wanted}' is not one of: {COLUMNS}"


class EventHubsDataSource(DataSource):
    """The data source `eventhubs`."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return NAME

    def schema(self) -> str:
        """All columns; a query can request fewer with `.schema(...)`, and only those are decoded."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a batch."""
        options, arrow = read_options(self.options), arrow_schema(schema)
        if sys._getframe(1).f_globals.get("__name__", "").endswith(_PUSHDOWN_MODULE):
            return FilteredHubReader(options, arrow)
        return HubBatchReader(options, arrow)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Reads a stream."""
        return HubStreamReader(read_options(self.options), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a batch."""
        from hubmere.pipeline.sink import HubBatchWriter

        return HubBatchWriter(read_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's name
        """Writes a stream."""
        from hubmere.pipeline.sink import HubStreamWriter

        return HubStreamWriter(read_options(self.options), schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The requested columns, in their order and with their types."""
    spark_types = dict(column.split(" ", 1) for column in COLUMNS.split(", "))
    for field in schema.fields:
        if spark_types.get(field.name) != field.dataType.simpleString():
            raise UnknownColumn(field.name, field.dataType.simpleString())
    return pa.schema([SCHEMA.field(field.name) for field in schema.fields])


class RangesPartition(InputPartition):
    """The ranges that one task reads, the id of the hub for which they were planned, and where captured files are."""

    def __init__(self, ranges: Sequence[Range], hub_id: str | None, location: "Location | None" = None) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        self.hub_id = hub_id
        self.location = location


class _Reading:
    """Common part of both readers on executors: Spark pickles the reader and calls `read` there."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        # Without any range, Spark calls with an empty partition of its own.
        if not isinstance(partition, RangesPartition):
            return iter(())
        options = self._options
        return read_ranges(
            options.account,
            options.hub,
            partition.ranges,
            self._schema,
            hub_id=partition.hub_id,
            fails_on_data_loss=options.fails_on_data_loss,
            location=partition.location,
            reads_local_segments=options.reads_local_segments,
        )

    def _tasks_of(
        self, ranges: Sequence[Range], hub_id: str | None, location: "Location | None"
    ) -> list[RangesPartition]:
        tasks = offsets.plan_tasks(ranges, self._options.max_tasks or offsets.DEFAULT_TASKS)
        return [RangesPartition(task, hub_id, location) for task in tasks]


class HubBatchReader(_Reading, DataSourceReader):
    """Reads from the starting to the ending positions, which are resolved at planning time."""

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        with pooled_client(self._options.account) as client:
            check_group(client, self._options)
            described = HubReader(client, self._options.hub).describe()
            reader, location = reader_of(client, self._options, described.id)
            ranges = self._ranges(reader, described.partition_count)
            return self._tasks_of(self._narrow(reader, ranges), described.id, location)

    def _ranges(self, reader: HubReader, count: int) -> list[Range]:
        options = self._options
        check_partitions(options, count)
        bounds = reader.bounds(range(count))
        starts = resolve(reader, bounds, options.start, options.starts, is_end=False)
        ends = resolve(reader, bounds, options.end, options.ends, is_end=True)
        return [Range(partition, starts[partition], ends[partition]) for partition in bounds]

    def _narrow(self, _reader: HubReader, ranges: list[Range]) -> list[Range]:
        return [each for each in ranges if each.start < each.end]


class FilteredHubReader(HubBatchReader):
    """A batch reader with filter pushdown."""

    _left: "Narrowing | None" = None

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802  Spark's name
        """Narrow the ranges by the filters; Spark still applies every filter itself."""
        from hubmere.pipeline.pushdown import narrow_by

        self._left = narrow_by(filters)
        return filters

    def _narrow(self, reader: HubReader, ranges: list[Range]) -> list[Range]:
        from hubmere.pipeline.pushdown import narrow_ranges

        assert self._left is not None, "Spark offers filters before it plans"
        return narrow_ranges(reader, ranges, self._left)


class HubStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. One instance exists on the driver as long as its query; copies of it read on executors."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._client: Client | None = None
        self._has_warned = False
        # What was last stored under the consumer group.
        self._reported: HubOffset | None = None
        self._described: HubDescription | None = None
        self._described_at = 0.0
        # Where a run with Trigger.AvailableNow ends, and the id of the hub that was asked.
        self._target: tuple[str | None, dict[int, int]] | None = None
        # Ending positions that the hub has reached, by partition.
        self._endings: dict[int, int] = {}
        # When the last micro-batch was planned: fewer events than the least wait from then on.
        self._planned_at: float | None = None
        # The reader of the hub with the id that it had, and where its captured files are.
        self._history: tuple[str | None, HubReader, Location | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State that is sent to executors: without the connection."""
        return self.__dict__ | {"_client": None, "_history": None}

    # --- called by Spark on the driver ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Where a query without a checkpoint starts."""
        options, reader = self._options, self._reader()
        bounds = self._bounds(reader)
        check_partitions(options, len(bounds))
        return self._offset(resolve(reader, bounds, options.start, options.starts, is_end=False))

    def latestOffset(  # noqa: N802  Spark 4.0 and 4.1 call it without arguments
        self, start: Mapping[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch: the end of the hub, or less if the limits are reached."""
        reader = self._reader()
        bounds = self._bounds(reader)
        ends = self._ends_of_run(reader, bounds)
        if start is None:
            return self._offset(ends)
        stored = HubOffset.from_json(self._options.hub, start)
        begun = self._resume(stored, self._hub_id)
        # Spark asks when the micro-batch before is done; it calls `commit` later, and never for the last one of a run.
        if stored.is_of(self._hub_id):
            self._report_progress(stored)
        starts, _ = offsets.resume(begun, bounds)
        # A partition that no longer exists (the hub was created again) keeps its offset.
        reached = {partition: max(starts[partition], ends.get(partition, starts[partition])) for partition in starts}
        if self._waits_for_more(sum(reached.values()) - sum(starts.values()), limit):
            return dict(start)
        reached = self._admit(reader, starts, reached, limit)
        # Nothing new: Spark must get the same offset back.
        moved = {partition: end for partition, end in reached.items() if end != starts[partition]}
        is_new_hub = not stored.is_of(self._hub_id)
        return self._offset(begun | (reached if is_new_hub else moved)) if moved or is_new_hub else dict(start)

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802  Spark's name
        """The limits of the options."""
        if self._options.max_events is not None:
            return ReadMaxRows(self._options.max_events)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_events is not None:
            return ReadMinRows(self._options.min_events)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end of the hub, for the query's metrics."""
        bounds = self._bounds(self._reader())
        return self._offset({partition: end for partition, (_, end) in bounds.items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Record the present end of the hub, or the ending positions before it, as the end of the run."""
        reader = self._reader()
        ends = self._ends(reader, self._bounds(reader))
        self._target = self._hub_id, ends

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch."""
        options, reader = self._options, self._reader()
        hub_id = reader.describe().id
        ended = HubOffset.from_json(options.hub, end)
        if not ended.is_of(hub_id):
            # The hub of this offset was deleted, with its events.
            self._resume(ended, hub_id)
            return []
        ends = ended.next
        begun = self._resume(HubOffset.from_json(options.hub, start), hub_id)
        starts, lost = offsets.resume(begun, reader.bounds(sorted(ends)))
        if lost and options.fails_on_data_loss:
            raise DataLost(options.hub, lost)
        if lost:
            log.warning("%s", DataLost(options.hub, lost))
        ranges = [Range(partition, starts[partition], ends[partition]) for partition in sorted(ends)]
        location = None if self._history is None else self._history[2]
        return self._tasks_of([each for each in ranges if each.start < each.end], hub_id, location)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Report progress under the consumer group of the options; Spark's checkpoint stays authoritative."""
        self._report_progress(HubOffset.from_json(self._options.hub, end))

    def _report_progress(self, offset: HubOffset) -> None:
        """Store an offset up to which every event is processed, once."""
        if self._options.group is None or offset == self._reported:
            return
        self._reader()
        assert self._client is not None
        try:
            commit_offsets(self._client, self._options.group, self._options.hub, offset.next)
            self._reported = offset
        except ClientFailure as failure:
            if not self._has_warned:
                log.warning("progress cannot be reported to the node: %s", failure)
            self._has_warned = True

    def stop(self) -> None:
        """The query has ended: close the connection."""
        if self._client is not None:
            self._client.close()

    # --- the hub ---

    def _reader(self) -> HubReader:
        if self._client is None:
            self._client = Client(self._options.account)
            check_group(self._client, self._options)
        plain = HubReader(self._client, self._options.hub)
        if self._options.capture is None:
            return plain
        hub_id = plain.describe().id if self._described is None else self._described.id
        if self._history is None or self._history[0] != hub_id:
            self._history = (hub_id, *reader_of(self._client, self._options, hub_id))
        return self._history[1]

    def _bounds(self, reader: HubReader) -> dict[int, Bounds]:
        now = time.monotonic()
        if self._described is None or now - self._described_at >= _DISCOVERY_INTERVAL_S:
            known, self._described, self._described_at = self._hub_id, reader.describe(), now
            if known != self._hub_id:
                # Created again: what the query knew of its end is about other events.
                self._endings = {}
        return reader.bounds(range(self._described.partition_count))

    @property
    def _hub_id(self) -> str | None:
        """The hub's id when its partitions were last counted; `partitions` checks it again before it plans tasks."""
        return None if self._described is None else self._described.id

    def _offset(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        return HubOffset(hub=self._options.hub, id=self._hub_id, next=numbers).to_json()

    def _resume(self, stored: HubOffset, hub_id: str | None) -> dict[int, int]:
        """The sequence numbers of an offset; none if the hub was created again since."""
        if hub_id is None or stored.id is None or stored.is_of(hub_id):
            return dict(stored.next)
        recreated = HubRecreated(stored.hub, stored.id, hub_id)
        if self._options.fails_on_data_loss:
            raise recreated
        log.warning("%s", recreated)
        return {}

    def _ends_of_run(self, reader: HubReader, bounds: Mapping[int, Bounds]) -> dict[int, int]:
        """Where the present run ends: a run with Trigger.AvailableNow where the hub ended when it was first seen."""
        if self._target is None:
            return self._ends(reader, bounds)
        if self._target[0] != self._hub_id:
            self._target = self._hub_id, self._ends(reader, bounds)
        return self._target[1]

    def _ends(self, reader: HubReader, bounds: Mapping[int, Bounds]) -> dict[int, int]:
        """Where the stream ends for now: at the end of the hub, or at an ending position before it."""
        options = self._options
        open_bounds = {partition: each for partition, each in bounds.items() if partition not in self._endings}
        if options.has_ending and open_bounds:
            found = resolve(reader, open_bounds, options.end, options.ends, is_end=True)
            # An ending position that the hub has passed stays where it is; one at the end may be yet to come.
            self._endings |= {partition: end for partition, end in found.items() if end < bounds[partition].end}
        return {partition: self._endings.get(partition, end) for partition, (_, end) in bounds.items()}

    def _waits_for_more(self, waiting: int, limit: "ReadLimit | None") -> bool:
        """Whether fewer events than the least of a trigger wait, and the longest delay has not passed.

        The first micro-batch of a query does not wait, nor does one with Trigger.AvailableNow or Trigger.Once.
        """
        least, now = self._options.min_events, time.monotonic()
        if least is None or not HAS_ADMISSION_CONTROL or limit is None or isinstance(limit, ReadAllAvailable):
            return False
        is_late = self._planned_at is None or now - self._planned_at >= self._options.max_delay_s
        if 0 < waiting < least and not is_late and self._target is None:
            return True
        if waiting:
            self._planned_at = now
        return False

    def _admit(
        self, reader: HubReader, starts: Mapping[int, int], ends: dict[int, int], limit: "ReadLimit | None"
    ) -> dict[int, int]:
        if not HAS_ADMISSION_CONTROL or limit is None or isinstance(limit, ReadAllAvailable):
            return ends
        if (max_events := self._options.max_events) is not None:
            ends = offsets.admit(starts, ends, max_events)
        if (max_bytes := self._options.max_bytes) is not None:
            ends = _admit_bytes(reader, starts, ends, max_bytes)
        return ends


def reader_of(client: Client, options: Options, hub_id: str | None) -> "tuple[HubReader, Location | None]":
    """The reader of the hub, with its captured files if the options ask for them, and where those are."""
    if options.capture is None:
        return HubReader(client, options.hub), None
    from hubmere.pipeline.history.files import CapturedFiles
    from hubmere.pipeline.history.hub import HistoryReader
    from hubmere.pipeline.history.location import find_location

    location = find_location(client, options.hub, options.capture, options.capture_options)
    return HistoryReader(client, options.hub, CapturedFiles(location, hub_id)), location


def check_group(client: Client, options: Options) -> None:
    """Raise InvalidOption if the consumer group of the options does not exist; another broker cannot be asked."""
    group = options.group
    known = None if group is None else consumer_groups(client, options.hub)
    if group is not None and known is not None and group.lower() not in map(str.lower, known):
        raise InvalidOption(
            PREFIX + "consumerGroup",
            f"the hub '{options.hub}' has no consumer group '{group}'; it has {', '.join(map(repr, known))}; "
            f"create it with: hubmere consumergroup create --eventhub-name {options.hub} --name {group}",
        )


def check_partitions(options: Options, count: int) -> None:
    """Raise InvalidOption for the position of a partition that the hub does not have."""
    for name, positions in (("startingPositions", options.starts), ("endingPositions", options.ends)):
        if unknown := [partition for partition in positions if partition >= count]:
            text = f"the hub '{options.hub}' has no partition {min(unknown)}; it has 0 to {count - 1}"
            raise InvalidOption(PREFIX + name, text)


def _admit_bytes(
    reader: HubReader, starts: Mapping[int, int], ends: Mapping[int, int], max_bytes: int
) -> dict[int, int]:
    """How far to read with a byte limit, shared in proportion to the backlog of events."""
    waiting = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    total = sum(waiting.values())
    wanted = {
        partition: ByteRange(starts[partition], ends[partition], max(1, max_bytes * count // total))
        for partition, count in waiting.items()
    }
    return {**ends, **reader.find_all_after_bytes(wanted)}
