"""MirrorMaker 2 between a real Apache Kafka and a node, in both directions at once."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.clients import NotInstalled
from conformance.conformance_node import Transport
from conformance.kafka.apache import broker
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import topics
from conformance.kafka_ecosystem.manual import node_in, pasted
from conformance.kafka_ecosystem.mirror import OFTEN, PAGE, mirror_maker
from conformance.kafka_ecosystem.topics import Event, until
from conformance.matrix import Feature, Name
from hubmere.testing import Node

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.MIRROR_MAKER, transport=Transport.TLS),
]

_PARTITIONS = 3
# What a coordinator says that has just come into being.
_NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
}
_EVENTS = 3000
_READ = 400
_RETENTION_MS = "259200000"
# Not the time of arrival, but young enough not to be past retention.
_TIME_MS = int(time.time() * 1000) - 3_600_000


class Side:
    """One of the two clusters, with its topics before MirrorMaker starts."""

    def __init__(self, settings: dict[str, Any], *, topic: str, group: str) -> None:
        self.settings = settings
        self.topic = topic
        self.group = group
        self.written = sorted((_event(number) for number in range(_EVENTS)), key=lambda event: event.partition)

    def prepare(self) -> None:
        """A topic with events that have everything that an event can have, and a group in the middle of it."""
        admin = AdminClient(self.settings)
        new = NewTopic(self.topic, _PARTITIONS, 1, config={"retention.ms": _RETENTION_MS})
        admin.create_topics([new])[self.topic].result(20)
        topics.write(self.settings, self.topic, self.written)
        until(self._commit, "coordinator that takes commits")

    def _commit(self) -> bool:
        """Whether the group has its place; a cluster that has just started may need another moment for that."""
        reader = Consumer({**self.settings, "group.id": self.group, "enable.auto.commit": False})
        places = [TopicPartition(self.topic, number, _READ) for number in range(_PARTITIONS)]
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
    """Every seventh without a key, every eleventh without a value."""
    return Event(
        partition=number % _PARTITIONS,
        key=None if number % 7 == 0 else b"key %d" % number,
        value=None if number % 11 == 0 else b"value %d" % number,
        headers=(("number", b"%d" % number), ("number", b"again"), ("raw", b"\x00\xff")),
        time_ms=_TIME_MS + number,
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    """Both clusters, and a MirrorMaker between them that runs with the settings of the manual."""
    folder = tmp_path_factory.mktemp("mirror")
    with ExitStack() as running:
        node = running.enter_context(Node(settings={"as": "premium"}))
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
    """Where events come from, where they go to, and the name of their topic there."""
    name, other = request.param
    return sides[name], sides[other], f"{name}.{sides[name].topic}"


@pytest.mark.judges(feature=Feature.MIRRORED_EVENTS)
def test_every_event_arrives_as_it_was(way: tuple[Side, Side, str]) -> None:
    """Partition, order, key, value, headers and time: a copy that differs is none."""
    source, target, copy = way

    until(lambda: len(topics.events(target.settings, copy)) >= _EVENTS, "copied events")

    copied = topics.events(target.settings, copy)
    assert copied == topics.events(source.settings, source.topic)
    assert [event[:-1] for event in copied] == [event[:-1] for event in source.written]


@pytest.mark.judges(feature=Feature.MIRRORED_EVENTS)
def test_copy_in_a_hub_keeps_the_times_of_kafka(sides: dict[str, Side]) -> None:
    """The settings of the manual make hubs with the time that the producer gave, not with that of arrival."""
    source, target = sides["kafka"], sides["hubmere"]

    until(lambda: len(topics.events(target.settings, "kafka.orders")) >= _EVENTS, "copied events")

    copied = topics.events(target.settings, "kafka.orders")
    assert [event.time_ms for event in copied] == [event.time_ms for event in source.written]


@pytest.mark.judges(feature=Feature.MIRRORED_CONFIGS)
def test_copied_topic_has_the_settings_of_its_original(way: tuple[Side, Side, str]) -> None:
    """Made with the same partitions, and given the entries that both know."""
    source, target, copy = way
    wanted = {"retention.ms": _RETENTION_MS, "message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}

    until(lambda: copy in topics.topic_names(target.settings), "copied topic")
    until(lambda: topics.configuration(target.settings, copy).items() >= wanted.items(), "copied settings")

    assert topics.partition_count(target.settings, copy) == topics.partition_count(source.settings, source.topic)


@pytest.mark.judges(feature=Feature.MIRRORED_GROUPS)
def test_group_finds_its_place_on_the_other_side(way: tuple[Side, Side, str]) -> None:
    """No event that a group has not read may be before its translated offset."""
    source, target, copy = way

    def places() -> list[int]:
        found = topics.committed(target.settings, source.group, copy, _PARTITIONS)
        return found if min(found) >= 0 else []

    found = until(places, "places of the group")

    assert all(0 < place <= _READ for place in found)


@pytest.mark.judges(feature=Feature.HEARTBEATS)
def test_checkpoints_and_heartbeats_arrive(way: tuple[Side, Side, str]) -> None:
    """What MirrorMaker's own tools and monitors read: compacted checkpoints, heartbeats of the source."""
    _, target, copy = way
    origin = copy.split(".", 1)[0]
    checkpoints, heartbeats = f"{origin}.checkpoints.internal", f"{origin}.heartbeats"

    until(lambda: topics.messages(target.settings, checkpoints), "checkpoints")
    until(lambda: topics.messages(target.settings, heartbeats), "heartbeats")

    assert topics.configuration(target.settings, checkpoints)["cleanup.policy"] == "compact"


@pytest.mark.judges(feature=Feature.OWN_TOPICS)
def test_manual_names_every_hub_that_mirrormaker_makes(sides: dict[str, Side]) -> None:
    """Users of a tier with few hubs must know how many MirrorMaker needs."""
    node = sides["hubmere"]
    named = set(pasted(PAGE, "hubs", {}).split())

    until(lambda: topics.topic_names(node.settings) >= named, "hubs of MirrorMaker")

    assert topics.topic_names(node.settings) - {node.topic, "kafka.orders"} == named
