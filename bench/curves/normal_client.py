"""A normal client under full load: recovery, retention, rebalances and writes.

1,000 partitions are opened for the first time after kill -9, retention visits all of them, 500 groups rebalance, and
two hubs are written as fast as the node allows. Meanwhile one client publishes one event after another. The results are
its 99th percentile and the longest turn of the node's loop.

The client is a process of its own: in a thread beside the others it would also wait for their interpreter lock.
"""

import json
import multiprocessing
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.curves.common import Subject, Tools, a_node, batch_now, percentile_ms
from bench.curves.groups import GroupRound
from bench.load.kafka_crowd import connected, produce_frame
from bench.load.raw_kafka import RawProducer

from hubmere.node.runtime.stall_watch import FILE_VARIABLE, THRESHOLD_VARIABLE

RECOVERED, NORMAL, LOADED = "recovered", "normal", ("loaded-a", "loaded-b")
PARTITIONS, GROUPS = 1_000, 500
P99_GOAL_MS, TURN_GOAL_MS = 50.0, 20.0
# Batches in each recovered partition, and the pause of the normal client between two events.
_BATCHES_EACH = 50
_PAUSE_S = 0.005
_RETENTION_S = 2.0
_SECONDS = 8.0
# Turns above this are reported by the node.
_REPORTED_MS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Latency of the client, and turns of the loop; `own` excludes the time in which the loop had no CPU."""

    waits_s: list[float]
    longest_turn_ms: float
    longest_own_ms: float
    longest_work_ms: float
    stack: str
    recovered: int
    rounds: int
    load_mb_per_s: float


def measure(tools: Tools) -> Outcome:
    """Run the client and all other load at the same time for a few seconds."""
    hubs = {RECOVERED: PARTITIONS, NORMAL: 1, **dict.fromkeys(LOADED, 4)}
    with tempfile.TemporaryDirectory(dir=tools.folder) as folder:
        report = Path(folder, "turns")
        os.environ |= {FILE_VARIABLE: str(report), THRESHOLD_VARIABLE: str(_REPORTED_MS)}
        try:
            with a_node(tools, hubs, retention_check_interval_s=_RETENTION_S) as subject:
                _fill(subject)
                subject.node.kill()
                report.unlink(missing_ok=True)
                subject.node.start()
                waits, other_load = _run(tools, subject)
        finally:
            del os.environ[FILE_VARIABLE], os.environ[THRESHOLD_VARIABLE]
        turns = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    hardest: Any = max(turns, key=lambda turn: turn["thread_s"], default=None)
    return Outcome(
        waits_s=waits,
        longest_turn_ms=max((turn["length_s"] * 1000 for turn in turns), default=_REPORTED_MS),
        longest_own_ms=max(map(_own_ms, turns), default=_REPORTED_MS),
        longest_work_ms=_REPORTED_MS if hardest is None else hardest["thread_s"] * 1000,
        # The deepest recorded stack is the most informative one.
        stack="" if hardest is None else max(hardest["stacks"], key=len, default=""),
        recovered=other_load.recovered,
        rounds=other_load.rounds,
        load_mb_per_s=other_load.moved_bytes / 1e6 / _SECONDS,
    )


def _own_ms(turn: Any) -> float:
    return float(turn["length_s"] - turn["waited_s"]) * 1000


def _fill(subject: Subject) -> None:
    with connected(subject.kafka_address, subject.password) as crowd:
        frame = produce_frame([(RECOVERED, range(PARTITIONS))], batch_now(1, 10))
        for _ in range(_BATCHES_EACH):
            crowd.ask_all([frame])


class _OtherLoad:
    """The other load of the node; each method runs in a thread."""

    def __init__(self, tools: Tools, subject: Subject) -> None:
        self._tools = tools
        self._subject = subject
        self.done = threading.Event()
        self.recovered = 0
        self.rounds = 0
        self.moved_bytes = 0

    def recover(self) -> None:
        """Use every partition for the first time after the crash, so that its log is recovered."""
        with connected(self._subject.kafka_address, self._subject.password) as crowd:
            for start in range(0, PARTITIONS, 50):
                crowd.ask_all([produce_frame([(RECOVERED, range(start, start + 50))], batch_now(1, 10))])
                self.recovered += 50

    def rebalance(self) -> None:
        """Let all groups rebalance repeatedly."""
        with connected(self._subject.kafka_address, self._subject.password, GROUPS) as crowd:
            groups = GroupRound(crowd, [f"group-{number}" for number in range(GROUPS)])
            while not self.done.is_set():
                groups.join()
                self.rounds += 1

    def load(self, hub: str) -> None:
        """Write a hub as fast as the node allows."""
        batch = batch_now(100, 1000)
        with RawProducer(self._subject.kafka_address, self._subject.password) as producer:
            while not self.done.is_set():
                run = producer.produce(self._tools.kafka, hub, batch, partitions=4, in_flight=4, seconds=0.5)
                self.moved_bytes += run.count * len(batch)


def _run(tools: Tools, subject: Subject) -> tuple[list[float], _OtherLoad]:
    """Latencies of the client, and the amount of other work."""
    other_load = _OtherLoad(tools, subject)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process, ThreadPoolExecutor() as pool:
        # The first publications start the process and open the log of the client's partition.
        process.submit(_publish, subject.kafka_address, subject.password, 0.1).result()
        works = [pool.submit(other_load.recover), pool.submit(other_load.rebalance)]
        works += [pool.submit(other_load.load, hub) for hub in LOADED]
        waits = process.submit(_publish, subject.kafka_address, subject.password, _SECONDS).result()
        other_load.done.set()
        for work in works:
            work.result()
    return waits, other_load


def _publish(address: tuple[str, int], password: str, seconds: float) -> list[float]:
    """Publish one event after another; how long each took."""
    waits = list[float]()
    small = produce_frame([(NORMAL, [0])], batch_now(1, 100))
    with connected(address, password) as client:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            sent = time.perf_counter()
            client.ask_all([small])
            waits.append(time.perf_counter() - sent)
            time.sleep(_PAUSE_S)
    return waits


def show(outcome: Outcome) -> list[str]:
    """The outcome as lines."""
    p99_ms = percentile_ms(outcome.waits_s, 99)
    lines = [
        f"publish p50 {percentile_ms(outcome.waits_s, 50):.1f} ms, p99 {p99_ms:.1f} ms (goal {P99_GOAL_MS:.0f}), "
        f"longest {max(outcome.waits_s) * 1000:.0f} ms, {len(outcome.waits_s)} events",
        f"longest turn {outcome.longest_turn_ms:.0f} ms of wall time (goal {TURN_GOAL_MS:.0f}), "
        f"{outcome.longest_own_ms:.0f} ms without the time in which the loop had no CPU; "
        f"longest work in one turn {outcome.longest_work_ms:.0f} ms of CPU time",
        f"meanwhile {outcome.recovered} partitions recovered, {outcome.rounds} rebalances of {GROUPS} groups, "
        f"{outcome.load_mb_per_s:.0f} MB/s to two hubs",
    ]
    if outcome.longest_work_ms > TURN_GOAL_MS and outcome.stack:
        lines += ["the turn with most work was in:", *outcome.stack.splitlines()[-8:]]
    return lines
