"""Verifies that captured files hold every event of the log exactly once, by comparison with the hub.

For each partition, the files must follow each other from the start of Capture without gap or overlap. Every file must
be complete, have the name that the format gives, and hold the events of its span in order, byte for byte as in the log.
Of events that retention has deleted from the log, only the order is checked. Files of earlier incarnations of the hub
are skipped. Reads only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, BinaryIO, Final, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from hubmere.client.connection import Client
from hubmere.client.consumer import Bounds, HubReader
from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.destinations import Destination, DestinationFailed, NameTaken, destination_of
from hubmere.pipeline.capture.files.content import span_in
from hubmere.pipeline.capture.files.names import EXTENSIONS, Span, table_root
from hubmere.pipeline.capture.files.schema import time_text
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.decode import SCHEMA, decode

# Problems that are listed one by one; more would not help.
MAX_PROBLEMS: Final = 100
_COMPARED: Final = pa.schema([SCHEMA.field(name) for name in ("sequenceNumber", "offset", "enqueuedTime", "body")])
_ROWS: Final = 4096


class CapturedEvent(NamedTuple):
    """The compared fields of an event; the time has whole seconds, as in Avro files."""

    sequence: int
    offset: str
    time: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class CapturedFile:
    """A file of the hub."""

    name: str
    second: int
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """Result for a partition: its files hold the events from `first` to `end` (exclusive)."""

    partition: int
    files: int
    events: int
    first: int
    end: int
    compared: int  # events that the log still has
    waiting: int  # events that are in no file yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result for a hub."""

    partitions: Sequence[PartitionProof]
    problems: Sequence[str]
    earlier: int  # files of earlier incarnations

    @property
    def holds(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def verify(hub: HubPlan, advance: Callable[[int], None] = lambda _: None) -> Proof:
    """Check a hub's files against its log; `advance` is called with the number of compared events."""
    return _Verification(hub, advance).proof()


class _Verification:
    """One run. Thread rule: one owner."""

    def __init__(self, hub: HubPlan, advance: Callable[[int], None]) -> None:
        self._hub = hub
        self._advance = advance
        self._destination: Destination = destination_of(hub.target.url, hub.target.options)
        self._problems: list[str] = []
        self._earlier = 0

    def proof(self) -> Proof:
        files = self._files()
        with Client(self._hub.account) as client:
            reader = HubReader(client, self._hub.hub)
            bounds = reader.bounds(range(self._hub.partition_count))
            partitions = [self._partition(reader, index, bounds[index], files.get(index, [])) for index in bounds]
        strays = sorted(set(files) - set(bounds))
        self._problems += [f"there are files of a partition {index}, which the hub does not have" for index in strays]
        return Proof(partitions=partitions, problems=self._problems[:MAX_PROBLEMS], earlier=self._earlier)

    # --- which files ---

    def _files(self) -> dict[int, list[CapturedFile]]:
        """The hub's files by partition, in the order of their names' times."""
        found: dict[int, list[CapturedFile]] = {}
        names = self._hub.names(self._hub.format, self._hub.encoding)
        for stored in self._captured_names(names.prefix()):
            window = names.read(stored)
            span = self._span(stored)
            if span is None or span.hub_id != self._hub.id:
                self._earlier += span is not None
            elif window is None or window.partition != span.partition:
                self._problems.append(f"{stored}: its name does not match the format {self._hub.format}")
            else:
                found.setdefault(span.partition, []).append(CapturedFile(stored, window.second, span))
        return {index: sorted(files, key=lambda file: file.second) for index, files in found.items()}

    def _captured_names(self, prefix: str) -> Iterator[str]:
        """Names of captured files; for a Delta table those in its log, each of which must exist."""
        ending = f".{EXTENSIONS[self._hub.encoding]}"
        there = [each.name for each in self._destination.files(prefix) if each.name.endswith(ending)]
        if self._hub.encoding is not CaptureEncoding.DELTA:
            yield from there
            return
        from hubmere.pipeline.capture.destinations.delta import table_files

        root = table_root(self._hub.namespace, self._hub.hub)
        named = {root + name for name in table_files(f"{self._hub.target.url}/{root}", self._hub.target.options)}
        self._problems += [f"{name}: is in the table's log but does not exist" for name in sorted(named - set(there))]
        # A file without events only marks progress and is not part of the table.
        yield from (name for name in there if name in named or self._is_empty(name))

    def _is_empty(self, name: str) -> bool:
        span = self._span(name)
        return span is not None and span.first == span.end

    def _span(self, name: str) -> Span | None:
        try:
            with closing(self._destination.open(name)) as file:
                text = span_in(name, file)
        except (NameTaken, DestinationFailed, OSError) as error:
            self._problems.append(f"{name}: cannot be read: {error}")
            return None
        span = None if text is None else Span.parse(text)
        if span is None:
            self._problems.append(f"{name}: is not a captured file, or only a part of one")
        return span

    # --- one partition ---

    def _partition(
        self, reader: HubReader, index: int, bounds: Bounds, files: Sequence[CapturedFile]
    ) -> PartitionProof:
        at = self._hub.since.get(index, 0)
        events = compared = 0
        for file in files:
            if file.span.first != at:
                self._problems.append(
                    f"{file.name}: begins with event {file.span.first}, and the one before ended at {at}: "
                    f"{'a gap' if file.span.first > at else 'an overlap'}"
                )
            read, matched = self._compare(reader, bounds, file)
            events, compared = events + read, compared + matched
            at = file.span.end
        if at > bounds.end:
            self._problems.append(f"partition {index}: files go up to event {at}, and the log ends at {bounds.end}")
        first = files[0].span.first if files else at
        return PartitionProof(
            partition=index, files=len(files), events=events, first=first, end=at, compared=compared,
            waiting=max(0, bounds.end - max(at, bounds.first)),
        )  # fmt: skip

    def _compare(self, reader: HubReader, bounds: Bounds, file: CapturedFile) -> tuple[int, int]:
        """Events of a file, and how many of them the log still has."""
        span = file.span
        kept = max(span.first, bounds.first)
        logged = _logged_events(reader, span.partition, kept, span.end) if kept < span.end else iter(())
        read = compared = 0
        last = span.first - 1
        try:
            with closing(self._destination.open(file.name)) as opened:
                captured = _captured_events(file.name, opened)
                for event in captured:
                    if not last < event.sequence < span.end:
                        raise _Wrong(f"event {event.sequence} comes after event {last}, in a file up to {span.end}")
                    last, read = event.sequence, read + 1
                    if event.sequence >= kept:
                        _check_same(event, next(logged, None))
                        compared += 1
                    if read % _ROWS == 0:
                        self._advance(_ROWS)
            missing = next(logged, None)
            if missing is not None:
                raise _Wrong(f"event {missing.sequence} of the log is not in it")
        except _Wrong as wrong:
            self._problems.append(f"{file.name}: {wrong}")
        except (ValueError, EOFError, OSError, pa.ArrowException, DestinationFailed) as error:
            self._problems.append(f"{file.name}: cannot be read: {type(error).__name__}: {error}")
        self._advance(read % _ROWS)
        return read, compared


class _Wrong(Exception):
    """A file does not have the expected content; the text says why."""


def _check_same(captured: CapturedEvent, logged: CapturedEvent | None) -> None:
    if logged is None:
        raise _Wrong(f"event {captured.sequence} is not in the log")
    for name, mine, theirs in zip_longest(CapturedEvent._fields, captured, logged):
        if mine != theirs:
            raise _Wrong(f"the {name} of event {captured.sequence} is not that of event {logged.sequence} in the log")


def _logged_events(reader: HubReader, partition: int, start: int, end: int) -> Iterator[CapturedEvent]:
    """The events of the log, decoded as by the Spark source."""
    with closing(reader.read_range(partition, start, end)) as answers:
        for fetched in answers:
            for rows in decode(fetched, partition, start, end, _COMPARED):
                yield from _events(rows)


def _captured_events(name: str, file: BinaryIO) -> Iterator[CapturedEvent]:
    if name.endswith(".parquet"):
        for rows in pq.ParquetFile(file).iter_batches(batch_size=_ROWS):
            yield from _events(rows.select(["SequenceNumber", "Offset", "EnqueuedTimeUtc", "Body"]))
        return
    record: dict[str, Any]
    for record in fastavro.reader(file):  # type: ignore[assignment]
        yield CapturedEvent(record["SequenceNumber"], record["Offset"], record["EnqueuedTimeUtc"], record["Body"])


def _events(rows: pa.RecordBatch) -> Iterator[CapturedEvent]:
    sequences, offsets, times, bodies = rows.columns
    seconds = (time_us // 1_000_000 for time_us in times.cast(pa.int64()).to_pylist())
    texts = (time_text(second).decode() for second in seconds)
    yield from map(CapturedEvent, sequences.to_pylist(), offsets.to_pylist(), texts, bodies.to_pylist())
