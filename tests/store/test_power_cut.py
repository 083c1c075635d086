"""Power cuts at every system call: acknowledged events survive, in order and once, and no batch is torn."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hubmere.model.receipt import Receipt
from hubmere.records.header import read_header
from hubmere.store.engine import LogId
from hubmere.store.local import LocalEngine
from hubmere.store.log.log import LocalLog
from store.builders import (
    LOG_0,
    LOG_1,
    Owner,
    a_batch,
    an_engine,
    compact,
    everything,
    open_log,
    small_segments,
    with_late_workers,
)
from store.faulty_files import FaultyFiles, Loss, PowerCut

ROOT = Path("/data")
COMPACTED = small_segments(segment_bytes=600, compact=True, retention_ms=None, tombstone_retention_ms=0)
CONFIGS = {LOG_0: small_segments(), LOG_1: COMPACTED}


class AppendRecord:
    """The acknowledged batches: first and last sequence number, and bytes."""

    def __init__(self) -> None:
        self.acknowledged: dict[LogId, list[tuple[int, bytes]]] = {LOG_0: [], LOG_1: []}
        self.trimmed_to = self.durably_trimmed_to = 0

    def expect(self, log: LogId, batch: bytearray) -> Callable[[Receipt], None]:
        def note(receipt: Receipt) -> None:
            if receipt.error is None:
                self.acknowledged[log].append((receipt.sequence_number, bytes(batch)))

        return note


def a_life(files: FaultyFiles, record: AppendRecord, *, durability: str = "fsync", is_late: bool = False) -> None:
    """A short scenario of a log: appends, rolls, retention, compaction, trim, close."""
    owner = Owner()
    engine = an_engine(ROOT, owner, files, durability=durability)
    background = with_late_workers(engine, owner)
    background.is_late = is_late
    plain, compacted = open_log(engine, LOG_0, CONFIGS[LOG_0]), open_log(engine, LOG_1, CONFIGS[LOG_1])
    _append(compacted, LOG_1, a_batch(events=[(b"once", b"never written again")]), 1_000, record)
    for step in range(12):
        _append(plain, LOG_0, a_batch([b"x" * 150, b"y"]), 1_000 + step, record)
        _append(plain, LOG_0, a_batch([b"z" * 40], producer=(7, 0, step)), 1_000 + step, record)
        _append(compacted, LOG_1, a_batch(events=[(b"k%d" % (step % 3), b"v" * 120)]), 1_000 + step, record)
        owner.run()
    engine.maintain(2_000)
    owner.run()
    compact(compacted, 2_000)
    plain.trim(9)
    record.trimmed_to = 9
    record.durably_trimmed_to = 0 if is_late else 9
    for log in (plain, compacted):
        log.apply_retention(2_000)
    owner.run()
    record.durably_trimmed_to = 9
    for step in range(3):
        _append(plain, LOG_0, a_batch([b"late"]), 3_000 + step, record)
    owner.run()
    background.is_late = False
    engine.close()
    owner.run()


def _append(log: LocalLog, name: LogId, batch: bytearray, now_ms: int, record: AppendRecord) -> None:
    log.append(batch, now_ms, record.expect(name, batch))


def reopened(files: FaultyFiles) -> tuple[LocalEngine, Owner]:
    owner = Owner()
    return an_engine(ROOT, owner, files), owner


def both_logs(files: FaultyFiles) -> tuple[LocalLog, LocalLog]:
    engine, _ = reopened(files)
    return open_log(engine, LOG_0, CONFIGS[LOG_0]), open_log(engine, LOG_1, CONFIGS[LOG_1])


def check_plain(log: LocalLog, record: AppendRecord, loss: Loss = Loss.NONE) -> None:
    stored = {header.base_sequence_number: header for header, _ in everything(log)}
    bases = [header.base_sequence_number for header, _ in everything(log)]
    assert bases == sorted(set(bases))
    for sequence, batch in record.acknowledged[LOG_0]:
        if read_header(batch).next_sequence_number > log.state.log_start:
            assert stored[sequence].crc == read_header(batch).crc
    # A trim is effective at once if the process is killed, and a moment later for a power cut.
    assert (record.trimmed_to if loss is Loss.NONE else record.durably_trimmed_to) <= log.state.log_start <= 9


def check_compacted(log: LocalLog, record: AppendRecord) -> None:
    stored = {header.base_sequence_number: body for header, body in everything(log)}
    # The first event has a unique key; after it three keys alternate.
    latest = {sequence and 1 + sequence % 3: (sequence, batch) for sequence, batch in record.acknowledged[LOG_1]}
    for sequence, batch in latest.values():
        assert stored[sequence] == batch[61:]
    assert log.state.committed >= len(record.acknowledged[LOG_1])


def a_disk() -> FaultyFiles:
    files = FaultyFiles()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    return files


def _calls_in_a_life(*, durability: str = "fsync", is_late: bool = False) -> int:
    files = a_disk()
    a_life(files, AppendRecord(), durability=durability, is_late=is_late)
    return files.calls


CALLS = _calls_in_a_life()
# In scenarios with a late background thread, only every fifth call is cut without `--torture`.
SOME = 5


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.name.lower())
def test_power_cut_at_any_call_loses_no_acknowledged_event(loss: Loss) -> None:
    """Events are acknowledged only when they are on disk, so a power cut can only lose unacknowledged events."""
    for cut_at in range(3, CALLS + 2):
        files, record = a_disk(), AppendRecord()
        files.cut_at = cut_at

        with suppress(PowerCut):
            a_life(files, record)
        engine, owner = reopened(files.after_cut(loss, seed=cut_at))

        plain, compacted = open_log(engine, LOG_0, CONFIGS[LOG_0]), open_log(engine, LOG_1, CONFIGS[LOG_1])
        check_plain(plain, record)
        check_compacted(compacted, record)
        end = plain.state.committed
        receipt = plain.append(a_batch([b"after"]), 5_000)
        owner.run()
        assert (receipt.is_done, receipt.error, receipt.sequence_number) == (True, None, end)


def _step(request: pytest.FixtureRequest) -> int:
    return 1 if request.config.getoption("--torture", default=False) else SOME


@pytest.mark.parametrize(
    ("durability", "loss"),
    [("fsync", Loss.ALL), ("fsync", Loss.NONE), ("fsync", Loss.TORN), ("os", Loss.NONE)],
    ids=lambda value: value if isinstance(value, str) else value.name.lower(),
)
def test_power_cut_loses_no_acknowledged_event_when_the_background_is_late(
    durability: str, loss: Loss, request: pytest.FixtureRequest
) -> None:
    """A log continues in its new segment before the list of segments is durable.

    With `os` the process may be killed.
    """
    for cut_at in range(3, _calls_in_a_life(durability=durability, is_late=True) + 2, _step(request)):
        files, record = a_disk(), AppendRecord()
        files.cut_at = cut_at

        with suppress(PowerCut):
            a_life(files, record, durability=durability, is_late=True)
        plain, compacted = both_logs(files.after_cut(loss, seed=cut_at))

        check_plain(plain, record, loss)
        check_compacted(compacted, record)


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.TORN], ids=lambda loss: loss.name.lower())
def test_log_opens_after_a_power_cut_with_durability_os(loss: Loss, request: pytest.FixtureRequest) -> None:
    """Events may be lost, as documented; the remaining ones are in order, and the log accepts events again."""
    for cut_at in range(4, _calls_in_a_life(durability="os", is_late=True) + 2, _step(request)):
        files = a_disk()
        files.cut_at = cut_at
        with suppress(PowerCut):
            a_life(files, AppendRecord(), durability="os", is_late=True)

        engine, owner = reopened(files.after_cut(loss, seed=cut_at))
        log = open_log(engine, LOG_0, CONFIGS[LOG_0])

        bases = [header.base_sequence_number for header, _ in everything(log)]
        assert bases == sorted(set(bases))
        end = log.state.committed
        receipt = log.append(a_batch([b"after"]), 5_000)
        owner.run()
        assert (receipt.is_done, receipt.error, receipt.sequence_number) == (True, None, end)


def test_power_cut_during_recovery_loses_nothing() -> None:
    """Recovery truncates and rewrites files; a second power cut during recovery must do no harm."""
    files, record = a_disk(), AppendRecord()
    files.cut_at = CALLS * 2 // 3
    with pytest.raises(PowerCut):
        a_life(files, record)
    crashed = files.after_cut(Loss.NONE)
    counting = crashed.after_cut(Loss.NONE)
    both_logs(counting)

    for cut_at in range(1, counting.calls + 1):
        again = crashed.after_cut(Loss.NONE)
        again.cut_at = cut_at
        with pytest.raises(PowerCut):
            both_logs(again)

        plain, compacted = both_logs(again.after_cut(Loss.TORN, seed=cut_at))
        check_plain(plain, record)
        check_compacted(compacted, record)


def test_a_scenario_without_a_power_cut_matches_its_append_record() -> None:
    """The scenario must roll, trim, compact and acknowledge everything."""
    files, record = a_disk(), AppendRecord()

    a_life(files, record)

    assert len(record.acknowledged[LOG_0]) == 27
    assert len(record.acknowledged[LOG_1]) == 13
    engine, _ = reopened(files.after_cut(Loss.ALL))
    assert engine.was_clean
    plain, compacted = open_log(engine, LOG_0, CONFIGS[LOG_0]), open_log(engine, LOG_1, CONFIGS[LOG_1])
    assert plain.state.log_start == 9
    assert len(everything(compacted)) < 13
    check_plain(plain, record)
    check_compacted(compacted, record)
