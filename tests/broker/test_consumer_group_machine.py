"""Consumer groups under random operations: no partition has two owners, and a stable group reads every partition."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.consumer_groups import ConsumerGroupHarness, Topics
from hubmere.broker.coordinator.consumer_group.assignments import NOTHING, Assignment
from hubmere.broker.coordinator.consumer_group.members import Heartbeat, HeartbeatAnswer
from hubmere.broker.coordinator.refusals import FencedMemberEpoch, GroupRefused, UnknownMember

NAMES = tuple("abcd")
SUBSCRIPTIONS = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}), frozenset({"t", "later"}))


class Client:
    """A consumer that follows the protocol: it reads its assignment, and reports the partitions that it reads. `reads`
    are partitions that it may still process: it revokes partitions one heartbeat later.
    """

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.reads: Assignment = NOTHING
        self.assigned: Assignment = NOTHING
        self.topics: frozenset[str] = frozenset()
        # After a lost answer the client sends a full heartbeat, and gets a full answer.
        self.has_missed = False

    def on_answer(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.assigned = answer.assignment
            # It reads new partitions at once, and lost ones until it has revoked them.
            self.reads |= answer.assignment

    def revoke_lost_partitions(self) -> None:
        self.reads = self.assigned


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Members join, send heartbeats, lose answers, leave and become silent, while topics are created, extended and
    deleted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.harness = ConsumerGroupHarness(Topics(t=3, u=2))
        self.clients: dict[str, Client] = {}

    @rule(
        name=st.sampled_from(NAMES),
        topics=st.sampled_from(SUBSCRIPTIONS),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def join(self, name: str, topics: frozenset[str], assignor: str | None) -> None:
        client = self.clients[name] = Client(name)
        client.topics = topics
        client.on_answer(self.harness.join(name, topics=topics, assignor=assignor))

    @rule(name=st.sampled_from(NAMES), is_lost=st.booleans())
    @precondition(lambda self: self.clients)
    def beat(self, name: str, is_lost: bool) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        client.revoke_lost_partitions()
        self._send(client, is_lost=is_lost, owned=client.reads)

    @rule(name=st.sampled_from(NAMES), topics=st.sampled_from(SUBSCRIPTIONS))
    @precondition(lambda self: self.clients)
    def subscribe(self, name: str, topics: frozenset[str]) -> None:
        client = self.clients.get(name)
        if client is not None:
            client.topics = topics
            self._send(client, is_lost=False, owned=client.reads, topics=topics)

    def _send(self, client: Client, *, is_lost: bool, **more: Any) -> None:
        if client.has_missed:
            more |= {"topics": client.topics, "rebalance_timeout_s": 30.0}
        try:
            (answer,) = self.harness.send(Heartbeat(member_id=client.member_id, epoch=client.epoch, **more))
        except (FencedMemberEpoch, UnknownMember):
            # The client gives up all partitions and joins again.
            del self.clients[client.member_id]
            return
        assert not isinstance(answer, GroupRefused)
        client.has_missed = is_lost
        if not is_lost:
            client.on_answer(answer)

    @rule(name=st.sampled_from(NAMES))
    @precondition(lambda self: self.clients)
    def leave(self, name: str) -> None:
        if self.clients.pop(name, None) is not None and name in self.harness.group.members:
            self.harness.beat(name, -1)

    @rule(seconds=st.sampled_from([1.0, 20.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.harness.advance(seconds)
        # Clients detect by themselves that their session has ended, and stop reading.
        for name in set(self.clients) - set(self.harness.group.members):
            del self.clients[name]

    @rule(name=st.sampled_from(["t", "u", "later"]), count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        known = self.harness.topics.find(name)
        if known is None or known.partition_count < count:
            self.harness.topics.put(name, count)

    @rule(name=st.sampled_from(["t", "u", "later"]))
    def drop(self, name: str) -> None:
        if self.harness.topics.find(name) is not None:
            self.harness.topics.drop(name)

    @rule()
    def settle(self) -> None:
        """When all members send heartbeats, the group becomes stable and reads all subscribed partitions."""
        for _ in range(12):
            for client in list(self.clients.values()):
                client.revoke_lost_partitions()
                self._send(client, is_lost=False, owned=client.reads)
        # Members whose client is gone keep their partitions until their session ends.
        if set(self.harness.group.members) == set(self.clients) and self.clients:
            group = self.harness.group
            assert all(member.is_reconciled(group.epoch) for member in group.members.values())
            read = sorted(partition for client in self.clients.values() for partition in client.reads)
            wanted = {topic.topic_id for topic in group.topics.values()}
            assert read == sorted(one for one in self.harness.topics.all() if one.topic_id in wanted)

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        held_partitions = [
            partition for member in self.harness.group.members.values() for partition in member.held_partitions
        ]
        assert len(held_partitions) == len(set(held_partitions))
        assert self.harness.group._owners == {
            partition: member.member_id
            for member in self.harness.group.members.values()
            for partition in member.held_partitions
        }

    @invariant()
    def no_partition_is_read_twice(self) -> None:
        members = self.harness.group.members
        reading = [partition for name, client in self.clients.items() if name in members for partition in client.reads]
        assert len(reading) == len(set(reading))


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
