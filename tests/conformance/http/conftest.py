"""A whole node, as it runs in production, for the judges of the HTTP surface."""

from collections.abc import Iterator

import pytest

from hubmere.settings import HubSetting
from hubmere.testing import Node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node in a process of its own with one hub `orders`, reached over TLS with its private CA."""
    with Node(hubs=[HubSetting(name="orders", partition_count=2)]) as running:
        yield running
