"""A node with TLS, or a gateway if Kafka brokers are given, for foreign clients of the HTTP API."""

from collections.abc import Iterator

import pytest

from conformance.conformance_node import gateway_settings
from hubmere.settings import HubSetting
from hubmere.testing import Node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node in a separate process with one hub `orders`, over TLS with its private CA."""
    # Tests create hubs with any settings, also with Capture; no test of this folder waits for files.
    hubs = [HubSetting(name="orders", partition_count=2)]
    settings: dict[str, str | bool] = {**gateway_settings(tmp_path_factory.mktemp("gateway"))}
    if not settings:
        settings["capture_supervise"] = False
    with Node(hubs=hubs, settings=settings) as running:
        yield running
