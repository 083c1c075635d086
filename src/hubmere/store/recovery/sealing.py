"""The last recovery points of a stopping node: written one by one, or those of many logs together.

One by one, each recovery point waits for the disk four to six times. Those of many logs share two flushes of the file
system:

1. Each log writes the index entries and the producer snapshot that its recovery point needs, and the recovery point
   beside the one in force. One flush makes all this durable, with the names of the files, and with the events if those
   are only in the page cache.
2. Each log replaces the recovery point in force. One flush makes that durable. Then producer snapshots that no recovery
   point needs any more are removed.

A power cut before the end of a step leaves the recovery point that was in force before. A log that fails in a step, and
every log if a flush fails, keeps that recovery point too; `LocalLog.close` then tries once more on its own.
Thread rule: any thread, once the owner has planned the recovery points.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hubmere.store.files import Files
from hubmere.store.log.commit import Workers
from hubmere.store.log.segments.segment_list import SegmentList
from hubmere.store.recovery.checkpoint import Checkpoint

# The recovery points of this many logs or more are written together. A flush of the file system also flushes what
# other programs have written, so it must save many flushes.
TOGETHER_FROM_LOGS = 32

Step = Callable[["LastPoint"], None]


class LastPoint:
    """The last recovery point of one log: planned, not written yet."""

    __slots__ = ("_checkpoint", "_files", "_list", "_on_done", "is_done")

    def __init__(
        self, files: Files, list_: SegmentList, checkpoint: Checkpoint, on_done: Callable[[OSError | None], None]
    ) -> None:
        """`on_done` is called once, with None when the recovery point is durable, else with the error."""
        self._files = files
        self._list = list_
        self._checkpoint = checkpoint
        self._on_done = on_done
        self.is_done = False

    def write(self) -> None:
        """Write it on its own."""
        try:
            self._list.sync()
            self._checkpoint.write(self._files)
        except OSError as error:
            self.finish(error)
        else:
            self.finish(None)

    def finish(self, error: OSError | None) -> None:
        """Report the outcome."""
        self.is_done = True
        self._on_done(error)

    # --- the steps of many logs together

    def write_beside(self) -> None:
        """Step 1: what the recovery point needs, and the recovery point beside the one in force."""
        self._list.sync()
        self._checkpoint.write_pieces(self._files)
        self._checkpoint.write_point(self._files)

    def put_in_force(self) -> None:
        """Step 2: replace the one in force."""
        self._checkpoint.put_in_force(self._files)

    def remove_old_snapshots(self) -> None:
        """After step 2: remove what the recovery point that was in force needed."""
        self._checkpoint.remove_old_snapshots(self._files)


_STEPS: Sequence[Step] = (LastPoint.write_beside, LastPoint.put_in_force)


def seal_together(files: Files, file: Path, points: Sequence[LastPoint], threads: int) -> None:
    """Write the last recovery points of many logs, in some threads; `file` is any file on their file system."""
    try:
        # Opened first: a flush reports the errors since the opening of its descriptor.
        fd = files.open(file)
    except OSError as error:
        _finish_all(points, error)
        return
    try:
        for step in _STEPS:
            _take_step(points, step, threads)
            files.sync_file_system(fd)
        _take_step(points, LastPoint.remove_old_snapshots, threads)
    except OSError as error:
        _finish_all(points, error)
    else:
        _finish_all(points, None)
    finally:
        files.close(fd)


def _take_step(points: Sequence[LastPoint], step: Step, threads: int) -> None:
    """Take a step of all logs, and wait for it."""
    workers = Workers("hubmere-seal", threads)
    count = max(threads, 1)
    workers.ensure_threads(count)
    for first in range(count):
        workers.run(partial(_take_step_of, points[first::count], step))
    workers.stop()


def _take_step_of(points: Sequence[LastPoint], step: Step) -> None:
    for point in points:
        if not point.is_done:
            try:
                step(point)
            except OSError as error:
                point.finish(error)


def _finish_all(points: Sequence[LastPoint], error: OSError | None) -> None:
    for point in points:
        if not point.is_done:
            point.finish(error)
