"""A node with an HTTP endpoint for the tests of this folder."""

from collections.abc import Iterator

import pytest

from endpoints.http.harness import HttpNode


@pytest.fixture
def node() -> Iterator[HttpNode]:
    """A node with the hub `orders` of four partitions."""
    with HttpNode() as running:
        running.add_hub("orders")
        yield running
