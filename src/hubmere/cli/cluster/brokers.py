"""Local Apache Kafka brokers from the jars of `make kafka-jars`: each is broker and controller (KRaft).

For trying a cluster out and for tests. Three brokers keep three copies of everything, with two that must be in sync.
"""

import base64
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hubmere.capture.java import CannotRun, find_java
from hubmere.cli.cluster.children import end_with_parent
from hubmere.cli.cluster.free_ports import free_ports, is_free

# The variable that names the folder of the jars, and the folder that `make kafka-jars` uses.
JARS_VARIABLE: Final = "HUBMERE_KAFKA_JARS"
_JARS_FOLDER: Final = Path(".cache") / "kafka" / "4"
_HEAP: Final = "256m"
_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
_FORMAT_SECONDS: Final = 600.0
_START_SECONDS: Final = 600.0
_END_SECONDS: Final = 20.0
_LOG_TAIL: Final = 2_000
_MOST_COPIES: Final = 3


class BrokersFailed(Exception):
    """The brokers cannot be started; says why."""


class WrongSetup(BrokersFailed):
    """Something that the brokers need is missing, or does not fit the options; nothing was started."""


def find_jars() -> Path:
    """The folder with the jars of Apache Kafka 4."""
    given = os.environ.get(JARS_VARIABLE)
    folders = [Path(given)] if given else [_JARS_FOLDER, Path(__file__).resolve().parents[4] / _JARS_FOLDER]
    for folder in folders:
        if any(folder.glob("kafka-server-*.jar")) or any(folder.glob("kafka_2*.jar")):
            return folder
    raise WrongSetup(f"no jars of Apache Kafka in {folders[0]}: run `make kafka-jars`, or set {JARS_VARIABLE}")


@dataclass(slots=True)
class LocalBroker:
    """One broker: a folder, a configuration and, while it runs, a process."""

    id: int
    port: int
    folder: Path
    config: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> Path:
        """The path of its log file."""
        return self.folder / "broker.log"


@dataclass(slots=True)
class LocalBrokers:
    """Brokers of one cluster on this machine. Thread rule: one owner."""

    folder: Path
    count: int = 3
    settings: Mapping[str, object] = field(default_factory=dict)
    # Whether they are killed when this process ends in whatever way.
    end_with_parent: bool = False
    brokers: list[LocalBroker] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        """Write the configurations, format new data folders, start all brokers, and wait until they answer."""
        jars, java = find_programs()
        self.check_unused()
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = self.choose_ports()
        voters = ",".join(f"{number + 1}@127.0.0.1:{ports[number][1]}" for number in range(self.count))
        for number, (port, ruling) in enumerate(ports):
            home = self._home(number)
            home.mkdir(exist_ok=True)
            config = home / "server.properties"
            values = {**self._server(number + 1, port, ruling, voters, home), **self.settings}
            config.write_text("".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8")
            self.brokers.append(LocalBroker(id=number + 1, port=port, folder=home, config=config))
        self._format(java, jars)
        for broker in self.brokers:
            self.start_broker(broker)
        for broker in self.brokers:
            _await(broker)

    def check_unused(self) -> None:
        """Raise WrongSetup if a broker of an earlier start still runs: two of them would destroy their data."""
        for number in range(self.count):
            home = self._home(number)
            if _is_locked(home / "data" / ".lock"):
                raise WrongSetup(f"a Kafka broker of an earlier start still runs on {home}: end it first")

    def _home(self, number: int) -> Path:
        return self.folder / f"broker-{number + 1}"

    def choose_ports(self) -> list[tuple[int, int]]:
        """The ports of each broker: those of the last start in this folder if they are free, else others.

        The quorum is configured by addresses, in files that each start writes.
        """
        kept = self.folder / "ports"
        numbers = [int(number) for number in kept.read_text(encoding="utf-8").split()] if kept.exists() else []
        if numbers and len(numbers) != 2 * self.count:
            raise WrongSetup(f"{self.folder} holds a cluster of {len(numbers) // 2} brokers, not {self.count}")
        if not numbers or not all(map(is_free, numbers)):
            numbers = free_ports(2 * self.count)
            kept.write_text(" ".join(map(str, numbers)), encoding="utf-8")
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _server(self, number: int, port: int, ruling: int, voters: str, home: Path) -> dict[str, object]:
        copies = min(self.count, _MOST_COPIES)
        in_sync = max(copies - 1, 1)
        return {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{ruling}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": home / "data",
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            # A follower that asks for a new partition before its leader knows it waits for so long: a second by
            # default, in which nothing can be acknowledged there.
            "replica.fetch.backoff.ms": 100,
            # Half of the small heap by default.
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
            "offsets.topic.num.partitions": 6,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 6,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": 6000,
            "num.network.threads": 2,
            "num.io.threads": 4,
        }

    def _format(self, java: str, jars: Path) -> None:
        """Format new data folders for this cluster."""
        kept = self.folder / "cluster-id"
        if not kept.exists():
            kept.write_text(base64.urlsafe_b64encode(secrets.token_bytes(16))[:22].decode(), encoding="utf-8")
        cluster = kept.read_text(encoding="utf-8")
        formatting = [
            subprocess.Popen(  # noqa: S603  our own command line
                _command(
                    java,
                    jars,
                    "kafka.tools.StorageTool",
                    "format",
                    "--ignore-formatted",
                    f"--cluster-id={cluster}",
                    "-c",
                    b.config,
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for b in self.brokers
            if not (b.folder / "data" / "meta.properties").exists()
        ]
        for process in formatting:
            output, _ = process.communicate(timeout=_FORMAT_SECONDS)
            if process.returncode:
                raise BrokersFailed(f"a broker's folder cannot be formatted: {output[-_LOG_TAIL:].decode()}")

    def start_broker(self, broker: LocalBroker) -> None:
        """Start one broker, also one that was killed; does not wait for it."""
        jars, java = find_programs()
        command = _command(java, jars, "kafka.Kafka", broker.config)
        with broker.log.open("ab") as output:
            broker.process = subprocess.Popen(  # noqa: S603  our own command line
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=broker.folder,
                preexec_fn=end_with_parent(signal.SIGKILL) if self.end_with_parent else None,
            )

    def stop(self) -> None:
        """Stop all brokers; those that do not end in time are killed."""
        running = [broker.process for broker in self.brokers if broker.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in running:
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def find_programs() -> tuple[Path, str]:
    """The folder with the jars of Apache Kafka, and the Java program; raises WrongSetup if one is missing."""
    try:
        return find_jars(), find_java(None, os.environ)
    except CannotRun as missing:
        raise WrongSetup(str(missing)) from None


def _command(java: str, jars: Path, main: str, *arguments: object) -> list[str]:
    heap = (f"-Xms{_HEAP}", f"-Xmx{_HEAP}")
    return [java, *heap, *_FLAGS, "-cp", f"{jars.resolve()}/*", main, *map(str, arguments)]


def _is_locked(path: Path) -> bool:
    """Whether another process has locked a file in the way of Java."""
    if not path.exists():
        return False
    with path.open("rb+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _await(broker: LocalBroker) -> None:
    """Wait until a broker accepts connections."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if broker.process is None or broker.process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", broker.port), timeout=1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    tail = broker.log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace")
    raise BrokersFailed(f"the Kafka broker {broker.id} did not start:\n{tail}")
