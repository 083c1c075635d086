"""Nodes, workers and drivers that die in the middle of a query: source equals sink, exactly.

A few deaths of each kind here, many with `--torture` (`make torture`).
"""

import json
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
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from client.hubs import Hubs, a_node_with_hubs, bodies
from pipeline.copying import start_copy, unfinished
from pipeline.queries import batch, conf, texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TESTS = Path(__file__).parent.parent
PARTITIONS, RUN = 3, 50
# Micro-batches for each death: a query that ends before it was killed often enough proves nothing.
TRIGGERS_PER_DEATH, EVENTS_PER_TRIGGER = 3, 150
# One life of a query or program, on a machine that does other things as well.
LIFE_SECONDS = 240
POLL_SECONDS = 0.005


@pytest.fixture
def disk_hubs() -> Iterator[Hubs]:
    with a_node_with_hubs(memory=False) as hubs:
        yield hubs


@pytest.fixture
def deaths(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How often to kill: in short, or under torture."""
    is_long = bool(request.config.getoption("--torture", default=False))
    return lambda short, long: long if is_long else short


class Copying:
    """Two hubs and a checkpoint: what is to be copied whatever dies."""

    def __init__(self, hubs: Hubs, deaths: int, folder: Path) -> None:
        self.hubs = hubs
        self.checkpoint = folder / "checkpoint"
        self.source, self.target = hubs.new(PARTITIONS), hubs.new(PARTITIONS)
        runs = deaths * TRIGGERS_PER_DEATH * EVENTS_PER_TRIGGER // PARTITIONS // RUN
        for partition in range(PARTITIONS):
            hubs.publish(self.source, partition, *(bodies(RUN, f"{partition} {run}") for run in range(runs)))
        self._seen = -1

    @property
    def options(self) -> tuple[dict[str, str], dict[str, str]]:
        limit = {"maxEventsPerTrigger": str(EVENTS_PER_TRIGGER)}
        return conf(self.hubs, self.source, **limit), conf(self.hubs, self.target)

    def await_open_batch(self, is_over: Callable[[], bool]) -> int | None:
        """Wait for a new micro-batch that is logged and not committed; None when all is over before one comes."""
        deadline = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < deadline:
            number = unfinished(self.checkpoint)
            if number is not None and number > self._seen:
                self._seen = number
                return number
            if is_over():
                return None
            time.sleep(POLL_SECONDS)
        raise AssertionError("the query neither goes on nor ends")

    def assert_exact(self, spark: SparkSession) -> None:
        """Every event once, in its partition and in order."""
        source, target = (texts(batch(spark, conf(self.hubs, hub))) for hub in (self.source, self.target))
        assert source
        assert target == source


# --- nodes and workers under one query -------------------------------------------------------------------------------


def _has_ended(query: StreamingQuery) -> bool:
    return not query.isActive


def run_under_deaths(spark: SparkSession, copying: Copying, deaths: int, kill: Callable[[], None]) -> int:
    """Run the query to its end and kill in so many of its micro-batches; started again when it fails of it."""
    killed = 0
    while True:
        query = start_copy(spark, *copying.options, copying.checkpoint)
        while killed < deaths and copying.await_open_batch(partial(_has_ended, query)) is not None:
            kill()
            killed += 1
        with suppress(StreamingQueryException):
            assert query.awaitTermination(LIFE_SECONDS)
            return killed


def test_node_that_is_killed_under_a_query_costs_no_event(
    spark: SparkSession, disk_hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """In the middle of micro-batches; it comes back on the same ports."""
    wanted = deaths(3, 40)
    copying = Copying(disk_hubs, wanted, tmp_path)

    def kill() -> None:
        disk_hubs.node.kill()
        disk_hubs.node.start()

    killed = run_under_deaths(spark, copying, wanted, kill)

    assert killed == wanted
    copying.assert_exact(spark)


def test_workers_that_are_killed_under_a_query_cost_no_event(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Any Python process of Spark: one that plans, reads or writes."""
    wanted = deaths(3, 40)
    copying = Copying(hubs, wanted, tmp_path)
    chance = Random(7)
    killed: list[int] = []

    def kill() -> None:
        workers = python_workers(os.getpid())
        if workers:
            killed.append(chance.choice(workers))
            with suppress(ProcessLookupError):
                os.kill(killed[-1], signal.SIGKILL)

    run_under_deaths(spark, copying, wanted, kill)

    assert killed
    copying.assert_exact(spark)


def python_workers(ancestor: int) -> list[int]:
    """The Python processes that Spark's JVM below a process has made."""
    children: dict[int, list[int]] = {}
    programs: dict[int, bytes] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
            programs[int(folder.name)] = (folder / "cmdline").read_bytes()
    found, left = [], [ancestor]
    while left:
        below = children.get(left.pop(), [])
        left += below
        found += [pid for pid in below if b"pyspark" in programs.get(pid, b"") and b"java" not in programs[pid]]
    return sorted(found)


def test_worker_that_is_killed_is_replaced_without_a_trace(spark: SparkSession, hubs: Hubs) -> None:
    """The Python process that computes rows dies by SIGKILL at the end of its first attempt."""
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
    """The query as a program with a JVM of its own."""
    source, target = copying.options
    given = {"source": source, "target": target, "checkpoint": str(copying.checkpoint)}
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.copying", json.dumps(given)], env=environment, start_new_session=True
    )


def _has_exited(program: "subprocess.Popen[bytes]") -> bool:
    return program.poll() is not None


def test_driver_that_is_killed_between_log_and_commit_costs_no_event(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Driver and JVM die at once, with a micro-batch that is logged and half done; the next life repeats it."""
    wanted = deaths(2, 25)
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
            # Anywhere between the log and the commit: at once, or when tasks have begun to write.
            time.sleep(chance.choice((0.0, 0.05, 0.2)))
            os.killpg(program.pid, signal.SIGKILL)
        killed += unfinished(copying.checkpoint) is not None

    assert killed == wanted
    copying.assert_exact(spark)
