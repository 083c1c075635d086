"""A node as in production, for foreign clients of the HTTP API."""

from collections.abc import Iterator

import pytest

from hubmere.settings import HubSetting
from hubmere.testing import Node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node in a process of its own with one hub `orders`, reached over TLS with its private CA."""
    # Hubs come and go here with any settings, captured ones too; no test of this folder waits for files.
    hubs = [HubSetting(name="orders", partition_count=2)]
    with Node(hubs=hubs, settings={"capture_supervise": False}) as running:
        yield running
