"""Queries that are killed at the transition from captured files to the log, while retention moves it: every event once.

The target is a hub, read without Spark; one kill here, many with `--torture` (`make torture`).
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from client.hubs import bodies
from pipeline.captured_hubs import CapturedHubs, a_capturing_node
from pipeline.processes import family, is_python_worker, kill_one
from pipeline.queries import conf
from pipeline.surviving import EVENTS_PER_TRIGGER, LIFE_SECONDS, PARTITIONS, RUN, Copying, stored
from pipeline.test_crash import _has_exited, run_under_deaths, start_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedHubs]:
    """A node on the disk that captures into a folder."""
    folder = tmp_path_factory.mktemp("captured")
    with a_capturing_node(folder, memory=False, **{"limits.publication_bytes": 1024 * 1024}) as hubs:
        yield hubs


class SeamCopying(Copying):
    """A copy whose source is partly in captured files, and more with every move of retention."""

    def __init__(self, hubs: CapturedHubs, deaths: int, folder: Path) -> None:
        self.captured = hubs
        super().__init__(hubs, deaths, folder)
        hubs.capture(self.source)
        # A second file of each partition, and events that are only in the log.
        for run, is_captured in ((1, True), (2, False)):
            for partition in range(PARTITIONS):
                hubs.publish(self.source, partition, bodies(RUN, f"{partition} later {run}"))
            if is_captured:
                hubs.capture(self.source)
        self.events += 2 * RUN * PARTITIONS
        self.expected = list(stored(hubs, self.source))
        self.log_starts = dict.fromkeys(range(PARTITIONS), 0)
        # The first micro-batch begins in files and ends in the log.
        self.move_retention(dict.fromkeys(range(PARTITIONS), RUN // 2))

    def new_source(self) -> str:
        return self.captured.new_captured(PARTITIONS)

    @property
    def options(self) -> tuple[dict[str, str], dict[str, str]]:
        limit = {"maxEventsPerTrigger": str(EVENTS_PER_TRIGGER)}
        return conf(self.hubs, self.source, capture="auto", **limit), conf(self.hubs, self.target)

    def move_retention(self, firsts: dict[int, int]) -> None:
        """Delete events from the log, but only those that are in a file."""
        captured = self.events // PARTITIONS - RUN
        for partition, first in firsts.items():
            self.log_starts[partition] = max(self.log_starts[partition], min(first, captured))
            self.hubs.trim(self.source, partition, self.log_starts[partition])

    def move_retention_into(self, number: int, chance: Random) -> None:
        """Let the log begin inside a micro-batch that is being read, before it, or after it."""
        lines = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
        ends = json.loads(lines[-1])[self.source]
        step = EVENTS_PER_TRIGGER // PARTITIONS
        self.move_retention({int(partition): end - chance.randrange(-step, step) for partition, end in ends.items()})

    def assert_exact(self) -> None:
        """Every event is stored once, in its partition and in order, although the source has deleted most of them."""
        assert len(self.expected) == self.events
        assert list(stored(self.hubs, self.target)) == self.expected
        assert max(self.log_starts.values()) > RUN // 2


def test_driver_that_is_killed_at_the_transition_loses_no_event(
    spark: SparkSession, hubs: CapturedHubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Driver and JVM are killed while events of the micro-batch are deleted from the log; the next run reads files."""
    wanted = deaths(1, 20)
    copying = SeamCopying(hubs, wanted, tmp_path)
    chance = Random(17)
    killed = 0

    while True:
        with start_program(copying) as program:
            is_over = partial(_has_exited, program)
            number = copying.await_open_batch(is_over) if killed < wanted else None
            if number is None:
                assert program.wait(LIFE_SECONDS) == 0
                break
            copying.move_retention_into(number, chance)
            time.sleep(chance.choice((0.0, 0.05, 0.2)))
            os.killpg(program.pid, signal.SIGKILL)
        killed += 1

    assert killed == wanted
    copying.assert_exact()


def test_workers_that_are_killed_at_the_transition_lose_no_event(
    spark: SparkSession, hubs: CapturedHubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """They are Python processes of Spark; retention moves into the micro-batch that they plan, read or write."""
    wanted = deaths(0, 30)
    copying = SeamCopying(hubs, wanted, tmp_path)
    chance = Random(19)

    def kill() -> None:
        copying.move_retention_into(copying._seen, chance)
        kill_one([pid for pid, command in family(os.getpid()).items() if is_python_worker(command)], chance)

    run_under_deaths(spark, copying, wanted, kill)

    copying.assert_exact()
