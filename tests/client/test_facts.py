"""What a node tells its own clients about a hub beyond Kafka's requests."""

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
    """Not taken for a hub without groups."""
    with pytest.raises(Refused, match="nowhere"):
        consumer_groups(hubs.client, "nowhere")


def test_tools_that_describe_everything_see_kafkas_entries_alone(hubs: Hubs) -> None:
    """An entry that Kafka does not have would confuse those that copy whole configurations."""
    hub = hubs.new()
    resource = ConfigResource(resource_type=ResourceType.TOPIC, resource_name=hub)
    answer = hubs.client.call(lambda connection: connection.ask(DescribeConfigsRequest(resources=(resource,))))

    names = [entry.name for result in answer.results for entry in result.configs]
    assert "retention.ms" in names
    assert not [name for name in names if name.startswith("hubmere.")]
