"""Full disks, failed flushes and flipped bytes: appends are refused, damage is reported, and the log survives."""

import errno
from pathlib import Path

import pytest

from hubmere.model.errors import CorruptBatch, PartitionOffline, StorageFull
from hubmere.model.receipt import Receipt
from hubmere.store.local import LocalEngine
from hubmere.store.log.log import LocalLog
from hubmere.store.log.segments.segment import LOG, stem
from store.builders import LOG_0, LOG_1, Owner, a_batch, an_engine, everything, open_log, small_segments
from store.faulty_files import FaultyFiles, Loss

ROOT = Path("/data")
BROKEN = OSError(errno.EIO, "Input/output error")


def a_disk() -> FaultyFiles:
    files = FaultyFiles()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    return files


def a_log(files: FaultyFiles, owner: Owner) -> tuple[LocalEngine, LocalLog]:
    engine = an_engine(ROOT, owner, files)
    return engine, open_log(engine, LOG_0, small_segments())


def publish(log: LocalLog, owner: Owner, count: int = 1, now_ms: int = 1_000) -> list[Receipt]:
    receipts = [log.append(a_batch([b"x" * 100]), now_ms) for _ in range(count)]
    owner.run()
    return receipts


def failing(*calls: str) -> "Switch":
    return Switch(calls)


class Switch:
    """Makes certain calls fail while it is on."""

    def __init__(self, calls: tuple[str, ...]) -> None:
        self._calls = calls
        self.is_on = True

    def __call__(self, call: str) -> OSError | None:
        return BROKEN if self.is_on and call in self._calls else None


@pytest.mark.parametrize("room", range(0, 400, 23))
def test_full_disk_refuses_appends_and_no_partial_batch_is_visible(room: int) -> None:
    """However much of a batch the disk accepts, the log has only complete batches, and reads continue."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    publish(log, owner, 2)
    files.capacity_bytes = _used_bytes(files) + room

    refused = 0
    for _ in range(4):
        try:
            log.append(a_batch([b"x" * 100]), 1_000)
        except StorageFull:
            refused += 1
    owner.run()

    assert refused >= 1
    assert [header.base_sequence_number for header, _ in everything(log)] == list(range(2 + 4 - refused))


def test_log_accepts_events_again_when_there_is_space_again() -> None:
    """No operator is needed after a full disk."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    publish(log, owner)
    files.capacity_bytes = 0
    for _ in range(3):
        with pytest.raises(StorageFull):
            log.append(a_batch(), 1_000)

    files.capacity_bytes = None
    receipts = publish(log, owner, 12)

    assert [receipt.sequence_number for receipt in receipts] == list(range(1, 13))
    assert len(everything(log)) == 13


def test_partial_write_blocks_appends_until_it_is_truncated() -> None:
    """A torn batch in the middle of a file would end the log at the next restart."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    publish(log, owner)
    files.capacity_bytes = _used_bytes(files) + 50
    files.fails = switch = failing("truncate")

    for _ in range(2):
        with pytest.raises(StorageFull):
            log.append(a_batch([b"x" * 100]), 1_000)
    switch.is_on = False
    files.capacity_bytes = None
    publish(log, owner, 2)

    _, again = a_log(files.after_cut(Loss.ALL), owner)
    assert len(everything(again)) == 3


def test_failed_roll_refuses_the_append_and_is_tried_again() -> None:
    """The list of segments could not be written, so the log has not changed."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    publish(log, owner, 5)
    files.fails = switch = failing("rename")

    with pytest.raises(StorageFull):
        publish(log, owner, 2)
    switch.is_on = False
    owner.run()
    publish(log, owner, 6)

    sequences = [header.base_sequence_number for header, _ in everything(log)]
    assert sequences == list(range(len(sequences)))
    assert len(sequences) >= 11


def test_failed_flush_fails_its_receipts_and_takes_the_log_offline() -> None:
    """After a failed fsync the content of the disk is unknown: writers are refused, readers get committed events."""
    files, owner = a_disk(), Owner()
    engine, log = a_log(files, owner)
    other = open_log(engine, LOG_1, small_segments())
    publish(log, owner, 3)
    files.fails = switch = failing("fdatasync")

    receipts = publish(log, owner, 2)
    switch.is_on = False
    files.fails = failing("open")
    with pytest.raises(PartitionOffline):
        log.append(a_batch(), 1_000)

    assert [type(receipt.error) for receipt in receipts] == [PartitionOffline] * 2
    assert log.state.committed == 3
    assert log.is_offline
    files.fails = lambda _: None
    assert len(everything(log)) == 3
    assert publish(other, owner)[0].error is None


def test_offline_log_is_verified_before_it_accepts_events_again() -> None:
    """Uncommitted bytes are truncated, committed ones are verified, and the files are opened again."""
    files, owner = a_disk(), Owner()
    engine, log = a_log(files, owner)
    publish(log, owner, 3)
    for _ in range(9):
        log.append(a_batch([b"x" * 100]), 1_000)
    files.fails = switch = failing("fdatasync")
    owner.run()
    switch.is_on = False

    engine.maintain(50_000)
    receipts = publish(log, owner, 2, now_ms=60_000)

    assert not log.is_offline
    assert [receipt.sequence_number for receipt in receipts] == [3, 4]
    assert [header.base_sequence_number for header, _ in everything(log)] == [0, 1, 2, 3, 4]
    _, again = a_log(files.after_cut(Loss.ALL), owner)
    assert again.state.committed == 5


def test_pause_between_attempts_to_reopen_a_log_grows() -> None:
    """Publishers must not cause constant attempts on a broken disk."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    publish(log, owner)
    files.fails = failing("fdatasync")
    publish(log, owner)
    files.fails = failing("names")

    tries = []
    for now_ms in range(0, 16_000, 250):
        before = files.calls
        assert not log.heal(now_ms)
        if files.calls > before:
            tries.append(now_ms)

    assert tries == [0, 1_000, 3_000, 7_000, 15_000]


def test_producer_can_repeat_what_a_failed_flush_has_lost() -> None:
    """The producer state is rolled back with the log; otherwise the retry would count as a duplicate."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    log.append(a_batch(producer=(9, 0, 0)), 1_000)
    owner.run()
    files.fails = switch = failing("fdatasync")
    log.append(a_batch(producer=(9, 0, 1)), 1_000)
    owner.run()
    switch.is_on = False

    again = log.append(a_batch(producer=(9, 0, 1)), 5_000)
    owner.run()

    assert (again.error, again.is_duplicate, again.sequence_number) == (None, False, 1)


def test_flipped_byte_in_an_old_segment_is_reported_and_never_served() -> None:
    """Readers skip only the damaged batch; all other batches are served, and nothing is truncated."""
    files, owner = a_disk(), Owner()
    engine, log = a_log(files, owner)
    publish(log, owner, 20)
    engine.close()
    size = files.size(ROOT / "log" / LOG_0 / (stem(0) + LOG))
    batch = size // 5
    files.corrupt(ROOT / "log" / LOG_0 / (stem(0) + LOG), 2 * batch + 100)

    engine, again = a_log(files, owner)
    good, after = again.read(0, 10_000), again.read(2, 10_000)

    assert good is not None
    assert good.next_sequence == 2
    assert after is not None
    assert after.first_sequence == 3
    assert again.state.committed == 20
    (damaged,) = engine.damage.ranges(LOG_0)
    assert (damaged.first_sequence, damaged.next_sequence) == (2, 3)
    assert damaged.place == f"{stem(0)}{LOG} bytes {2 * batch} to {3 * batch}"


def test_read_error_of_the_disk_refuses_only_that_read() -> None:
    """One bad sector must not take the log offline."""
    files, owner = a_disk(), Owner()
    _, log = a_log(files, owner)
    publish(log, owner, 20)
    files.fails = switch = failing("pread")

    with pytest.raises(CorruptBatch):
        log.read(0, 100)
    switch.is_on = False

    assert len(everything(log)) == 20


def test_failed_recovery_point_is_written_later() -> None:
    """A recovery point only saves time at the next start, so its failure is harmless."""
    files, owner = a_disk(), Owner()
    engine, log = a_log(files, owner)
    publish(log, owner, 3)
    files.fails = switch = failing("rename")
    engine.maintain(2_000)
    owner.run()
    switch.is_on = False

    engine.maintain(3_000)
    owner.run()
    again = files.after_cut(Loss.ALL)
    a_log(again, owner)

    assert "pread" not in again.log


def _used_bytes(files: FaultyFiles) -> int:
    folder = ROOT / "log" / LOG_0
    return sum(files.size(folder / name) for name in files.names(folder))
