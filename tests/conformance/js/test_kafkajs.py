"""kafkajs: produce, consume, groups, transactions and administration, in the older API versions that it uses."""

import time
from itertools import chain
from typing import Any
from uuid import uuid4

import pytest

from conformance.conformance_node import ConformanceNode, Transport
from conformance.driver import ClientError, Driver
from conformance.matrix import Feature, Name

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(client=Name.KAFKAJS, transport=Transport.PLAIN)]

Facts = dict[str, Any]
_EVERY_TRANSPORT = [
    pytest.param(transport, marks=judges(transport=transport)) for transport in (Transport.PLAIN, Transport.TLS)
]


class KafkaJs:
    """kafkajs with the credentials of Event Hubs."""

    def __init__(
        self, js: Driver, conformance_node: ConformanceNode, transport: Transport, password: str | None = None
    ) -> None:
        is_secure = transport is Transport.TLS
        self._js = js
        self._place = {
            "broker": conformance_node.node.kafkas if is_secure else conformance_node.node.kafka,
            "ca": conformance_node.node.ca_file if is_secure else None,
            "user": "$ConnectionString",
            "password": password or conformance_node.node.connection_string,
        }

    def call(self, name: str, **arguments: Any) -> Any:
        return self._js.call("kafka", name, place=self._place, **arguments)

    def produce(self, topic: str, *messages: Facts, **more: Any) -> list[Facts]:
        results: list[Facts] = self.call("produce", topic=topic, messages=messages, **more)
        return results

    def consume(self, topic: str, group: str, count: int, **more: Any) -> list[Facts]:
        results: list[Facts] = self.call("consume", topic=topic, group=group, count=count, **more)
        return results

    def admin(self, task: str, **given: Any) -> Any:
        return self.ask(task, given)

    def ask(self, task: str, given: Any = None) -> Any:
        """A task of the admin client whose argument has another form."""
        return self.call("administer", task=task, given=given)

    def make_topic(self, topic: str, partitions: int = 2, **configs: str) -> None:
        entries = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        wanted = {"topic": topic, "numPartitions": partitions, "configEntries": entries}
        assert self.admin("createTopics", topics=[wanted])


@pytest.fixture
def kafka(js: Driver, conformance_node: ConformanceNode) -> KafkaJs:
    return KafkaJs(js, conformance_node, Transport.PLAIN)


@pytest.fixture(params=_EVERY_TRANSPORT)
def kafka_by_transport(request: pytest.FixtureRequest, js: Driver, conformance_node: ConformanceNode) -> KafkaJs:
    return KafkaJs(js, conformance_node, request.param)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:8]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


def values(records: list[Facts]) -> list[str]:
    return [record["value"] for record in records]


def in_partition(number: int, *texts: str) -> list[Facts]:
    return [{"value": text, "partition": number} for text in texts]


# --- produce and consume ---------------------------------------------------------------------------------------------


@judges(feature=Feature.CODECS)
@pytest.mark.parametrize("codec", ["None", "GZIP"])
def test_produced_events_are_read_back(kafka_by_transport: KafkaJs, topic: str, group: str, codec: str) -> None:
    """They use its built-in codecs."""
    kafka_by_transport.make_topic(topic)
    texts = [f"{number} " * 50 for number in range(50)]

    kafka_by_transport.produce(topic, *in_partition(1, *texts), codec=codec)

    assert values(kafka_by_transport.consume(topic, group, 50)) == texts


@judges(feature=Feature.RECORDS)
def test_records_are_read_back_unchanged(kafka: KafkaJs, topic: str, group: str) -> None:
    """Key, headers and time are compared; null differs from empty."""
    kafka.make_topic(topic, message_timestamp_type="CreateTime")
    sent_ms = int(time.time() * 1000) - 5000
    first = {"key": "größe", "value": "x", "headers": {"h": "1", "g": ""}, "partition": 0, "timestamp": str(sent_ms)}

    kafka.produce(topic, first, {"key": "k", "value": None, "partition": 0}, {"key": "", "value": "", "partition": 0})
    read = kafka.consume(topic, group, 3)

    assert [(one["key"], one["value"]) for one in read] == [("größe", "x"), ("k", None), ("", "")]
    assert (read[0]["headers"], read[0]["timeMs"]) == ({"h": "1", "g": ""}, sent_ms)
    assert [one["offset"] for one in read] == [0, 1, 2]


@judges(feature=Feature.ACKS)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acknowledgement_stores_every_event(kafka: KafkaJs, topic: str, group: str, acks: int) -> None:
    """For every value of acks."""
    kafka.make_topic(topic)

    kafka.produce(topic, *in_partition(0, *"abc"), acks=acks)

    assert values(kafka.consume(topic, group, 3)) == ["a", "b", "c"]


@judges(feature=Feature.IDEMPOTENT)
def test_an_idempotent_producer_numbers_its_events(kafka: KafkaJs, topic: str) -> None:
    """The client gets the base offset of each batch."""
    kafka.make_topic(topic)

    results = [kafka.produce(topic, *in_partition(0, *"abc"), idempotent=True) for _ in range(2)]

    assert [(one[0]["baseOffset"], one[0]["errorCode"]) for one in results] == [("0", 0), ("3", 0)]


@judges(feature=Feature.POSITIONS)
def test_consumer_starts_at_the_requested_position(kafka: KafkaJs, topic: str, group: str) -> None:
    """Offsets are found by time, and by a seek."""
    kafka.make_topic(topic, message_timestamp_type="CreateTime")
    start_ms = int(time.time() * 1000) - 60_000
    sent = [{"value": str(n), "partition": 1, "timestamp": str(start_ms + 1000 * n)} for n in range(5)]
    kafka.produce(topic, *sent)

    by_time = kafka.ask("fetchTopicOffsetsByTimestamp", topic)
    bounds = kafka.ask("fetchTopicOffsets", topic)
    read = kafka.consume(topic, group, 2, seek={"partition": 1, "offset": "3"})

    assert {one["partition"]: one["offset"] for one in by_time} == {0: "0", 1: "5"}
    assert {one["partition"]: (one["low"], one["high"]) for one in bounds} == {0: ("0", "0"), 1: ("0", "5")}
    assert values(read)[-2:] == ["3", "4"]


@judges(feature=Feature.COMMITS)
def test_group_continues_at_its_committed_offsets(kafka: KafkaJs, topic: str, group: str) -> None:
    """Offsets are committed when the consumer leaves."""
    kafka.make_topic(topic)
    kafka.produce(topic, *in_partition(0, "a", "b"))
    kafka.consume(topic, group, 2)
    kafka.produce(topic, *in_partition(0, "c"))

    read = kafka.consume(topic, group, 1)
    kept = kafka.admin("fetchOffsets", groupId=group, topics=[topic])

    assert values(read) == ["c"]
    assert {one["partition"]: one["offset"] for one in kept[0]["partitions"]}[0] == "3"


@judges(feature=Feature.COMMITS)
def test_group_reads_again_after_its_offset_was_out_of_range(kafka: KafkaJs, topic: str, group: str) -> None:
    """kafkajs commits -2, fetches it and starts at the beginning; if -2 is not returned, it repeats this for ever."""
    kafka.make_topic(topic, 1)
    kafka.produce(topic, *in_partition(0, "a", "b"))
    kafka.admin("setOffsets", groupId=group, topic=topic, partitions=[{"partition": 0, "offset": "1000"}])

    read = kafka.consume(topic, group, 2)
    kept = kafka.admin("fetchOffsets", groupId=group, topics=[topic])

    assert values(read) == ["a", "b"]
    assert [one["offset"] for one in kept[0]["partitions"]] == ["2"]


@judges(feature=Feature.GROUPS)
def test_a_group_shares_its_partitions(kafka_by_transport: KafkaJs, topic: str, group: str) -> None:
    """Members join one after the other."""
    kafka_by_transport.make_topic(topic, 4)

    result = kafka_by_transport.call("share", topic=topic, group=group, members=2, count=4)

    assert sorted(chain.from_iterable(result["held"])) == [0, 1, 2, 3]
    assert [len(held) for held in result["held"]] == [2, 2]
    assert (result["state"], result["members"]) == ("Stable", 2)


# --- transactions ----------------------------------------------------------------------------------------------------


@judges(feature=Feature.TRANSACTIONS)
def test_transactions_are_all_or_nothing(kafka: KafkaJs, topic: str, group: str) -> None:
    """read_committed consumers see only committed events, others see everything."""
    kafka.make_topic(topic)
    steps = [
        {"topic": topic, "messages": in_partition(0, text), "isKept": is_kept}
        for text, is_kept in (("one", True), ("two", False), ("three", True))
    ]

    kafka.call("transact", id=f"t-{topic}", steps=steps)

    assert values(kafka.consume(topic, group, 2)) == ["one", "three"]
    assert values(kafka.consume(topic, f"{group}-all", 3, readUncommitted=True)) == ["one", "two", "three"]


@judges(feature=Feature.EXACTLY_ONCE)
def test_offsets_are_committed_with_the_transaction(kafka: KafkaJs, topic: str, group: str) -> None:
    """Offsets of an aborted transaction have no effect."""
    kafka.make_topic(topic)

    def step(offset: int, *, is_kept: bool) -> Facts:
        places = [{"topic": topic, "partitions": [{"partition": 0, "offset": str(offset)}]}]
        offsets = {"consumerGroupId": group, "topics": places}
        return {"topic": topic, "messages": in_partition(1, "x"), "isKept": is_kept, "offsets": offsets}

    kafka.call("transact", id=f"t-{topic}", steps=[step(3, is_kept=True), step(7, is_kept=False)])
    kept = kafka.admin("fetchOffsets", groupId=group, topics=[topic])

    assert {one["partition"]: one["offset"] for one in kept[0]["partitions"]}[0] == "3"


# --- administration --------------------------------------------------------------------------------------------------


@judges(feature=Feature.TOPICS)
def test_topics_are_created_described_and_deleted(kafka: KafkaJs, topic: str) -> None:
    """Names, partitions and their one replica are described."""
    kafka.make_topic(topic, 3)

    described = kafka.admin("fetchTopicMetadata", topics=[topic])["topics"][0]
    cluster = kafka.ask("describeCluster")
    listed = kafka.ask("listTopics")
    kafka.admin("deleteTopics", topics=[topic])

    assert [(one["leader"], one["isr"]) for one in described["partitions"]] == [(0, [0])] * 3
    assert (cluster["controller"], len(cluster["brokers"])) == (0, 1)
    assert topic in listed
    assert topic not in kafka.ask("listTopics")


@judges(feature=Feature.CONFIGS)
def test_configurations_are_read_and_changed(kafka: KafkaJs, topic: str) -> None:
    """AlterConfigs is used, which newer clients no longer have."""
    kafka.make_topic(topic)
    resource = {"type": 2, "name": topic}
    change = resource | {"configEntries": [{"name": "retention.ms", "value": "7200000"}]}

    kafka.admin("alterConfigs", validateOnly=False, resources=[change])
    result = kafka.admin("describeConfigs", includeSynonyms=True, resources=[resource])

    entries = {one["configName"]: one["configValue"] for one in result["resources"][0]["configEntries"]}
    assert (entries["retention.ms"], entries["cleanup.policy"]) == ("7200000", "delete")


@judges(feature=Feature.GROUP_ADMIN)
def test_groups_are_listed_reset_and_deleted(kafka: KafkaJs, topic: str, group: str) -> None:
    """They have no members."""
    kafka.make_topic(topic)
    kafka.produce(topic, *in_partition(0, *"abc"))
    kafka.consume(topic, group, 3)

    listed = kafka.ask("listGroups")["groups"]
    kafka.admin("setOffsets", groupId=group, topic=topic, partitions=[{"partition": 0, "offset": "1"}])
    read = values(kafka.consume(topic, group, 2))
    deleted = kafka.ask("deleteGroups", [group])

    assert group in [one["groupId"] for one in listed]
    assert read == ["b", "c"]
    assert [(one["groupId"], one["errorCode"]) for one in deleted] == [(group, 0)]


@judges(feature=Feature.RECORD_ADMIN)
def test_records_are_deleted(kafka: KafkaJs, topic: str) -> None:
    """The log start offset of the partition moves."""
    kafka.make_topic(topic)
    kafka.produce(topic, *in_partition(0, *"abc"))

    bounds = kafka.call("deleteRecords", topic=topic, partitions=[{"partition": 0, "offset": "2"}])

    assert {one["partition"]: (one["low"], one["high"]) for one in bounds}[0] == ("2", "3")


# --- what goes wrong -------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
def test_a_wrong_key_is_reported(js: Driver, conformance_node: ConformanceNode) -> None:
    """Reference check 6."""
    wrong = conformance_node.node.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")

    with pytest.raises(ClientError) as result:
        KafkaJs(js, conformance_node, Transport.PLAIN, wrong).ask("listTopics")

    assert (result.value.name, "InvalidSignature" in result.value.message) == ("KafkaJSSASLAuthenticationError", True)


@judges(feature=Feature.REFUSALS)
def test_existing_topic_cannot_be_created(kafka: KafkaJs, topic: str) -> None:
    """kafkajs answers with false."""
    kafka.make_topic(topic)

    assert kafka.admin("createTopics", topics=[{"topic": topic}]) is False
