"""Committed offsets are stored, found, compared with the end of the log, and deleted."""

import pytest

from broker.builders import NOW_MS, BrokerHarness
from hubmere.broker.coordinator.offsets import MAX_METADATA_BYTES, RETENTION_MS, Commit, Offsets
from hubmere.broker.coordinator.refusals import OffsetMetadataTooLarge
from hubmere.model.errors import PartitionNotFound, Refusal


@pytest.fixture
def offsets(harness: BrokerHarness) -> Offsets:
    return Offsets(harness.broker._namespace("hubmere"), harness.catalog)


def a_commit(harness: BrokerHarness, *, partition: int = 0, sequence: int = 5, metadata: str = "") -> Commit:
    return Commit(harness.hub.entity, partition, sequence, -1, metadata)


def commit(harness: BrokerHarness, offsets: Offsets, *commits: Commit, group: str = "g") -> None:
    harness.do(lambda done: offsets.commit(group, commits, NOW_MS, done))


def test_commit_is_visible_when_it_is_durable(harness: BrokerHarness, offsets: Offsets) -> None:
    """An acknowledged commit survives a crash; one that is not acknowledged is not visible."""
    outcome: list[Refusal | None] = []
    offsets.commit("g", [a_commit(harness, metadata="note")], NOW_MS, outcome.append)
    assert (outcome, offsets.find("g", harness.hub.entity, 0)) == ([], None)

    harness.catalog.apply()
    harness.turn.run()

    found = offsets.find("g", harness.hub.entity, 0)
    assert outcome == [None]
    assert found is not None
    assert (found.sequence, found.metadata, found.committed_ms) == (5, "note", NOW_MS)


def test_offsets_are_separate_by_group_and_partition(harness: BrokerHarness, offsets: Offsets) -> None:
    """Group ids are case-sensitive."""
    commit(harness, offsets, a_commit(harness, sequence=1), a_commit(harness, partition=1, sequence=2))
    commit(harness, offsets, a_commit(harness, sequence=3), group="G")

    assert [(one.partition, one.sequence) for _, one in offsets.all("g")] == [(0, 1), (1, 2)]
    assert [(one.partition, one.sequence) for _, one in offsets.all("G")] == [(0, 3)]


@pytest.mark.parametrize("logical", [-1, -2])
def test_negative_offset_replaces_the_committed_one(harness: BrokerHarness, offsets: Offsets, logical: int) -> None:
    """Kafka stores negative offsets: clients commit them to return to their default start."""
    commit(harness, offsets, a_commit(harness, sequence=5), a_commit(harness, partition=1, sequence=1))

    commit(harness, offsets, a_commit(harness, sequence=logical))

    found = offsets.find("g", harness.hub.entity, 0)
    assert found is not None
    assert found.sequence == logical


@pytest.mark.parametrize(("length", "is_taken"), [(MAX_METADATA_BYTES, True), (MAX_METADATA_BYTES + 1, False)])
def test_metadata_of_an_offset_is_limited(
    harness: BrokerHarness, offsets: Offsets, length: int, is_taken: bool
) -> None:
    """Reference check 39."""
    if is_taken:
        offsets.check("g", a_commit(harness, metadata="x" * length))
    else:
        with pytest.raises(OffsetMetadataTooLarge):
            offsets.check("g", a_commit(harness, metadata="x" * length))


@pytest.mark.parametrize("partition", [-1, 4])
def test_commit_for_an_unknown_partition_is_refused(harness: BrokerHarness, offsets: Offsets, partition: int) -> None:
    """Client libraries may have outdated metadata."""
    with pytest.raises(PartitionNotFound):
        offsets.check("g", a_commit(harness, partition=partition))


def test_committed_offsets_can_be_deleted(harness: BrokerHarness, offsets: Offsets) -> None:
    """Deleting offsets that do not exist is no error."""
    commit(harness, offsets, a_commit(harness), a_commit(harness, partition=1))

    harness.do(lambda done: offsets.delete("g", [(harness.hub.entity, 0), (harness.hub.entity, 3)], done))

    assert [one.partition for _, one in offsets.all("g")] == [1]


def test_offsets_are_deleted_with_their_hub(harness: BrokerHarness, offsets: Offsets) -> None:
    """A new hub with the old name has no offsets."""
    commit(harness, offsets, a_commit(harness))

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))
    harness.a_hub("orders")

    assert offsets.all("g") == []
    assert offsets.find("g", harness.hub.entity, 0) is None


def test_offsets_are_deleted_a_week_after_the_last_member_left(harness: BrokerHarness, offsets: Offsets) -> None:
    """They are not deleted earlier, and not while the group has members."""
    commit(harness, offsets, a_commit(harness))

    def exists_after_expiry(is_empty: bool, at_ms: int) -> bool:
        offsets.expire(lambda _: is_empty, at_ms)
        harness.catalog.apply()
        return offsets.find("g", harness.hub.entity, 0) is not None

    assert exists_after_expiry(True, NOW_MS)
    assert exists_after_expiry(False, NOW_MS + RETENTION_MS)
    assert exists_after_expiry(True, NOW_MS + RETENTION_MS)
    assert exists_after_expiry(True, NOW_MS + 2 * RETENTION_MS - 1)
    assert not exists_after_expiry(True, NOW_MS + 2 * RETENTION_MS)
