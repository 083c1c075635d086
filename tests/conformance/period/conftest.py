"""A node for clients of 2019, and one process for each of them.

These clients use port 5671 whatever the connection string says. Several nodes may run on a machine, so this one has
its own loopback address.
"""

import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.clients import NotInstalled, java_tool, node, period_clients
from conformance.conformance_node import ConformanceNode
from conformance.driver import Driver
from conformance.kafka.apache import SHORT_LIVED, TRUST_PASSWORD, make_trust_store
from conformance.matrix import Name

_HERE = Path(__file__).parent
_PORT = 5671
_TRIES = 100
_COMPILE_SECONDS = 3000


def _free_address() -> str:
    """An address of 127.0.0.0/8 on which the port is free."""
    for _ in range(_TRIES):
        address = f"127.{random.randint(2, 254)}.{random.randint(1, 254)}.{random.randint(1, 254)}"
        try:
            socket.create_server((address, _PORT)).close()
        except OSError as error:
            reason = error
        else:
            return address
    pytest.skip(f"no loopback address with a free port {_PORT}: {reason}")


@pytest.fixture(scope="session")
def conformance_node() -> Iterator[ConformanceNode]:
    """A node with its own address."""
    address = _free_address()
    with ConformanceNode(host=address, hostname=address, amqps_port=_PORT) as running:
        yield running


def _python(conformance_node: ConformanceNode, _: Path) -> Driver:
    command = [str(period_clients() / "python" / "bin" / "python"), str(_HERE / "driver.py")]
    return Driver(command, {"HUBMERE_CA_FILE": conformance_node.node.ca_file})


def _javascript(conformance_node: ConformanceNode, _: Path) -> Driver:
    environment = {
        "HUBMERE_JS_CLIENTS": str(period_clients() / "js"),
        "NODE_EXTRA_CA_CERTS": conformance_node.node.ca_file,
    }
    return Driver([node(), str(_HERE / "driver.mjs")], environment)


def _java(conformance_node: ConformanceNode, folder: Path) -> Driver:
    jars = f"{period_clients() / 'java'}/*"
    command = [java_tool("javac"), "-nowarn", "-d", str(folder), "-cp", jars, str(_HERE / "Driver.java")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    trusted = make_trust_store(folder, conformance_node.node.ca_file)
    trust = [f"-Djavax.net.ssl.trustStore={trusted}", f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD}"]
    return Driver([java_tool("java"), *SHORT_LIVED, *trust, "-cp", f"{folder}:{jars}", "Driver"], {})


_MAKERS = {Name.PYTHON_1: _python, Name.JS_2: _javascript, Name.JAVA_2: _java}


@pytest.fixture(scope="session")
def drivers(
    conformance_node: ConformanceNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Name, Driver]]:
    """The three programs; a process is started when it is first used."""
    with ExitStack() as running:
        try:
            yield {
                name: running.enter_context(make(conformance_node, tmp_path_factory.mktemp("period")))
                for name, make in _MAKERS.items()
            }
        except NotInstalled as reason:
            pytest.skip(str(reason))
