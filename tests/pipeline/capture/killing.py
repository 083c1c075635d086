"""Kills the job, its JVM and its workers with kill -9 while it captures, and checks the files."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from client.hubs import Hubs, bodies
from hubmere.pipeline.capture.verify import verify
from pipeline.capture.plans import TOKEN, PlanServer, a_hub, a_plan_server, read
from pipeline.processes import family
from pipeline.sessions import SETTINGS

PARTITIONS = 3
PATIENCE_S = 900.0
_KINDS = ("worker", "jvm", "job")


@contextmanager
def a_job(plans: PlanServer, checkpoints: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job in its own process group."""
    conf = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in SETTINGS.items())
    environment = {
        **os.environ, "HUBMERE_TOKEN": TOKEN, "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
    }  # fmt: skip
    command = [sys.executable, "-m", "hubmere.pipeline.capture", "--node", plans.url]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command, "--checkpoint-location", str(checkpoints)],
            stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            _kill_group(process)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _victim(kind: str, job: int, random: Random) -> int | None:
    """A process of a kind: a Python worker of Spark, the JVM, or the job itself."""
    words = {
        "worker": "pyspark.daemon",
        "jvm": "org.apache.spark.deploy.SparkSubmit",
        "job": "hubmere.pipeline.capture",
    }
    fitting = [pid for pid, command in family(job).items() if words[kind] in command]
    return random.choice(fitting) if fitting else None


class Publishing:
    """Publishes continuously in a thread until `stop`."""

    def __init__(self, hubs: Hubs, hub: str) -> None:
        self._hubs, self._hub = hubs, hub
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.events = dict.fromkeys(range(PARTITIONS), 0)

    def __enter__(self) -> "Publishing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.02):
            partition = number % PARTITIONS
            self._hubs.publish(self._hub, partition, bodies(20, f"{number} {'x' * 500}"))
            self.events[partition] += 20
            number += 1


def _await_files(plans: PlanServer, hub: str, process: "subprocess.Popen[bytes]", log: Path, more: int) -> None:
    """Wait until a number of further files are published."""
    plans.reports.clear()
    deadline = time.monotonic() + PATIENCE_S
    first: int | None = None
    while True:
        result = plans.last(hub)
        files = sum(each["files"] for each in result["partitions"]) if result else 0
        first = files if result and first is None else first
        if first is not None and files >= first + more:
            return
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.02)


def kill_and_verify(hubs: Hubs, folder: Path, *, rounds: int, seed: int) -> None:
    """Capture while a number of processes of each kind are killed at random times; then check that every event is in
    the files once. Windows are one second long, so that files are written or published all the time.
    """
    random, log, hub = Random(seed), folder / "job.log", hubs.new(PARTITIONS)
    kinds = [kind for _ in range(rounds) for kind in _KINDS]
    with a_plan_server(hubs) as plans:
        plans.hubs = [a_hub(hubs, hub, folder / "out", partitions=PARTITIONS, interval_s=1)]
        with Publishing(hubs, hub) as publishing:
            while kinds:
                with a_job(plans, folder / "checkpoints", log) as process:
                    _await_files(plans, hub, process, log, 2 * PARTITIONS)
                    _kill_next(kinds, plans, hub, process, log, random)
            with a_job(plans, folder / "checkpoints", log) as process:
                _await_files(plans, hub, process, log, PARTITIONS)
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
        proof = verify(read(hubs, plans.hubs[0]))

    assert proof.holds, proof.problems
    assert all(each.events > 0 for each in proof.partitions)
    counted = {each.partition: each.events + each.waiting for each in proof.partitions}
    assert counted == publishing.events


def _kill_next(
    kinds: list[str], plans: PlanServer, hub: str, process: "subprocess.Popen[bytes]", log: Path, random: Random
) -> None:
    """Kill the next process. The job survives the death of a worker, so the next one is killed in the same run."""
    while kinds:
        kind = kinds.pop(0)
        time.sleep(random.uniform(0, 1.5))
        victim = _victim(kind, process.pid, random)
        assert victim is not None, family(process.pid)
        os.kill(victim, signal.SIGKILL)
        if kind != "worker":
            return
        _await_files(plans, hub, process, log, PARTITIONS)
