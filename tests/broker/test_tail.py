"""Readers at the end of a partition share what one of them has read."""

import pytest

from broker.builders import NOW_MS, Bench, a_batch
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


def append(bench: Bench, body: bytes, *, partition: int = 0) -> PartitionLog:
    """Commit one batch."""
    log = bench.hub.log(partition)
    log.append(a_batch(body=body), NOW_MS)
    bench.turn.run()
    return log


def test_one_read_serves_every_reader_at_the_end(bench: Bench, reads: list[int]) -> None:
    """Of different groups too; the next batch is read again, once."""
    readers = [a_reader(bench) for _ in range(5)]

    for number in range(3):
        append(bench, b"%d" % number)
        chunks = [reader.read(1 << 20) for reader in readers]
        for reader, chunk in zip(readers, chunks, strict=True):
            assert chunk is not None
            assert b"%d" % number in bytes(chunk.data)
            reader.advance(chunk.next_sequence, 1, len(chunk.data), 0.0)

    assert reads == [0, 1, 2]


def test_a_reader_that_wants_less_or_starts_elsewhere_reads_for_itself(bench: Bench, reads: list[int]) -> None:
    """A chunk is shared only if the log would give the same one."""
    tails = Tails()
    append(bench, b"a" * 100)
    log = append(bench, b"b" * 100)

    whole = tails.read(log, 0, 0, 1 << 20, stable_only=True)
    less = tails.read(log, 0, 0, 150, stable_only=True)
    later = tails.read(log, 0, 1, 1 << 20, stable_only=True)
    again = tails.read(log, 0, 1, 1 << 20, stable_only=False)
    end = tails.read(log, 0, 2, 1 << 20, stable_only=True)

    assert whole is not None
    assert less is not None
    assert later is not None
    assert (whole.next_sequence, less.next_sequence, later.first_sequence) == (2, 1, 1)
    assert again is later
    assert end is None
    assert reads == [0, 0, 1, 2]


def test_large_chunks_and_other_logs_are_not_kept(bench: Bench, reads: list[int]) -> None:
    """The memory of a hub for this is bounded."""
    tails = Tails()
    log = append(bench, b"x" * MAX_TAIL_BYTES)
    other = append(bench, b"y", partition=1)

    tails.read(log, 0, 0, 1 << 20, stable_only=True)
    tails.read(log, 0, 0, 1 << 20, stable_only=True)
    tails.read(other, 0, 0, 1 << 20, stable_only=True)
    assert reads == [0, 0, 0]
    for partition in range(3 * MAX_TAILS):
        tails.read(other, partition, 0, 1 << 20, stable_only=True)

    assert len(tails._tails) <= MAX_TAILS


def test_what_was_deleted_is_not_served_from_memory(bench: Bench) -> None:
    """A position before the start of the log is refused as by the log itself."""
    tails = Tails()
    log = append(bench, b"a")
    assert tails.read(log, 0, 0, 1 << 20, stable_only=True) is not None

    log.trim(1)

    assert log.state.log_start == 1
    with pytest.raises(SequenceOutOfRange):
        tails.read(log, 0, 0, 1 << 20, stable_only=True)
