"""Administration of Kafka groups: overviews with lag, resets with a preview, and deletion."""

from collections.abc import Callable, Iterable

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from broker.classic_groups import joined_and_synced, settle
from hubmere.broker import GroupAdministration, PlannedOffset, Reset, ResetKind
from hubmere.broker.coordinator.consumer_group.embedded import NamedPartition, NoEmbeddedProtocol
from hubmere.broker.coordinator.coordinators import Coordinator
from hubmere.broker.coordinator.membership import GroupState
from hubmere.broker.coordinator.offsets import Commit
from hubmere.broker.coordinator.refusals import GroupNotEmpty, GroupUnknown
from hubmere.model.errors import HubNotFound, InvalidArgument, PartitionNotFound

_MINUTE_MS = 60_000


class EveryPartition(NoEmbeddedProtocol):
    """A codec that reads every assignment as partitions 0 and 1 of the hub."""

    def read_assignment(self, data: bytes) -> frozenset[NamedPartition]:
        return frozenset({("orders", 0), ("orders", 1)}) if data else frozenset()

    def write_assignment(self, partitions: Iterable[NamedPartition], metadata: bytes) -> bytes:
        return b"mine"


@pytest.fixture
def coordinator(harness: BrokerHarness) -> Coordinator:
    """The coordinator of a namespace whose hub has ten events in partition 0, one minute apart."""
    harness.broker.coordinators.initial_delay_s = 0.0
    harness.broker.coordinators.embedded = EveryPartition()
    for minute in range(10):
        harness.hub.log(0).append(a_batch(), NOW_MS + minute * _MINUTE_MS)
    harness.turn.run()
    return harness.broker.coordinators.of(harness.broker._namespace("hubmere"), 0.0, NOW_MS)


def commit(harness: BrokerHarness, coordinator: Coordinator, partition: int, sequence: int, group: str = "g") -> None:
    entry = Commit(harness.hub.entity, partition, sequence, -1, "")
    harness.do(lambda done: coordinator.offsets.commit(group, [entry], NOW_MS, done))


def test_overview_has_the_total_lag_and_the_members(harness: BrokerHarness, coordinator: Coordinator) -> None:
    """An operator sees in one row which group is behind, and by how much."""
    joined_and_synced(harness, coordinator.groups)
    commit_as_member = Commit(harness.hub.entity, 0, 4, -1, "")
    harness.do(lambda done: coordinator.offsets.commit("g", [commit_as_member], NOW_MS, done))

    found = coordinator.administration.overview("g")

    assert (found.state, found.member_count, found.lag) == (GroupState.STABLE, 1, 6)
    assert (found.hubs, found.partition_count) == (("orders",), 2)


def test_positions_name_the_member_of_each_partition(harness: BrokerHarness, coordinator: Coordinator) -> None:
    """A partition that a member reads but has not committed yet is shown too; its lag is not known."""
    joined_and_synced(harness, coordinator.groups)
    commit(harness, coordinator, 0, 4)
    commit(harness, coordinator, 2, -1)

    rows = coordinator.administration.positions("g")

    assert [(row.partition, row.committed, row.end, row.lag, row.client_id, row.client_host) for row in rows] == [
        (0, 4, 10, 6, "c", "here"),
        (1, None, 0, 0, "c", "here"),
        (2, None, 0, 0, "", ""),
    ]


def test_positions_of_groups_with_another_protocol_have_no_members(
    harness: BrokerHarness, coordinator: Coordinator
) -> None:
    """Kafka Connect stores its own format in assignments; this must not hide the committed offsets."""
    coordinator.administration._embedded = NoEmbeddedProtocol()
    joined_and_synced(harness, coordinator.groups)
    commit(harness, coordinator, 0, 4)

    [row] = coordinator.administration.positions("g")

    assert (row.committed, row.member_id) == (4, "")


@pytest.mark.parametrize(
    ("kind", "value", "target"),
    [
        (ResetKind.EARLIEST, 0, 0),
        (ResetKind.LATEST, 0, 10),
        (ResetKind.TIME, NOW_MS + 3 * _MINUTE_MS, 3),
        (ResetKind.TIME, NOW_MS + 3 * _MINUTE_MS + 1, 4),
        (ResetKind.TIME, NOW_MS + 100 * _MINUTE_MS, 10),
        (ResetKind.OFFSET, 7, 7),
        (ResetKind.OFFSET, 1000, 10),
        (ResetKind.SHIFT, -3, 2),
        (ResetKind.SHIFT, 3, 8),
        (ResetKind.SHIFT, -100, 0),
    ],
)
def test_reset_commits_what_its_preview_shows(
    harness: BrokerHarness, coordinator: Coordinator, kind: ResetKind, value: int, target: int
) -> None:
    """Preview and reset use the same computation; targets outside of the log are moved to its bounds."""
    commit(harness, coordinator, 0, 5)
    reset = Reset(kind=kind, value=value)

    preview = coordinator.administration.plan_reset("g", reset)
    before = coordinator.offsets.find("g", harness.hub.entity, 0)
    harness.do(lambda done: coordinator.administration.reset("g", reset, harness.actor(), done))

    found = coordinator.offsets.find("g", harness.hub.entity, 0)
    assert before is not None
    assert found is not None
    assert preview == [PlannedOffset("orders", 0, 5, target, 0, 10)]
    assert preview[0].lag == 10 - target
    assert (before.sequence, found.sequence) == (5, target)
    assert harness.broker.audit.latest()[0].action == "reset group"


def test_reset_of_a_hub_covers_partitions_without_a_commit(harness: BrokerHarness, coordinator: Coordinator) -> None:
    """A new group can be given a start before its first member joins."""
    reset = Reset(kind=ResetKind.LATEST, hub="orders")

    harness.do(lambda done: coordinator.administration.reset("new", reset, harness.actor(), done))

    assert [(row.partition, row.committed) for row in coordinator.administration.positions("new")] == [
        (0, 10),
        (1, 0),
        (2, 0),
        (3, 0),
    ]


def test_reset_is_refused_while_the_group_has_members(harness: BrokerHarness, coordinator: Coordinator) -> None:
    """Members would overwrite the new offsets with their next commit. The preview still works."""
    joined_and_synced(harness, coordinator.groups)
    commit(harness, coordinator, 0, 5)
    reset = Reset(kind=ResetKind.EARLIEST)

    with pytest.raises(GroupNotEmpty):
        coordinator.administration.reset("g", reset, harness.actor(), lambda _: None)

    assert coordinator.administration.plan_reset("g", reset)[0].target == 0
    assert harness.broker.audit.latest()[0].reason == "GroupNotEmpty"


Plan = Callable[[GroupAdministration], object]


@pytest.mark.parametrize(
    ("plan", "refusal"),
    [
        (lambda admin: admin.plan_reset("g", Reset(kind=ResetKind.EARLIEST)), GroupUnknown),
        (lambda admin: admin.plan_reset("g", Reset(kind=ResetKind.EARLIEST, hub="none")), HubNotFound),
        (
            lambda admin: admin.plan_reset("g", Reset(kind=ResetKind.LATEST, hub="orders", partitions=(0, 4))),
            PartitionNotFound,
        ),
        (lambda admin: admin.plan_reset("g", Reset(kind=ResetKind.SHIFT, value=1, hub="orders")), InvalidArgument),
        (lambda admin: admin.describe("g"), GroupUnknown),
    ],
)
def test_unknown_names_are_refused_by_name(coordinator: Coordinator, plan: Plan, refusal: type[Exception]) -> None:
    """A wrong name must not look like a group without lag."""
    with pytest.raises(refusal):
        plan(coordinator.administration)


def test_group_is_deleted_with_its_offsets(harness: BrokerHarness, coordinator: Coordinator) -> None:
    """A group with members is refused; an empty one is deleted at once."""
    member = joined_and_synced(harness, coordinator.groups)
    commit(harness, coordinator, 0, 5)
    with pytest.raises(GroupNotEmpty):
        coordinator.administration.delete("g", harness.actor(), lambda _: None)
    coordinator.groups.leave("g", member.member_id, None, 0.0, NOW_MS)
    settle(harness)
    assert coordinator.administration.describe("g").state is GroupState.EMPTY

    harness.do(lambda done: coordinator.administration.delete("g", harness.actor(), done))

    assert coordinator.administration.group_ids() == []
    assert [line.outcome for line in harness.broker.audit.latest()[:2]] == ["done", "refused"]


def test_partition_that_cannot_be_opened_is_omitted_from_the_lag(
    harness: BrokerHarness, coordinator: Coordinator
) -> None:
    """One damaged partition must not hide the others."""
    commit(harness, coordinator, 0, 4)
    commit(harness, coordinator, 1, 0)
    harness.hub._logs[1] = _Unavailable()  # type: ignore[assignment]

    rows = coordinator.administration.positions("g")

    assert [(row.partition, row.end, row.lag) for row in rows] == [(0, 10, 6), (1, -1, 0)]


class _Unavailable:
    """A log whose state cannot be read."""

    @property
    def state(self) -> object:
        raise HubNotFound("sb://hubmere/orders")
