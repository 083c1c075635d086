"""The files of a Spark worker: the input and the output of its tasks, for which PySpark has no interface.

The files are found in the worker's frames. With a PySpark that keeps them elsewhere, callers work without them.

Input: when the computation of the rows fails, Spark ends the writer's iterator as if it were complete, and fails the
task afterwards (observed on 4.0 to 4.3). The only difference is on the worker's own stream: after complete input Spark
writes an end mark, which the worker reads when the task is over; after a failure the stream just ends. The mark is
peeked at, without consuming anything.

Output: a worker sends its rows to Spark's JVM through a Unix socket, whose buffer of usually 208 KiB holds a tenth of a
batch of rows: worker and JVM wait for each other many times in each batch. A buffer for a whole batch saved an eighth
of the time of reading 1 KB events. The kernel limits it (`net.core.wmem_max`); with a low limit, nothing changes. TCP
sockets adapt their buffers by themselves.
"""

import contextlib
import os
import socket
import sys
from types import FrameType
from typing import Any, Final

from pyspark.serializers import SpecialLengths

_END_MARK: Final = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)
# About the size of one batch of rows; the kernel doubles it for its own use.
_OUTPUT_BUFFER_BYTES: Final = 2 * 1024 * 1024
# The worker's entry point, `main(infile, outfile)`: imported by Spark's daemon, or run as a program without one.
_WORKER_MODULES: Final = frozenset({"pyspark.worker", "__main__"})
_ENTRY_POINT: Final = "main"
_INPUT: Final = "infile"
_OUTPUT: Final = "outfile"


def is_input_complete() -> bool:
    """Whether Spark has marked the end of this task's input; ask after the iterator has ended. Waits for Spark.

    True only if the mark was found.
    """
    stream = worker_file(_INPUT, sys._getframe(1))
    try:
        return stream is not None and bytes(stream.peek(len(_END_MARK))[: len(_END_MARK)]) == _END_MARK
    except (OSError, ValueError, AttributeError):  # the stream has failed, is closed, or cannot be peeked at
        return False


def enlarge_output() -> None:
    """Enlarge the buffer of the worker that runs this task, so that it reads on while Spark takes its rows."""
    file = worker_file(_OUTPUT, sys._getframe(1))
    if file is not None:
        # A file without a socket, or one that is closed.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            _enlarge(file.fileno())


def _enlarge(fd: int) -> None:
    own = os.dup(fd)
    try:
        connection = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    with connection:
        if connection.family == socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _OUTPUT_BUFFER_BYTES)


def worker_file(name: str, frame: FrameType | None) -> Any:
    """A file of the worker by its name in the entry point, which is one of the callers of a frame; or None."""
    while frame is not None:
        is_worker = frame.f_globals.get("__name__") in _WORKER_MODULES
        if is_worker and frame.f_code.co_name == _ENTRY_POINT and name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    return None
