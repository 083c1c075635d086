"""The check of a cluster's settings at the start of a gateway, while a broker does not answer."""

import asyncio
from typing import cast

from hubmere.cluster.safety import Copies, find_risks
from hubmere.cluster.upstream.failures import BrokerUnreachable
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    ResourceType,
)
from hubmere.wire.kafka.messages.metadata import MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic


class ThreeBrokers:
    """A cluster of three brokers; the first one is frozen."""

    def __init__(self, in_sync: str) -> None:
        self.brokers = {1: "b1", 2: "b2", 3: "b3"}
        self._in_sync = in_sync

    async def ask_any(self, request: MetadataRequest) -> MetadataResponse:
        part = MetadataPartition(
            error_code=0, index=0, leader_id=2, leader_epoch=1, replica_nodes=(1, 2, 3), isr_nodes=(2, 3)
        )
        topic = MetadataTopic(error_code=0, name="control", partitions=(part,))
        return MetadataResponse(brokers=(), cluster_id="c", controller_id=2, topics=(topic,))

    async def ask(self, broker: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        if broker == 1:
            raise BrokerUnreachable("b1", "no answer within 5 s")
        (resource,) = request.resources
        value = self._in_sync if resource.resource_type == ResourceType.TOPIC else "2"
        config = DescribedConfig(name="min.insync.replicas", value=value, read_only=False, is_sensitive=False)
        result = DescribeConfigsResult(
            error_code=0,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(config,),
        )
        return DescribeConfigsResponse(results=(result,))


def risks(in_sync: str) -> tuple[str, ...]:
    upstream = cast("Upstream", ThreeBrokers(in_sync))
    return asyncio.run(find_risks(upstream, Copies(replication=3, in_sync=2), "control"))


def test_a_broker_that_does_not_answer_does_not_stop_the_check() -> None:
    """The others know the settings of a topic as well: a gateway must start while one of three brokers is frozen."""
    assert risks("2") == ()
    assert risks("1") == ("the topic control has min.insync.replicas=1, at least 2 is needed",)
