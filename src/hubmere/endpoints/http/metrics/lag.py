"""Consumer lag for each group, hub and partition: Kafka groups, open AMQP readers, and checkpoints of processors.

The lag of a Kafka group is the number of events after its committed offset, whether it has members or not. The service
stores no positions of AMQP readers, so the lag of those is known while they are connected; of several readers of one
partition in a group, the one that is furthest behind counts. Event processors that keep checkpoints on this node have a
lag by their checkpoints, connected or not.

Groups are visited a few at a time with the loop free in between, and the number of series is bounded.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from hubmere.broker import Broker, Caller
from hubmere.endpoints.http.metrics.exposition import GAUGE, Family, Metric, Sample
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.names import DEFAULT_GROUP, fold

LAG = Metric(
    "hubmere_consumer_lag_events",
    GAUGE,
    "Events after the position of a group: offsets of Kafka groups, AMQP readers, checkpoints of processors.",
    ("namespace", "eventhub", "partition", "group", "protocol"),
)
OMITTED = Metric(
    "hubmere_consumer_lag_omitted_groups",
    GAUGE,
    "Kafka groups that are left out of the lag metric because there are too many.",
)
# Series of the lag metric: a scraper stores each of them. 5,000 are 300 KB of text.
MAX_SERIES = 5000
# Kafka groups between two turns of the loop, about 0.1 ms each.
_GROUPS_PER_TURN = 20
_AMQP, _KAFKA, _CHECKPOINT = "AMQP", "Kafka", "checkpoint"
_Key = tuple[str, str, str, str, str]


class ConsumerLags(NamedTuple):
    """The lag of every group, by the labels of `LAG`."""

    lags: dict[_Key, int]
    omitted_groups: int

    def families(self) -> Iterator[Family]:
        """The metrics."""
        yield LAG, (Sample(key, lag) for key, lag in sorted(self.lags.items()))
        yield OMITTED, (Sample((), self.omitted_groups),)


async def consumer_lags(broker: Broker, clock: Clock) -> ConsumerLags:
    """The lag of every group now."""
    lags = {**dict(_of_readers(broker)), **dict(_of_processors(broker))}
    omitted = visited = 0
    for namespace in broker.namespace_views():
        groups = broker.entities.groups_with_offsets(fold(namespace.name))
        if not groups:
            continue
        caller = broker.administrator().at(namespace.name)
        for group_id in groups:
            if len(lags) >= MAX_SERIES:
                omitted += 1
                continue
            lags.update(_of_kafka(caller, namespace.name, group_id, clock))
            visited += 1
            if visited % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
    return ConsumerLags(lags, omitted)


def _of_kafka(caller: Caller, namespace: str, group_id: str, clock: Clock) -> Iterator[tuple[_Key, int]]:
    coordinator = caller.coordinator(clock.monotonic(), clock.now_ms())
    try:
        positions = coordinator.administration.positions(group_id)
    except Refusal:
        # Deleted since the list was made.
        return
    for position in positions:
        if position.committed is not None:
            yield (namespace, position.hub, str(position.partition), group_id, _KAFKA), position.lag


def _of_processors(broker: Broker) -> Iterator[tuple[_Key, int]]:
    for position in islice(broker.processors.positions(), MAX_SERIES):
        if position.lag is not None:
            group = _group_name(broker, position.namespace, position.hub, position.stored.group)
            yield (position.namespace, position.hub, str(position.partition), group, _CHECKPOINT), position.lag


def _of_readers(broker: Broker) -> Iterator[tuple[_Key, int]]:
    furthest: dict[_Key, int] = {}
    for connection in broker.connections.snapshots():
        if not connection.protocol.startswith(_AMQP):
            continue
        for link in connection.links:
            if link.lag is None or not link.group or link.partition is None:
                continue
            group = _group_name(broker, connection.namespace, link.hub, link.group)
            key = (connection.namespace, link.hub, str(link.partition), group, _AMQP)
            if key in furthest or len(furthest) < MAX_SERIES:
                furthest[key] = max(furthest.get(key, 0), link.lag)
    yield from furthest.items()


def _group_name(broker: Broker, namespace: str, hub_name: str, name: str) -> str:
    """The name of a consumer group as it was created; connections know it in lower case."""
    if name == fold(DEFAULT_GROUP):
        return DEFAULT_GROUP
    hub = broker.entities.find_hub(namespace, hub_name)
    group = None if hub is None else broker.entities.find_group(hub, name)
    return name if group is None else group.name
