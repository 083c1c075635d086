"""Kafka clients in Go and Rust, and Java clients of Kafka 1.0 and 2.8, all with the same tests.

A test is omitted for a client that lacks the feature.
"""

import time
from collections.abc import Iterator
from itertools import chain

import pytest

from conformance.clients import NotInstalled
from conformance.conformance_node import Transport
from conformance.driver import ClientError, Driver
from conformance.kafka.operations import DRIVEN, EVERY, JAVA, TRANSACTIONAL, WITH_GROUPS, Client, Facts, judged
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = pytest.mark.foreign

_BOTH = (Transport.PLAIN, Transport.TLS)
# Clients whose admin client can delete records.
_DELETING = tuple(name for name in TRANSACTIONAL if name in WITH_GROUPS)
# Clients that support static members.
_STATIC = tuple(name for name in TRANSACTIONAL if name not in JAVA)
# Error codes of the Kafka protocol.
_TOPIC_EXISTS, _INVALID_PARTITIONS, _INVALID_CONFIG, _GROUP_NOT_FOUND, _TOO_LARGE = 36, 37, 40, 69, 10
_SECURITY_DISABLED = 54
# Codes of a fenced producer; the last one is librdkafka's own.
_FENCED = {90, 47, -144}


@pytest.fixture(scope="module")
def drivers() -> Iterator[dict[Name, Driver]]:
    """One process for each program, started when a test first needs it."""
    started: dict[Name, Driver] = {}
    try:
        yield started
    finally:
        for driver in started.values():
            driver.__exit__(None, None, None)


@pytest.fixture(scope="module")
def standard() -> Iterator[Node]:
    """A node with the limits of the service."""
    with Node(settings={"memory": True, "as": "developer"}) as node:
        yield node


@pytest.fixture
def client(
    request: pytest.FixtureRequest, node: Node, drivers: dict[Name, Driver], tmp_path_factory: pytest.TempPathFactory
) -> Client:
    name, transport = request.param
    if name not in drivers:
        try:
            drivers[name] = Driver(DRIVEN[name].command(), {})
        except NotInstalled as reason:
            pytest.skip(str(reason))
    return Client(drivers[name], DRIVEN[name], node, transport, tmp_path_factory.mktemp("trust"))


def values(records: list[Facts]) -> list[str]:
    return [record["value"] for record in records]


# --- produce and read ------------------------------------------------------------------------------------------------


@judges(feature=Feature.CODECS)
@judged(*EVERY, over=_BOTH)
def test_events_are_read_back_in_every_codec(client: Client, topic: str) -> None:
    """The codecs have the framing of the client's own libraries."""
    codecs = client.driven.codecs
    client.make_topic(topic, len(codecs))
    texts = [f"{number} " * 100 for number in range(20)]

    for partition, codec in enumerate(codecs):
        client.produce(topic, *texts, partition=partition, codec=codec)

    assert [values(client.read(topic, 20, partition)) for partition in range(len(codecs))] == [texts] * len(codecs)


@judges(feature=Feature.RECORDS)
@judged(*EVERY)
def test_records_are_read_back_unchanged(client: Client, topic: str) -> None:
    """Key, headers and time are compared; null differs from empty."""
    client.make_topic(topic, message_timestamp_type="CreateTime")
    sent_ms = int(time.time() * 1000) - 5000
    full = {"key": "größe", "value": "x", "headers": [["h", "1"], ["h", "2"], ["g", ""]], "timeMs": sent_ms}
    sent: list[Facts] = [full, {"key": "k", "value": None}, {"key": "", "value": ""}]

    client.call("produce", topic=topic, records=sent)
    read = client.read(topic, 3)

    empty = client.driven.empty
    assert [(one["key"], one["value"]) for one in read] == [("größe", "x"), ("k", None), (empty, empty)]
    assert (read[0]["headers"], read[0]["timeMs"]) == (full["headers"], sent_ms)
    assert [one["offset"] for one in read] == [0, 1, 2]


@judges(feature=Feature.ACKS)
@judged(*EVERY)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acknowledgement_stores_every_event(client: Client, topic: str, acks: int) -> None:
    """For every value of acks."""
    client.make_topic(topic)

    client.produce(topic, *"abc", acks=acks)

    assert values(client.read(topic, 3)) == ["a", "b", "c"]


@judges(feature=Feature.IDEMPOTENT)
@judged(*TRANSACTIONAL)
def test_idempotent_producer_gets_the_offsets_of_its_events(client: Client, topic: str) -> None:
    """The client learns the offset of each."""
    client.make_topic(topic)

    offsets = [client.produce(topic, *"abc", idempotent=True) for _ in range(2)]

    assert offsets == [[0, 1, 2], [3, 4, 5]]


@judges(feature=Feature.POSITIONS)
@judged(*EVERY)
def test_reader_starts_at_the_requested_position(client: Client, topic: str) -> None:
    """It is an offset, or the offset of a time."""
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
@judged(*EVERY)
def test_group_continues_at_its_committed_offsets(client: Client, topic: str, group: str) -> None:
    """It is the offset of the last member."""
    client.make_topic(topic)
    client.produce(topic, "a", "b")
    first = client.consume(topic, group, 2)
    client.produce(topic, "c")

    second = client.consume(topic, group, 1)
    kept = client.call("groupOffset", topic=topic, partition=0, group=group)

    assert (values(first), values(second), kept) == (["a", "b"], ["c"], 3)


@judges(feature=Feature.GROUPS)
@judged(*EVERY, over=_BOTH)
def test_a_group_shares_its_partitions(client: Client, topic: str, group: str) -> None:
    """Members join one after the other, with the assignor that each client has by default."""
    client.make_topic(topic, 4)

    held = client.call("share", topic=topic, group=group, members=2, count=4)

    assert sorted(chain.from_iterable(held)) == [0, 1, 2, 3]
    assert [len(part) for part in held] == [2, 2]


@judges(feature=Feature.CONSUMER_PROTOCOL)
@judged(Name.FRANZ, over=_BOTH)
def test_a_group_shares_the_partitions_that_the_node_assigns(client: Client, topic: str, group: str) -> None:
    """KIP-848: members join one after the other; a member that returns continues at the committed offset."""
    client.make_topic(topic, 4)
    client.produce(topic, "a", "b")

    held = client.call("share", topic=topic, group=group, members=3, count=4, protocol="consumer")
    first = client.consume(topic, group, 2, protocol="consumer")
    client.produce(topic, "c")
    second = client.consume(topic, group, 1, protocol="consumer")

    assert sorted(chain.from_iterable(held)) == [0, 1, 2, 3]
    assert sorted(len(part) for part in held) == [1, 1, 2]
    assert (values(first), values(second)) == (["a", "b"], ["c"])


@judges(feature=Feature.REGEX_SUBSCRIPTION)
@judged(Name.FRANZ)
def test_a_pattern_is_evaluated_by_the_node(client: Client, topic: str, group: str) -> None:
    """Only topics whose whole name matches are read."""
    client.make_topic(f"{topic}-eu")
    client.make_topic(f"{topic}-apac")
    client.produce(f"{topic}-eu", "a")
    client.produce(f"{topic}-apac", "b")

    read = client.consume(f"{topic}-(eu|us)", group, 1, protocol="consumer", isPattern=True)

    assert values(read) == ["a"]


@judges(feature=Feature.STATIC)
@judged(*_STATIC)
def test_static_member_continues_at_its_committed_offset(client: Client, topic: str, group: str) -> None:
    """It returns with its instance id before its session expires."""
    client.make_topic(topic)
    client.produce(topic, "a", "b")
    first = client.consume(topic, group, 2, instance="meter")
    client.produce(topic, "c")

    second = client.consume(topic, group, 1, instance="meter")

    assert (values(first), values(second)) == (["a", "b"], ["c"])


# --- transactions ----------------------------------------------------------------------------------------------------


@judges(feature=Feature.TRANSACTIONS)
@judged(*TRANSACTIONAL)
def test_transactions_are_all_or_nothing(client: Client, topic: str) -> None:
    """read_committed consumers see only committed events, others see everything."""
    client.make_topic(topic)
    kept = {"one": True, "two": False, "three": True}
    steps = [{"topic": topic, "values": [value, value], "isKept": is_kept} for value, is_kept in kept.items()]

    client.call("transact", id=f"t-{topic}", steps=steps)

    assert values(client.read(topic, 4, committed=True)) == ["one", "one", "three", "three"]
    assert values(client.read(topic, 6)) == ["one", "one", "two", "two", "three", "three"]


@judges(feature=Feature.EXACTLY_ONCE)
@judged(*TRANSACTIONAL)
def test_offsets_are_committed_with_the_transaction(client: Client, topic: str, group: str) -> None:
    """Offsets of an aborted transaction have no effect."""
    client.make_topic(topic)

    def step(offset: int, *, is_kept: bool) -> Facts:
        return {"topic": topic, "values": ["x"], "group": group, "offset": offset, "isKept": is_kept}

    client.call("transact", id=f"t-{topic}", steps=[step(3, is_kept=True), step(7, is_kept=False)])

    assert client.call("groupOffset", topic=topic, partition=0, group=group) == 3


@judges(feature=Feature.FENCING)
@judged(*TRANSACTIONAL)
def test_the_second_producer_of_a_transactional_id_fences_the_first(client: Client, topic: str) -> None:
    """The old producer fails at its next request, and its open transaction is aborted."""
    client.make_topic(topic)
    successor = {"topic": topic, "values": ["successor"], "isKept": True}

    code = client.call("fence", id=f"t-{topic}", topic=topic, steps=[successor])

    assert int(code) in _FENCED
    assert values(client.read(topic, 1, committed=True)) == ["successor"]


# --- administration --------------------------------------------------------------------------------------------------


@judges(feature=Feature.TOPICS)
@judged(*EVERY)
def test_topics_are_created_extended_and_deleted(client: Client, topic: str) -> None:
    """Each step is visible in the list."""
    client.make_topic(topic, 3)
    made = client.topics()[topic]
    client.call("growTopic", topic=topic, partitions=5)
    grown = client.topics()[topic]
    client.call("deleteTopic", topic=topic)

    assert (made, grown) == (3, 5)
    assert topic not in client.topics()


@judges(feature=Feature.CONFIGS)
@judged(*EVERY)
def test_configurations_are_read_and_changed(client: Client, topic: str) -> None:
    """Each client uses its own request."""
    client.make_topic(topic)

    client.call("alterConfigs", topic=topic, configs={"retention.ms": "7200000"})
    entries = client.call("configs", topic=topic)

    assert (entries["retention.ms"], entries["cleanup.policy"]) == ("7200000", "delete")


@judges(feature=Feature.GROUP_ADMIN)
@judged(*WITH_GROUPS)
def test_groups_are_listed_described_reset_and_deleted(client: Client, topic: str, group: str) -> None:
    """They have no members."""
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
@judged(*_DELETING)
def test_records_are_deleted(client: Client, topic: str) -> None:
    """The log start offset of the partition moves."""
    client.make_topic(topic)
    client.produce(topic, *"abc")

    client.call("deleteRecords", topic=topic, partition=0, offset=2)

    assert client.call("bounds", topic=topic, partition=0) == [2, 3]


@judges(feature=Feature.CLUSTER)
@judged(*JAVA)
def test_the_cluster_is_described(client: Client, topic: str) -> None:
    """One node is the leader of everything and knows every size; the oldest request versions are used."""
    client.make_topic(topic)
    client.produce(topic, "x" * 1000)

    cluster, sizes = client.call("cluster"), client.call("logDirs")

    assert cluster == {"controller": 0, "nodes": 1}
    assert sizes[f"{topic}-0"] > 1000
    assert sizes[f"{topic}-1"] == 0


# --- refusals --------------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
@judged(*EVERY)
@pytest.mark.parametrize(
    ("task", "arguments", "code"),
    [
        ("createTopic", {"topic": "taken", "partitions": 1}, _TOPIC_EXISTS),
        ("createTopic", {"topic": "bad", "partitions": 1, "configs": {"x": "y"}}, _INVALID_CONFIG),
        ("growTopic", {"topic": "taken", "partitions": 1}, _INVALID_PARTITIONS),
    ],
    ids=["topic exists", "unknown setting", "fewer partitions"],
)
def test_administrators_get_the_right_error(client: Client, task: str, arguments: Facts, code: int) -> None:
    """The client has its own error classes."""
    if "taken" not in client.topics():
        client.make_topic("taken")

    with pytest.raises(ClientError) as refusal:
        client.call(task, **arguments)

    assert refusal.value.code == str(code)


@judges(feature=Feature.REFUSALS)
@judged(*WITH_GROUPS)
def test_unknown_group_cannot_be_deleted(client: Client) -> None:
    """The client has its own error class."""
    with pytest.raises(ClientError) as refusal:
        client.call("deleteGroup", group="nobody")

    assert refusal.value.code == str(_GROUP_NOT_FOUND)


@judges(feature=Feature.REFUSALS)
@judged(*JAVA)
def test_access_control_lists_are_refused(client: Client) -> None:
    """The oldest version of the request is refused too."""
    with pytest.raises(ClientError) as refusal:
        client.call("acls")

    assert refusal.value.code == str(_SECURITY_DISABLED)


@judges(feature=Feature.REFUSALS)
@judged(*EVERY)
def test_a_wrong_key_is_refused(client: Client, node: Node) -> None:
    """The client's error contains the node's reason."""
    wrong = node.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")

    with pytest.raises(ClientError) as refusal:
        client.with_password(wrong).topics()

    assert "InvalidSignature" in refusal.value.message


@judges(feature=Feature.REFUSALS)
@judged(*EVERY)
def test_event_that_is_too_large_is_refused(client: Client, standard: Node, topic: str) -> None:
    """The limit is that of the tier; other events are stored."""
    limited = client.at(standard)
    limited.make_topic(topic)

    with pytest.raises(ClientError) as refusal:
        limited.produce(topic, "x" * 1_100_000)
    after = limited.produce(topic, "small")

    assert (refusal.value.code, after) == (str(_TOO_LARGE), [0])
