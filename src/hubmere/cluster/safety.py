"""Checks whether a Kafka cluster could lose acknowledged events: by too few replicas, or by unclean leader elections.

Hubs' topics and the control log have settings of their own, which gateways give them. Committed offsets and
transactions are in topics of the cluster's own, which follow the settings of the brokers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from hubmere.cluster.upstream.failures import UpstreamFailure
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.wire.kafka.messages.configs import ConfigResource, DescribeConfigsRequest, ResourceType
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

# One copy that is lost leaves another one.
_LEAST_COPIES: Final = 2
_BROKER_ATTEMPTS: Final = 10
_BROKER_PAUSE_S: Final = 0.5
_IN_SYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """How many copies of an event are kept, and how many must exist before it is acknowledged."""

    replication: int
    in_sync: int

    def at_most(self, brokers: int) -> "Copies":
        """The same, limited to the number of brokers."""
        replication = min(self.replication, brokers)
        return Copies(replication=replication, in_sync=min(self.in_sync, replication))


async def find_risks(upstream: Upstream, wanted: Copies, control_topic: str) -> tuple[str, ...]:
    """All reasons why the loss of one broker could lose acknowledged events, each as a phrase for an error text."""
    copies = await _count_copies(upstream, control_topic)
    if copies is None:
        await _await_brokers(upstream, wanted.replication)
    # A broker that is down now is still one of the cluster: the control log tells how many there were.
    found = _risks_of_settings(wanted, max(len(upstream.brokers), copies or 0))
    for broker in sorted(upstream.brokers):
        with suppress(UpstreamFailure):  # a broker that is down is checked by the next gateway that starts
            values = await _configs(upstream, broker, ResourceType.BROKER, str(broker))
            found += _risks_of_configs(f"broker {broker}", values)
    if copies is not None:
        if copies < _LEAST_COPIES:
            found.append(f"the topic {control_topic} has {copies} copy, at least {_LEAST_COPIES} is needed")
        found += _risks_of_configs(f"the topic {control_topic}", await _topic_configs(upstream, control_topic))
    return tuple(found)


async def _count_copies(upstream: Upstream, name: str) -> int | None:
    """The copies of a topic; None if there is no such topic."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    (topic,) = (await upstream.ask_any(request)).topics
    return min((len(part.replica_nodes) for part in topic.partitions), default=None)


async def _await_brokers(upstream: Upstream, count: int) -> None:
    """Brokers that start at the same time as the first gateway need a moment."""
    for _ in range(_BROKER_ATTEMPTS):
        if len(upstream.brokers) >= count:
            return
        await asyncio.sleep(_BROKER_PAUSE_S)
        await upstream.refresh(())


def _risks_of_settings(wanted: Copies, brokers: int) -> list[str]:
    found = []
    if wanted.replication > brokers:
        found.append(
            f"cluster_replication is {wanted.replication}, and the number of brokers in the Kafka cluster is {brokers}"
        )
    if wanted.replication < _LEAST_COPIES:
        found.append(f"cluster_replication is {wanted.replication}, at least {_LEAST_COPIES} is needed")
    if wanted.in_sync < _LEAST_COPIES:
        found.append(f"cluster_min_insync is {wanted.in_sync}, at least {_LEAST_COPIES} is needed")
    if wanted.in_sync > wanted.replication:
        found.append(f"cluster_min_insync is {wanted.in_sync}, more than cluster_replication ({wanted.replication})")
    return found


def _risks_of_configs(where: str, values: Mapping[str, str]) -> list[str]:
    found = []
    if int(values.get(_IN_SYNC) or _LEAST_COPIES) < _LEAST_COPIES:
        found.append(f"{where} has {_IN_SYNC}={values[_IN_SYNC]}, at least {_LEAST_COPIES} is needed")
    if values.get(_UNCLEAN, "false").lower() == "true":
        found.append(f"{where} has {_UNCLEAN}=true")
    return found


async def _topic_configs(upstream: Upstream, name: str) -> Mapping[str, str]:
    """The settings of a topic, from the first broker that answers; raises the failure of the last one."""
    *others, last = sorted(upstream.brokers)
    for broker in others:
        with suppress(UpstreamFailure):
            return await _configs(upstream, broker, ResourceType.TOPIC, name)
    return await _configs(upstream, last, ResourceType.TOPIC, name)


async def _configs(upstream: Upstream, broker: int, kind: ResourceType, name: str) -> Mapping[str, str]:
    """The settings of a broker or a topic; none if this user may not see them."""
    resource = ConfigResource(resource_type=kind, resource_name=name, configuration_keys=(_IN_SYNC, _UNCLEAN))
    answer = await upstream.ask(broker, DescribeConfigsRequest(resources=(resource,)))
    results: Sequence[Any] = answer.results
    return {config.name: config.value or "" for result in results for config in result.configs}
