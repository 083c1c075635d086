"""The start after a crash: which logs need recovery, a crash during recovery, and a clean stop."""

import resource
from pathlib import Path

import pytest

from hubmere.store.engine import LogConfig, LogId, log_id
from hubmere.store.files import max_open_files
from hubmere.store.local import CLEAN_SHUTDOWN, LocalEngine
from hubmere.store.memory import MemoryFiles
from store.builders import Owner, a_batch, an_engine, everything, open_log
from store.faulty_files import FaultyFiles, Loss
from store.test_commit import ThreadedOwner

ROOT = Path("/data")
LOGS = [log_id("hub", number) for number in range(4)]


def a_crashed_disk() -> FaultyFiles:
    """Log 0 was written and never sealed, 1 was sealed and written again, 2 was sealed, 3 is empty."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    engine = an_engine(ROOT, owner, files)
    opened = [open_log(engine, log, LogConfig()) for log in LOGS]
    for number in (1, 2):
        opened[number].append(a_batch(), 1_000)
    owner.run()
    engine.maintain(1_000)
    owner.run()
    for number in (0, 1):
        opened[number].append(a_batch(), 1_000)
    owner.run()
    return files.after_cut(Loss.NONE)


def unrecovered(engine: LocalEngine, owner: Owner) -> list[LogId]:
    found: list[LogId] = []
    engine.find_unrecovered(found.extend)
    owner.run()
    return found


def test_logs_without_a_recovery_point_at_their_end_are_found() -> None:
    """The other logs need no recovery: the node opens them when they are used."""
    owner = Owner()
    engine = an_engine(ROOT, owner, a_crashed_disk())

    assert unrecovered(engine, owner) == LOGS[:2]


def test_clean_stop_leaves_no_log_to_recover() -> None:
    """Every log is sealed, whether it was written or not."""
    files, owner = a_crashed_disk(), Owner()
    first = an_engine(ROOT, owner, files)
    for log in LOGS:
        open_log(first, log, LogConfig())
    first.close()
    engine = an_engine(ROOT, owner, files)

    assert engine.was_clean
    assert unrecovered(engine, owner) == []
    files.unlink(ROOT / "log" / LOGS[2] / "hubmere-segments")
    files.close(files.open(ROOT / "log" / CLEAN_SHUTDOWN, create=True))
    engine.was_clean = False
    assert unrecovered(engine, owner) == [LOGS[2]]


@pytest.mark.parametrize("calls", range(1, 12))
def test_crash_during_recovery_loses_nothing(calls: int) -> None:
    """The next start recovers again: after a cut at each of the first writes no acknowledged event is missing."""
    files = a_crashed_disk()
    left = calls

    def fail(_: str) -> OSError | None:
        nonlocal left
        left -= 1
        return OSError(5, "cut") if left < 0 else None

    first = an_engine(ROOT, Owner(), files)
    files.fails = fail
    for log in LOGS[:2]:
        first.open(log, LogConfig(), lambda _: None)
    files.fails = lambda _: None
    engine = an_engine(ROOT, Owner(), files.after_cut(Loss.NONE))

    assert [len(everything(open_log(engine, log, LogConfig()))) for log in LOGS] == [1, 2, 1, 0]


def test_log_exists_from_its_first_use_until_it_is_deleted() -> None:
    """The next start sees the same."""
    files = MemoryFiles()
    engine = an_engine(ROOT, Owner(), files)
    before = engine.exists(LOGS[0])
    open_log(engine, LOGS[0], LogConfig())
    open_log(engine, LOGS[1], LogConfig())
    engine.delete(LOGS[1])
    engine.close()

    again = an_engine(ROOT, Owner(), files)

    assert (before, engine.exists(LOGS[0]), engine.exists(LOGS[1])) == (False, True, False)
    assert [again.exists(log) for log in LOGS] == [True, False, False, False]


def test_stop_seals_many_logs(tmp_path: Path) -> None:
    """It uses several threads; the next start scans nothing."""
    owner = ThreadedOwner()
    engine = LocalEngine(tmp_path, post=owner.post)
    logs = [open_log(engine, log_id("hub", number), LogConfig(), owner.run_until) for number in range(40)]
    for log in logs:
        log.append(a_batch(), 1_000)
    engine.close()

    again = LocalEngine(tmp_path, post=owner.post)

    assert again.was_clean
    assert all(log.is_sealed for log in logs)
    assert open_log(again, log_id("hub", 7), LogConfig(), owner.run_until).state.committed == 1
    again.close()


@pytest.mark.parametrize(
    ("soft", "hard", "expected", "raised"),
    [
        (1_024, 4_096, 2_048, 4_096),
        (1_024, resource.RLIM_INFINITY, 65_536, 131_072),
        (1_000_000, 1_000_000, 65_536, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 65_536, None),
        (64, 64, 32, None),
    ],
)
def test_number_of_open_files_follows_the_limit_of_the_process(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, expected: int, raised: int | None
) -> None:
    """The pool uses half of the limit; the soft limit is raised to the hard limit."""
    changes: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changes.append(limits[0]))

    assert max_open_files() == expected
    assert changes == ([] if raised is None else [raised])


def test_limit_that_cannot_be_raised_is_used_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may not allow it."""

    def refuse(_: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    monkeypatch.setattr(resource, "setrlimit", refuse)

    assert max_open_files() == 512
