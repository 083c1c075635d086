"""Writes the files of a micro-batch in tasks of one Spark job.

Small files share a task: starting a task in a Python worker costs about 25 ms, as much as reading 50,000 events. A task
does not fail if a file cannot be written: it returns the text of the error, which the job reports unchanged. Spark
repeats a task only if its Python process dies.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.writing import FileTask, WrittenFile, write_file

if TYPE_CHECKING:
    from pyspark import SparkContext

# With the scheduler mode FAIR pools share the cores evenly: a long backlog of one hub does not delay the others.
_POOL: Final = "spark.scheduler.pool"
_EVENTS_PER_TASK: Final = 4096


class FileFailed(Exception):
    """Files could not be written; the text is that of the first error."""


def run_tasks(context: "SparkContext", hub: HubPlan, batch: int, files: Sequence[FileTask]) -> list[WrittenFile]:
    """Stage the files of a micro-batch; raises FileFailed."""
    if not files:
        return []
    events = sum(file.span.end - file.span.first for file in files)
    tasks = min(len(files), max(1, events // _EVENTS_PER_TASK))
    answers = _collect(context, hub, batch, files, tasks)
    for answer in answers:
        if isinstance(answer, str):
            raise FileFailed(answer)
    return [answer for answer in answers if not isinstance(answer, str)]


def _collect(
    context: "SparkContext", hub: HubPlan, batch: int, files: Sequence[FileTask], tasks: int
) -> list[WrittenFile | str]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    context.setLocalProperty(_POOL, hub.id)
    try:
        return context.parallelize(files, tasks).map(partial(_write, hub, batch)).collect()
    except Py4JJavaError as error:
        # Spark's own text has a Java trace behind the first line.
        raise FileFailed(str(error.java_exception.getMessage()).partition("\n")[0]) from None


def _write(hub: HubPlan, batch: int, file: FileTask) -> WrittenFile | str:
    """Stage a file; returns the text of the error if that fails."""
    try:
        return write_file(hub, file, _attempt(batch))
    except Exception as error:  # noqa: BLE001  the top of a task: the driver reports it
        return f"{type(error).__name__}: {error}"


def _attempt(batch: int) -> str:
    """A unique name of this attempt, with the micro-batch and the attempt number."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return f"{batch}-{0 if task is None else task.attemptNumber()}-{uuid4().hex[:12]}"
