"""Kafka clients in Go and Rust: franz-go, sarama, kafka-go and rust-rdkafka, each by the same tests.

All four programs have the same operations; a test is left out for a client that has no such thing.
"""

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from conformance.arena import Transport
from conformance.clients import NotInstalled, go_program, rust_program
from conformance.driver import ClientError, Driver
from conformance.kafka.kafka_clients import USER
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(transport=Transport.PLAIN)]

Facts = dict[str, Any]

# The module of the program that drives each client.
_MODULES = {Name.FRANZ: "franz", Name.SARAMA: "sarama", Name.KAFKA_GO: "kafkago", Name.RUST: "rdkafka"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Error codes of the Kafka protocol.
_TOPIC_EXISTS, _INVALID_PARTITIONS, _FENCED, _OLD_EPOCH, _INVALID_CONFIG, _GROUP_NOT_FOUND = 36, 37, 90, 47, 40, 69
_TOO_LARGE = 10
# librdkafka's own code for a producer that was fenced.
_FENCED_LOCALLY = -144


def clients(*names: Name, over: tuple[Transport, ...] = (Transport.PLAIN,)) -> pytest.MarkDecorator:
    """Run a test with each of these clients over each of these transports, as the claims of the matrix."""
    ways = [
        pytest.param((name, transport), marks=judges(client=name, transport=transport), id=f"{name} {transport}")
        for name in names
        for transport in over
        # The Rust client is built without TLS.
        if name is not Name.RUST or transport is Transport.PLAIN
    ]
    return pytest.mark.parametrize("client", ways, indirect=True)


EVERY = (Name.FRANZ, Name.SARAMA, Name.KAFKA_GO, Name.RUST)
# kafka-go has neither idempotent producers nor transactions.
TRANSACTIONAL = (Name.FRANZ, Name.SARAMA, Name.RUST)
_BOTH = (Transport.PLAIN, Transport.TLS)


class Client:
    """One client, signed in as for Event Hubs."""

    def __init__(self, driver: Driver, module: str, node: Node, transport: Transport, password: str = "") -> None:
        is_secure = transport is Transport.TLS
        self._driver = driver
        self._module = module
        self._node = node
        self._transport = transport
        # The Rust client is built without zstd.
        self.codecs = _CODECS[:-1] if module == "rdkafka" else _CODECS
        # kafka-go reads an empty key or value as null.
        self.read_of_empty = None if module == "kafkago" else ""
        self._place = {
            "broker": node.kafkas if is_secure else node.kafka,
            "ca": node.ca_file if is_secure else "",
            "user": USER,
            "password": password or node.connection_string,
        }

    def with_password(self, password: str) -> "Client":
        """The same client of somebody else."""
        return Client(self._driver, self._module, self._node, self._transport, password)

    def at(self, node: Node) -> "Client":
        """The same client at another node."""
        return Client(self._driver, self._module, node, self._transport)

    def call(self, name: str, **arguments: Any) -> Any:
        return self._driver.call(self._module, name, place=self._place, **arguments)

    def make_topic(self, topic: str, partitions: int = 2, **configs: str) -> None:
        entries = {name.replace("_", "."): value for name, value in configs.items()}
        self.call("createTopic", topic=topic, partitions=partitions, configs=entries)

    def produce(self, topic: str, *values: str, partition: int = 0, **more: Any) -> list[int]:
        """Write records that are nothing but a value; their offsets."""
        records = [{"value": value, "partition": partition} for value in values]
        offsets: list[int] = self.call("produce", topic=topic, records=records, **more)
        return offsets

    def read(self, topic: str, count: int, partition: int = 0, start: int = -2, **more: Any) -> list[Facts]:
        records: list[Facts] = self.call("read", topic=topic, partition=partition, start=start, count=count, **more)
        return records

    def consume(self, topic: str, group: str, count: int, **more: Any) -> list[Facts]:
        records: list[Facts] = self.call("consume", topic=topic, group=group, count=count, **more)
        return records

    def topics(self) -> dict[str, int]:
        """Names and how many partitions each has."""
        counts: dict[str, int] = self.call("topics")
        return counts


@pytest.fixture(scope="module")
def go() -> Iterator[Driver]:
    """The program with the Go clients."""
    try:
        command = [str(go_program())]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    with Driver(command, {}) as driver:
        yield driver


@pytest.fixture(scope="module")
def rust() -> Iterator[Driver]:
    """The program with the Rust client."""
    try:
        command = [str(rust_program())]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    with Driver(command, {}) as driver:
        yield driver


@pytest.fixture(scope="module")
def standard() -> Iterator[Node]:
    """A node with the limits of the service."""
    with Node(settings={"memory": True}) as node:
        yield node


@pytest.fixture
def client(request: pytest.FixtureRequest, node: Node) -> Client:
    name, transport = request.param
    driver: Driver = request.getfixturevalue("rust" if name is Name.RUST else "go")
    return Client(driver, _MODULES[name], node, transport)


def values(records: list[Facts]) -> list[str]:
    return [record["value"] for record in records]


# --- produce and read ------------------------------------------------------------------------------------------------


@judges(feature=Feature.CODECS)
@clients(*EVERY, over=_BOTH)
def test_every_codec_comes_back(client: Client, topic: str) -> None:
    """In the framings of the client's own libraries."""
    codecs = client.codecs
    client.make_topic(topic, len(codecs))
    texts = [f"{number} " * 100 for number in range(20)]

    for partition, codec in enumerate(codecs):
        client.produce(topic, *texts, partition=partition, codec=codec)

    assert [values(client.read(topic, 20, partition)) for partition in range(len(codecs))] == [texts] * len(codecs)


@judges(feature=Feature.RECORDS)
@clients(*EVERY)
def test_records_come_back_as_they_were_sent(client: Client, topic: str) -> None:
    """Key, headers and time; null is not empty."""
    client.make_topic(topic, message_timestamp_type="CreateTime")
    sent_ms = int(time.time() * 1000) - 5000
    full = {"key": "größe", "value": "x", "headers": [["h", "1"], ["h", "2"], ["g", ""]], "timeMs": sent_ms}
    sent: list[Facts] = [full, {"key": "k", "value": None}, {"key": "", "value": ""}]

    client.call("produce", topic=topic, records=sent)
    read = client.read(topic, 3)

    empty = client.read_of_empty
    assert [(one["key"], one["value"]) for one in read] == [("größe", "x"), ("k", None), (empty, empty)]
    assert (read[0]["headers"], read[0]["timeMs"]) == (full["headers"], sent_ms)
    assert [one["offset"] for one in read] == [0, 1, 2]


@judges(feature=Feature.ACKS)
@clients(*EVERY)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acknowledgement_stores_every_event(client: Client, topic: str, acks: int) -> None:
    """Whether it was asked for or not."""
    client.make_topic(topic)

    client.produce(topic, *"abc", acks=acks)

    assert values(client.read(topic, 3)) == ["a", "b", "c"]


@judges(feature=Feature.IDEMPOTENT)
@clients(*TRANSACTIONAL)
def test_an_idempotent_producer_numbers_its_events(client: Client, topic: str) -> None:
    """The client learns the offset of each."""
    client.make_topic(topic)

    offsets = [client.produce(topic, *"abc", idempotent=True) for _ in range(2)]

    assert offsets == [[0, 1, 2], [3, 4, 5]]


@judges(feature=Feature.POSITIONS)
@clients(*EVERY)
def test_a_reader_starts_where_it_asks(client: Client, topic: str) -> None:
    """At an offset, and at the offset of a time."""
    client.make_topic(topic, message_timestamp_type="CreateTime")
    start_ms = int(time.time() * 1000) - 60_000
    records = [{"value": str(n), "partition": 1, "timeMs": start_ms + 1000 * n} for n in range(5)]
    client.call("produce", topic=topic, records=records)

    by_time = client.call("offsetAt", topic=topic, partition=1, timeMs=start_ms + 1500)
    bounds = client.call("bounds", topic=topic, partition=1)
    read = client.read(topic, 2, partition=1, start=3)

    assert (by_time, bounds) == (2, [0, 5])
    assert values(read)[:2] == ["3", "4"]


# --- groups ----------------------------------------------------------------------------------------------------------


@judges(feature=Feature.COMMITS)
@clients(*EVERY)
def test_a_group_goes_on_where_it_was(client: Client, topic: str, group: str) -> None:
    """At what the last member committed."""
    client.make_topic(topic)
    client.produce(topic, "a", "b")
    first = client.consume(topic, group, 2)
    client.produce(topic, "c")

    second = client.consume(topic, group, 1)
    kept = client.call("groupOffset", topic=topic, partition=0, group=group)

    assert (values(first), values(second), kept) == (["a", "b"], ["c"], 3)


@judges(feature=Feature.GROUPS)
@clients(*EVERY, over=_BOTH)
def test_a_group_shares_its_partitions(client: Client, topic: str, group: str) -> None:
    """Members join one after the other, with the assignor that each client has by default."""
    client.make_topic(topic, 4)

    held = client.call("share", topic=topic, group=group, members=2, count=4)

    assert sorted(chain.from_iterable(held)) == [0, 1, 2, 3]
    assert [len(part) for part in held] == [2, 2]


@judges(feature=Feature.STATIC)
@clients(*TRANSACTIONAL)
def test_a_static_member_goes_on_where_it_was(client: Client, topic: str, group: str) -> None:
    """It comes back under its own name before its session is over."""
    client.make_topic(topic)
    client.produce(topic, "a", "b")
    first = client.consume(topic, group, 2, instance="meter")
    client.produce(topic, "c")

    second = client.consume(topic, group, 1, instance="meter")

    assert (values(first), values(second)) == (["a", "b"], ["c"])


# --- transactions ----------------------------------------------------------------------------------------------------


@judges(feature=Feature.TRANSACTIONS)
@clients(*TRANSACTIONAL)
def test_transactions_are_all_or_nothing(client: Client, topic: str) -> None:
    """Committed readers see what was committed, the others everything."""
    client.make_topic(topic)
    kept = {"one": True, "two": False, "three": True}
    steps = [{"topic": topic, "values": [value, value], "isKept": is_kept} for value, is_kept in kept.items()]

    client.call("transact", id=f"t-{topic}", steps=steps)

    assert values(client.read(topic, 4, committed=True)) == ["one", "one", "three", "three"]
    assert values(client.read(topic, 6)) == ["one", "one", "two", "two", "three", "three"]


@judges(feature=Feature.EXACTLY_ONCE)
@clients(*TRANSACTIONAL)
def test_offsets_travel_in_the_transaction(client: Client, topic: str, group: str) -> None:
    """Those of an aborted one are as if they had never been."""
    client.make_topic(topic)

    def step(offset: int, *, is_kept: bool) -> Facts:
        return {"topic": topic, "values": ["x"], "group": group, "offset": offset, "isKept": is_kept}

    client.call("transact", id=f"t-{topic}", steps=[step(3, is_kept=True), step(7, is_kept=False)])

    assert client.call("groupOffset", topic=topic, partition=0, group=group) == 3


@judges(feature=Feature.FENCING)
@clients(*TRANSACTIONAL)
def test_the_second_producer_of_a_transactional_id_fences_the_first(client: Client, topic: str) -> None:
    """A zombie finds out at its next step, and what it left open is gone."""
    client.make_topic(topic)
    successor = {"topic": topic, "values": ["successor"], "isKept": True}

    code = client.call("fence", id=f"t-{topic}", topic=topic, steps=[successor])

    assert int(code) in {_FENCED, _OLD_EPOCH, _FENCED_LOCALLY}
    assert values(client.read(topic, 1, committed=True)) == ["successor"]


# --- administration --------------------------------------------------------------------------------------------------


@judges(feature=Feature.TOPICS)
@clients(*EVERY)
def test_topics_are_made_grown_and_deleted(client: Client, topic: str) -> None:
    """Each step shows in the list."""
    client.make_topic(topic, 3)
    made = client.topics()[topic]
    client.call("growTopic", topic=topic, partitions=5)
    grown = client.topics()[topic]
    client.call("deleteTopic", topic=topic)

    assert (made, grown) == (3, 5)
    assert topic not in client.topics()


@judges(feature=Feature.CONFIGS)
@clients(*EVERY)
def test_configurations_are_read_and_changed(client: Client, topic: str) -> None:
    """By the request that each client has for it."""
    client.make_topic(topic)

    client.call("alterConfigs", topic=topic, configs={"retention.ms": "7200000"})
    entries = client.call("configs", topic=topic)

    assert (entries["retention.ms"], entries["cleanup.policy"]) == ("7200000", "delete")


@judges(feature=Feature.GROUP_ADMIN)
@clients(*EVERY)
def test_groups_are_listed_described_moved_and_deleted(client: Client, topic: str, group: str) -> None:
    """Once their members are gone."""
    client.make_topic(topic)
    client.produce(topic, *"abc")
    client.consume(topic, group, 3)

    listed = client.call("groups")
    described = client.call("describeGroup", group=group)
    client.call("moveGroup", group=group, topic=topic, partition=0, offset=1)
    read = values(client.consume(topic, group, 2))
    client.call("deleteGroup", group=group)

    assert group in listed
    assert described == {"state": "Empty", "members": 0}
    assert read == ["b", "c"]
    assert group not in client.call("groups")


@judges(feature=Feature.RECORD_ADMIN)
@clients(*TRANSACTIONAL)
def test_records_are_deleted(client: Client, topic: str) -> None:
    """The start of the partition moves forward."""
    client.make_topic(topic)
    client.produce(topic, *"abc")

    client.call("deleteRecords", topic=topic, partition=0, offset=2)

    assert client.call("bounds", topic=topic, partition=0) == [2, 3]


# --- refusals --------------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
@clients(*EVERY)
@pytest.mark.parametrize(
    ("task", "arguments", "code"),
    [
        ("createTopic", {"topic": "taken", "partitions": 1}, _TOPIC_EXISTS),
        ("createTopic", {"topic": "bad", "partitions": 1, "configs": {"x": "y"}}, _INVALID_CONFIG),
        ("growTopic", {"topic": "taken", "partitions": 1}, _INVALID_PARTITIONS),
        ("deleteGroup", {"group": "nobody"}, _GROUP_NOT_FOUND),
    ],
    ids=["topic exists", "unknown setting", "fewer partitions", "no such group"],
)
def test_administrators_learn_what_is_wrong(client: Client, task: str, arguments: Facts, code: int) -> None:
    """In the client's own errors."""
    if "taken" not in client.topics():
        client.make_topic("taken")

    with pytest.raises(ClientError) as refusal:
        client.call(task, **arguments)

    assert refusal.value.code == str(code)


@judges(feature=Feature.REFUSALS)
@clients(*EVERY)
def test_a_wrong_key_is_refused(client: Client, node: Node) -> None:
    """The node's reason reaches whoever reads the client's error."""
    wrong = node.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")

    with pytest.raises(ClientError) as refusal:
        client.with_password(wrong).topics()

    assert "InvalidSignature" in refusal.value.message


@judges(feature=Feature.REFUSALS)
@clients(*EVERY)
def test_an_event_that_is_too_large_is_refused(client: Client, standard: Node, topic: str) -> None:
    """By the limit of the tier, and it fails alone."""
    with pytest.raises(ClientError) as refusal:
        client.at(standard).produce(topic, "x" * 1_100_000)
    after = client.at(standard).produce(topic, "small")

    assert (refusal.value.code, after) == (str(_TOO_LARGE), [0])
