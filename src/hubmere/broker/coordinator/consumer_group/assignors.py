"""Server-side assignors: which member is to read which partition (KIP-848, `uniform` and `range`).

Pure functions of the members' subscriptions, their previous targets and the topics. Both are deterministic. A partition
of a topic with at least one subscriber is assigned to exactly one member, and only to a subscriber.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from hubmere.broker.coordinator.consumer_group.assignments import NOTHING, Assignment, TopicPartition

UNIFORM: Final = "uniform"
RANGE: Final = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """What an assignor knows of a member: `topics` are ids of existing topics, `previous` is its last target."""

    instance_id: str | None
    topics: frozenset[str]
    previous: Assignment = NOTHING


Members = Mapping[str, MemberSpec]
# Topic id to the number of partitions.
PartitionCounts = Mapping[str, int]
Assignor = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def assign_uniformly(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """Balance the number of partitions over members and keep as many partitions as possible where they were."""
    if not members:
        return {}
    if len({spec.topics for spec in members.values()}) == 1:
        return _assign_equal_subscriptions(members, counts)
    return _assign_mixed_subscriptions(members, counts)


def assign_ranges(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """Give each subscriber of a topic one contiguous range; equal topics get equal ranges, so joins stay local."""
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for topic_id, subscribers in _subscribers(members, _in_range_order(members)).items():
        share, extra = divmod(counts[topic_id], len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + share + (position < extra)
            shares[member_id].update(TopicPartition(topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}


def elect(wishes: Iterable[str | None]) -> str:
    """The assignor that most members ask for."""
    votes = Counter(name for name in wishes if name is not None)
    return min(votes, key=lambda name: (-votes[name], name)) if votes else UNIFORM


def _in_range_order(members: Members) -> list[str]:
    """Static members first, by instance id: their ranges survive a restart under another member id."""
    return sorted(
        members, key=lambda member_id: (members[member_id].instance_id is None, _range_key(members, member_id))
    )


def _range_key(members: Members, member_id: str) -> str:
    return members[member_id].instance_id or member_id


def _subscribers(members: Members, order: Iterable[str]) -> dict[str, list[str]]:
    """The subscribers of each topic, in the given order of members."""
    found: dict[str, list[str]] = {}
    for member_id in order:
        for topic_id in sorted(members[member_id].topics):
            found.setdefault(topic_id, []).append(member_id)
    return found


def _partitions(topics: Iterable[str], counts: PartitionCounts) -> list[TopicPartition]:
    return [TopicPartition(topic_id, index) for topic_id in sorted(topics) for index in range(counts[topic_id])]


# --- uniform, all members with the same subscription ------------------------------------------------------------------


def _assign_equal_subscriptions(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign in three steps.

    1. Every member may have `share` partitions, and `extra` members may have one more.
    2. Members keep previous partitions up to that number; those that had most are served first with the extra ones.
    3. The remaining partitions go to members that have too few.
    """
    topics = next(iter(members.values())).topics
    unassigned = dict.fromkeys(_partitions(topics, counts))
    share, extra = divmod(len(unassigned), len(members))
    shares: dict[str, list[TopicPartition]] = {}
    for member_id in sorted(members, key=lambda one: (-len(members[one].previous), one)):
        retained = sorted(partition for partition in members[member_id].previous if partition in unassigned)
        allowed = share + (extra > 0)
        shares[member_id] = retained[:allowed]
        extra -= len(shares[member_id]) > share
        for partition in shares[member_id]:
            del unassigned[partition]
    rest = iter(unassigned)
    for member_id in sorted(shares):
        missing = share - len(shares[member_id])
        if missing >= 0 and extra > 0:
            missing, extra = missing + 1, extra - 1
        shares[member_id] += [next(rest) for _ in range(missing)]
    return {member_id: frozenset(given) for member_id, given in shares.items()}


# --- uniform, members with different subscriptions --------------------------------------------------------------------


def _assign_mixed_subscriptions(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign in three steps.

    1. Members keep the previous partitions that they still subscribe to.
    2. Partitions without an owner go to the least loaded subscriber, topics with few subscribers first.
    3. Partitions move from a subscriber to another of the same topic that has at least two fewer, until none has.
       Each move lowers the sum of squared loads, so this ends.
    """
    subscribers = _subscribers(members, sorted(members))
    owners = _kept_owners(members, counts)
    loads = dict.fromkeys(sorted(members), 0)
    for member_id in owners.values():
        loads[member_id] += 1
    topics = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    for topic_id in topics:
        idle = _LeastLoaded(subscribers[topic_id], loads)
        for index in range(counts[topic_id]):
            partition = TopicPartition(topic_id, index)
            if partition not in owners:
                owners[partition] = idle.find()
                idle.change(owners[partition], 1)
    has_moved = True
    while has_moved:
        has_moved = False
        for topic_id in topics:
            has_moved |= _balance_topic(topic_id, counts, subscribers[topic_id], owners, loads)
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for partition, member_id in owners.items():
        shares[member_id].add(partition)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _kept_owners(members: Members, counts: PartitionCounts) -> dict[TopicPartition, str]:
    return {
        partition: member_id
        for member_id, spec in members.items()
        for partition in spec.previous
        if partition.topic_id in spec.topics and partition.partition < counts[partition.topic_id]
    }


class _LeastLoaded:
    """Finds the least loaded of some members (the first, if several are) without visiting each.

    A heap of loads; a member whose load has changed leaves a stale entry, which is skipped. While this object exists,
    the loads of its members are changed only through it.
    """

    __slots__ = ("_heap", "_loads", "_members", "_positions")

    def __init__(self, members: Sequence[str], loads: dict[str, int]) -> None:
        self._members = members
        self._loads = loads
        self._positions = {member_id: position for position, member_id in enumerate(members)}
        self._heap = [(loads[member_id], position) for position, member_id in enumerate(members)]
        heapify(self._heap)

    def find(self) -> str:
        """The least loaded member."""
        heap, members, loads = self._heap, self._members, self._loads
        while loads[members[heap[0][1]]] != heap[0][0]:
            heappop(heap)
        return members[heap[0][1]]

    def change(self, member_id: str, by: int) -> None:
        """Change the load of a member."""
        self._loads[member_id] += by
        heappush(self._heap, (self._loads[member_id], self._positions[member_id]))


def _balance_topic(
    topic_id: str,
    counts: PartitionCounts,
    subscribers: Sequence[str],
    owners: dict[TopicPartition, str],
    loads: dict[str, int],
) -> bool:
    """Move partitions of one topic from the most to the least loaded subscribers; returns whether any moved."""
    has_moved, idle = False, _LeastLoaded(subscribers, loads)
    for index in range(counts[topic_id]):
        partition = TopicPartition(topic_id, index)
        owner, idlest = owners[partition], idle.find()
        if loads[owner] > loads[idlest] + 1:
            owners[partition] = idlest
            idle.change(owner, -1)
            idle.change(idlest, 1)
            has_moved = True
    return has_moved
