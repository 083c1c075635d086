"""The stores of checkpoints: the node itself, or Azurite, Microsoft's emulator of Blob storage."""

from collections.abc import Iterator

import pytest

from conformance.clients import NotInstalled
from conformance.conformance_node import ConformanceNode
from conformance.processors.azurite import start_azurite

_END_SECONDS = 300.0


@pytest.fixture(params=["node", "azurite"])
def storage(request: pytest.FixtureRequest, conformance_node: ConformanceNode) -> str:
    """The connection string of a storage account."""
    if request.param == "node":
        return conformance_node.node.blob_connection_string
    azurite: str = request.getfixturevalue("azurite")
    return azurite


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Azurite's connection string."""
    try:
        process, connection_string = start_azurite()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    try:
        yield connection_string
    finally:
        process.terminate()
        process.communicate(timeout=_END_SECONDS)
