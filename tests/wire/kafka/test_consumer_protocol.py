"""Subscriptions and assignments of consumers, compared with a foreign codec."""

import importlib
from io import BytesIO

import pytest
from kio.serial import entity_reader, entity_writer

from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import (
    NEWEST_VERSION,
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

_OWNED = (TopicPartitions(topic="hub", partitions=(0, 2)),)
_SUBSCRIPTION = ConsumerSubscription(
    topics=("hub", "other"), user_data=b"\x01", owned_partitions=_OWNED, generation_id=4, rack_id="r"
)


@pytest.mark.parametrize("version", range(NEWEST_VERSION + 1))
def test_subscription_reads_and_writes_as_in_kio(version: int) -> None:
    """Newer versions append fields: owned partitions, generation, rack."""
    module = importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    wire = write_subscription(_SUBSCRIPTION, version)

    theirs, size = entity_reader(module.ConsumerProtocolSubscription)(wire, 2)
    their_wire = BytesIO()
    entity_writer(module.ConsumerProtocolSubscription)(their_wire, theirs)

    assert (wire[:2], size) == (bytes([0, version]), len(wire) - 2)
    assert theirs.topics == _SUBSCRIPTION.topics
    assert their_wire.getvalue() == wire[2:]
    assert read_subscription(wire).topics == _SUBSCRIPTION.topics
    assert read_subscription(wire).rack_id == ("r" if version == NEWEST_VERSION else None)


@pytest.mark.parametrize("version", range(NEWEST_VERSION + 1))
def test_assignment_reads_and_writes_as_in_kio(version: int) -> None:
    """This is what the leader has assigned to one member."""
    module = importlib.import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")
    assignment = ConsumerAssignment(assigned_partitions=_OWNED, user_data=None)
    wire = write_assignment(assignment, version)

    theirs, size = entity_reader(module.ConsumerProtocolAssignment)(wire, 2)

    assert size == len(wire) - 2
    assert [(part.topic, part.partitions) for part in theirs.assigned_partitions] == [("hub", (0, 2))]
    assert read_assignment(wire) == assignment


def test_newer_version_is_read_as_the_newest_known() -> None:
    """Newer versions only append fields."""
    wire = bytes([0, 9]) + write_subscription(_SUBSCRIPTION)[2:] + b"more"

    assert read_subscription(wire) == _SUBSCRIPTION


@pytest.mark.parametrize("wire", ["", "00", "ffff", "0000 7fffffff", "0001"])
def test_malformed_metadata_is_refused(wire: str) -> None:
    """A member may join with any bytes; decoding them must not cause another error."""
    with pytest.raises(RemoteProtocolError):
        read_subscription(bytes.fromhex(wire))
