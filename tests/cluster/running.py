"""A whole cluster for tests: three Kafka brokers and two or three gateways, as `hubmere cluster demo` starts them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hubmere.cli.cluster.brokers import BrokersFailed, find_jars

# Three JVMs on a busy machine: much more than they need.
START_SECONDS = 1500.0
# The time in which a cluster must do what a test expects, on a busy machine as well. Only a failing test waits so long.
PATIENCE_S = 300.0
_END_SECONDS = 300.0
# For tests that run clients on a whole cluster.
MARKS = [
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    # The SDKs close their connections asynchronously.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether a condition becomes true."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


class Cluster:
    """A running cluster: its ready file, and methods that kill its parts."""

    def __init__(self, process: "subprocess.Popen[bytes]", ready: dict[str, Any]) -> None:
        self.process = process
        self.ready = ready

    @property
    def connection_string(self) -> str:
        """The connection string for the address in front of all gateways, without TLS."""
        return str(self.ready["emulator_connection_string"])

    def gateway(self, number: int) -> dict[str, Any]:
        """The addresses of one gateway."""
        gateway: dict[str, Any] = self.ready["gateways"][number]
        return gateway

    def kafka(self, number: int | None = None) -> dict[str, str]:
        """Settings of a Kafka client for all gateways or for one."""
        place = self.ready if number is None else self.gateway(number)
        return {
            "bootstrap.servers": str(place["kafka"]),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": str(place["connection_string"]),
        }

    def kill_gateway(self, number: int) -> None:
        os.kill(self.gateway(number)["pid"], signal.SIGKILL)

    def kill_broker(self, number: int) -> None:
        os.kill(self.ready["brokers"][number]["pid"], signal.SIGKILL)


@contextmanager
def running_cluster(folder: Path, *more: str, gateways: int = 2, brokers: int = 3) -> Iterator[Cluster]:
    """A cluster for the length of a `with` block, with more options; skips where Kafka's jars are not installed."""
    try:
        find_jars()
    except BrokersFailed as missing:
        pytest.skip(str(missing))
    ready_file, log = folder / "ready.json", folder / "demo.log"
    size = [f"--gateways={gateways}", f"--brokers={brokers}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hubmere", "cluster", "demo", f"--ready-file={ready_file}", *size),
                *(f"--data={folder / 'data'}", *more),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready_file.exists():
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.2)
        yield Cluster(process, json.loads(ready_file.read_text(encoding="utf-8")))
    finally:
        process.terminate()
        process.wait(_END_SECONDS)
