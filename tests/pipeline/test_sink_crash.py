"""Large tasks of the sink while workers, driver and node are killed: the target equals the source exactly.

A task of these queries writes many segments (`hubmere.pipeline.sink`), and the kills wait until some of them are in the
target's log and others are not. A few kills here, many with `--torture`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from client.hubs import Hubs, a_node_with_hubs
from hubmere.pipeline.sink import SEGMENT_BYTES
from pipeline.copying import start_copy, unfinished
from pipeline.processes import family, is_python_worker, kill_one
from pipeline.queries import conf
from pipeline.surviving import LIFE_SECONDS, PARTITIONS, POLL_SECONDS, Copying, stored
from pipeline.test_crash import _has_ended, _has_exited, start_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

BODY_BYTES = 24 * 1024
# One task of a micro-batch has about eight segments.
EVENTS_PER_TRIGGER = 8 * SEGMENT_BYTES // BODY_BYTES // PARTITIONS * PARTITIONS
EVENTS_PER_BATCH = 20


@pytest.fixture
def hubs() -> Iterator[Hubs]:
    """A node on the disk, since it is killed too."""
    with a_node_with_hubs(memory=False) as hubs:
        yield hubs


class LargeCopying(Copying):
    """A copy of large events, whose micro-batches are one task each."""

    def __init__(self, hubs: Hubs, deaths: int, folder: Path) -> None:
        super().__init__(hubs, 0, folder)
        # One micro-batch more than there are kills: a query that ends before enough kills proves nothing.
        per_partition = (deaths + 1) * EVENTS_PER_TRIGGER // PARTITIONS
        for partition in range(PARTITIONS):
            texts = [b"%d %d " % (partition, number) + b"x" * BODY_BYTES for number in range(per_partition)]
            batches = [texts[at : at + EVENTS_PER_BATCH] for at in range(0, per_partition, EVENTS_PER_BATCH)]
            hubs.publish(self.source, partition, *batches)
        self.events = per_partition * PARTITIONS
        self._written = 0

    @property
    def options(self) -> tuple[dict[str, str], dict[str, str]]:
        limits = {"maxEventsPerTrigger": str(EVENTS_PER_TRIGGER), "maxTasks": "1"}
        return conf(self.hubs, self.source, **limits), conf(self.hubs, self.target)

    def await_open_task(self, is_over: Callable[[], bool]) -> bool:
        """Wait until a new micro-batch is partly in the target; False if the query ends before."""
        if self.await_open_batch(is_over) is None:
            return False
        deadline = time.monotonic() + LIFE_SECONDS
        while not is_over() and unfinished(self.checkpoint) == self._seen:
            written = self.count_written()
            if written > self._written:
                self._written = written
                return True
            assert time.monotonic() < deadline, "the query neither continues nor ends"
            time.sleep(POLL_SECONDS)
        return self.await_open_task(is_over)

    def count_written(self) -> int:
        """Events in the target's log."""
        bounds = self.hubs.reader(self.target).bounds(range(PARTITIONS))
        return sum(end for _, end in bounds.values())

    def assert_exact(self) -> None:
        """Check that every event is stored once, in its partition and in order; by digests, since bodies are large."""
        assert self.count_written() == self.events
        source, target = (
            [(partition, sha256(body or b"").hexdigest()) for partition, body in stored(self.hubs, hub)]
            for hub in (self.source, self.target)
        )
        assert len(source) == self.events
        assert target == source


def run_under_deaths(spark: SparkSession, copying: LargeCopying, wanted: int, kill: Callable[[int], None]) -> int:
    """Run the query to its end with kills inside tasks; it is started again when it fails."""
    killed = 0
    while True:
        try:
            query = start_copy(spark, *copying.options, copying.checkpoint)
        except Py4JJavaError:
            # The death of an idle worker is noticed at its next use, for example by Spark's planner.
            continue
        while killed < wanted and copying.await_open_task(partial(_has_ended, query)):
            kill(killed)
            killed += 1
        with suppress(StreamingQueryException):
            assert query.awaitTermination(LIFE_SECONDS)
            return killed


def test_node_and_workers_that_are_killed_inside_large_tasks_lose_no_event(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """In turns: the node, which starts again, and a Python process of Spark that plans, reads or writes."""
    wanted, chance = deaths(2, 40), Random(31)
    copying = LargeCopying(hubs, wanted, tmp_path)

    def kill(number: int) -> None:
        if number % 2:
            hubs.node.kill()
            hubs.node.start()
        else:
            kill_one([pid for pid, command in family(os.getpid()).items() if is_python_worker(command)], chance)

    killed = run_under_deaths(spark, copying, wanted, kill)

    assert killed == wanted
    copying.assert_exact()


def test_driver_that_is_killed_inside_large_tasks_loses_no_event(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Some segments of the task are in the log when driver and JVM die; the next run adds the others."""
    wanted = deaths(1, 20)
    copying = LargeCopying(hubs, wanted, tmp_path)
    killed = 0

    while True:
        with start_program(copying) as program:
            if killed == wanted or not copying.await_open_task(partial(_has_exited, program)):
                assert program.wait(LIFE_SECONDS) == 0
                break
            os.killpg(program.pid, signal.SIGKILL)
        killed += 1

    assert killed == wanted
    copying.assert_exact()
