"""Clients with common operations: programs in Go and Rust, and Java clients of older versions of Kafka. Each program
accepts the same requests and returns the same facts, so that one suite tests them all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.clients import Jars, go_program, rust_program
from conformance.conformance_node import Transport
from conformance.driver import Driver
from conformance.kafka.apache import Program, client_settings, compile_java, make_trust_store
from conformance.kafka.kafka_clients import USER
from conformance.matrix import Name
from hubmere.testing import Node

Facts = dict[str, Any]

_JAVA = Path(__file__).parent / "java_older"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _java(jars: Jars, main: str, *sources: str) -> list[str]:
    """The command of a program, compiled for a version of Kafka."""
    classes = compile_java(jars, *(_JAVA / source for source in sources))
    return Program(jars=jars, main=main, classes=(classes,)).command()


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """How a client is run, and where it differs from the others."""

    command: Callable[[], list[str]]
    module: str = ""
    # Java clients get their settings unchanged.
    is_java: bool = False
    codecs: tuple[str, ...] = _CODECS
    # How the client represents an empty key or value.
    empty: str | None = ""


DRIVEN = {
    Name.FRANZ: Driven(command=lambda: [str(go_program())], module="franz"),
    Name.SARAMA: Driven(command=lambda: [str(go_program())], module="sarama"),
    Name.KAFKA_GO: Driven(command=lambda: [str(go_program())], module="kafkago", empty=None),
    # It is built without zstd.
    Name.RUST: Driven(command=lambda: [str(rust_program())], module="rdkafka", codecs=_CODECS[:-1]),
    # zstd was added in 2.1.
    Name.KAFKA_JAVA_1: Driven(
        command=lambda: _java(Jars.KAFKA_1, "Older", "Older.java"), is_java=True, codecs=_CODECS[:-1]
    ),
    Name.KAFKA_JAVA_2: Driven(
        command=lambda: _java(Jars.KAFKA_2, "WithGroups", "Older.java", "WithGroups.java"), is_java=True
    ),
}

EVERY = tuple(DRIVEN)
# kafka-go has neither idempotent producers nor transactions, and cannot delete records.
TRANSACTIONAL = tuple(name for name in EVERY if name is not Name.KAFKA_GO)
# The admin client of Kafka 1.0 knows neither groups nor records.
WITH_GROUPS = tuple(name for name in EVERY if name is not Name.KAFKA_JAVA_1)
JAVA = (Name.KAFKA_JAVA_1, Name.KAFKA_JAVA_2)


def judged(*names: Name, over: tuple[Transport, ...] = (Transport.PLAIN,)) -> pytest.MarkDecorator:
    """Run a test with each of these clients over each of these transports, as claimed in the matrix."""
    ways = [
        pytest.param(
            (name, transport), marks=pytest.mark.judges(client=name, transport=transport), id=f"{name} {transport}"
        )
        for name in names
        for transport in over
        # The Rust client is built without TLS.
        if name is not Name.RUST or transport is Transport.PLAIN
    ]
    return pytest.mark.parametrize("client", ways, indirect=True)


class Client:
    """One client, signed in with the credentials of Event Hubs."""

    def __init__(self, driver: Driver, driven: Driven, node: Node, transport: Transport, folder: Path) -> None:
        self._driver = driver
        self._node = node
        self._transport = transport
        self._folder = folder
        self.driven = driven
        self._place = self._sign_in("")

    def with_password(self, password: str) -> "Client":
        """The same client with another password."""
        other = self.at(self._node)
        other._place = other._sign_in(password)
        return other

    def at(self, node: Node) -> "Client":
        """The same client for another node."""
        return Client(self._driver, self.driven, node, self._transport, self._folder)

    def _sign_in(self, password: str) -> dict[str, str]:
        node, is_secure = self._node, self._transport is Transport.TLS
        if self.driven.is_java:
            # Clients before 2.7 do not accept PEM files.
            trusted = make_trust_store(self._folder, node.ca_file) if is_secure else None
            return client_settings(node, trust_store=trusted, connection_string=password)
        return {
            "broker": node.kafkas if is_secure else node.kafka,
            "ca": node.ca_file if is_secure else "",
            "user": USER,
            "password": password or node.connection_string,
        }

    def call(self, name: str, **arguments: Any) -> Any:
        return self._driver.call(self.driven.module, name, place=self._place, **arguments)

    def make_topic(self, topic: str, partitions: int = 2, **configs: str) -> None:
        entries = {name.replace("_", "."): value for name, value in configs.items()}
        self.call("createTopic", topic=topic, partitions=partitions, configs=entries)

    def produce(self, topic: str, *values: str, partition: int = 0, **more: Any) -> list[int]:
        """Write records with only a value; returns their offsets."""
        records = [{"value": value, "partition": partition} for value in values]
        offsets: list[int] = self.call("produce", topic=topic, records=records, **more)
        return offsets

    def read(self, topic: str, count: int, partition: int = 0, start: int = -2, **more: Any) -> list[Facts]:
        """Records of a partition from an offset; -2 is the beginning."""
        records: list[Facts] = self.call("read", topic=topic, partition=partition, start=start, count=count, **more)
        return records

    def consume(self, topic: str, group: str, count: int, **more: Any) -> list[Facts]:
        """Read records as a member of a group, and commit them."""
        records: list[Facts] = self.call("consume", topic=topic, group=group, count=count, **more)
        return records

    def topics(self) -> dict[str, int]:
        """Names of topics and their numbers of partitions."""
        counts: dict[str, int] = self.call("topics")
        return counts
