"""The Go program with the clients under test: one process for all tests, and the addresses of hubs."""

from collections.abc import Iterator

import pytest

from conformance.clients import NotInstalled, go_program
from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import Driver

TRANSPORTS = [pytest.param(transport, marks=pytest.mark.judges(transport=transport)) for transport in Transport]


@pytest.fixture(scope="session")
def go() -> Iterator[Driver]:
    """Runs operations of the program beside this file."""
    try:
        command = [str(go_program())]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    with Driver(command, {}) as driver:
        yield driver


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def place(conformance_node: ConformanceNode, transport: Transport) -> HubLocation:
    """A new hub with two partitions, over each transport in turn."""
    return conformance_node.place(transport, conformance_node.new_hub())
