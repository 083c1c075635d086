"""A log with the captured files below it: one range, that grows and shrinks without a reader losing an event."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.cold.history import FRESH_SECONDS, Blocks, HubHistory
from hubmere.broker.cold.log import ColdLog
from hubmere.model.capture.cold import ColdBlock, ColdFile, ColdFiles, ColdHub, Coverage, OnBlock, OnFiles, OnFound
from hubmere.model.errors import CorruptBatch, Refusal, SequenceOutOfRange
from hubmere.model.position import Position
from hubmere.store.engine import PartitionLog

HUB = ColdHub(namespace="n", hub="h", url="file:///x", name_format="", hub_id="id", capture_id="c", is_append_time=True)
BIG = 1 << 20


def a_file(first: int, end: int) -> ColdFile:
    return ColdFile(first, end, f"{first}.avro", 100, 0)


def a_block(first: int, end: int) -> ColdBlock:
    """A block with a batch for each event; its bytes are the number."""
    numbers = range(first, end)
    return ColdBlock(
        first=first,
        end=end,
        data=b"".join(b"%08d" % number for number in numbers),
        starts=[8 * index for index in range(len(numbers))],
        bases=list(numbers),
        ends=[number + 1 for number in numbers],
        offsets={number: [number * 10] for number in numbers},
    )


@dataclass
class Source:
    """A source whose answers come when a test says so."""

    files: list[ColdFile] = field(default_factory=list)
    problem: Refusal | None = None
    damaged: set[str] = field(default_factory=set)
    found: int | Refusal | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)
    listings: int = 0

    def list_files(self, hub: ColdHub, without: Collection[ColdFile], on_listed: OnFiles) -> None:
        self.listings += 1
        usable = sorted(file for file in self.files if file not in without)
        answer: ColdFiles | Refusal = ColdFiles(by_partition={0: Coverage.of(usable)}, unusable={})
        if self.problem is not None:
            answer = self.problem
        self.waiting.append(lambda: on_listed(answer))

    def load(self, hub: ColdHub, file: ColdFile, sequence: int, on_loaded: OnBlock) -> None:
        # Parts of ten events.
        first = max(file.first, sequence - sequence % 10)
        answer: ColdBlock | Refusal = a_block(first, min(file.end, first - first % 10 + 10))
        if file.name in self.damaged:
            answer = CorruptBatch("damaged")
        self.waiting.append(lambda: on_loaded(answer))

    def find(self, hub: ColdHub, files: Sequence[ColdFile], position: Position, on_found: OnFound) -> None:
        self.waiting.append(lambda: on_found(self.found))

    def run(self) -> None:
        """Give every answer."""
        while self.waiting:
            self.waiting.pop(0)()


class Joined:
    """A log with 40 events, the first of them trimmed, and its files."""

    def __init__(self, harness: BrokerHarness, *files: ColdFile, trimmed: int = 20) -> None:
        self.stored: PartitionLog = harness.hub.log(0)
        for _ in range(40):
            self.stored.append(a_batch(), NOW_MS)
        harness.turn.run()
        self.harness = harness
        self.source = Source(list(files))
        self.reported: list[tuple[int, str]] = []
        self.history = HubHistory(
            self.source, Blocks(), HUB, lambda _, file, why: self.reported.append((file.first, why))
        )
        self.stored.trim(trimmed)
        self.log = ColdLog(self.stored, self.history, 0)

    def read_all(self, start: int) -> list[int]:
        """Read to the end as a client does, and give the number of each event."""
        found: list[int] = []
        while start < 40:
            chunk = self.log.read(start, 20)
            if chunk is None:
                assert self.source.waiting, "nothing would wake the reader"
                self.source.run()
                continue
            found += range(max(start, chunk.first_sequence), chunk.next_sequence)
            start = chunk.next_sequence
        return found


def current(joined: Joined, position: Position | None) -> None:
    """Ask until the answer is known."""
    answers: list[bool] = []
    while not joined.log.is_current(position, lambda: answers.append(True)):
        joined.source.run()
        assert answers.pop()


def test_row_of_files_ends_at_a_gap() -> None:
    """Only what is joined to the log, in any overlap; a file without events joins nothing."""
    a, b, c, d = a_file(0, 10), a_file(10, 20), a_file(20, 30), a_file(25, 40)

    assert Coverage.of([a, b, c]).row_start(30) == 0
    assert Coverage.of([a, b, c]).row_start(25) == 0
    assert Coverage.of([a, c]).row_start(30) == 20
    assert Coverage.of([a, c]).row_start(20) is None
    assert Coverage.of([a, b]).row_start(30) is None
    assert Coverage.of([a, b, c, d]).row_start(33) == 0
    assert Coverage.of([a, b, c]).row_start(0) is None
    assert Coverage.of([a_file(5, 5), b]).row_start(20) == 10


def covered_by_search(files: Sequence[ColdFile], log_start: int) -> int | None:
    """The start of the row that reaches the log, by trying every file again and again."""
    start = log_start
    while found := [file.first for file in files if file.first < start <= file.end]:
        start = min(found)
    return start if start < log_start else None


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12), st.integers(0, 40))
def test_coverage_is_that_of_all_files(spans: list[tuple[int, int]], log_start: int) -> None:
    """Whatever overlaps: every covered number has a file, and rows begin where a plain search says."""
    files = sorted(a_file(first, first + length) for first, length in spans)
    coverage = Coverage.of(files)

    assert coverage.row_start(log_start) == covered_by_search(files, log_start)
    for number in range(40):
        file = coverage.file_with(number)
        is_covered = any(each.first <= number < each.end for each in files)
        assert (file is not None) == is_covered
        assert file is None or file.first <= number < file.end
    start = coverage.row_start(log_start)
    if start is not None:
        inside = coverage.between(start, log_start)
        assert {number for file in inside for number in range(file.first, file.end)} >= set(range(start, log_start))


def test_reader_goes_from_files_to_the_log(harness: BrokerHarness) -> None:
    """Every event once, in order."""
    joined = Joined(harness, a_file(0, 12), a_file(12, 25))

    current(joined, Position.first())

    assert joined.log.state.log_start == 0
    assert joined.log.find(Position.first()) == 0
    assert joined.read_all(0) == list(range(40))
    assert joined.read_all(13) == list(range(13, 40))


def test_range_is_not_known_before_the_files_are_listed(harness: BrokerHarness) -> None:
    """A position is then neither refused nor moved: its reader waits."""
    joined = Joined(harness, a_file(0, 20))
    woken: list[bool] = []
    joined.log.watch(lambda: woken.append(True))

    assert joined.log.check_position(5, -1) is None
    assert joined.log.read(5, BIG) is None
    joined.source.run()

    assert woken
    assert joined.log.check_position(5, -1) is None
    assert joined.read_all(5) == list(range(5, 40))


def test_position_before_a_gap_is_refused(harness: BrokerHarness) -> None:
    """It is refused like a position that retention has deleted. The log names its readable range and the gap."""
    joined = Joined(harness, a_file(0, 8), a_file(10, 20))
    current(joined, None)

    assert joined.log.state.log_start == 10
    assert isinstance(joined.log.check_position(9, -1), SequenceOutOfRange)
    assert joined.log.check_position(10, -1) is None
    assert joined.log.gap == range(8, 10)
    with pytest.raises(SequenceOutOfRange):
        joined.log.read(3, BIG)
    assert joined.log.find(Position.sequence(2, inclusive=True)) == 10


def test_reader_that_retention_overtakes_loses_nothing(harness: BrokerHarness) -> None:
    """The start stays until it is known whether a new file reaches the log's new first event."""
    joined = Joined(harness, a_file(0, 20))
    current(joined, None)
    assert joined.read_all(0)[:25] == list(range(25))
    joined.source.files.append(a_file(20, 33))

    joined.stored.trim(33)

    assert joined.log.state.log_start == 0
    assert joined.read_all(25) == list(range(25, 40))
    assert joined.log.state.log_start == 0


def test_tail_reader_that_is_overtaken_before_any_listing_loses_nothing(harness: BrokerHarness) -> None:
    """A reader at the end needs no files; when retention passes it, they are listed."""
    joined = Joined(harness, a_file(0, 36))
    assert joined.log.is_current(Position.latest(), lambda: None)

    joined.stored.trim(36)

    assert joined.log.state.log_start == 20
    assert joined.read_all(25) == list(range(25, 40))


def test_listing_for_another_partition_decides_nothing(harness: BrokerHarness) -> None:
    """It may have begun before the file was published that the reader needs."""
    joined = Joined(harness, a_file(0, 20))
    current(joined, None)
    joined.history.refresh(lambda: None)
    joined.source.files.append(a_file(20, 33))

    joined.stored.trim(33)
    joined.source.waiting.pop(0)()

    assert joined.read_all(25) == list(range(25, 40))


def test_start_moves_when_no_file_reaches_the_log(harness: BrokerHarness) -> None:
    """Events that were deleted before they were captured are a gap."""
    joined = Joined(harness, a_file(0, 20))
    current(joined, None)

    joined.stored.trim(30)

    assert joined.log.state.log_start == 0
    joined.source.run()
    assert joined.log.state.log_start == 30
    assert isinstance(joined.log.check_position(25, -1), SequenceOutOfRange)


def test_damaged_file_ends_the_range_and_is_reported(harness: BrokerHarness) -> None:
    """Readers of its events get an error, and the files after it stay readable."""
    joined = Joined(harness, a_file(0, 10), a_file(10, 15), a_file(15, 20))
    joined.source.damaged.add("10.avro")
    current(joined, None)

    assert joined.log.read(12, BIG) is None
    joined.source.run()

    assert [first for first, _ in joined.reported] == [10]
    assert joined.log.state.log_start == 15
    assert isinstance(joined.log.check_position(12, -1), SequenceOutOfRange)
    assert joined.read_all(15) == list(range(15, 40))


def test_another_file_serves_the_events_of_a_damaged_one(harness: BrokerHarness) -> None:
    """It is found by a new listing, for which the reader waits."""
    joined = Joined(harness, a_file(0, 20), a_file(0, 10), a_file(10, 20))
    joined.source.damaged.add("0.avro")
    joined.source.files[1] = ColdFile(0, 10, "other.avro", 100, 0)
    current(joined, None)

    assert joined.read_all(0) == list(range(40))
    assert [first for first, _ in joined.reported] == [0]


def test_folder_that_cannot_be_listed_is_tried_again(harness: BrokerHarness) -> None:
    """Readers wait: what cannot be listed may still be there."""
    joined = Joined(harness, a_file(0, 20))
    joined.source.problem = CorruptBatch("no disk")
    assert joined.log.read(5, BIG) is None
    joined.source.run()
    assert joined.log.check_position(5, -1) is None
    assert joined.log.state.log_start == 20

    joined.source.problem = None
    joined.history.tick()
    joined.source.run()

    assert joined.read_all(5) == list(range(5, 40))


def test_many_requests_do_not_drop_a_reader_that_waits(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a folder cannot be listed, requests are bounded; a reader that follows the log is still woken."""
    monkeypatch.setattr("hubmere.broker.cold.history.MAX_WAITING_REQUESTS", 3)
    joined = Joined(harness, a_file(0, 20))
    joined.source.problem = CorruptBatch("no disk")
    woken: list[str] = []
    joined.log.watch(partial(woken.append, "reader"))
    assert joined.log.read(5, BIG) is None
    joined.source.run()
    for number in range(10):
        assert not joined.log.is_current(Position.first(), partial(woken.append, f"request {number}"))
    woken.clear()

    joined.source.problem = None
    joined.history.tick()
    joined.source.run()

    assert "reader" in woken
    assert [name for name in woken if name != "reader"] == ["request 7", "request 8", "request 9"]


def test_times_and_offsets_are_looked_up_in_files(harness: BrokerHarness) -> None:
    """Unless they lie in the log."""
    joined = Joined(harness, a_file(0, 20))
    joined.source.found = 7
    position = Position.time(NOW_MS - 1, inclusive=True)
    current(joined, position)
    assert joined.log.find(position) == 7
    later = Position.time(NOW_MS + 1, inclusive=True)
    current(joined, later)
    assert joined.log.find(later) == 40

    joined.source.found = CorruptBatch("damaged")
    other = Position.offset(3, inclusive=True)
    current(joined, other)

    assert joined.log.find(other) == 0


def test_files_are_listed_again_after_a_while(harness: BrokerHarness) -> None:
    """An operator deletes the oldest files: then the range begins later."""
    joined = Joined(harness, a_file(0, 10), a_file(10, 20))
    current(joined, None)
    joined.source.files.pop(0)

    current(joined, None)
    assert (joined.log.state.log_start, joined.source.listings) == (0, 1)
    for _ in range(FRESH_SECONDS):
        joined.history.tick()
    current(joined, None)

    assert (joined.log.state.log_start, joined.source.listings) == (10, 2)


def test_offsets_of_events_in_files_are_those_of_the_files(harness: BrokerHarness) -> None:
    """Chunks carry them, and `offset_of` tells those in memory."""
    joined = Joined(harness, a_file(0, 20))
    current(joined, None)
    joined.log.read(5, BIG)
    joined.source.run()

    chunk = joined.log.read(5, BIG)

    assert chunk is not None
    assert chunk.offset == 50
    assert chunk.offsets is not None
    assert chunk.offsets[6] == [60]
    assert joined.log.offset_of(7) == 70


def test_retired_history_shows_the_log_alone(harness: BrokerHarness) -> None:
    """A client that still follows the old log is sent to the hub's present one."""
    joined = Joined(harness, a_file(0, 20))
    current(joined, None)

    joined.history.retire()

    assert isinstance(joined.log.check_position(5, -1), SequenceOutOfRange)


def test_blocks_are_bounded_in_bytes() -> None:
    """The least recently used one goes first."""
    blocks = Blocks(3 * a_block(0, 10).size_bytes)
    file = a_file(0, 50)
    for first in (0, 10, 20):
        blocks.put("id", file, a_block(first, first + 10))
    assert blocks.find("id", file, 5) is not None

    blocks.put("id", file, a_block(30, 40))

    found = [blocks.find("id", file, each) is not None for each in (5, 15, 25, 35, 45)]
    assert found == [True, False, True, True, False]
    assert blocks.find("other", file, 5) is None
