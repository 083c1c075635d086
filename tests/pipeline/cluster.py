"""A Spark cluster on this machine: the standalone Master and Workers of the pip package, executors in their own JVMs.

Programs are submitted by `spark-submit` or by our own command, as on any cluster. Everything listens on loopback.
"""

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hubmere.pipeline.jvm import spark_home
from pipeline.processes import family

SOURCES: Final = Path(__file__).parents[2] / "src"
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
PYTHON_WORKER: Final = "pyspark.daemon"
# One core for each, so that there are two executors, and one continues while the other is killed.
EXECUTORS: Final = 2
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "INFO",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
# The time for a JVM and its launcher on a busy machine.
START_SECONDS: Final = 600.0
_END_SECONDS: Final = 240.0
_LOGS: Final = ("master.log", "stdout", "stderr")
_POLL_SECONDS: Final = 0.05
_ENVIRONMENT: Final = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.master.rest.enabled=false",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    url: str
    workers: tuple[int, ...]
    folder: Path

    def processes(self) -> dict[int, str]:
        """The processes of all Workers, with their commands."""
        return {pid: command for worker in self.workers for pid, command in family(worker).items()}

    def executors(self) -> list[int]:
        """The JVMs of executors."""
        return [pid for pid, command in self.processes().items() if EXECUTOR in command and "java" in command]

    def python_workers(self) -> list[int]:
        """The Python processes of the executors."""
        return [pid for pid, command in self.processes().items() if PYTHON_WORKER in command]

    def logs(self) -> Iterator[Path]:
        """Everything that Master, Worker and executors have written."""
        yield from (path for path in self.folder.rglob("*") if path.name in _LOGS or path.match("worker-*.log"))


@contextmanager
def a_cluster(folder: Path, *, workers: int = 1) -> Iterator[Cluster]:
    """A Master and Workers for the length of the block; each application has a folder below `folder`."""
    with ExitStack() as stack:
        master = stack.enter_context(_daemon(MASTER, folder / "master.log", "--webui-port", "0"))
        url = _await_output(master, folder / "master.log", re.compile(r"Starting Spark master at (spark://\S+)"))
        pids = []
        for number in range(workers):
            log, work = folder / f"worker-{number}.log", folder / f"work-{number}"
            cores = str(EXECUTORS // workers)
            words = ("--webui-port", "0", "--cores", cores, "--memory", "2g", "--work-dir", str(work))
            worker = stack.enter_context(_daemon(WORKER, log, *words, url))
            _await_output(worker, log, re.compile(r"Successfully registered with master (\S+)"))
            pids.append(worker.pid)
        yield Cluster(url, tuple(pids), folder)


@contextmanager
def _daemon(name: str, log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [str(spark_home() / "bin" / "spark-class"), name, "--host", "127.0.0.1", "--port", "0", *words]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **_ENVIRONMENT})
        try:
            yield process
        finally:
            # A Worker ends its executors.
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_output(process: "subprocess.Popen[bytes]", log: Path, wanted: re.Pattern[str]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while (found := wanted.search(log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(_POLL_SECONDS)
    return found[1]


def conf_words(settings: Mapping[str, str]) -> list[str]:
    """Settings as arguments of `spark-submit`."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


# --- executors without the package -----------------------------------------------------------------------------------


def python_without_package(folder: Path) -> str:
    """A Python with the dependencies of the package, but without the package."""
    path = folder / "python-without-package"
    base = Path(sys.base_exec_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    # Packages of the environment are found, but not its links to source trees.
    found = find_spec("pyarrow")
    assert found is not None
    assert found.origin is not None
    lent = Path(found.origin).parents[1]
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{lent}" exec {base} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    probe = [str(path), "-c", "import importlib.util as u; print(u.find_spec('pyarrow'), u.find_spec('hubmere'))"]
    output = subprocess.run(probe, capture_output=True, text=True, check=True).stdout
    assert output.endswith("None\n"), f"the package is installed as files: {output}"
    assert not output.startswith("None")
    return str(path)


def package_as_zip(folder: Path) -> Path:
    """The archive for `--py-files`: the two packages, as in a wheel without compiled modules."""
    path = folder / "hubmere.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("hubmere", "pyspark_eventhubs"):
            for source in sorted((SOURCES / package).rglob("*.py")):
                archive.write(source, source.relative_to(SOURCES).as_posix())
    return path
