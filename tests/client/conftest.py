"""One node for all tests of the client that do not stop it."""

from collections.abc import Iterator

import pytest

from client.hubs import Hubs, a_node_with_hubs


@pytest.fixture(scope="package")
def hubs() -> Iterator[Hubs]:
    """The hubs of a node in memory."""
    with a_node_with_hubs() as hubs:
        yield hubs


@pytest.fixture(scope="package")
def disk_hubs() -> Iterator[Hubs]:
    """The hubs of a node that can be killed and started again."""
    with a_node_with_hubs(memory=False) as hubs:
        yield hubs
