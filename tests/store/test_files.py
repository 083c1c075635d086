"""File handles, locks, and atomic replacement of files."""

import errno
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from hubmere.store.engine import LogConfig, log_id
from hubmere.store.files import Files, FolderInUse, Handle, HandlePool, acquire_lock, replace_file
from hubmere.store.local import LocalEngine
from store.builders import Owner, a_batch, everything, open_log
from store.faulty_files import FaultyFiles


def open_count(handles: Sequence[Handle]) -> int:
    return sum(handle.fd_or_closed >= 0 for handle in handles)


def test_pool_closes_the_least_recently_used_handles(tmp_path: Path) -> None:
    """A thousand partitions must work with a limit of a thousand descriptors, including sockets."""
    pool = HandlePool(Files(), max_open=3)
    handles = []
    for number in range(8):
        path = tmp_path / str(number)
        path.write_bytes(b"%d" % number)
        handles.append(pool.handle(path))

    contents = [Files().pread(handle.fd(), 1, 0) for handle in handles * 2]

    assert contents == [b"%d" % number for number in range(8)] * 2
    assert open_count(handles) == 3
    pool.close_all()


def test_pinned_handle_stays_open(tmp_path: Path) -> None:
    """Another thread may be flushing its descriptor."""
    pool = HandlePool(Files(), max_open=1)
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    pinned, other = pool.handle(tmp_path / "a"), pool.handle(tmp_path / "b")
    fd = pinned.fd()
    pinned.pins += 1

    other.fd()

    assert pinned.fd_or_closed == fd
    pool.close_all()


def test_handle_with_unsynced_writes_stays_open_beyond_the_limit() -> None:
    """Opening a file must not wait for the flush of another one; after its commit the file is closed."""
    files = FaultyFiles()
    for name in ("/a", "/b", "/c", "/d", "/e", "/f"):
        files.close(files.open(Path(name), create=True))
    pool = HandlePool(files, max_open=4)
    handles = [pool.handle(Path(name), writes=True) for name in ("/a", "/b", "/c", "/d", "/e", "/f")]
    for handle in handles[:5]:
        files.write(handle.fd(), b"data")
        handle.is_unsynced = True
    open_while_unsynced = open_count(handles)

    for handle in handles[:5]:
        handle.is_unsynced = False
    handles[5].fd()

    assert open_while_unsynced == 5
    assert open_count(handles) == 4
    assert files.log.count("fdatasync") == 0


def test_handle_with_unsynced_writes_is_synced_before_it_is_closed() -> None:
    """A pool far above its limit closes it; a write-back error must not be lost, so the next commit reports it."""
    files = FaultyFiles()
    for name in ("/a", "/b", "/c"):
        files.close(files.open(Path(name), create=True))
    pool = HandlePool(files, max_open=1)
    first, second, third = (pool.handle(Path(name), writes=True) for name in ("/a", "/b", "/c"))
    files.write(first.fd(), b"data")
    first.is_unsynced = True

    second.fd()
    synced = files.log.count("fdatasync")
    second.is_unsynced = True
    files.fails = lambda call: OSError(errno.EIO, "broken") if call == "fdatasync" else None
    third.fd()

    assert synced == 1
    assert not first.is_unsynced
    assert second.sync_error is not None


def test_many_partitions_share_few_descriptors() -> None:
    """Every log works, although only some of them can be open at the same time."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(Path("/data"))
    engine = LocalEngine(Path("/data"), post=owner.post, threads=0, max_open_files=8, files=files)
    open_before = files.open_count
    logs = [open_log(engine, log_id("hub", number), LogConfig()) for number in range(40)]

    for _ in range(3):
        for log in logs:
            log.append(a_batch(), 1_000)
        owner.run()

    assert [len(everything(log)) for log in logs] == [3] * 40
    assert files.open_count - open_before <= 8
    engine.close()


def test_flush_that_fails_while_a_handle_is_closed_fails_the_next_commit() -> None:
    """The pool syncs files before it closes them."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(Path("/data"))
    engine = LocalEngine(Path("/data"), post=owner.post, threads=0, max_open_files=1, files=files)
    first, second = (open_log(engine, log_id("hub", number), LogConfig()) for number in range(2))
    lost = first.append(a_batch(), 1_000)
    files.fails = lambda call: OSError(errno.EIO, "broken") if call == "fdatasync" else None
    kept = second.append(a_batch(), 1_000)
    files.fails = lambda _: None

    owner.run()

    assert lost.error is not None
    assert kept.error is None


def test_replacing_a_file_leaves_no_temporary_file(tmp_path: Path) -> None:
    """After a crash the file has the old or the new content."""
    replace_file(Files(), tmp_path / "f", b"old")
    replace_file(Files(), tmp_path / "f", b"new")

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", b"new")]


def test_folder_in_use_is_refused_with_the_process_id(tmp_path: Path) -> None:
    """Two nodes on one folder would destroy it; the operator must know which one to stop."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, stop))
    holder.start()
    try:
        assert ready.wait(240)
        with pytest.raises(FolderInUse, match=str(holder.pid)):
            acquire_lock(tmp_path)
    finally:
        stop.set()
        holder.join(240)

    lock = acquire_lock(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    acquire_lock(tmp_path).release()


def _hold(folder: Path, ready: "multiprocessing.synchronize.Event", stop: "multiprocessing.synchronize.Event") -> None:
    lock = acquire_lock(folder)
    ready.set()
    stop.wait(240)
    lock.release()


def test_missing_files_are_reported_by_their_own_error(tmp_path: Path) -> None:
    """Recovery opens files that may not exist."""
    with pytest.raises(FileNotFoundError):
        Files().size(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        Files().open(tmp_path / "none")
    assert Files().free_bytes(tmp_path) > 0
