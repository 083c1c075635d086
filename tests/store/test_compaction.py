"""Compaction: the last event of each key stays, with its sequence number."""

from pathlib import Path

import pytest

from hubmere.model.errors import InvalidBatch
from hubmere.model.position import Position
from hubmere.records.records import slice_records
from hubmere.store.local import LocalEngine
from hubmere.store.log import compaction
from hubmere.store.log.log import LocalLog
from store.builders import LOG_0, Event, Owner, a_batch, an_engine, compact, everything, open_log, small_segments

HOUR_MS = 3_600_000


class LogHarness:
    def __init__(self, root: Path, **changes: object) -> None:
        self.root = root
        self.owner = Owner()
        self.config = small_segments(segment_bytes=500, compact=True, retention_ms=None, **changes)
        self.engine: LocalEngine = an_engine(root, self.owner)
        self.log: LocalLog = open_log(self.engine, LOG_0, self.config)

    def publish(self, *events: Event, attributes: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> None:
        self.log.append(a_batch(events=events, attributes=attributes, producer=producer), 1_000)
        self.owner.run()

    def compact(self, now_ms: int = 2_000) -> int:
        """Roll the log, write a recovery point, and compact."""
        self.log.apply_retention(now_ms + 100 * 24 * HOUR_MS)
        self.owner.run()
        self.engine.maintain(now_ms)
        self.owner.run()
        return compact(self.log, now_ms)

    def reopen(self) -> None:
        self.engine.close()
        self.engine = an_engine(self.root, self.owner)
        self.log = open_log(self.engine, LOG_0, self.config)


def contents(log: LocalLog) -> list[tuple[int, bytes | None, bool]]:
    """Sequence number, key, and whether there is a value, for every remaining event."""
    return [
        (header.base_sequence_number + record.sequence_delta, record.key, record.has_value)
        for header, body in everything(log)
        for record in slice_records(bytes(61) + body, header)
    ]


def test_only_the_last_event_of_each_key_is_kept(tmp_path: Path) -> None:
    """A reader from the start gets the current state, and sequence numbers have not changed."""
    harness = LogHarness(tmp_path)
    for step in range(30):
        harness.publish((b"k%d" % (step % 3), b"v" * 30), (b"only-%d" % step, b"w"))
    harness.publish((b"end", b""))

    saved = harness.compact()

    kept = {key: sequence for sequence, key, _ in contents(harness.log) if key is not None and key.startswith(b"k")}
    assert saved > 0
    assert kept == {b"k0": 54, b"k1": 56, b"k2": 58}
    assert len(contents(harness.log)) == 30 + 3 + 1
    assert harness.log.state.committed == 61


def test_reads_and_start_positions_skip_the_gaps(tmp_path: Path) -> None:
    """Every sequence number is still a valid start; reading returns the remaining events after it."""
    harness = LogHarness(tmp_path)
    for _ in range(40):
        harness.publish((b"same", b"v" * 50))
    harness.compact()

    left = [sequence for sequence, _, _ in contents(harness.log)]
    for sequence in range(40):
        chunk = harness.log.read(sequence, 100)
        assert chunk is not None
        assert chunk.first_sequence == min(known for known in left if known >= sequence)
        assert harness.log.find(Position.offset(sequence, inclusive=True)) == sequence


def test_compacted_log_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """Gaps are not damage, and the indexes match the rewritten segments."""
    harness = LogHarness(tmp_path)
    for step in range(60):
        harness.publish((b"k%d" % (step % 4), b"v" * 30), (b"k%d" % (step % 7), b"w" * 30))
    harness.compact()
    before = contents(harness.log)

    harness.reopen()

    assert contents(harness.log) == before
    assert harness.log.state.committed == 120


def test_tombstones_are_kept_for_their_retention_time(tmp_path: Path) -> None:
    """Otherwise a slow reader would keep the deleted value."""
    harness = LogHarness(tmp_path, tombstone_retention_ms=HOUR_MS)
    harness.publish((b"gone", b"value" * 30))
    harness.publish((b"gone", None))
    for step in range(20):
        harness.publish((b"other", b"%d" % step * 30))

    harness.compact(1_000 + HOUR_MS)
    early = [entry for entry in contents(harness.log) if entry[1] == b"gone"]
    harness.publish((b"more", b"x"))
    harness.compact(1_001 + 2 * HOUR_MS)
    late = [entry for entry in contents(harness.log) if entry[1] == b"gone"]

    assert early == [(1, b"gone", False)]
    assert late == []


def test_compressed_batches_are_rewritten_uncompressed(tmp_path: Path) -> None:
    """A rewritten batch is not compressed again; other batches do not change."""
    harness = LogHarness(tmp_path)
    harness.publish((b"a", b"1" * 300), (b"b", b"2"), attributes=4)
    for _ in range(10):
        harness.publish((b"a", b"3" * 80))

    harness.compact()

    first = everything(harness.log)[0][0]
    assert (first.base_sequence_number, first.last_delta, first.record_count, first.codec) == (0, 1, 1, 0)
    assert (1, b"b", True) in contents(harness.log)


def test_events_of_aborted_transactions_are_removed_and_replace_no_others(tmp_path: Path) -> None:
    """An aborted write must not remove the committed value of its key."""
    harness = LogHarness(tmp_path)
    harness.publish((b"k", b"kept"))
    harness.publish((b"k", b"aborted"), attributes=0x10, producer=(9, 0, 0))
    for step in range(8):
        harness.publish((b"fill-%d" % step, b"x" * 100))
    harness.log.append_marker(9, 0, 1_000, commit=False)
    harness.owner.run()

    harness.compact()

    left = [sequence for sequence, key, _ in contents(harness.log) if key == b"k"]
    assert left == [0]


def test_an_open_transaction_is_not_compacted(tmp_path: Path) -> None:
    """Its events may still be aborted."""
    harness = LogHarness(tmp_path)
    harness.publish((b"k", b"old"))
    harness.publish((b"k", b"open"), attributes=0x10, producer=(9, 0, 0))
    for _ in range(20):
        harness.publish((b"k", b"x" * 100))

    assert harness.compact() == 0


def test_keys_that_exceed_one_pass_are_compacted_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is limited; a few passes give the same result."""
    monkeypatch.setattr(compaction, "MAX_KEYS", 8)
    harness = LogHarness(tmp_path)
    for step in range(60):
        harness.publish((b"k%d" % (step % 20), b"v" * 40))
    harness.publish((b"end", b""))

    for number in range(12):
        harness.compact(2_000 + number)

    sealed = [key for _, key, _ in contents(harness.log)]
    assert len(sealed) <= 20 + 1 + 8
    assert set(sealed) == {b"k%d" % number for number in range(20)} | {b"end"}


def test_events_without_a_key_are_refused(tmp_path: Path) -> None:
    """An event without a key could never be replaced."""
    harness = LogHarness(tmp_path)

    with pytest.raises(InvalidBatch):
        harness.log.append(a_batch(events=[(b"k", b""), (None, b"v")]), 1_000)


def test_segments_younger_than_the_lag_are_not_compacted(tmp_path: Path) -> None:
    """A reader within the lag sees every event."""
    harness = LogHarness(tmp_path, min_compaction_lag_ms=HOUR_MS)
    for _ in range(40):
        harness.publish((b"same", b"v" * 50))

    assert harness.compact(1_500) == 0
    assert harness.compact(1_001 + HOUR_MS) > 0


def test_segment_that_was_deleted_meanwhile_is_not_restored(tmp_path: Path) -> None:
    """Rewriting runs on another thread; the log may be trimmed at the same time."""
    harness = LogHarness(tmp_path)
    for _ in range(40):
        harness.publish((b"same", b"v" * 50))
    harness.engine.maintain(2_000)
    harness.owner.run()
    run = harness.log.compaction_pass(2_000)
    assert run is not None

    run.rewrite()
    harness.log.trim(20)
    run.adopt(2_000)
    harness.owner.run()

    assert harness.log.state.log_start == 20
    assert not list((tmp_path / "log" / LOG_0).glob("*.cleaned"))
    assert [sequence for sequence, _, _ in contents(harness.log)][-1] == 39
