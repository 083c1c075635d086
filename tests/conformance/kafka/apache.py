"""Programs of Apache Kafka as child processes: any of its main classes, and a whole broker.

They run from the jars of `make kafka-jars`; NotInstalled names missing ones. Every process ends with its `with` block
or its call. Used by tests and by the benchmark.
"""

import base64
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from conformance.clients import KAFKA, Jars, java_tool, kafka_jars, kafka_version
from hubmere.cli.cluster.free_ports import free_ports
from hubmere.testing import Node

_HERE = Path(__file__).parent
TRUST_PASSWORD = "changeit"
USER = "$ConnectionString"
# Options for a short-lived JVM.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
# These are the options of Kafka's start script; the heap is added.
_BROKER_FLAGS = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# Longer than any tool takes on a busy machine, shorter than the limit of pytest.
_RUN_SECONDS = 1200.0
_START_SECONDS = 1200.0
_END_SECONDS = 300.0
_LOG_TAIL = 4000


class ProgramFailed(Exception):
    """A program failed or did not start; has the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A main class with its arguments; `classes` are folders that come before the jars."""

    jars: Jars
    main: str
    arguments: Sequence[str] = ()
    flags: Sequence[str] = SHORT_LIVED
    classes: Sequence[Path] = ()
    log_level: str = "warn"

    def command(self) -> list[str]:
        """The command line; raises NotInstalled without Java or the jars."""
        path = os.pathsep.join([*map(str, self.classes), f"{kafka_jars(self.jars)}/*"])
        return [java_tool("java"), *self.flags, *self._log_flags(), "-cp", path, self.main, *self.arguments]

    def _log_flags(self) -> list[str]:
        return [
            f"-Dlevel={self.log_level}",
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
            f"-Dlog4j.configuration=file:{_HERE / 'log4j.properties'}",
        ]


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a program."""

    code: int
    out: str
    err: str

    def lines(self) -> list[str]:
        """Its output; raises ProgramFailed unless it succeeded."""
        if self.code != 0:
            raise ProgramFailed(f"exit code {self.code}\n{self.out[-_LOG_TAIL:]}\n{self.err[-_LOG_TAIL:]}")
        return self.out.splitlines()


def run(program: Program, *, text: str = "", seconds: float = _RUN_SECONDS) -> Ended:
    """Run a program to its end with this text as input; it is killed after its time limit."""
    ended = subprocess.run(program.command(), input=text, capture_output=True, text=True, timeout=seconds, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@contextmanager
def started(program: Program, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that runs during a test; its output is written to a file. It is ended by SIGTERM, then by SIGKILL."""
    with log.open("ab") as output:
        process = subprocess.Popen(program.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a program, which may have ended already."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Service:
    """A background program that can be stopped or killed, and started again. Only one thread may call it."""

    def __init__(self, program: Program, log: Path) -> None:
        self._program = program
        self._log = log
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; raises NotInstalled if it is not installed."""
        self._process = self._running.enter_context(started(self._program, self._log))

    def stop(self) -> None:
        """Stop it cleanly."""
        self._running.close()

    def kill(self) -> None:
        """Kill it, like a crash."""
        assert self._process is not None
        self._process.kill()
        self._running.close()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def logs(self) -> str:
        """The end of its output, over all starts."""
        return self._log.read_text(encoding="utf-8")[-_LOG_TAIL:]


# --- how programs find a node of ours --------------------------------------------------------------------------------


def client_settings(
    node: Node, *, tls: bool = False, trust_store: Path | None = None, connection_string: str = ""
) -> dict[str, str]:
    """Settings of a Java client with the credentials of Event Hubs.

    With TLS it trusts the node's own CA: by its file, or by a trust store.
    """
    password = connection_string or node.connection_string
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{password}";'
    trust: dict[str, str] = {}
    if trust_store is not None:
        trust = {"ssl.truststore.location": str(trust_store), "ssl.truststore.password": TRUST_PASSWORD}
    elif tls:
        trust = {"ssl.truststore.location": node.ca_file, "ssl.truststore.type": "PEM"}
    return {
        "bootstrap.servers": node.kafkas if trust else node.kafka,
        "security.protocol": "SASL_SSL" if trust else "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
    } | trust


def write_settings(path: Path, settings: Mapping[str, object]) -> Path:
    """A properties file; the `prefix.` is added to each setting."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return path


def make_trust_store(folder: Path, ca_file: str) -> Path:
    """A trust store with a private CA, as users of Java create it."""
    path = folder / "trusted.p12"
    store = ["-keystore", str(path), "-storetype", "PKCS12", "-storepass", TRUST_PASSWORD]
    command = [java_tool("keytool"), "-importcert", "-noprompt", "-alias", "hubmere", "-file", ca_file, *store]
    subprocess.run(command, capture_output=True, timeout=_RUN_SECONDS, check=True)
    return path


def compile_java(jars: Jars, *sources: Path) -> Path:
    """Compile sources against a set of jars; returns the folder with their classes, which is reused."""
    digest = hashlib.sha256(kafka_version(jars).encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    classes = KAFKA / "classes" / f"{jars}-{digest.hexdigest()[:16]}"
    if not classes.exists():
        classes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent) as folder:
            _compile(Path(folder), jars, sources)
            # Another process may have been faster: its folder has the same content.
            with suppress(OSError):
                (Path(folder) / "classes").rename(classes)
    return classes


def _compile(folder: Path, jars: Jars, sources: Sequence[Path]) -> None:
    target = ["-d", str(folder / "classes"), "-cp", f"{kafka_jars(jars)}/*"]
    command = [java_tool("javac"), "-nowarn", *target, *map(str, sources)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False)
    if ended.returncode != 0:
        raise ProgramFailed(ended.stderr)


# --- a broker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A running broker of Apache Kafka, without authentication."""

    bootstrap: str
    pid: int
    data: Path
    log: Path


@contextmanager
def broker(
    folder: Path,
    *,
    heap: str = "512m",
    settings: Mapping[str, object] | None = None,
    ports: tuple[int, int] | None = None,
) -> Iterator[Broker]:
    """One KRaft node with all its data below `folder`, on free ports of loopback or on the given ports."""
    folder.mkdir(parents=True, exist_ok=True)
    serving, ruling = ports or free_ports(2)
    config = write_settings(
        folder / "server.properties", {**_server(serving, ruling, folder / "data"), **(settings or {})}
    )
    _format(config)
    flags = (f"-Xms{heap}", f"-Xmx{heap}", *_BROKER_FLAGS)
    program = Program(jars=Jars.KAFKA_4, main="kafka.Kafka", arguments=(str(config),), flags=flags)
    log = folder / "broker.log"
    with started(program, log) as process:
        bootstrap = f"127.0.0.1:{serving}"
        _await_broker(bootstrap, process, log)
        yield Broker(bootstrap=bootstrap, pid=process.pid, data=folder / "data", log=log)


def _server(serving: int, ruling: int, data: Path) -> dict[str, object]:
    """The settings of one node that is broker and controller; nothing may wait for a second one."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ruling}",
        "listeners": f"PLAINTEXT://127.0.0.1:{serving},CONTROLLER://127.0.0.1:{ruling}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{serving}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
        "num.partitions": 4,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


def _format(config: Path) -> None:
    """A data folder must be formatted for its cluster before the first start."""
    cluster = base64.urlsafe_b64encode(uuid4().bytes)[:22].decode()
    arguments = ("format", "--ignore-formatted", f"--cluster-id={cluster}", "--config", str(config))
    run(Program(jars=Jars.KAFKA_4, main="kafka.tools.StorageTool", arguments=arguments)).lines()


def _await_broker(bootstrap: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    # librdkafka prints refused connections to standard error; these are expected here.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if admin.list_topics(timeout=30.0).brokers:
                return
        except KafkaException:
            continue
    raise ProgramFailed(f"Apache Kafka did not start\n{log.read_text(encoding='utf-8')[-_LOG_TAIL:]}")
