"""The pipeline of the demo: the project of `hubmere pipeline init` in its own process, beside the node.

It reads the devices' hub into Delta tables and publishes closed time windows to a second hub. Windows are short, so
that results appear soon. Each step reports its progress under a consumer group, which the portal shows. The process is
started again when it ends by itself.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO

from hubmere.cli.commands.pipeline import SETTINGS, STREAMING, project_files, streaming_command, streaming_environment
from hubmere.cli.demo.workers import Worker, kafka_account
from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.node.ready import Ready

RESULT_HUB = "telemetry-minutes"
RESULT_PARTITIONS = 2
STEPS = ("bronze", "silver", "gold")
_LOOK_SECONDS = 1.0
_END_SECONDS = 10.0
_TAIL_BYTES = 4096
# Enough for the demo's rates, beside a node, its devices and Capture on one machine.
_SPARK = (
    "--master local[2] --conf spark.driver.memory=768m --conf spark.ui.enabled=false "
    "--conf spark.driver.bindAddress=127.0.0.1 --conf spark.driver.host=127.0.0.1 pyspark-shell"
)


class PipelineFailed(OSError):
    """The project has ended by itself."""


class Pipeline(Worker):
    """Runs the project and counts what it has published."""

    def __init__(self, name: str, ready: Ready, hub: str, folder: Path) -> None:
        super().__init__(name)
        self._ready, self._hub, self._folder = ready, hub, folder
        self.trouble = "starts Spark"

    def work(self) -> None:
        """Start the project, and look at the result hub until the end."""
        write_project(self._folder, self._hub)
        with (
            (self._folder / "log").open("ab") as log,
            Client(kafka_account(self._ready, "hubmere-demo-pipeline")) as client,
        ):
            program = self._start(log)
            try:
                self._follow(program, HubReader(client, RESULT_HUB))
            finally:
                _end(program)

    def _start(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603  found by us
            streaming_command(("--continuous",)),
            cwd=self._folder,
            env={"PYSPARK_SUBMIT_ARGS": _SPARK, **streaming_environment(Path(self._ready.data), os.environ)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C ends the demo, which then ends the project.
            start_new_session=True,
        )

    def _follow(self, program: "subprocess.Popen[bytes]", results: HubReader) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            if (code := program.poll()) is not None:
                raise PipelineFailed(f"it ended with {code}: {_last_line(self._folder / 'log')}")
            published = sum(end for _, end in results.bounds(range(RESULT_PARTITIONS)).values())
            if published > self.done:
                self.count(published - self.done)


def _last_line(log: Path) -> str:
    """The last line of a log, which is that of an exception if a program has failed."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")


def write_project(folder: Path, hub: str) -> None:
    """Write the project with the demo's settings; tables of an earlier demo in the same folder are continued."""
    for place, text in project_files(folder, STREAMING):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    groups = "\n".join(f'{step} = "{step}"' for step in STEPS)
    settings = f"""source = "{hub}"
result = "{RESULT_HUB}"
data = "data"
window = "10 seconds"
lateness = "5 seconds"

[consumer_groups]
{groups}
"""
    (folder / SETTINGS).write_text(settings, encoding="utf-8")


def _end(program: "subprocess.Popen[bytes]") -> None:
    """End the process with its JVM and Python workers; a later run repeats what was not finished."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with suppress(subprocess.TimeoutExpired):
            program.wait(_END_SECONDS)
