"""Handles, locks and whole-file replacement."""

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from hubmere.store.engine import LogConfig, log_id
from hubmere.store.files import Files, FolderInUse, HandlePool, acquire_lock, replace_file
from hubmere.store.local import LocalEngine
from store.builders import Owner, a_batch, everything
from store.faulty_files import FaultyFiles


def test_a_pool_closes_what_was_not_used_lately(tmp_path: Path) -> None:
    """A thousand partitions must work with a limit of a thousand descriptors, including sockets."""
    pool = HandlePool(Files(), max_open=3)
    handles = []
    for number in range(8):
        path = tmp_path / str(number)
        path.write_bytes(b"%d" % number)
        handles.append(pool.handle(path))

    contents = [Files().pread(handle.fd(), 1, 0) for handle in handles * 2]

    assert contents == [b"%d" % number for number in range(8)] * 2
    assert pool.open_count == 3
    pool.close_all()


def test_a_pinned_handle_stays_open(tmp_path: Path) -> None:
    """Another thread is flushing its descriptor."""
    pool = HandlePool(Files(), max_open=1)
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    pinned, other = pool.handle(tmp_path / "a"), pool.handle(tmp_path / "b")
    fd = pinned.fd()
    pinned.pins += 1

    other.fd()

    assert pinned.fd_or_closed == fd
    pool.close_all()


def test_a_handle_with_unsynced_writes_is_synced_before_it_is_closed() -> None:
    """A write-back error would otherwise be lost; it is kept for the next commit."""
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


def test_many_partitions_share_few_descriptors(tmp_path: Path) -> None:
    """Every log works although only some of them can be open at once."""
    owner = Owner()
    engine = LocalEngine(tmp_path, post=owner.post, threads=0, max_open_files=8)
    logs = [engine.open_now(log_id("hub", number), LogConfig()) for number in range(40)]

    for _ in range(3):
        for log in logs:
            log.append(a_batch(), 1_000)
        owner.run()

    assert [len(everything(log)) for log in logs] == [3] * 40
    assert engine.open_file_count <= 8
    engine.close()


def test_a_flush_that_failed_while_a_handle_was_closed_is_not_forgotten() -> None:
    """The pool syncs files that it closes; if that fails, the next commit must fail."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(Path("/data"))
    engine = LocalEngine(Path("/data"), post=owner.post, threads=0, max_open_files=1, files=files)
    first, second = (engine.open_now(log_id("hub", number), LogConfig()) for number in range(2))
    lost = first.append(a_batch(), 1_000)
    files.fails = lambda call: OSError(errno.EIO, "broken") if call == "fdatasync" else None
    kept = second.append(a_batch(), 1_000)
    files.fails = lambda _: None

    owner.run()

    assert lost.error is not None
    assert kept.error is None


def test_replacing_a_file_leaves_no_passing_name(tmp_path: Path) -> None:
    """The old or the new content, and no temporary file."""
    replace_file(Files(), tmp_path / "f", b"old")
    replace_file(Files(), tmp_path / "f", b"new")

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", b"new")]


def test_a_folder_in_use_names_the_process(tmp_path: Path) -> None:
    """Two nodes on one folder would destroy it; the operator must learn which one to stop."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, stop))
    holder.start()
    try:
        assert ready.wait(60)
        with pytest.raises(FolderInUse, match=str(holder.pid)):
            acquire_lock(tmp_path)
    finally:
        stop.set()
        holder.join(60)

    lock = acquire_lock(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    acquire_lock(tmp_path).release()


def _hold(folder: Path, ready: "multiprocessing.synchronize.Event", stop: "multiprocessing.synchronize.Event") -> None:
    lock = acquire_lock(folder)
    ready.set()
    stop.wait(60)
    lock.release()


def test_the_system_files_know_their_errors(tmp_path: Path) -> None:
    """Recovery asks for files that may not be there."""
    with pytest.raises(FileNotFoundError):
        Files().size(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        Files().open(tmp_path / "none")
    assert Files().free_bytes(tmp_path) > 0
