"""Positions and lag of consumers of every protocol."""

from contextlib import AbstractContextManager
from unittest.mock import patch

from hubmere.broker.blobs.accounts import BlobAccounts
from hubmere.broker.blobs.processors import ProcessorPartition
from hubmere.portal.history.consumer_lag import consumer_positions, lag_by_group
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.catalog.view import Put
from portal.builders import PortalHarness


def with_checkpoint(sequence: int, owner: str = "") -> AbstractContextManager[object]:
    """Let a processor of the default group have a checkpoint of partition 0 of the hub `orders`."""
    stored = ProcessorPartition(
        host="localhost", hub="orders", group="$default", partition="0", container="c", account="a", owner=owner,
        sequence=sequence,
    )  # fmt: skip
    return patch.object(BlobAccounts, "processor_partitions", return_value=[stored])


def test_readers_checkpoints_and_kafka_groups_are_in_one_table(harness: PortalHarness) -> None:
    """Operators need all consumers in one place."""
    harness.publish(b"a", b"b", b"c")
    harness.a_reader(name="tail")
    uid, other = harness.hub.entity.uid, harness.a_hub("other").entity.uid
    harness.catalog.apply(
        Put(GroupOffset(namespace="hubmere", group_id="billing", hub_uid=uid, partition=0, sequence=0)),
        Put(GroupOffset(namespace="hubmere", group_id="billing", hub_uid=other, partition=0, sequence=0)),
    )

    with with_checkpoint(1, owner="processor-1"):
        found = consumer_positions(harness.broker, harness.hub.view, harness.clock.now_ms())

    shown = [(row.group, row.protocol, row.reader, row.epoch, row.position, row.lag) for row in found]
    assert shown == [
        ("$Default", "AMQP", "tail", None, 0, 3),
        ("$Default", "Checkpoint", "processor-1", None, 2, 1),
        ("billing", "Kafka", "", None, 0, 3),
    ]


def test_lag_counts_each_partition_once(harness: PortalHarness) -> None:
    """A processor reads and writes checkpoints; events that it has not checkpointed are its lag."""
    harness.publish(b"a", b"b", b"c")
    reader = harness.a_reader()
    reader.advance(3, 3, 3, 0.0)

    with with_checkpoint(0):
        lags = lag_by_group(consumer_positions(harness.broker, harness.hub.view, harness.clock.now_ms()))

    assert lags == {"$Default": 2}


def test_lag_excludes_events_that_retention_deleted(harness: PortalHarness) -> None:
    """Nobody can read deleted events."""
    harness.publish(b"a")
    harness.publish(b"b")
    harness.hub.log(0).trim(1)

    with with_checkpoint(-1):
        [row] = consumer_positions(harness.broker, harness.hub.view, harness.clock.now_ms())

    first = harness.hub.log(0).state.log_start
    assert row.lag == 2 - first


def test_checkpoints_in_blobs_are_positions_of_their_group(harness: PortalHarness) -> None:
    """Processors of the SDKs keep their state in blobs; their lag is shown with that of Kafka groups."""
    harness.publish(b"a", b"b", b"c")
    with with_checkpoint(0, owner="worker-7"):
        [row] = consumer_positions(harness.broker, harness.hub.view, harness.clock.now_ms())

    assert (row.group, row.protocol, row.reader, row.position, row.lag) == ("$Default", "Checkpoint", "worker-7", 1, 2)
