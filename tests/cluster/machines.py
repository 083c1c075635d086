"""Brokers and gateways as processes that a test kills, freezes and starts again at the same address."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cluster.running import PATIENCE_S, eventually
from hubmere.cli.cluster.brokers import BrokersFailed, LocalBroker, LocalBrokers, find_jars
from hubmere.cli.cluster.free_ports import free_ports

START_SECONDS = 1500.0
_END_SECONDS = 300.0
_SERVICES = ("amqp", "amqps", "kafka", "kafkas", "http", "https")


@dataclass(slots=True)
class GatewayProcess:
    """One gateway; `ready` is the content of its ready file."""

    folder: Path
    command: list[str]
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def connection_string(self) -> str:
        """Of this gateway alone, without TLS."""
        return str(self.ready["emulator_connection_string"])

    @property
    def log(self) -> str:
        """What the gateway has logged."""
        return (self.folder / "gateway.log").read_text(encoding="utf-8")

    @property
    def kafka(self) -> dict[str, str]:
        """Settings of a Kafka client of this gateway."""
        return {
            "bootstrap.servers": str(self.ready["kafka"]),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": str(self.ready["connection_string"]),
        }

    def start(self) -> None:
        """Start the process; `wait` waits until it serves."""
        (self.folder / "ready.json").unlink(missing_ok=True)
        with (self.folder / "gateway.log").open("ab") as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment
            )

    def wait(self) -> None:
        """Wait until it has written its ready file."""
        deadline = time.monotonic() + START_SECONDS
        ready_file = self.folder / "ready.json"
        while not ready_file.exists():
            assert self.process is not None
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)
        self.ready = json.loads(ready_file.read_text(encoding="utf-8"))

    def signal(self, number: int) -> None:
        """Send a signal; one that ends the process is waited for."""
        assert self.process is not None
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(_END_SECONDS)

    def stop(self) -> None:
        """End the process, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass(slots=True)
class Machines:
    """Brokers and gateways of one cluster. `topics` are those of hubs that tests have created."""

    brokers: LocalBrokers
    gateways: list[GatewayProcess]
    topics: dict[str, str] = field(default_factory=dict)

    def broker(self, number: int) -> LocalBroker:
        """One broker by its place in the list."""
        return self.brokers.brokers[number]

    def signal_broker(self, number: int, sent: int) -> None:
        """Send a signal to a broker; one that kills it is waited for."""
        process = self.broker(number).process
        assert process is not None
        process.send_signal(sent)
        if sent == signal.SIGKILL:
            process.wait(_END_SECONDS)

    def stop_broker(self, number: int) -> None:
        """Stop a broker in order: its leaderships move first."""
        process = self.broker(number).process
        assert process is not None
        process.terminate()
        process.wait(START_SECONDS)

    def start_broker(self, number: int) -> None:
        """Start a broker that has ended, and wait until all partitions have all their copies in sync."""
        self.brokers.start_broker(self.broker(number))
        self.await_sync()

    def await_sync(self) -> None:
        """Wait until every partition has three copies in sync."""

        def is_in_sync() -> bool:
            with suppress(KafkaException):
                found = self.admin().list_topics(timeout=PATIENCE_S)
                parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
                return len(found.brokers) == len(self.brokers.brokers) and all(len(part.isrs) == 3 for part in parts)
            return False

        assert eventually(is_in_sync)

    def admin(self) -> AdminClient:
        """An administrator of the Kafka cluster itself."""
        return AdminClient({"bootstrap.servers": self.brokers.bootstrap, "log_level": 0})

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The place in the list of the broker that leads a partition."""
        found = self.admin().list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[partition].leader
        return int(found) - 1

    def controller(self) -> int:
        """The place in the list of the active controller."""
        admin = self.admin()
        described = admin.describe_cluster(request_timeout=PATIENCE_S).result(PATIENCE_S)
        return int(described.controller.id) - 1

    def start_gateway(self, number: int) -> None:
        """Start a gateway that has ended, at its address, and wait until it serves."""
        self.gateways[number].start()
        self.gateways[number].wait()


def gateway_process(
    folder: Path, number: int, bootstrap: str, *flags: str, environment: Mapping[str, str] | None = None
) -> GatewayProcess:
    """A gateway that is not started yet, with ports of its own."""
    home = folder / f"gateway-{number}"
    home.mkdir()
    secret = folder / "secret"
    secret.write_text("a secret of all gateways", encoding="utf-8")
    ports = zip(_SERVICES, free_ports(len(_SERVICES)), strict=True)
    command = [
        *(sys.executable, "-m", "hubmere", "up", "--store=cluster", f"--cluster-kafka={bootstrap}"),
        *(f"--cluster-secret-file={secret}", f"--ready-file={home / 'ready.json'}"),
        *(f"--{name}-port={port}" for name, port in ports),
        *flags,
    ]
    own = {name: value for name, value in os.environ.items() if not name.startswith("HUBMERE_")}
    return GatewayProcess(home, command, {**own, **(environment or {})})


@contextmanager
def running_machines(
    folder: Path,
    *flags: str,
    gateways: int = 2,
    environment: Mapping[str, str] | None = None,
    broker_settings: Mapping[str, object] | None = None,
) -> Iterator[Machines]:
    """Three brokers and some gateways for the length of a `with` block; skips where Kafka's jars are not installed."""
    try:
        find_jars()
    except BrokersFailed as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:
        brokers = LocalBrokers(folder / "kafka", settings=broker_settings or {})
        stack.callback(_stop_brokers, brokers)
        brokers.start()
        machines = Machines(brokers, [])
        for number in range(gateways):
            gateway = gateway_process(folder, number, brokers.bootstrap, *flags, environment=environment)
            stack.callback(gateway.stop)
            gateway.start()
            machines.gateways.append(gateway)
        for gateway in machines.gateways:
            gateway.wait()
        yield machines


def _stop_brokers(brokers: LocalBrokers) -> None:
    for broker in brokers.brokers:
        if broker.process is not None and broker.process.poll() is None:
            broker.process.send_signal(signal.SIGCONT)
    brokers.stop()
