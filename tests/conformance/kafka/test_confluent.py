"""librdkafka with confluent-kafka: produce, consume, groups, transactions and administration."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from conformance.conformance_node import Transport
from conformance.kafka.kafka_clients import librdkafka
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(client=Name.CONFLUENT, transport=Transport.PLAIN)]

_PATIENCE_S = 240.0


def publish(producer: Producer, topic: str, *values: bytes, **more: Any) -> list[Any]:
    """Publish events and wait until each is acknowledged; returns their messages."""
    delivered: list[Any] = []

    def note(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    for value in values:
        producer.produce(topic, value=value, on_delivery=note, **more)
    assert producer.flush(_PATIENCE_S) == 0
    return delivered


@contextmanager
def consuming(settings: dict[str, Any]) -> Iterator[Consumer]:
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Any]:
    """Read a number of messages; fails if they do not arrive."""
    messages: list[Any] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} messages came"
        for message in consumer.consume(count - len(messages), 0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Poll consumers until a condition holds."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.1)


@judges(feature=Feature.CODECS)
@pytest.mark.parametrize(
    "tls",
    [pytest.param(False, id="plaintext"), pytest.param(True, id="tls", marks=judges(transport=Transport.TLS))],
)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_events_are_read_back_unchanged(node: Node, topic: str, group: str, codec: str, tls: bool) -> None:
    """Reference checks 10 and 11: key, value, headers, null and empty, in every codec."""
    producer = Producer(librdkafka(node, tls=tls, compression_type=codec))
    producer.produce(topic, key=b"k", value=b"x" * 1000, headers=[("h", b"1"), ("h", None)], partition=1)
    producer.produce(topic, key=None, value=None, partition=1)
    producer.produce(topic, key=b"", value=b"", partition=1)
    assert producer.flush(_PATIENCE_S) == 0

    with consuming(librdkafka(node, tls=tls, group_id=group)) as consumer:
        consumer.assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
        messages = read(consumer, 3)

    assert [(one.offset(), one.key(), one.value()) for one in messages] == [
        (0, b"k", b"x" * 1000),
        (1, None, None),
        (2, b"", b""),
    ]
    assert messages[0].headers() == [("h", b"1"), ("h", None)]


@judges(feature=Feature.ACKS)
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_acknowledgement_stores_every_event(node: Node, topic: str, group: str, acks: str) -> None:
    """They are in order within a partition."""
    publish(Producer(librdkafka(node)), topic, b"first", partition=0)
    producer = Producer(librdkafka(node, acks=acks))
    values = [b"%d" % number for number in range(500)]

    publish(producer, topic, *values, partition=0)

    with consuming(librdkafka(node, group_id=group)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1)])
        assert [one.value() for one in read(consumer, 500)] == values


@judges(feature=Feature.IDEMPOTENT)
def test_idempotent_producer_stores_its_events_without_a_gap(node: Node, topic: str) -> None:
    """Many batches are in flight."""
    producer = Producer(librdkafka(node, enable_idempotence=True, linger_ms=0))

    messages = publish(producer, topic, *(b"%d" % number for number in range(1000)), partition=2)

    assert [one.offset() for one in messages] == list(range(1000))


@judges(feature=Feature.GROUPS)
def test_group_shares_partitions_and_continues_at_its_commits(node: Node, topic: str, group: str) -> None:
    """Reference checks 32 and 33: each event is read once, and not again after a commit."""
    producer = Producer(librdkafka(node))
    for number in range(400):
        producer.produce(topic, value=b"%d" % number, partition=number % 4)
    producer.flush(_PATIENCE_S)
    settings = librdkafka(node, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    consumers = [Consumer(settings) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe([topic])
    seen: list[bytes] = []

    def has_all() -> bool:
        for consumer in consumers:
            seen.extend(one.value() for one in consumer.consume(100, 0.05) if one.error() is None)
        return len(seen) >= 400 and sum(len(consumer.assignment()) for consumer in consumers) == 4

    until(has_all)
    assert sorted(map(int, seen)) == list(range(400))
    for consumer in consumers:
        # The first member may have read everything before the others joined.
        if any(place.offset >= 0 for place in consumer.position(consumer.assignment())):
            consumer.commit(asynchronous=False)
        consumer.close()

    publish(producer, topic, b"new", partition=3)
    with consuming(settings) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 1)[0].value() == b"new"


@judges(feature=Feature.COOPERATIVE)
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_rebalances_with_every_strategy(node: Node, topic: str, group: str, strategy: str) -> None:
    """A member joins and leaves; cooperative members keep their partitions meanwhile (KIP-429)."""
    publish(Producer(librdkafka(node)), topic, b"x")
    settings = librdkafka(
        node, group_id=group, auto_offset_reset="earliest", partition_assignment_strategy=strategy,
        session_timeout_ms=60_000, heartbeat_interval_ms=500,
    )  # fmt: skip
    with consuming(settings) as first:
        first.subscribe([topic])
        until(lambda: len(first.assignment()) == 4, first)
        with consuming(settings) as second:
            second.subscribe([topic])
            until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)

        until(lambda: len(first.assignment()) == 4, first)


@judges(feature=Feature.STATIC)
def test_static_member_gets_its_partitions_back(node: Node, topic: str, group: str) -> None:
    """Reference check 36: the other member does not rebalance."""
    publish(Producer(librdkafka(node)), topic, b"x")
    settings = librdkafka(node, group_id=group, auto_offset_reset="earliest", session_timeout_ms=300_000)
    rebalances: list[str] = []
    with consuming(settings | {"group.instance.id": "stays"}) as stays:
        stays.subscribe([topic], on_assign=lambda *_: rebalances.append("assign"))
        goes = Consumer(settings | {"group.instance.id": "goes"})
        goes.subscribe([topic])
        until(lambda: len(stays.assignment()) == len(goes.assignment()) == 2, stays, goes)
        before, owned = len(rebalances), {part.partition for part in goes.assignment()}
        goes.close()

        with consuming(settings | {"group.instance.id": "goes"}) as back:
            back.subscribe([topic])
            until(lambda: len(back.assignment()) == 2, stays, back)

            assert {part.partition for part in back.assignment()} == owned
            assert len(rebalances) == before


# --- transactions ----------------------------------------------------------------------------------------------------


@judges(feature=Feature.TRANSACTIONS)
def test_transactions_are_all_or_nothing(node: Node, topic: str, group: str) -> None:
    """read_committed consumers see only committed events, others see everything."""
    producer = Producer(librdkafka(node, transactional_id=f"t-{topic}"))
    producer.init_transactions(_PATIENCE_S)
    for value, is_kept in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, value=value, partition=partition)
        producer.flush(_PATIENCE_S)
        if is_kept:
            producer.commit_transaction(_PATIENCE_S)
        else:
            producer.abort_transaction(_PATIENCE_S)

    seen = {}
    for isolation, count in (("read_committed", 4), ("read_uncommitted", 6)):
        with consuming(librdkafka(node, group_id=group, isolation_level=isolation)) as consumer:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(2)])
            seen[isolation] = sorted(one.value() for one in read(consumer, count))

    assert seen["read_committed"] == [b"one", b"one", b"three", b"three"]
    assert seen["read_uncommitted"].count(b"two") == 2


@judges(feature=Feature.EXACTLY_ONCE)
def test_events_are_read_and_written_exactly_once(node: Node, topic: str, group: str) -> None:
    """Read, transform, write: the transaction includes the offsets, and events of an aborted one are read again."""
    publish(Producer(librdkafka(node)), topic, *(b"%d" % number for number in range(10)), partition=0)
    output = f"{topic}-out"
    producer = Producer(librdkafka(node, transactional_id=f"t-{topic}"))
    producer.init_transactions(_PATIENCE_S)
    settings = librdkafka(
        node, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, isolation_level="read_committed"
    )
    for is_kept in (False, True):
        with consuming(settings) as consumer:
            consumer.subscribe([topic])
            messages = read(consumer, 10)
            producer.begin_transaction()
            for message in messages:
                producer.produce(output, value=message.value() + b"!", partition=0)
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), _PATIENCE_S)
            if is_kept:
                producer.commit_transaction(_PATIENCE_S)
            else:
                producer.abort_transaction(_PATIENCE_S)

    with consuming(settings | {"group.id": f"{group}-check"}) as consumer:
        consumer.assign([TopicPartition(output, 0, OFFSET_BEGINNING)])
        assert [one.value() for one in read(consumer, 10)] == [b"%d!" % number for number in range(10)]
        assert consumer.poll(0.5) is None
    with consuming(settings) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)], _PATIENCE_S)[0].offset == 10


@judges(feature=Feature.FENCING)
def test_second_producer_of_a_transactional_id_fences_the_first(node: Node, topic: str) -> None:
    """The old process gets an error at its next step."""
    first, second = (Producer(librdkafka(node, transactional_id=f"t-{topic}")) for _ in range(2))
    publish(Producer(librdkafka(node)), topic, b"x")
    first.init_transactions(_PATIENCE_S)
    first.begin_transaction()
    first.produce(topic, value=b"zombie")
    first.flush(_PATIENCE_S)

    second.init_transactions(_PATIENCE_S)

    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(_PATIENCE_S)
    assert fenced.value.args[0].fatal()


# --- administration --------------------------------------------------------------------------------------------------


@judges(feature=Feature.TOPICS)
def test_topics_are_created_changed_and_deleted(node: Node, topic: str) -> None:
    """`kafka-topics` and `kafka-configs` do the same."""
    admin = AdminClient(librdkafka(node))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin.create_topics([NewTopic(topic, 3, config={"cleanup.policy": "compact"})])[topic].result(_PATIENCE_S)
    made = admin.describe_configs([resource])[resource].result(_PATIENCE_S)

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(_PATIENCE_S)
    change = ConfigEntry("delete.retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([changed])[changed].result(_PATIENCE_S)
    after = admin.describe_configs([resource])[resource].result(_PATIENCE_S)
    count = len(admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions)

    admin.delete_topics([topic])[topic].result(_PATIENCE_S)

    assert made["cleanup.policy"].value == "compact"
    assert after["delete.retention.ms"].value == "7200000"
    assert count == 5
    assert topic not in admin.list_topics(timeout=_PATIENCE_S).topics


@judges(feature=Feature.REFUSALS)
def test_existing_topic_cannot_be_created(node: Node, topic: str) -> None:
    """Scripts check for this error."""
    admin = AdminClient(librdkafka(node))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(_PATIENCE_S)

    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(_PATIENCE_S)

    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


@judges(feature=Feature.GROUP_ADMIN)
def test_groups_are_listed_described_reset_and_deleted(node: Node, topic: str, group: str) -> None:
    """`kafka-consumer-groups` does the same."""
    publish(Producer(librdkafka(node)), topic, *(b"%d" % number for number in range(5)), partition=0)
    admin = AdminClient(librdkafka(node))
    with consuming(librdkafka(node, group_id=group, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        read(consumer, 5)
        consumer.commit(asynchronous=False)
        listed = [one.group_id for one in admin.list_consumer_groups().result(_PATIENCE_S).valid]
        described = admin.describe_consumer_groups([group])[group].result(_PATIENCE_S)

    place = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([place])[group].result(_PATIENCE_S)
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(_PATIENCE_S)
    admin.delete_consumer_groups([group])[group].result(_PATIENCE_S)

    assert group in listed
    assert described.state.name == "STABLE"
    assert len(described.members[0].assignment.topic_partitions) == 4
    assert [(part.partition, part.offset) for part in offsets.topic_partitions if part.partition == 0] == [(0, 2)]
    assert group not in [one.group_id for one in admin.list_consumer_groups().result(_PATIENCE_S).valid]


@judges(feature=Feature.RECORD_ADMIN)
def test_offsets_are_found_by_time_and_records_deleted(node: Node, topic: str) -> None:
    """`kafka-get-offsets` and `kafka-delete-records` do the same."""
    producer = Producer(librdkafka(node))
    first = publish(producer, topic, b"a", b"b", partition=0)[0]
    place = TopicPartition(topic, 0)
    admin = AdminClient(librdkafka(node))

    def offset(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({place: spec})[place].result(_PATIENCE_S).offset)

    by_time = offset(OffsetSpec.for_timestamp(first.timestamp()[1]))
    admin.delete_records([TopicPartition(topic, 0, 1)])[TopicPartition(topic, 0, 1)].result(_PATIENCE_S)

    assert by_time == 0
    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (1, 2)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
def test_wrong_key_is_reported(node: Node) -> None:
    """Reference check 6: the application's log has the reason."""
    errors: list[KafkaError] = []
    settings = librdkafka(node) | {
        "error_cb": errors.append,
        "sasl.password": node.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x"),
    }
    client = AdminClient(settings)

    deadline = time.monotonic() + _PATIENCE_S
    while not errors and time.monotonic() < deadline:
        client.poll(0.1)

    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "InvalidSignature" in errors[0].str()


@judges(feature=Feature.REFUSALS)
def test_event_that_is_too_large_fails_alone(node: Node, topic: str) -> None:
    """Reference check 15, for an application."""
    small = Node(hubs=[topic])
    with small:
        producer = Producer(librdkafka(small, message_max_bytes=5_000_000))
        outcome: list[KafkaError | None] = []
        for value in (b"x" * 1_100_000, b"small"):
            producer.produce(topic, value=value, partition=0, on_delivery=lambda error, _: outcome.append(error))
            producer.flush(_PATIENCE_S)

    assert outcome[0] is not None
    assert outcome[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert outcome[1] is None
