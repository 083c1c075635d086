"""The assignors of consumer groups: complete, fair, and sticky."""

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
    """Members with any subscriptions, and previous targets that an assignor could have made earlier."""
    counts = {topic: draw(st.integers(0, 7)) for topic in TOPICS}
    subscriptions = draw(
        st.one_of(
            st.lists(st.sampled_from([frozenset(TOPICS)]), min_size=1, max_size=6),
            st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6),
        )
    )
    names = [f"m{number}" for number in range(len(subscriptions))]
    # Some partitions of before are gone and some members had topics that they do not want any more.
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
def test_uniform_leaves_nobody_with_two_more_than_another_could_take(
    group: tuple[dict[str, MemberSpec], dict[str, int]],
) -> None:
    """Balance: no partition could move to a subscriber of its topic that has at least two fewer."""
    members, counts = group

    assigned = assign_uniformly(members, counts)

    loads = {name: len(share) for name, share in assigned.items()}
    for name, share in assigned.items():
        for partition in share:
            rivals = [loads[other] for other, member in members.items() if partition.topic_id in member.topics]
            assert loads[name] - min(rivals) <= 1


@given(groups())
def test_uniform_changes_nothing_that_is_balanced(group: tuple[dict[str, MemberSpec], dict[str, int]]) -> None:
    """The same members and topics give the same targets: a heartbeat moves no partition."""
    members, counts = group
    first = assign_uniformly(members, counts)
    after = {
        name: MemberSpec(instance_id=None, topics=member.topics, previous=first[name])
        for name, member in members.items()
    }

    assert assign_uniformly(after, counts) == first


@given(st.integers(1, 8), st.integers(0, 40))
def test_uniform_moves_as_little_as_possible_for_a_newcomer(count: int, partitions: int) -> None:
    """Nobody gets a partition from another old member: all moves go to the newcomer."""
    old = assign_uniformly({f"m{n}": spec("x") for n in range(count)}, {"x": partitions})
    members = {name: spec("x", previous=share) for name, share in old.items()} | {"new": spec("x")}

    new = assign_uniformly(members, {"x": partitions})

    assert all(new[name] <= share for name, share in old.items())
    assert len(new["new"]) == partitions // (count + 1)


def test_range_gives_contiguous_and_equal_ranges() -> None:
    """Partition n of every topic goes to the same member, so that streams can be joined."""
    members = {"b": spec("x", "y"), "a": spec("x", "y"), "c": spec("x")}

    assigned = assign_ranges(members, {"x": 5, "y": 3})

    assert assigned["a"] == parts("x", 0, 1) | parts("y", 0, 1)
    assert assigned["b"] == parts("x", 2, 3) | parts("y", 2)
    assert assigned["c"] == parts("x", 4)


def test_range_orders_static_members_by_instance_id() -> None:
    """A restart under another member id keeps its range."""
    members = {"z": spec("x", instance_id="1"), "a": spec("x", instance_id="2"), "m": spec("x")}

    assigned = assign_ranges(members, {"x": 3})

    assert (assigned["z"], assigned["a"], assigned["m"]) == (parts("x", 0), parts("x", 1), parts("x", 2))


def test_nobody_is_assigned_nothing() -> None:
    """An empty group has no target."""
    assert [assign({}, {"x": 3}) for assign in ASSIGNORS.values()] == [{}, {}]


def test_most_votes_elect_the_assignor() -> None:
    """Without a vote it is uniform; a tie is decided by name, so that it does not change."""
    assert elect([]) == elect([None]) == "uniform"
    assert elect(["range", None, "uniform", "range"]) == "range"
    assert elect(["uniform", "range"]) == "range"


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(-2, 2)), max_size=40),
)
def test_the_least_loaded_member_is_found_without_a_look_at_each(
    loads: list[int], changes: list[tuple[int, int]]
) -> None:
    """The first of the least loaded, as a search through all of them finds it."""
    members = [f"m{number}" for number in range(len(loads))]
    current = dict(zip(members, loads, strict=True))
    idle = _LeastLoaded(members, current)

    for number, by in changes:
        idle.change(members[number % len(members)], by)
        assert idle.find() == min(members, key=lambda member: current[member])
