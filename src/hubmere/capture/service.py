"""Composes Capture from the settings: the destinations of files, and the job with its supervisor.

Part of the composition root, beside `node`. Nothing of Spark is loaded here: the job is another process. The supervisor
is loaded when there is a hub to capture, which never happens on most nodes.

    <data>/capture/files        captured files of hubs without a target
    <data>/capture/checkpoints  the job's checkpoints, which belong to the files
    <data>/capture/work         temporary files of Spark
    <data>/capture/python       the script that starts Spark's Python processes
    <data>/capture/job.log      log of the job
"""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hubmere.broker.management.capture import Captures, JobState, Supervision
from hubmere.capture.java import CannotRun, find_java, require_pyspark
from hubmere.model.addresses import Addresses
from hubmere.model.capture.targets import CaptureTargets
from hubmere.model.clock import Clock
from hubmere.settings import Settings
from hubmere.settings.capture import TARGETS_PREFIX

if TYPE_CHECKING:
    from hubmere.capture.supervisor import JobCommand

_FOLDER = "capture"
_MODULE = "hubmere.pipeline.supervised"
_SUPERVISOR = "hubmere.capture.supervisor"
# How often a node without captured hubs checks whether it has one; the supervisor checks as often.
_CHECK_SECONDS = 0.5
_LOOPBACK = "127.0.0.1"
_NO_CHECKPOINTS = "Capture on a cluster needs capture_checkpoint_dir: a folder that all gateways share"
_ELSEWHERE = "another gateway of the cluster runs the capture job"
# Listening addresses to which one cannot connect.
_ANY = {"0.0.0.0": _LOOPBACK, "::": "[::1]"}  # noqa: S104  compared, not bound
# Variables that would make PySpark use another Spark than the installed one.
_NOT_PASSED_ON = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
_SPARK_SETTINGS: Mapping[str, str] = {
    "spark.app.name": "hubmere-capture",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # Hubs share the cores evenly: each has a pool of its own.
    "spark.scheduler.mode": "FAIR",
    "spark.python.unix.domain.socket.enabled": "true",
    # Time for a Python process to authenticate, 15 s by default: a busy machine may need more.
    "spark.python.authenticate.socketTimeout": "300s",
}
_LOCAL_SETTINGS: Mapping[str, str] = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}


def capture_targets(settings: Settings, base: Path) -> CaptureTargets:
    """The capture targets of a node; `base` is its data folder, or the temporary folder of a node in memory.

    A gateway has no folder of its own: files and checkpoints must be where all gateways reach them. It keeps blobs of
    the size of checkpoints only.
    """
    own = None if settings.is_gateway else base / _FOLDER / "files"
    lacks_checkpoints = settings.is_gateway and settings.capture_supervise and settings.capture_checkpoint_dir is None
    has_storage = settings.blobs and not settings.is_gateway
    return CaptureTargets.in_folder(
        settings.capture_folder or own,
        settings.capture_targets,
        has_account_folders=settings.capture_account_folders,
        own_accounts=(settings.blob_account,) if has_storage else (),
        missing=_NO_CHECKPOINTS if lacks_checkpoints else "",
    )


def hold_bytes(settings: Settings) -> int | None:
    """Size of a partition up to which uncaptured events are kept past retention; None keeps nothing."""
    return settings.capture_hold_bytes if settings.capture_hold_retention else None


class CaptureRole(Protocol):
    """The right to run the job, of which there is one holder in a cluster (`cluster.roles.ClusterRole`)."""

    async def acquire(self) -> None:
        """Wait until this gateway has the role."""

    async def wait_until_lost(self) -> None:
        """Wait until this gateway no longer has the role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureJob:
    """Everything that is needed to start the job of a node."""

    settings: Settings
    addresses: Addresses
    base: Path
    admin_token: str
    # On a cluster one gateway runs the job: the one that has this role.
    role: CaptureRole | None = None

    def supervise(self, captures: Captures, clock: Clock) -> Coroutine[None, None, None] | None:
        """The supervision task, to be cancelled at stop; None if the job runs elsewhere."""
        if not self.settings.capture_supervise:
            captures.supervision = Supervision(
                state=JobState.UNSUPERVISED, reason="capture_supervise is off, and no capture job reports"
            )
            return None
        captures.supervision = Supervision(state=JobState.OFF)
        return self._supervise(captures, clock) if self.role is None else self._take_turns(captures, clock, self.role)

    async def _take_turns(self, captures: Captures, clock: Clock, role: CaptureRole) -> None:
        """Run the job while this gateway has the role; another one takes over when it loses it."""
        while True:
            captures.supervision = Supervision(state=JobState.OFF)
            while not captures.has_work:
                await asyncio.sleep(_CHECK_SECONDS)
            captures.supervision = Supervision(state=JobState.ELSEWHERE, reason=_ELSEWHERE)
            await role.acquire()
            captures.supervision = Supervision(state=JobState.OFF)
            job = asyncio.create_task(self._supervise(captures, clock))
            lost = asyncio.create_task(role.wait_until_lost())
            try:
                await asyncio.wait((job, lost), return_when=asyncio.FIRST_COMPLETED)
                if job.done():
                    job.result()  # it ends only with an error
            finally:
                for task in (job, lost):
                    task.cancel()
                await asyncio.gather(job, lost, return_exceptions=True)

    async def _supervise(self, captures: Captures, clock: Clock) -> None:
        while not captures.has_work:
            await asyncio.sleep(_CHECK_SECONDS)
        await asyncio.to_thread(importlib.import_module, _SUPERVISOR)
        from hubmere.capture.supervisor import Patience, Supervisor

        # A gateway knows the ends of partitions only while clients read them, so the job queries them itself.
        sleep_after = 0.0 if self.settings.is_gateway else float(self.settings.capture_sleep_after_s)
        patience = Patience(last_stop=self.settings.shutdown_timeout_s, sleep_after=sleep_after)
        log_file = self.base.absolute() / _FOLDER / "job.log"
        await Supervisor(captures, clock, self.command, log_file, patience).run()

    async def command(self) -> "JobCommand":
        """The command that starts the job; raises CannotRun if something is missing."""
        from hubmere.capture.supervisor import JobCommand

        require_pyspark()
        java = await asyncio.to_thread(find_java, self.settings.capture_java, os.environ)
        folder = self.base.absolute() / _FOLDER
        python = await asyncio.to_thread(self._worker_python, folder)
        checkpoints = (self.settings.capture_checkpoint_dir or folder / "checkpoints").absolute()
        arguments = (
            sys.executable, "-m", _MODULE, f"--java={java}", f"--heap-mb={self.settings.capture_heap_mb}",
            *(f"--spark={name}={value}" for name, value in self._spark_settings(folder).items()),
            "--", *self._node_arguments(), f"--checkpoint-location={checkpoints}",
        )  # fmt: skip
        return JobCommand(arguments=arguments, environment=self._environment(python), folder=folder / "work")

    def _worker_python(self, folder: Path) -> Path:
        """The Python of Spark's worker processes; the fast-start script exists on this machine only."""
        from hubmere.pipeline.early_worker import write_script

        is_local = self.settings.capture_master.startswith("local")
        return write_script(folder / "python") if is_local else Path(sys.executable)

    def _spark_settings(self, folder: Path) -> Mapping[str, str]:
        master = self.settings.capture_master
        return {
            "spark.master": master,
            **_SPARK_SETTINGS,
            "spark.local.dir": str(folder / "work"),
            **(_LOCAL_SETTINGS if master.startswith("local") else {}),
        }

    def _node_arguments(self) -> tuple[str, ...]:
        """Arguments with the node's address: the plain port on this machine, else the TLS port."""
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
