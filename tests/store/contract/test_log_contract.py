"""The contract of log engines; every test runs on every engine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hubmere.model.errors import (
    CorruptBatch,
    InvalidArgument,
    InvalidBatch,
    PositionBeyondEnd,
    SequenceOutOfRange,
    ShuttingDown,
)
from hubmere.model.offsets import spread_offset
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.records.header import read_header, seal, write_header
from hubmere.store.engine import LogConfig, RetentionHold
from hubmere.store.local import LocalEngine
from hubmere.store.log.log import LocalLog
from hubmere.store.memory import MemoryEngine
from store.builders import (
    LOG_0,
    LOG_1,
    Owner,
    a_batch,
    an_engine,
    batches_of,
    everything,
    log_ids,
    open_log,
    small_segments,
)


class LogHarness:
    """An engine with one open log, and its owner's thread."""

    def __init__(self, engine: LocalEngine, owner: Owner) -> None:
        self.engine = engine
        self.owner = owner

    def open(self, config: LogConfig | None = None) -> LocalLog:
        return open_log(self.engine, LOG_0, config or small_segments())

    def publish(self, log: LocalLog, *values: bytes, now_ms: int = 1_000) -> Receipt:
        receipt = log.append(a_batch(values or (b"one",)), now_ms)
        self.owner.run()
        return receipt


def _disk(root: Path, owner: Owner) -> LocalEngine:
    return an_engine(root, owner)


def _lazy_disk(root: Path, owner: Owner) -> LocalEngine:
    return an_engine(root, owner, durability="os")


def _memory(_root: Path, owner: Owner) -> LocalEngine:
    return MemoryEngine(post=owner.post)


@pytest.fixture(params=[_disk, _lazy_disk, _memory], ids=["fsync", "os", "memory"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogHarness]:
    make: Callable[[Path, Owner], LocalEngine] = request.param
    owner = Owner()
    made = LogHarness(make(tmp_path, owner), owner)
    yield made
    made.engine.close()


def test_empty_log_has_no_events(harness: LogHarness) -> None:
    """A new partition starts at sequence number 0 and has no last event."""
    log = harness.open()

    state = log.state

    assert state == (0, 0, 0, -1, -1, 0)
    assert log.read(0, 1_000) is None


def test_sequence_numbers_are_contiguous_from_zero(harness: LogHarness) -> None:
    """The sequence number counts events, not batches."""
    log = harness.open()

    first, second = harness.publish(log, b"a", b"b", b"c"), harness.publish(log, b"d")

    assert (first.sequence_number, second.sequence_number) == (0, 3)
    assert log.state.committed == 4


def test_a_receipt_never_completes_inside_the_append_that_returns_it(harness: LogHarness) -> None:
    """The caller has the receipt before its callback runs."""
    log = harness.open()
    done: list[Receipt] = []
    receipts = [log.append(a_batch(), 1_000, done.append) for _ in range(3)]

    before = list(done)
    harness.owner.run()

    assert before == []
    assert done == receipts
    assert all(receipt.is_done and receipt.error is None for receipt in receipts)


def test_nothing_is_visible_before_it_is_committed(harness: LogHarness) -> None:
    """Readers see exactly the acknowledged events."""
    log = harness.open()
    log.append(a_batch(), 1_000)

    before = log.read(0, 1_000)
    harness.owner.run()

    assert before is None
    assert log.read(0, 1_000) is not None


def test_watchers_are_called_on_every_move_of_the_committed_end_until_unwatched(harness: LogHarness) -> None:
    """A waiting reader is woken by the move that commits its events, and by no other."""
    log, calls = harness.open(), []

    def watcher() -> None:
        calls.append(log.state.committed)

    log.watch(watcher)
    harness.publish(log)
    harness.publish(log)
    log.unwatch(watcher)
    log.unwatch(watcher)
    harness.publish(log)

    assert calls == [1, 2]


def test_watchers_are_called_when_the_start_of_the_log_moves(harness: LogHarness) -> None:
    """Otherwise a reader whose position was trimmed would wait for ever."""
    log, calls = harness.open(), []
    harness.publish(log)
    harness.publish(log)
    log.watch(lambda: calls.append(log.state.log_start))

    log.trim(1)
    log.trim(1)

    assert calls == [1]


def test_a_failing_callback_does_not_affect_the_others(harness: LogHarness) -> None:
    """An error of one connection must not stop the acknowledgements of the others."""
    log = harness.open()
    done: list[Receipt] = []

    def fail(_: Receipt) -> None:
        raise RuntimeError("a broken connection")

    log.append(a_batch(), 1_000, fail)
    log.append(a_batch(), 1_000, done.append)
    harness.owner.run()

    assert len(done) == 1


def test_reads_return_complete_batches_in_order_across_segments(harness: LogHarness) -> None:
    """A reader that follows `next_sequence` sees every batch once, for any size of its reads."""
    log = harness.open()
    for number in range(60):
        harness.publish(log, b"%03d" % number * 20, b"second")

    for max_bytes in (1, 100, 333, 5_000, 1 << 20):
        bases = [header.base_sequence_number for header, _ in everything(log, max_bytes)]
        assert bases == list(range(0, 120, 2))


def test_read_inside_a_batch_returns_the_whole_batch(harness: LogHarness) -> None:
    """Batches are returned whole: the reader skips the events before its position."""
    log = harness.open()
    harness.publish(log, b"a", b"b", b"c")

    chunk = log.read(2, 1)

    assert chunk is not None
    assert (chunk.first_sequence, chunk.next_sequence, chunk.offset) == (0, 3, 0)


def test_a_read_outside_the_log_is_refused_with_its_bounds(harness: LogHarness) -> None:
    """A consumer that is behind retention must learn where the log begins."""
    log = harness.open()
    for _ in range(10):
        harness.publish(log)
    log.trim(4)

    with pytest.raises(SequenceOutOfRange) as below:
        log.read(3, 100)
    with pytest.raises(SequenceOutOfRange) as above:
        log.read(11, 100)

    assert (below.value.first, below.value.end) == (4, 10)
    assert above.value.sequence_number == 11
    assert log.read(10, 100) is None


def test_the_enqueued_time_never_goes_backwards(harness: LogHarness) -> None:
    """The clock of a machine may be set back, but times in a partition never decrease."""
    log = harness.open()
    harness.publish(log, now_ms=5_000)

    late = harness.publish(log, now_ms=4_000)

    assert late.enqueued_at_ms == 5_000
    assert [header.max_time_ms for header, _ in everything(log)] == [5_000, 5_000]


def test_producers_keep_their_own_time_if_the_log_is_configured_so(harness: LogHarness) -> None:
    """Timestamp type Create: the batch is stored as it came, but the append-time bit is cleared."""
    log = harness.open(small_segments(append_time=False))

    log.append(a_batch(time_ms=77, attributes=0x08), 1_000)
    harness.owner.run()

    header = everything(log)[0][0]
    assert (header.max_time_ms, header.attributes & 0x08) == (77, 0)


def test_byte_offsets_are_unique_increasing_and_can_be_found(harness: LogHarness) -> None:
    """An AMQP offset names exactly one event, before and after the commit."""
    log = harness.open()
    for number in range(40):
        harness.publish(log, *[b"v" * (number % 7)] * (1 + number % 3))
    end = log.state.committed

    offsets = [log.offset_of(sequence) for sequence in range(end)]

    assert offsets == sorted(set(offsets))
    assert log.state.last_offset == offsets[-1]
    assert [log.find(Position.offset(offset, inclusive=True)) for offset in offsets] == list(range(end))
    assert [log.find(Position.offset(offset)) for offset in offsets] == list(range(1, end + 1))


def test_receipt_has_the_byte_offset_of_its_first_event(harness: LogHarness) -> None:
    """The receipt of a publisher has the values that a reader will see."""
    log = harness.open()
    harness.publish(log)

    receipt = harness.publish(log, b"a", b"b")

    assert receipt.offset == log.offset_of(receipt.sequence_number)
    assert log.offset_of(2) == spread_offset(receipt.offset, receipt.size_bytes, 2, 1)


def test_byte_offsets_survive_retention(harness: LogHarness) -> None:
    """A byte offset is never used again, so a checkpoint stays valid when earlier events are deleted."""
    log = harness.open()
    for _ in range(50):
        harness.publish(log, b"x" * 50)
    before = [log.offset_of(sequence) for sequence in range(30, 50)]

    log.trim(30)

    assert [log.offset_of(sequence) for sequence in range(30, 50)] == before
    assert log.find(Position.offset(5)) == 30


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position.first(), 2),
        (Position.latest(), 6),
        (Position.sequence(3, inclusive=True), 3),
        (Position.sequence(3), 4),
        (Position.sequence(-1), 2),
        (Position.sequence(0), 2),
        (Position.sequence(5), 6),
        (Position.sequence(6, inclusive=True), 6),
        (Position.offset(-1), 2),
        (Position.time(0), 2),
        (Position.time(1_003, inclusive=True), 3),
        (Position.time(1_003), 4),
        (Position.time(9_999), 6),
    ],
)
def test_every_start_position_resolves_between_first_and_end(
    harness: LogHarness, position: Position, expected: int
) -> None:
    """A position before the beginning gives the first event, one at the end gives the next event."""
    log = harness.open()
    for number in range(6):
        harness.publish(log, now_ms=1_000 + number)
    log.trim(2)

    found = log.find(position)

    assert found == expected


@pytest.mark.parametrize(
    ("position", "supplied", "last"),
    [
        (Position.sequence(6), "6", "5"),
        (Position.sequence(7, inclusive=True), "7", "5"),
        (Position.offset(10_000), "10000", None),
    ],
)
def test_start_position_beyond_the_end_is_refused_with_both_values(
    harness: LogHarness, position: Position, supplied: str, last: str | None
) -> None:
    """The refusal names the supplied and the last value; moving the position silently would hide a lost partition."""
    log = harness.open()
    for _ in range(6):
        harness.publish(log)

    with pytest.raises(PositionBeyondEnd) as refusal:
        log.find(position)

    assert (refusal.value.supplied, refusal.value.last) == (supplied, last or str(log.state.last_offset))


def test_last_byte_offset_starts_after_the_last_event(harness: LogHarness) -> None:
    """A reader that has read everything restarts at the checkpoint of the last event."""
    log = harness.open()
    harness.publish(log, b"a", b"b")

    assert log.find(Position.offset(log.state.last_offset)) == 2
    assert log.find(Position.offset(log.state.last_offset, inclusive=True)) == 1


def test_time_inside_a_batch_with_producer_times_finds_the_event(harness: LogHarness) -> None:
    """With producer times a batch has many timestamps; its records are decoded to find the right one."""
    log = harness.open(small_segments(append_time=False))
    for attributes in (0, 4):
        log.append(a_batch([b"a", b"b", b"c"], time_ms=100, time_deltas=[0, 50, 90], attributes=attributes), 1_000)
    log.append(a_batch([b"late"], time_ms=500), 1_000)
    harness.owner.run()

    assert log.find(Position.time(150, inclusive=True)) == 1
    assert log.find(Position.time(150)) == 2
    assert log.find(Position.time(190)) == 6
    assert log.find(Position.time(501)) == 7


def test_retention_by_time_deletes_whole_segments(harness: LogHarness) -> None:
    """No event younger than the retention is deleted."""
    log = harness.open(small_segments(retention_ms=1_000))
    for number in range(40):
        harness.publish(log, b"x" * 60, now_ms=10_000 + 100 * number)

    gone = log.apply_retention(14_000)

    assert gone > 0
    oldest = everything(log)[0][0].max_time_ms
    assert log.state.log_start > 0
    assert log.find(Position.time(13_000, inclusive=True)) == 30
    assert oldest <= 13_000


def test_hold_keeps_segments_past_retention_and_reports_their_bytes(harness: LogHarness) -> None:
    """Events that must still be captured outlive their retention, in whole segments."""
    log = harness.open(small_segments(retention_ms=1_000))
    for number in range(40):
        harness.publish(log, b"x" * 60, now_ms=10_000 + number)

    held = log.apply_retention(100_000, RetentionHold(20, 10**9))
    first, overdue_bytes = log.state.log_start, log.overdue_bytes(100_000)
    log.apply_retention(100_000)

    assert held > 0
    assert 0 < first <= 20
    assert overdue_bytes > 0
    assert (log.state.log_start, log.overdue_bytes(100_000)) == (40, 0)


def test_retention_by_size_keeps_at_least_the_limit(harness: LogHarness) -> None:
    """At least this many bytes are kept, if they were written."""
    log = harness.open(small_segments(retention_ms=None, retention_bytes=2_500))
    for _ in range(60):
        harness.publish(log, b"x" * 60)

    log.apply_retention(2_000)

    assert 2_500 <= log.state.size_bytes < 2_500 + 1_000


def test_sequence_numbers_continue_after_retention_deleted_all_events(harness: LogHarness) -> None:
    """An empty partition keeps its position."""
    log = harness.open(small_segments(retention_ms=1_000))
    for _ in range(5):
        harness.publish(log, now_ms=1_000)
    last_offset, size = log.state.last_offset, log.state.size_bytes

    log.apply_retention(100_000)
    emptied = log.state
    receipt = harness.publish(log, now_ms=100_001)

    assert (emptied.log_start, emptied.committed, emptied.size_bytes) == (5, 5, 0)
    assert (emptied.last_offset, emptied.last_enqueued_ms) == (last_offset, 1_000)
    assert (receipt.sequence_number, receipt.offset) == (5, size)


def test_log_without_retention_keeps_everything(harness: LogHarness) -> None:
    """Even old segments are kept."""
    log = harness.open(small_segments(retention_ms=None))
    for _ in range(40):
        harness.publish(log)

    gone = log.apply_retention(10**15)

    assert (gone, log.state.log_start) == (0, 0)


def test_trimming_beyond_the_end_is_refused_and_before_the_start_has_no_effect(harness: LogHarness) -> None:
    """DeleteRecords may name any number."""
    log = harness.open()
    harness.publish(log)

    with pytest.raises(SequenceOutOfRange):
        log.trim(2)
    log.trim(1)
    log.trim(0)

    assert log.state.log_start == 1


@pytest.mark.parametrize("at", [10, 16, 21, 25, 57, 62])
def test_offered_batch_with_a_flipped_byte_is_refused_and_changes_nothing(harness: LogHarness, at: int) -> None:
    """A batch that does not match its checksum was damaged in transit and must be sent again."""
    log = harness.open()
    batch = a_batch()
    batch[at] ^= 1

    with pytest.raises((CorruptBatch, InvalidBatch)):
        log.append(batch, 1_000)
    harness.owner.run()

    assert log.state.committed == 0


def test_batches_that_violate_the_format_are_refused(harness: LogHarness) -> None:
    """Clients must not send control batches; a transaction needs a producer; a header has 61 bytes."""
    log = harness.open()

    for batch in (
        bytearray(60),
        a_batch(attributes=0x30, producer=(1, 0, 0)),
        a_batch(attributes=0x10),
        a_batch(producer=(1, 0, -1)),
        a_batch(producer=(1, -1, 0)),
    ):
        with pytest.raises(InvalidBatch):
            log.append(batch, 1_000)

    assert log.state.committed == 0


def test_stored_batch_differs_from_the_offered_one_only_in_stamped_fields(harness: LogHarness) -> None:
    """Records are stored unopened and unchanged."""
    log = harness.open()
    harness.publish(log)
    offered = bytes(a_batch([b"payload"]))

    harness.publish(log, b"payload")

    header, body = everything(log)[1]
    assert body == offered[61:]
    assert header == read_header(offered)._replace(
        base_sequence_number=1, crc=header.crc, attributes=0x08, max_time_ms=1_000
    )


def test_a_deleted_log_starts_empty(harness: LogHarness) -> None:
    """A hub that was deleted and created again with the same id has no old events."""
    log = harness.open()
    harness.publish(log)
    waiting = log.append(a_batch(), 1_000)

    harness.engine.delete(LOG_0)
    harness.owner.run()
    again = harness.open()

    assert waiting.is_done
    assert again.state.committed == 0
    with pytest.raises(ShuttingDown):
        log.append(a_batch(), 1_000)


def test_existing_logs_are_listed(harness: LogHarness) -> None:
    """The node can find its partitions without the catalog."""
    harness.open()
    open_log(harness.engine, LOG_1, LogConfig())
    harness.engine.delete(LOG_1)
    harness.engine.delete(LOG_1)

    assert log_ids(harness.engine) == [LOG_0]


def test_cleanup_policy_of_a_log_cannot_change(harness: LogHarness) -> None:
    """Compacted logs have other byte offsets; a change would move every checkpoint."""
    log = harness.open()

    with pytest.raises(InvalidArgument):
        log.reconfigure(LogConfig(compact=True))


def test_a_smaller_segment_size_takes_effect_at_once(harness: LogHarness) -> None:
    """Settings can change while a log is open."""
    log = harness.open(LogConfig())
    for _ in range(10):
        harness.publish(log)

    log.reconfigure(small_segments(segment_bytes=100, retention_ms=0))
    harness.publish(log)
    harness.publish(log)

    assert log.apply_retention(2_000) >= 2


def test_small_reads_at_the_end_see_each_commit(harness: LogHarness) -> None:
    """A reader at the end reads single batches from cached positions."""
    log = harness.open(LogConfig())
    for number in range(50):
        harness.publish(log, b"%d" % number)
        chunk = log.read(number, 10)
        assert chunk is not None
        assert [header.base_sequence_number for header, _ in batches_of(chunk)] == [number]


@pytest.mark.parametrize("append_time", [True, False])
def test_an_unsealed_batch_is_sealed_by_the_log(harness: LogHarness, append_time: bool) -> None:
    """Batches made from AMQP messages get their checksum when their last byte is known."""
    log = harness.open(small_segments(append_time=append_time))
    batch = a_batch([b"made inside"])
    batch[17:21] = bytes(4)

    log.append(batch, 1_000)
    harness.owner.run()

    assert len(everything(log)) == 1


def test_batch_with_more_events_than_bytes_is_stored_uncompressed(harness: LogHarness) -> None:
    """Equal events compress below one byte each, but each needs a unique byte offset."""
    log = harness.open(LogConfig())
    batch = a_batch([b"same"] * 2000, attributes=4)
    assert len(batch) < 2000

    receipt = log.append(batch, 1_000)
    harness.owner.run()

    chunk = log.read(0, 1 << 20)
    assert chunk is not None
    header = read_header(chunk.data)
    assert (header.codec, header.record_count) == (0, 2000)
    offsets = [log.offset_of(sequence) for sequence in range(0, 2000, 7)]
    assert sorted(set(offsets)) == offsets
    assert [log.find(Position.offset(offset, inclusive=True)) for offset in offsets] == list(range(0, 2000, 7))
    assert (receipt.sequence_number, receipt.error) == (0, None)


def test_record_count_that_exceeds_the_bytes_is_refused(harness: LogHarness) -> None:
    """The fields of a header must be consistent."""
    log = harness.open()
    batch = a_batch([b"x"])
    write_header(batch, read_header(batch)._replace(last_delta=99_999, record_count=100_000))
    seal(batch)

    with pytest.raises(InvalidBatch):
        log.append(batch, 1_000)

    assert log.state.committed == 0
