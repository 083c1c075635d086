"""The assignors of consumer groups: every partition is assigned, evenly, and with few moves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.broker.coordinator.consumer_group.assignments import Assignment, TopicPartition
from hubmere.broker.coordinator.consumer_group.assignors import (
    ASSIGNORS,
    MemberSpec,
    _LeastLoaded,
    assign_ranges,
    assign_uniformly,
    elect,
)

TOPICS = ("x", "y", "z")


def spec(*topics: str, previous: Assignment = frozenset(), instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(instance_id=instance_id, topics=frozenset(topics), previous=previous)


def parts(topic: str, *numbers: int) -> Assignment:
    return frozenset(TopicPartition(topic, number) for number in numbers)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[str, int]]:
    """Members with any subscriptions, and previous targets that an assignor could have produced."""
    counts = {topic: draw(st.integers(0, 7)) for topic in TOPICS}
    subscriptions = draw(
        st.one_of(
            st.lists(st.sampled_from([frozenset(TOPICS)]), min_size=1, max_size=6),
            st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6),
        )
    )
    names = [f"m{number}" for number in range(len(subscriptions))]
    # Some previous partitions no longer exist, and some members no longer subscribe to their topics.
    owners = {
        TopicPartition(topic, number): draw(st.sampled_from([None, *names])) for topic in TOPICS for number in range(9)
    }
    members = {
        name: MemberSpec(
            instance_id=draw(st.sampled_from([None, f"i-{name}"])),
            topics=topics,
            previous=frozenset(partition for partition, owner in owners.items() if owner == name),
        )
        for name, topics in zip(names, subscriptions, strict=True)
    }
    return members, counts


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_wanted_partition_has_exactly_one_subscriber(
    group: tuple[dict[str, MemberSpec], dict[str, int]], assignor: str
) -> None:
    """A partition with two owners would be read twice; one without an owner would not be read."""
    members, counts = group

    assigned = ASSIGNORS[assignor](members, counts)

    given_out = [partition for share in assigned.values() for partition in share]
    wanted = {topic for member in members.values() for topic in member.topics}
    assert sorted(given_out) == sorted(TopicPartition(topic, n) for topic in wanted for n in range(counts[topic]))
    assert assigned.keys() == members.keys()
    assert all(partition.topic_id in members[name].topics for name, share in assigned.items() for partition in share)


@given(groups())
def test_uniform_assignment_is_balanced(
    group: tuple[dict[str, MemberSpec], dict[str, int]],
) -> None:
    """No partition could move to a subscriber of its topic that has at least two partitions fewer."""
    members, counts = group

    assigned = assign_uniformly(members, counts)

    loads = {name: len(share) for name, share in assigned.items()}
    for name, share in assigned.items():
        for partition in share:
            rivals = [loads[other] for other, member in members.items() if partition.topic_id in member.topics]
            assert loads[name] - min(rivals) <= 1


@given(groups())
def test_uniform_assignment_does_not_change_a_balanced_group(
    group: tuple[dict[str, MemberSpec], dict[str, int]],
) -> None:
    """The same members and topics give the same targets, so a heartbeat moves no partition."""
    members, counts = group
    first = assign_uniformly(members, counts)
    after = {
        name: MemberSpec(instance_id=None, topics=member.topics, previous=first[name])
        for name, member in members.items()
    }

    assert assign_uniformly(after, counts) == first


@given(st.integers(1, 8), st.integers(0, 40))
def test_uniform_assignment_moves_partitions_only_to_a_new_member(count: int, partitions: int) -> None:
    """No old member gets a partition of another old member."""
    old = assign_uniformly({f"m{n}": spec("x") for n in range(count)}, {"x": partitions})
    members = {name: spec("x", previous=share) for name, share in old.items()} | {"new": spec("x")}

    new = assign_uniformly(members, {"x": partitions})

    assert all(new[name] <= share for name, share in old.items())
    assert len(new["new"]) == partitions // (count + 1)


def test_range_assignment_is_contiguous_and_equal() -> None:
    """Partition n of every topic goes to the same member, so that streams can be joined."""
    members = {"b": spec("x", "y"), "a": spec("x", "y"), "c": spec("x")}

    assigned = assign_ranges(members, {"x": 5, "y": 3})

    assert assigned["a"] == parts("x", 0, 1) | parts("y", 0, 1)
    assert assigned["b"] == parts("x", 2, 3) | parts("y", 2)
    assert assigned["c"] == parts("x", 4)


def test_range_orders_static_members_by_instance_id() -> None:
    """After a restart with another member id, a static member keeps its range."""
    members = {"z": spec("x", instance_id="1"), "a": spec("x", instance_id="2"), "m": spec("x")}

    assigned = assign_ranges(members, {"x": 3})

    assert (assigned["z"], assigned["a"], assigned["m"]) == (parts("x", 0), parts("x", 1), parts("x", 2))


def test_group_without_members_has_an_empty_target() -> None:
    """There is no member that could be assigned a partition."""
    assert [assign({}, {"x": 3}) for assign in ASSIGNORS.values()] == [{}, {}]


def test_assignor_with_most_votes_is_chosen() -> None:
    """Without votes it is uniform; a tie is decided by name, so that the result is stable."""
    assert elect([]) == elect([None]) == "uniform"
    assert elect(["range", None, "uniform", "range"]) == "range"
    assert elect(["uniform", "range"]) == "range"


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(-2, 2)), max_size=40),
)
def test_least_loaded_member_is_found_without_visiting_all_members(
    loads: list[int], changes: list[tuple[int, int]]
) -> None:
    """The result is the same as that of a search through all members."""
    members = [f"m{number}" for number in range(len(loads))]
    current = dict(zip(members, loads, strict=True))
    idle = _LeastLoaded(members, current)

    for number, by in changes:
        idle.change(members[number % len(members)], by)
        assert idle.find() == min(members, key=lambda member: current[member])
