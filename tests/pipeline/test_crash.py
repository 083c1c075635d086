"""Nodes, workers and drivers that are killed during a query: the target equals the source exactly.

A few kills of each kind here, many with `--torture` (`make torture`).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from client.hubs import Hubs, a_node_with_hubs
from pipeline.copying import start_copy, unfinished
from pipeline.processes import family, is_python_worker, kill_one
from pipeline.queries import batch, conf
from pipeline.surviving import LIFE_SECONDS, PARTITIONS, Copying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TESTS = Path(__file__).parent.parent


@pytest.fixture
def disk_hubs() -> Iterator[Hubs]:
    with a_node_with_hubs(memory=False) as hubs:
        yield hubs


# --- nodes and workers under one query -------------------------------------------------------------------------------


def _has_ended(query: StreamingQuery) -> bool:
    return not query.isActive


def run_under_deaths(spark: SparkSession, copying: Copying, deaths: int, kill: Callable[[], None]) -> int:
    """Run the query to its end with kills in a number of its micro-batches; it is started again when it fails."""
    killed = 0
    while True:
        try:
            query = start_copy(spark, *copying.options, copying.checkpoint)
        except Py4JJavaError:
            # The death of an idle worker is noticed at its next use, for example by Spark's planner.
            continue
        while killed < deaths and copying.await_open_batch(partial(_has_ended, query)) is not None:
            kill()
            killed += 1
        with suppress(StreamingQueryException):
            assert query.awaitTermination(LIFE_SECONDS)
            return killed


def test_node_that_is_killed_during_a_query_loses_no_event(
    spark: SparkSession, disk_hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """It is killed during micro-batches and started again on the same ports."""
    wanted = deaths(3, 40)
    copying = Copying(disk_hubs, wanted, tmp_path)

    def kill() -> None:
        disk_hubs.node.kill()
        disk_hubs.node.start()

    killed = run_under_deaths(spark, copying, wanted, kill)

    assert killed == wanted
    copying.assert_exact()


def test_workers_that_are_killed_during_a_query_lose_no_event(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """They are Python processes of Spark that plan, read or write."""
    wanted = deaths(3, 40)
    copying = Copying(hubs, wanted, tmp_path)
    chance = Random(7)
    killed: list[int] = []

    def kill() -> None:
        workers = [pid for pid, command in family(os.getpid()).items() if is_python_worker(command)]
        if (victim := kill_one(workers, chance)) is not None:
            killed.append(victim)

    run_under_deaths(spark, copying, wanted, kill)

    assert killed
    copying.assert_exact()


def test_worker_that_is_killed_is_replaced(spark: SparkSession, hubs: Hubs) -> None:
    """The Python process that computes rows is killed at the end of its first attempt."""
    hub = hubs.new(PARTITIONS)

    def dying_once(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        task = TaskContext.get()
        assert task is not None
        for number in numbers:
            yield (f"{number} {'x' * 20_000}",)
        if task.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    numbers = spark.sparkContext.parallelize(range(1000), 2)
    rows = spark.createDataFrame(numbers.mapPartitions(dying_once), "body string")
    rows.write.format("eventhubs").options(**conf(hubs, hub)).mode("append").save()

    found = batch(spark, conf(hubs, hub)).selectExpr("split(cast(body as string), ' ')[0] as number").collect()
    assert sorted(int(row.number) for row in found) == list(range(1000))


# --- drivers ---------------------------------------------------------------------------------------------------------


def start_program(copying: Copying) -> "subprocess.Popen[bytes]":
    """The query as a program with its own JVM."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.copying", str(copying.write_arguments())],
        env=environment,
        start_new_session=True,
    )


def _has_exited(program: "subprocess.Popen[bytes]") -> bool:
    return program.poll() is not None


def test_driver_that_is_killed_between_log_and_commit_loses_no_event(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Driver and JVM are killed with an incomplete micro-batch; the next run repeats it."""
    wanted = deaths(1, 25)
    copying = Copying(hubs, wanted, tmp_path)
    chance = Random(11)
    killed = 0

    while True:
        with start_program(copying) as program:
            is_over = partial(_has_exited, program)
            number = copying.await_open_batch(is_over) if killed < wanted else None
            if number is None:
                assert program.wait(LIFE_SECONDS) == 0
                break
            # Any time between the log and the commit: at once, or when tasks have begun to write.
            time.sleep(chance.choice((0.0, 0.05, 0.2)))
            os.killpg(program.pid, signal.SIGKILL)
        killed += unfinished(copying.checkpoint) is not None

    assert killed == wanted
    copying.assert_exact()
