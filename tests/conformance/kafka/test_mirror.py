"""MirrorMaker 2 between a real Apache Kafka and a node, in both directions at once."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.clients import NotInstalled
from conformance.conformance_node import Transport, gateway_settings
from conformance.kafka.apache import broker
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import topics
from conformance.kafka_ecosystem.manual import node_in, pasted
from conformance.kafka_ecosystem.mirror import OFTEN, PAGE, mirror_maker
from conformance.kafka_ecosystem.topics import PATIENCE_S, Event, until
from conformance.matrix import Feature, Name
from hubmere.testing import Node

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.MIRROR_MAKER, transport=Transport.TLS),
]

_PARTITIONS = 3
# Errors of a coordinator that has just started.
_NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
}
_EVENTS = 3000
# More than MirrorMaker copies between two records of its offset-syncs topic.
_ROUND = 200
_RETENTION_MS = "259200000"
# These times are not the time of arrival, but recent enough for the retention.
_TIME_MS = int(time.time() * 1000) - 3_600_000


class Side:
    """One of the two clusters, with its topics before MirrorMaker starts."""

    def __init__(self, settings: dict[str, Any], *, topic: str, group: str) -> None:
        self.settings = settings
        self.topic = topic
        self.live_topic = f"{topic}-live"
        self.group = group
        self.read_offset = 0
        self.written = sorted((_event(number) for number in range(_EVENTS)), key=lambda event: event.partition)

    def prepare(self) -> None:
        """Create a topic with events that use every field, and an empty one for a group."""
        admin = AdminClient(self.settings)
        names = (self.topic, self.live_topic)
        new = [NewTopic(name, _PARTITIONS, 1, config={"retention.ms": _RETENTION_MS}) for name in names]
        for created in admin.create_topics(new).values():
            created.result(PATIENCE_S)
        topics.write(self.settings, self.topic, self.written)

    def read_on(self) -> None:
        """Write more events, which the group reads."""
        topics.write(self.settings, self.live_topic, [_event(number) for number in range(_ROUND * _PARTITIONS)])
        self.read_offset += _ROUND
        until(self._commit, "coordinator that takes commits")

    def _commit(self) -> bool:
        """Whether the group has its offset; a cluster that has just started may need a moment."""
        reader = Consumer({**self.settings, "group.id": self.group, "enable.auto.commit": False})
        places = [TopicPartition(self.live_topic, number, self.read_offset) for number in range(_PARTITIONS)]
        try:
            reader.commit(offsets=places, asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() not in _NOT_YET:
                raise
            return False
        finally:
            reader.close()
        return True


def _event(number: int) -> Event:
    """Every seventh event has no key, every eleventh no value."""
    return Event(
        partition=number % _PARTITIONS,
        key=None if number % 7 == 0 else b"key %d" % number,
        value=None if number % 11 == 0 else b"value %d" % number,
        headers=(("number", b"%d" % number), ("number", b"again"), ("raw", b"\x00\xff")),
        time_ms=_TIME_MS + number,
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    """Both clusters, and a MirrorMaker between them with the settings of the manual."""
    folder = tmp_path_factory.mktemp("mirror")
    with ExitStack() as running:
        node = running.enter_context(Node(settings={"as": "premium", **gateway_settings(folder)}))
        try:
            kafka = running.enter_context(broker(folder / "kafka", heap="256m"))
        except NotInstalled as reason:
            pytest.skip(str(reason))
        both = {
            "kafka": Side({"bootstrap.servers": kafka.bootstrap}, topic="orders", group="billing"),
            "hubmere": Side(librdkafka(node), topic="telemetry", group="alarms"),
        }
        for side in both.values():
            side.prepare()
        mirror = mirror_maker(folder, _settings(node, kafka.bootstrap))
        running.callback(mirror.stop)
        mirror.start()
        yield both


def _settings(node: Node, kafka: str) -> str:
    return pasted(PAGE, "mm2.properties", {**node_in(node), "localhost:9092": kafka}) + OFTEN


@pytest.fixture(params=[("kafka", "hubmere"), ("hubmere", "kafka")], ids=" to ".join)
def way(request: pytest.FixtureRequest, sides: dict[str, Side]) -> tuple[Side, Side, str]:
    """Source and target of the events, and the name of their topic in the target."""
    name, other = request.param
    return sides[name], sides[other], f"{name}.{sides[name].topic}"


@pytest.mark.judges(feature=Feature.MIRRORED_EVENTS)
def test_every_event_is_copied_unchanged(way: tuple[Side, Side, str]) -> None:
    """Partition, order, key, value, headers and time are compared."""
    source, target, copy = way

    until(lambda: len(topics.events(target.settings, copy)) >= _EVENTS, "copied events")

    copied = topics.events(target.settings, copy)
    assert copied == topics.events(source.settings, source.topic)
    assert [event[:-1] for event in copied] == [event[:-1] for event in source.written]


@pytest.mark.judges(feature=Feature.MIRRORED_EVENTS)
def test_copy_in_a_hub_keeps_the_times_of_kafka(sides: dict[str, Side]) -> None:
    """With the settings of the manual, hubs have the producer's times, not those of arrival."""
    source, target = sides["kafka"], sides["hubmere"]

    until(lambda: len(topics.events(target.settings, "kafka.orders")) >= _EVENTS, "copied events")

    copied = topics.events(target.settings, "kafka.orders")
    assert [event.time_ms for event in copied] == [event.time_ms for event in source.written]


@pytest.mark.judges(feature=Feature.MIRRORED_CONFIGS)
def test_copied_topic_has_the_settings_of_its_original(way: tuple[Side, Side, str]) -> None:
    """It has the same partitions, and the entries that both sides support."""
    source, target, copy = way
    wanted = {"retention.ms": _RETENTION_MS, "message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}

    until(lambda: copy in topics.topic_names(target.settings), "copied topic")
    until(lambda: topics.configuration(target.settings, copy).items() >= wanted.items(), "copied settings")

    assert topics.partition_count(target.settings, copy) == topics.partition_count(source.settings, source.topic)


@pytest.mark.judges(feature=Feature.MIRRORED_GROUPS)
def test_offset_of_a_group_is_translated(way: tuple[Side, Side, str]) -> None:
    """No unread event of a group may be before its translated offset.

    MirrorMaker translates offsets of events that it copies while its checkpoint task runs (KAFKA-14666). Of all events
    before, the task knows only the last one, so that the offset of a group in the middle of them is never translated.
    The task may start after thousands of events were copied: here the group reads on, as groups do.
    """
    source, target, copy = way

    def places() -> list[int]:
        source.read_on()
        found = topics.committed(target.settings, source.group, f"{copy}-live", _PARTITIONS)
        return found if min(found) > 0 else []

    found = until(places, "places of the group")

    assert all(0 < place <= source.read_offset for place in found)


@pytest.mark.judges(feature=Feature.HEARTBEATS)
def test_checkpoints_and_heartbeats_are_copied(way: tuple[Side, Side, str]) -> None:
    """MirrorMaker's tools read compacted checkpoints and heartbeats of the source."""
    source, target, copy = way
    origin = copy.split(".", 1)[0]
    checkpoints, heartbeats = f"{origin}.checkpoints.internal", f"{origin}.heartbeats"

    def copied_checkpoints() -> list[Message]:
        source.read_on()
        return topics.messages(target.settings, checkpoints)

    until(copied_checkpoints, "checkpoints")
    until(lambda: topics.messages(target.settings, heartbeats), "heartbeats")

    assert topics.configuration(target.settings, checkpoints)["cleanup.policy"] == "compact"


@pytest.mark.judges(feature=Feature.OWN_TOPICS)
def test_manual_names_every_hub_that_mirrormaker_creates(sides: dict[str, Side]) -> None:
    """Users of a tier with few hubs must know how many MirrorMaker needs."""
    node = sides["hubmere"]
    named = set(pasted(PAGE, "hubs", {}).split())

    until(lambda: topics.topic_names(node.settings) >= named, "hubs of MirrorMaker")

    own = {node.topic, node.live_topic, "kafka.orders", "kafka.orders-live"}
    assert topics.topic_names(node.settings) - own == named
