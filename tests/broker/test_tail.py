"""Readers at the end of a partition share the result of one read."""

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from broker.test_read import a_reader
from hubmere.broker.tail import MAX_TAIL_BYTES, MAX_TAILS, Tails
from hubmere.model.errors import SequenceOutOfRange
from hubmere.store.engine import PartitionLog
from hubmere.store.log.log import LocalLog


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sequence number of each read of a log."""
    seen: list[int] = []
    read = LocalLog.read

    def noted(self: LocalLog, sequence: int, max_bytes: int, *, stable_only: bool = False) -> object:
        seen.append(sequence)
        return read(self, sequence, max_bytes, stable_only=stable_only)

    monkeypatch.setattr(LocalLog, "read", noted)
    return seen


def append(harness: BrokerHarness, body: bytes, *, partition: int = 0) -> PartitionLog:
    """Commit one batch."""
    log = harness.hub.log(partition)
    log.append(a_batch(body=body), NOW_MS)
    harness.turn.run()
    return log


def test_one_read_serves_every_reader_at_the_end(harness: BrokerHarness, reads: list[int]) -> None:
    """This includes readers of different groups; the next batch is again read once."""
    readers = [a_reader(harness) for _ in range(5)]

    for number in range(3):
        append(harness, b"%d" % number)
        chunks = [reader.read(1 << 20) for reader in readers]
        for reader, chunk in zip(readers, chunks, strict=True):
            assert chunk is not None
            assert b"%d" % number in bytes(chunk.data)
            reader.advance(chunk.next_sequence, 1, len(chunk.data), 0.0)

    assert reads == [0, 1, 2]


def test_reader_with_a_smaller_limit_or_another_position_reads_the_log(
    harness: BrokerHarness, reads: list[int]
) -> None:
    """A result is shared only if the log would return the same one."""
    tails = Tails()
    append(harness, b"a" * 100)
    log = append(harness, b"b" * 100)

    whole = tails.read(log, log.state, 0, 0, 1 << 20, stable_only=True)
    less = tails.read(log, log.state, 0, 0, 150, stable_only=True)
    later = tails.read(log, log.state, 0, 1, 1 << 20, stable_only=True)
    again = tails.read(log, log.state, 0, 1, 1 << 20, stable_only=False)
    end = tails.read(log, log.state, 0, 2, 1 << 20, stable_only=True)

    assert whole is not None
    assert less is not None
    assert later is not None
    assert (whole.next_sequence, less.next_sequence, later.first_sequence) == (2, 1, 1)
    assert again is later
    assert end is None
    assert reads == [0, 0, 1, 2]


def test_large_chunks_and_chunks_of_other_logs_are_not_cached(harness: BrokerHarness, reads: list[int]) -> None:
    """The memory of a hub for shared reads is limited."""
    tails = Tails()
    log = append(harness, b"x" * MAX_TAIL_BYTES)
    other = append(harness, b"y", partition=1)

    tails.read(log, log.state, 0, 0, 1 << 20, stable_only=True)
    tails.read(log, log.state, 0, 0, 1 << 20, stable_only=True)
    tails.read(other, other.state, 0, 0, 1 << 20, stable_only=True)
    assert reads == [0, 0, 0]
    for partition in range(3 * MAX_TAILS):
        tails.read(other, other.state, partition, 0, 1 << 20, stable_only=True)

    assert len(tails._tails) <= MAX_TAILS


def test_deleted_events_are_not_served_from_the_cache(harness: BrokerHarness) -> None:
    """A position before the start of the log is refused, as by the log itself."""
    tails = Tails()
    log = append(harness, b"a")
    assert tails.read(log, log.state, 0, 0, 1 << 20, stable_only=True) is not None

    log.trim(1)

    assert log.state.log_start == 1
    with pytest.raises(SequenceOutOfRange):
        tails.read(log, log.state, 0, 0, 1 << 20, stable_only=True)
