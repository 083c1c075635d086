"""One consumer group on a manual clock, with topics that the test changes; every reply is recorded."""

from collections.abc import Callable, Iterable
from typing import Any

from hubmere.broker.coordinator.consumer_group.assignments import Assignment, Topic, TopicPartition
from hubmere.broker.coordinator.consumer_group.embedded import EmbeddedSubscription, MalformedBytes, NamedPartition
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import ConsumerGroupConfig, Heartbeat, HeartbeatAnswer
from hubmere.broker.coordinator.consumer_group.regex import RegexResolver
from hubmere.broker.coordinator.membership import (
    GroupProtocol,
    GroupState,
    JoinRequest,
    JoinResponse,
    SyncRequest,
    SyncResponse,
)
from hubmere.broker.coordinator.refusals import GroupRefused
from hubmere.model.errors import Refusal


class Topics:
    """A directory of topics; ids are `<name>#<incarnation>`."""

    def __init__(self, **counts: int) -> None:
        self.revision = 0
        self._topics: dict[str, Topic] = {}
        self._incarnations = 0
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int) -> None:
        """Create a topic or add partitions to it."""
        known = self._topics.get(name)
        if known is None:
            self._incarnations += 1
        topic_id = f"{name}#{self._incarnations}" if known is None else known.topic_id
        self._topics[name] = Topic(topic_id, name, count)
        self.revision += 1

    def drop(self, name: str) -> None:
        """Delete a topic."""
        del self._topics[name]
        self.revision += 1

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def all(self) -> Assignment:
        """Every partition of every topic."""
        return frozenset(
            TopicPartition(topic.topic_id, number)
            for topic in self._topics.values()
            for number in range(topic.partition_count)
        )


class TextEmbedded:
    """Embedded bytes that a test can read: `topic,topic;topic:partition,...;rack` and `topic:partition,...`."""

    def read_subscription(self, data: bytes) -> EmbeddedSubscription:
        if data.count(b";") != 2:
            raise MalformedBytes
        topics, owned, rack = data.decode().split(";")
        return EmbeddedSubscription(frozenset(filter(None, topics.split(","))), self._parts(owned), rack or None)

    def read_assignment(self, data: bytes) -> frozenset[NamedPartition]:
        if data == b"?":
            raise MalformedBytes
        return self._parts(data.decode())

    def write_assignment(self, partitions: Iterable[NamedPartition], metadata: bytes) -> bytes:
        return ",".join(f"{name}:{number}" for name, number in sorted(partitions)).encode()

    def _parts(self, text: str) -> frozenset[NamedPartition]:
        pairs = (part.split(":") for part in filter(None, text.split(",")))
        return frozenset((name, int(number)) for name, number in pairs)


def a_classic_join(member_id: str = "", topics: str = "t", owned: str = "", **more: Any) -> JoinRequest:
    """A valid JoinGroup of a classic consumer."""
    names = more.pop("protocols", ("range",))
    metadata = more.pop("metadata", f"{topics};{owned};".encode())
    values: dict[str, Any] = {
        "client_id": "classic",
        "session_timeout_s": 10.0,
        "rebalance_timeout_s": 20.0,
        "protocol_type": "consumer",
        "needs_known_id": False,
    }
    protocols = tuple(GroupProtocol(name, metadata) for name in names)
    return JoinRequest(member_id=member_id, protocols=protocols, **(values | more))


class ConsumerGroupHarness:
    """A group, its topics and its clock."""

    def __init__(self, topics: Topics | None = None, **config: Any) -> None:
        self.now = 100.0
        self.topics = topics or Topics(t=4)
        self.kept = 0
        self.keep_refusal: Refusal | None = None
        self.holds = False
        self.held_partitions: list[Callable[[Refusal | None], None]] = []
        self.resolver = RegexResolver(self.topics)
        self.embedded = TextEmbedded()
        self.group = ConsumerGroup(
            "g",
            config=ConsumerGroupConfig(**config),
            topics=self.topics,
            resolver=self.resolver,
            embedded=self.embedded,
            persist=self._keep,
        )

    def _keep(self, group: ConsumerGroup, respond: Callable[[Refusal | None], None]) -> None:
        self.kept += 1
        if self.holds:
            self.held_partitions.append(respond)
        else:
            respond(self.keep_refusal)

    def release_writes(self) -> None:
        """Complete all held-back writes, and do not hold back later ones."""
        self.holds = False
        while self.held_partitions:
            self.held_partitions.pop(0)(None)

    def send(self, beat: Heartbeat) -> list[HeartbeatAnswer | GroupRefused]:
        """Send a heartbeat; returns the list that receives its answer."""
        answers: list[HeartbeatAnswer | GroupRefused] = []
        self.resolver.refill()
        self.group.heartbeat(beat, self.now, answers.append)
        return answers

    def beat(self, member_id: str, epoch: int, **more: Any) -> HeartbeatAnswer:
        """Send a heartbeat that is answered at once."""
        (answer,) = self.send(Heartbeat(member_id=member_id, epoch=epoch, **more))
        assert isinstance(answer, HeartbeatAnswer), answer
        return answer

    def join(self, member_id: str = "a", **more: Any) -> HeartbeatAnswer:
        """Join with a valid default request."""
        values: dict[str, Any] = {"rebalance_timeout_s": 30.0, "owned": frozenset()}
        if "regex" not in more:
            values["topics"] = frozenset({"t"})
        return self.beat(member_id, 0, **(values | more))

    def own(self, member_id: str, *, owned: Assignment | None = None) -> HeartbeatAnswer:
        """A heartbeat in the member's epoch with its owned partitions; by default all assigned ones."""
        member = self.group.members[member_id]
        return self.beat(member_id, member.epoch, owned=member.assigned if owned is None else owned)

    def settle(self) -> None:
        """Every member sends heartbeats until no assignment changes."""
        for _ in range(8):
            for member_id in list(self.group.members):
                if self.group.members[member_id].classic is None:
                    self.own(member_id)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.resolver.refill()
        self.group.advance(self.now)

    def classic_join(self, member_id: str = "", **more: Any) -> JoinResponse:
        """JoinGroup of a classic consumer."""
        answers: list[JoinResponse | GroupRefused] = []
        self.group.join(a_classic_join(member_id, **more), self.now, answers.append)
        (answer,) = answers
        assert isinstance(answer, JoinResponse), answer
        return answer

    def sync(self, joined: JoinResponse, **more: Any) -> bytes:
        """SyncGroup of a classic consumer; returns its assignment."""
        answers: list[SyncResponse | GroupRefused] = []
        values: dict[str, Any] = {"generation": joined.generation, "assignments": {}}
        self.group.sync(SyncRequest(member_id=joined.member_id, **(values | more)), self.now, answers.append)
        (answer,) = answers
        assert isinstance(answer, SyncResponse), answer
        return answer.assignment

    def state(self) -> GroupState:
        """The state of the group."""
        return self.group.state

    def numbers(self, member_id: str, topic: str = "t") -> list[int]:
        """The partitions of a topic that are assigned to a member."""
        return sorted(
            number for name, number in self.group.by_topic_name(self.group.members[member_id].assigned) if name == topic
        )
