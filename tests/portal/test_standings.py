"""Readers of every protocol in one table."""

from hubmere.portal.standings import lag_by_group, standings
from hubmere.store.catalog.runtime_state import Checkpoint, GroupOffset, Ownership
from hubmere.store.catalog.view import Put
from portal.builders import Desktop


def test_readers_checkpoints_and_kafka_groups_are_side_by_side(desktop: Desktop) -> None:
    """An operator asks who reads, not by which protocol."""
    desktop.publish(b"a", b"b", b"c")
    desktop.a_reader(name="tail")
    uid, other = desktop.hub.entity.uid, desktop.a_hub("other").entity.uid
    desktop.catalog.apply(
        Put(Checkpoint(hub_uid=uid, group_name="$default", partition=0, sequence=1)),
        Put(Ownership(hub_uid=uid, group_name="$default", partition=0, owner="processor-1", owner_level=3)),
        Put(GroupOffset(namespace="hubmere", group_id="billing", hub_uid=uid, partition=0, sequence=0)),
        Put(GroupOffset(namespace="hubmere", group_id="billing", hub_uid=other, partition=0, sequence=0)),
    )

    found = standings(desktop.broker, desktop.hub)

    shown = [(row.group, row.protocol, row.reader, row.epoch, row.position, row.lag) for row in found]
    assert shown == [
        ("$Default", "AMQP", "tail", None, 0, 3),
        ("$Default", "Checkpoint", "processor-1", 3, 2, 1),
        ("billing", "Kafka", "", None, 0, 3),
    ]


def test_lag_counts_a_partition_once(desktop: Desktop) -> None:
    """A processor both reads and leaves checkpoints: what it has not dealt with is its lag."""
    desktop.publish(b"a", b"b", b"c")
    reader = desktop.a_reader()
    reader.delivered(3, 3, 3, 0.0)
    uid = desktop.hub.entity.uid
    desktop.catalog.apply(Put(Checkpoint(hub_uid=uid, group_name="$default", partition=0, sequence=0)))

    lags = lag_by_group(desktop.broker, desktop.hub)

    assert lags == {"$Default": 2}


def test_checkpoint_before_the_first_event_is_behind_by_what_is_left(desktop: Desktop) -> None:
    """Events that retention let go can be read by nobody."""
    desktop.publish(b"a")
    desktop.publish(b"b")
    desktop.hub.log(0).trim(1)
    uid = desktop.hub.entity.uid
    desktop.catalog.apply(Put(Checkpoint(hub_uid=uid, group_name="$default", partition=0, sequence=-1)))

    [row] = standings(desktop.broker, desktop.hub)

    first = desktop.hub.log(0).state.log_start
    assert row.lag == 2 - first
