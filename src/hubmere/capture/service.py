"""Capture put together: from the settings to the places of files, and to the job with its supervisor.

Part of the composition root, beside `node`. Nothing of Spark is loaded here: the job is another process. What keeps it
is loaded when there is a hub to capture, which on most nodes is never.

    <data>/capture/files        captured files of hubs that name no target
    <data>/capture/checkpoints  what makes the job exactly-once; with the files, never without them
    <data>/capture/work         what Spark needs while it runs
    <data>/capture/python       what Spark starts its Python processes with
    <data>/capture/job.log      what the job says
"""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubmere.broker.management.capture import Captures, JobState, Supervision
from hubmere.capture.java import CannotRun, find_java, require_pyspark
from hubmere.model.addresses import Addresses
from hubmere.model.capture import CaptureTargets
from hubmere.model.clock import Clock
from hubmere.settings import Settings
from hubmere.settings.capture import TARGETS_PREFIX

if TYPE_CHECKING:
    from hubmere.capture.supervisor import JobCommand

_FOLDER = "capture"
_MODULE = "hubmere.pipeline.supervised"
_SUPERVISOR = "hubmere.capture.supervisor"
# How often a node without captured hubs looks whether it has one now; the supervisor itself looks as often.
_LOOK_SECONDS = 0.5
_LOOPBACK = "127.0.0.1"
# Addresses to listen on that are no addresses to connect to.
_ANY = {"0.0.0.0": _LOOPBACK, "::": "[::1]"}  # noqa: S104  compared, not bound
# What would make PySpark look for another Spark than the installed one, or the job's process read a node's settings.
_NOT_PASSED_ON = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
_SPARK_SETTINGS: Mapping[str, str] = {
    "spark.app.name": "hubmere-capture",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Offsets of this many batches stay in each checkpoint; a restart needs the last two.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL_SETTINGS: Mapping[str, str] = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}


def capture_targets(settings: Settings, base: Path) -> CaptureTargets:
    """Where captured files may go; `base` is the data folder, or what stands in for it."""
    folder = settings.capture_folder or base / _FOLDER / "files"
    return CaptureTargets.in_folder(
        folder, settings.capture_targets, has_account_folders=settings.capture_account_folders
    )


def hold_bytes(settings: Settings) -> int | None:
    """How much of a partition is held back from retention; None for nothing."""
    return settings.capture_hold_bytes if settings.capture_hold_retention else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureJob:
    """What is needed to start the job of a node."""

    settings: Settings
    addresses: Addresses
    base: Path
    admin_token: str

    def keeper(self, captures: Captures, clock: Clock) -> Coroutine[None, None, None] | None:
        """What keeps the job until it is cancelled; None when somebody else does."""
        if not self.settings.capture_supervise:
            captures.supervision = Supervision(
                state=JobState.UNSUPERVISED, reason="capture_supervise is off, and no capture job reports"
            )
            return None
        captures.supervision = Supervision(state=JobState.OFF)
        return self._keep(captures, clock)

    async def _keep(self, captures: Captures, clock: Clock) -> None:
        while not captures.has_work:
            await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.to_thread(importlib.import_module, _SUPERVISOR)
        from hubmere.capture.supervisor import Patience, Supervisor

        patience = Patience(last_stop=self.settings.shutdown_timeout_s)
        log_file = self.base.absolute() / _FOLDER / "job.log"
        await Supervisor(captures, clock, self.command, log_file, patience).run()

    async def command(self) -> "JobCommand":
        """How the job is started now; CannotRun says what is missing."""
        from hubmere.capture.supervisor import JobCommand

        require_pyspark()
        java = await asyncio.to_thread(find_java, self.settings.capture_java, os.environ)
        folder = self.base.absolute() / _FOLDER
        python = await asyncio.to_thread(self._worker_python, folder)
        checkpoints = (self.settings.capture_checkpoint_dir or folder / "checkpoints").absolute()
        arguments = (
            sys.executable, "-m", _MODULE, f"--java={java}", f"--heap-mb={self.settings.capture_heap_mb}",
            *(f"--spark={name}={value}" for name, value in self._spark_settings(folder).items()),
            "--", *self._way_in(), f"--checkpoint-location={checkpoints}",
        )  # fmt: skip
        return JobCommand(arguments=arguments, environment=self._environment(python), folder=folder / "work")

    def _worker_python(self, folder: Path) -> Path:
        """What Spark runs its Python processes with: machines other than this one have Python itself at best."""
        from hubmere.pipeline.early_worker import write_script

        is_local = self.settings.capture_master.startswith("local")
        return write_script(folder / "python") if is_local else Path(sys.executable)

    def _spark_settings(self, folder: Path) -> Mapping[str, str]:
        master = self.settings.capture_master
        return {
            "spark.master": master,
            **_SPARK_SETTINGS,
            "spark.local.dir": str(folder / "work"),
            "spark.sql.warehouse.dir": (folder / "work" / "warehouse").as_uri(),
            **(_LOCAL_SETTINGS if master.startswith("local") else {}),
        }

    def _way_in(self) -> tuple[str, ...]:
        """The arguments that say where the node is: the plain port of this machine, else the one with TLS."""
        addresses, host = self.addresses, _ANY.get(self.settings.host, self.settings.host)
        if addresses.kafka is None and addresses.kafkas is None:
            raise CannotRun("the job reads events over Kafka, and kafka_port and kafkas_port are off")
        if addresses.http is not None:
            return (f"--node=http://{host}:{addresses.http}",)
        if addresses.https is None:
            raise CannotRun("the job asks for its plan over HTTP, and http_port and https_port are off")
        if addresses.ca_file is None:
            return (f"--node=https://{addresses.host}:{addresses.https}",)
        return (f"--node=https://{host}:{addresses.https}", f"--ca-file={addresses.ca_file}")

    def _environment(self, python: Path) -> Mapping[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in _NOT_PASSED_ON and not name.startswith(TARGETS_PREFIX)
        }
        return {
            **inherited,
            "HUBMERE_TOKEN": self.admin_token,
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": _LOOPBACK,
            "PYTHONUNBUFFERED": "1",
        }
