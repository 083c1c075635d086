"""`hubmere doctor`: it reports damage, and repairs only what is safe to repair."""

from pathlib import Path

import pytest

from hubmere.model.monitoring.damage import DamageKind
from hubmere.store.doctor import Kind, check, repair
from hubmere.store.log.segments.segment import INDEX, LOG, stem
from hubmere.store.recovery.manifest import SEGMENTS
from store.builders import LOG_0, LOG_1, Owner, a_batch, an_engine, compact, everything, open_log, small_segments
from store.faulty_files import FaultyFiles, Loss

ROOT = Path("/data")
FOLDER = ROOT / "log" / LOG_0


def a_disk(*, is_clean: bool = True) -> FaultyFiles:
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, small_segments(segment_bytes=20_000))
    compacted = open_log(engine, LOG_1, small_segments(compact=True, retention_ms=None))
    for number in range(300):
        log.append(a_batch([b"x" * 100]), 1_000 + number)
        compacted.append(a_batch(events=[(b"k%d" % (number % 5), b"v" * 60)]), 1_000 + number)
        owner.run()
    engine.maintain(3_000)
    owner.run()
    compact(compacted, 3_000)
    if is_clean:
        engine.close()
    return files.after_cut(Loss.NONE)


def test_intact_folder_has_no_findings() -> None:
    """All logs are checked, including compacted ones with their gaps, and nothing is changed."""
    files = a_disk()
    seen: list[str] = []
    before = files.calls

    report = check(ROOT, files, seen.append)

    assert report.findings == []
    assert report.is_sound
    assert seen == [LOG_0, LOG_1]
    assert report.logs == 2
    assert report.batches > 300
    assert not {"write", "unlink", "rename", "truncate"} & set(files.log[before:])


def test_logs_that_the_next_start_recovers_are_listed() -> None:
    """After a crash this is no damage, but an operator needs to know what the next start will do."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    engine = an_engine(ROOT, owner, files)
    open_log(engine, LOG_0, small_segments()).append(a_batch(), 1_000)
    open_log(engine, LOG_1, small_segments())
    owner.run()

    crashed = check(ROOT, files.after_cut(Loss.NONE))
    engine.close()
    stopped = check(ROOT, files)

    assert (crashed.is_sound, crashed.unrecovered) == (True, [LOG_0])
    assert (stopped.is_sound, stopped.unrecovered) == (True, [])


@pytest.mark.parametrize("at", [3, 17, 30, 100])
def test_flipped_byte_is_reported_and_not_repaired(at: int) -> None:
    """A damaged old batch cannot be repaired: it is reported with its position, before and after a repair."""
    files = a_disk()
    size = files.size(FOLDER / (stem(0) + LOG)) // _batches_in_first(files)
    files.corrupt(FOLDER / (stem(0) + LOG), 10 * size + at)

    finding = check(ROOT, files).findings[0]
    repair(ROOT, files)
    left = check(ROOT, files).findings[0]

    assert (finding.kind, finding.position) == (Kind.CORRUPT, 10 * size)
    assert f"{LOG_0}/{stem(0)}{LOG} at byte {10 * size}" in str(finding)
    assert left == finding


def test_torn_tail_is_truncated() -> None:
    """After the recovery point a damaged batch was never acknowledged, and is the end of the log."""
    files = a_disk(is_clean=False)
    last = [name for name in files.names(FOLDER) if name.endswith(LOG)][-1]
    fd = files.open(FOLDER / last, write=True)
    files.write(fd, b"torn" * 30)

    found = check(ROOT, files).findings
    mended = repair(ROOT, files)

    assert [finding.kind for finding in found] == [Kind.TORN_TAIL]
    assert mended == found
    assert check(ROOT, files).is_sound
    log = open_log(an_engine(ROOT, Owner(), files), LOG_0, small_segments())
    assert len(everything(log)) == 300


def test_wrong_index_is_deleted_and_rebuilt() -> None:
    """Indexes are derived from the batches."""
    files = a_disk()
    files.corrupt(FOLDER / (stem(0) + INDEX), 5)

    found = check(ROOT, files).findings
    repair(ROOT, files)

    assert [(finding.kind, finding.file) for finding in found] == [(Kind.INDEX, stem(0) + INDEX)]
    assert check(ROOT, files).is_sound


def test_missing_segment_and_unreadable_list_of_segments_are_reported() -> None:
    """This damage can only be repaired from a backup."""
    files = a_disk()
    files.unlink(FOLDER / (stem(0) + LOG))
    files.corrupt(ROOT / "log" / LOG_1 / SEGMENTS, 2)

    kinds = [finding.kind for finding in check(ROOT, files).findings]

    assert Kind.MISSING in kinds
    assert Kind.UNREADABLE in kinds


def _batches_in_first(files: FaultyFiles) -> int:
    bases = [int(name.removesuffix(LOG)) for name in files.names(FOLDER) if name.endswith(LOG)]
    return bases[1] - bases[0]


def test_undecodable_batch_is_reported_and_skipped_after_a_repair() -> None:
    """A Kafka consumer stops at an intact batch with undecodable records; after the repair every reader skips it."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, small_segments())
    undecodable = a_batch([b"two", b"three"])
    undecodable[61:] = b"\xff" * (len(undecodable) - 61)
    undecodable[17:21] = bytes(4)  # A batch without a checksum counts as one that the node itself has made.
    for batch in (a_batch([b"one"]), undecodable, a_batch([b"four"])):
        log.append(batch, 1_000)
        owner.run()
    engine.close()

    (found,) = check(ROOT, files).findings
    mended = repair(ROOT, files)

    assert (found.kind, found.file) == (Kind.UNDECODABLE, stem(0) + LOG)
    assert "sequence numbers 1 to 2" in str(found)
    assert mended == [found]
    assert check(ROOT, files).is_sound
    for _ in range(2):  # The same holds after a restart.
        engine = an_engine(ROOT, Owner(), files)
        reopened = open_log(engine, LOG_0, small_segments())
        assert [header.base_sequence_number for header, _ in everything(reopened)] == [0, 3]
        (damaged,) = engine.damage.ranges(LOG_0)
        assert (damaged.first_sequence, damaged.next_sequence, damaged.kind) == (1, 3, DamageKind.UNREADABLE)
        engine.close()
