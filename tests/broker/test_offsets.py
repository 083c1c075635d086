"""Committed offsets: stored, found, compared with the end, and deleted."""

import pytest

from broker.builders import NOW_MS, Bench
from hubmere.broker.coordinator.offsets import MAX_METADATA_BYTES, RETENTION_MS, Commit, Offsets
from hubmere.broker.coordinator.refusals import OffsetMetadataTooLarge
from hubmere.model.errors import PartitionNotFound, Refusal


@pytest.fixture
def offsets(bench: Bench) -> Offsets:
    return Offsets(bench.broker._namespace("hubmere"), bench.catalog)


def a_commit(bench: Bench, *, partition: int = 0, sequence: int = 5, metadata: str = "") -> Commit:
    return Commit(bench.hub.entity, partition, sequence, -1, metadata)


def commit(bench: Bench, offsets: Offsets, *commits: Commit, group: str = "g") -> None:
    bench.do(lambda done: offsets.commit(group, commits, NOW_MS, done))


def test_commit_is_found_once_it_is_durable(bench: Bench, offsets: Offsets) -> None:
    """An acknowledged commit survives a crash; one that was not acknowledged is not visible either."""
    outcome: list[Refusal | None] = []
    offsets.commit("g", [a_commit(bench, metadata="note")], NOW_MS, outcome.append)
    assert (outcome, offsets.find("g", bench.hub.entity, 0)) == ([], None)

    bench.catalog.apply()
    bench.turn.run()

    found = offsets.find("g", bench.hub.entity, 0)
    assert outcome == [None]
    assert found is not None
    assert (found.sequence, found.metadata, found.committed_ms) == (5, "note", NOW_MS)


def test_groups_and_partitions_are_kept_apart(bench: Bench, offsets: Offsets) -> None:
    """Group ids keep their case."""
    commit(bench, offsets, a_commit(bench, sequence=1), a_commit(bench, partition=1, sequence=2))
    commit(bench, offsets, a_commit(bench, sequence=3), group="G")

    assert [(one.partition, one.sequence) for _, one in offsets.all("g")] == [(0, 1), (1, 2)]
    assert [(one.partition, one.sequence) for _, one in offsets.all("G")] == [(0, 3)]


@pytest.mark.parametrize("logical", [-1, -2])
def test_logical_offset_replaces_the_committed_one(bench: Bench, offsets: Offsets, logical: int) -> None:
    """Kafka keeps negative offsets: clients commit them to return to their default start."""
    commit(bench, offsets, a_commit(bench, sequence=5), a_commit(bench, partition=1, sequence=1))

    commit(bench, offsets, a_commit(bench, sequence=logical))

    found = offsets.find("g", bench.hub.entity, 0)
    assert found is not None
    assert found.sequence == logical


@pytest.mark.parametrize(("length", "is_taken"), [(MAX_METADATA_BYTES, True), (MAX_METADATA_BYTES + 1, False)])
def test_note_beside_an_offset_has_a_limit(bench: Bench, offsets: Offsets, length: int, is_taken: bool) -> None:
    """Reference check 39."""
    if is_taken:
        offsets.check("g", a_commit(bench, metadata="x" * length))
    else:
        with pytest.raises(OffsetMetadataTooLarge):
            offsets.check("g", a_commit(bench, metadata="x" * length))


@pytest.mark.parametrize("partition", [-1, 4])
def test_partition_must_be_there(bench: Bench, offsets: Offsets, partition: int) -> None:
    """Whatever client libraries believe."""
    with pytest.raises(PartitionNotFound):
        offsets.check("g", a_commit(bench, partition=partition))


def test_commits_are_forgotten_on_demand(bench: Bench, offsets: Offsets) -> None:
    """Those that are not there are gone already."""
    commit(bench, offsets, a_commit(bench), a_commit(bench, partition=1))

    bench.do(lambda done: offsets.delete("g", [(bench.hub.entity, 0), (bench.hub.entity, 3)], done))

    assert [one.partition for _, one in offsets.all("g")] == [1]


def test_offsets_go_with_their_hub(bench: Bench, offsets: Offsets) -> None:
    """A hub that is created again under the old name has no offsets."""
    commit(bench, offsets, a_commit(bench))

    bench.do(lambda done: bench.manager.delete_hub("hubmere", "orders", bench.actor(), done))
    bench.a_hub("orders")

    assert offsets.all("g") == []
    assert offsets.find("g", bench.hub.entity, 0) is None


def test_offsets_go_a_week_after_the_last_member(bench: Bench, offsets: Offsets) -> None:
    """Not before, and not while the group has members."""
    commit(bench, offsets, a_commit(bench))

    def look(is_empty: bool, at_ms: int) -> bool:
        offsets.expire(lambda _: is_empty, at_ms)
        bench.catalog.apply()
        return offsets.find("g", bench.hub.entity, 0) is not None

    assert look(True, NOW_MS)
    assert look(False, NOW_MS + RETENTION_MS)
    assert look(True, NOW_MS + RETENTION_MS)
    assert look(True, NOW_MS + 2 * RETENTION_MS - 1)
    assert not look(True, NOW_MS + 2 * RETENTION_MS)
