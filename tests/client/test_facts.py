"""Facts about a hub that a node returns to its own clients in addition to Kafka's protocol."""

from collections.abc import Iterator

import pytest

from client.hubs import Hubs, a_node_with_hubs
from hubmere.client.facts import consumer_groups
from hubmere.client.failures import Refused
from hubmere.wire.kafka.messages.configs import ConfigResource, DescribeConfigsRequest, ResourceType


@pytest.fixture(scope="module")
def hubs() -> Iterator[Hubs]:
    """The hubs of a node in memory."""
    with a_node_with_hubs() as hubs:
        yield hubs


def test_consumer_groups_of_a_hub_are_listed(hubs: Hubs) -> None:
    """The Spark source checks its option with them."""
    hub = hubs.node.create_hub(partitions=1, groups=["reports", "alerts"])

    assert consumer_groups(hubs.client, hub) == ["$Default", "alerts", "reports"]


def test_hub_that_does_not_exist_is_refused(hubs: Hubs) -> None:
    """It must not look like a hub without groups."""
    with pytest.raises(Refused, match="nowhere"):
        consumer_groups(hubs.client, "nowhere")


def test_tools_that_describe_a_topic_get_only_kafkas_entries(hubs: Hubs) -> None:
    """An unknown entry would confuse tools that copy whole configurations."""
    hub = hubs.new()
    resource = ConfigResource(resource_type=ResourceType.TOPIC, resource_name=hub)
    answer = hubs.client.call(lambda connection: connection.ask(DescribeConfigsRequest(resources=(resource,))))

    names = [entry.name for result in answer.results for entry in result.configs]
    assert "retention.ms" in names
    assert not [name for name in names if name.startswith("hubmere.")]
