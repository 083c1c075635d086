"""The Java program with the clients under test: compiled once, one process for all tests."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.clients import NotInstalled, java_clients, java_tool
from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import Driver
from conformance.kafka.apache import TRUST_PASSWORD, make_trust_store

_HERE = Path(__file__).parent
_COMPILE_SECONDS = 3000
TRANSPORTS = [pytest.param(transport, marks=pytest.mark.judges(transport=transport)) for transport in Transport]


@pytest.fixture(scope="session")
def java(conformance_node: ConformanceNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Runs operations of the program beside this file."""
    try:
        command = build_java(tmp_path_factory.mktemp("java"), conformance_node.node.ca_file)
    except NotInstalled as reason:
        pytest.skip(str(reason))
    with Driver(command, {}) as driver:
        yield driver


def build_java(folder: Path, ca_file: str) -> list[str]:
    """Compile the program into a folder; returns the command that runs it with a trusted CA."""
    jars = f"{java_clients()}/*"
    _run(java_tool("javac"), "-nowarn", "-d", str(folder), "-cp", jars, *map(str, _HERE.glob("*.java")))
    trusted = make_trust_store(folder, ca_file)
    return [java_tool("java"), *_flags(trusted), "-cp", f"{folder}:{jars}", "Driver"]


def _flags(trusted: Path) -> list[str]:
    """The CA to trust, and options for a short-lived JVM."""
    return [
        f"-Djavax.net.ssl.trustStore={trusted}",
        f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD}",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx256m",
    ]


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def place(conformance_node: ConformanceNode, transport: Transport) -> HubLocation:
    """A new hub with two partitions, over each transport in turn."""
    return conformance_node.place(transport, conformance_node.new_hub())
