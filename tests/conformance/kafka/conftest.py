"""One node for all tests of a module, because foreign clients are slow."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from conformance.clients import Jars, NotInstalled
from conformance.conformance_node import Transport, gateway_settings
from conformance.driver import Driver
from conformance.kafka.apache import Program, client_settings, compile_java
from conformance.kafka.jvm import Jvm
from conformance.matrix import Name
from hubmere.testing import Node

_JAVA = Path(__file__).parent / "java"
# The transports of Kafka clients: there is no Kafka over WebSocket.
TRANSPORTS = [
    pytest.param(transport, marks=pytest.mark.judges(transport=transport))
    for transport in (Transport.PLAIN, Transport.TLS)
]
_VERSIONS = [
    pytest.param(jars, marks=pytest.mark.judges(client=client), id=f"java {jars}")
    for jars, client in ((Jars.KAFKA_3, Name.KAFKA_JAVA_3), (Jars.KAFKA_4, Name.KAFKA_JAVA_4))
]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    # Members of consumer groups learn of a rebalance with their next heartbeat.
    settings: dict[str, str | float] = {
        "as": "unlimited",
        "default_partition_count": 4,
        "group_consumer_heartbeat_interval_s": 0.3,
        "group_consumer_session_timeout_s": 300.0,
        **gateway_settings(tmp_path_factory.mktemp("gateway")),
    }
    with Node(settings=settings) as node:
        yield node


@pytest.fixture
def topic() -> str:
    """A topic name for one test; the topic is created at its first use."""
    return f"topic-{uuid4().hex[:8]}"


@pytest.fixture
def group() -> str:
    """A group for one test."""
    return f"group-{uuid4().hex[:8]}"


# --- Kafka's own clients ---------------------------------------------------------------------------------------------


def a_driver(jars: Jars) -> Driver:
    """The program in this folder, compiled for a version of Kafka; skips if that is not installed."""
    try:
        classes = compile_java(jars, *_JAVA.glob("*.java"))
        return Driver(Program(jars=jars, main="Driver", classes=(classes,)).command(), {})
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session", params=_VERSIONS)
def java_driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """One JVM for each version under test."""
    with a_driver(request.param) as driver:
        yield driver


@pytest.fixture
def jvm(java_driver: Driver, node: Node) -> Jvm:
    """Java clients with SASL_PLAINTEXT."""
    return Jvm(java_driver, client_settings(node))


@pytest.fixture(params=TRANSPORTS)
def jvm_by_transport(request: pytest.FixtureRequest, java_driver: Driver, node: Node) -> Jvm:
    """The same over each transport in turn."""
    return Jvm(java_driver, client_settings(node, tls=request.param is Transport.TLS))
