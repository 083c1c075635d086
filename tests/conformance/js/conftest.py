"""Node.js with the clients under test: one process for all tests, and the addresses of hubs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.clients import NotInstalled, js_clients, node
from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import Driver

PROGRAM = Path(__file__).parent / "driver.mjs"
TRANSPORTS = [pytest.param(transport, marks=pytest.mark.judges(transport=transport)) for transport in Transport]


@pytest.fixture(scope="session")
def js(conformance_node: ConformanceNode) -> Iterator[Driver]:
    """Runs operations of the programs beside this file."""
    try:
        command, environment = [node(), str(PROGRAM)], {"HUBMERE_JS_CLIENTS": str(js_clients())}
    except NotInstalled as reason:
        pytest.skip(str(reason))
    # Users of Node.js trust a private CA in this way.
    with Driver(command, {**environment, "NODE_EXTRA_CA_CERTS": conformance_node.node.ca_file}) as driver:
        yield driver


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def place(conformance_node: ConformanceNode, transport: Transport) -> HubLocation:
    """A new hub with two partitions, over each transport in turn."""
    return conformance_node.place(transport, conformance_node.new_hub())
