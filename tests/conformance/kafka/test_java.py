"""Kafka's own Java clients, the last 3.x and a recent 4.x: produce, consume, groups, transactions, administration."""

import time

import pytest

from conformance.conformance_node import Transport
from conformance.driver import ClientError
from conformance.kafka.apache import client_settings
from conformance.kafka.jvm import Facts, Jvm
from conformance.matrix import Feature
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(transport=Transport.PLAIN)]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# A rebalance is noticed at the next heartbeat.
_QUICK = {"heartbeat_interval_ms": 200, "session_timeout_ms": 60_000}


def make_topic(jvm: Jvm, topic: str, partitions: int = 4, **configs: str) -> None:
    entries = {name.replace("_", "."): value for name, value in configs.items()}
    jvm.admin("createTopic", topic=topic, partitions=partitions, configs=entries)


def publish(jvm: Jvm, topic: str, *values: str, partition: int = 0) -> list[Facts]:
    with jvm.producer() as producer:
        return producer.send_values(topic, *values, partition=partition)


def sorted_values(records: list[Facts]) -> list[str]:
    return sorted(record["value"] for record in records)


# --- produce ---------------------------------------------------------------------------------------------------------


@judges(feature=Feature.CODECS)
def test_events_are_read_back_in_every_codec(jvm_by_transport: Jvm, topic: str) -> None:
    """Reference check 11: the codecs have Java's own framing."""
    make_topic(jvm_by_transport, topic, partitions=len(_CODECS))
    values = [f"{number} " * 100 for number in range(20)]

    for partition, codec in enumerate(_CODECS):
        with jvm_by_transport.producer(compression_type=codec, linger_ms=50) as producer:
            producer.send_values(topic, *values, partition=partition)

    with jvm_by_transport.consumer() as consumer:
        consumer.assign(*((topic, partition) for partition in range(len(_CODECS))))
        records = consumer.poll(len(values) * len(_CODECS))
    for partition in range(len(_CODECS)):
        assert [one["value"] for one in records if one["partition"] == partition] == values


@judges(feature=Feature.RECORDS)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_records_are_read_back_unchanged(jvm: Jvm, topic: str, kind: str) -> None:
    """Key, value, headers in order, null and empty are compared; the time is that of the producer or of the append."""
    make_topic(jvm, topic, message_timestamp_type=kind)
    sent_ms = int(time.time() * 1000) - 5000
    full = {"key": "größe", "value": "x", "headers": [["h", "1"], ["h", None], ["g", ""]]}
    sent: list[Facts] = [full, {"key": None, "value": None}, {"key": "", "value": ""}]

    with jvm.producer() as producer:
        results = producer.send(topic, *({**one, "partition": 1, "timeMs": sent_ms} for one in sent))
    with jvm.consumer() as consumer:
        consumer.assign((topic, 1))
        records = consumer.poll(3)

    assert [(one["key"], one["value"]) for one in records] == [(one["key"], one["value"]) for one in sent]
    assert [one["headers"] for one in records] == [full["headers"], [], []]
    assert [one["offset"] for one in records] == [one["offset"] for one in results] == [0, 1, 2]
    is_own = kind == "CreateTime"
    assert {one["timeType"] for one in records} == {"CREATE_TIME" if is_own else "LOG_APPEND_TIME"}
    assert [one["timeMs"] for one in records] == [one["timeMs"] for one in results]
    assert {one["timeMs"] == sent_ms for one in records} == {is_own}


@judges(feature=Feature.IDEMPOTENT)
def test_producer_is_idempotent_by_default(jvm: Jvm, topic: str) -> None:
    """Many batches in flight, offsets without a gap, and the partition has the state of its producer."""
    make_topic(jvm, topic)

    with jvm.producer(batch_size=200) as producer:
        results = producer.send_values(topic, *map(str, range(500)))
        known = jvm.admin("describeProducers", place=(topic, 0))

    assert [one["offset"] for one in results] == list(range(500))
    assert known == [{"epoch": 0, "isOpen": False}]


@judges(feature=Feature.ACKS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acknowledgement_stores_every_event(jvm: Jvm, topic: str, acks: str) -> None:
    """They are in order; with acks=0 the client gets no offset."""
    make_topic(jvm, topic)
    values = [str(number) for number in range(100)]

    with jvm.producer(acks=acks, enable_idempotence="false") as producer:
        results = producer.send_values(topic, *values)
    with jvm.consumer() as consumer:
        consumer.assign((topic, 0))
        read = consumer.values(100)

    assert read == values
    assert [one["offset"] for one in results] == ([-1] * 100 if acks == "0" else list(range(100)))


# --- consume ---------------------------------------------------------------------------------------------------------


@judges(feature=Feature.POSITIONS)
def test_positions_are_found(jvm: Jvm, topic: str) -> None:
    """They are the beginning, the end, an offset and a time."""
    make_topic(jvm, topic, message_timestamp_type="CreateTime")
    spot, start_ms = (topic, 2), int(time.time() * 1000) - 60_000
    with jvm.producer() as producer:
        producer.send(topic, *({"value": str(n), "partition": 2, "timeMs": start_ms + 1000 * n} for n in range(5)))

    with jvm.consumer() as consumer:
        consumer.assign(spot)
        found = consumer.offsets_for_times(spot, [start_ms - 1, start_ms + 1500, start_ms + 4000, start_ms + 9000])
        places = [consumer.seek(spot, to) for to in ("end", "beginning", 3)]
        read = consumer.values(2)
        bounds, position = consumer.bounds(spot), consumer.position(spot)

    assert found == [[0, start_ms], [2, start_ms + 2000], [4, start_ms + 4000], None]
    assert places == [5, 0, 3]
    assert (read, bounds, position) == (["3", "4"], [0, 5], 5)


@judges(feature=Feature.ASSIGN)
def test_partitions_can_be_assigned_by_the_client(jvm: Jvm, topic: str) -> None:
    """There is no group."""
    make_topic(jvm, topic)
    for partition in range(4):
        publish(jvm, topic, str(partition), partition=partition)

    with jvm.consumer() as consumer:
        consumer.assign((topic, 1), (topic, 3))
        read, more = consumer.poll(2), consumer.poll(1, at_most_ms=300)

    assert (sorted_values(read), more) == (["1", "3"], [])


@judges(feature=Feature.PAUSE)
def test_paused_partition_is_not_read(jvm: Jvm, topic: str) -> None:
    """No event of it is lost."""
    make_topic(jvm, topic)
    publish(jvm, topic, "a", partition=0)
    publish(jvm, topic, "b", partition=1)

    with jvm.consumer() as consumer:
        consumer.assign((topic, 0), (topic, 1))
        held = consumer.pause((topic, 0))
        meanwhile = [*consumer.values(1), *sorted_values(consumer.poll(1, at_most_ms=500))]
        consumer.resume((topic, 0))
        after = consumer.values(1)

    assert (held, meanwhile, after) == ([0], ["b"], ["a"])


@judges(feature=Feature.COMMITS)
def test_commits_are_stored(jvm: Jvm, topic: str, group: str) -> None:
    """They have metadata, and are synchronous or asynchronous; another consumer of the group continues there."""
    make_topic(jvm, topic)
    publish(jvm, topic, "a", "b", "c")

    with jvm.consumer(group_id=group) as consumer:
        consumer.subscribe(topic)
        consumer.poll(3)
        consumer.commit((topic, 0, 1, "waited for"), (topic, 1, 0, ""))
        waited = consumer.committed((topic, 0), (topic, 1), (topic, 2))
        results = consumer.commit((topic, 0, 2, "größe"), is_async=True)
    with jvm.consumer(group_id=group) as consumer:
        consumer.subscribe(topic)
        read, kept = consumer.values(1), consumer.committed((topic, 0))

    assert waited == [[0, 1, "waited for"], [1, 0, ""]]
    assert (results, kept, read) == ([0], [[0, 2, "größe"]], ["c"])


# --- groups ----------------------------------------------------------------------------------------------------------


@judges(feature=Feature.GROUPS)
def test_group_shares_partitions_and_continues_at_its_commits(jvm_by_transport: Jvm, topic: str, group: str) -> None:
    """Reference checks 32 and 33, with the assignors that Java has by default."""
    jvm = jvm_by_transport
    make_topic(jvm, topic)
    with jvm.consumer(group_id=group, **_QUICK) as first, jvm.consumer(group_id=group, **_QUICK) as second:
        first.subscribe(topic)
        second.subscribe(topic)
        shares = first.poll_until_shared(4, second)
        with jvm.producer() as producer:
            producer.send(topic, *({"value": str(n), "partition": n % 4} for n in range(100)))
        read = first.poll(100, second)
        described = jvm.admin("describeGroup", group=group)
        for consumer, share in ((first, shares[0]), (second, shares[1])):
            consumer.commit(*((topic, partition, 25, "") for partition in share))
    publish(jvm, topic, "new", partition=3)
    with jvm.consumer(group_id=group) as consumer:
        consumer.subscribe(topic)
        later = consumer.values(1)

    assert sorted(len(share) for share in shares) == [2, 2]
    assert sorted(int(one["value"]) for one in read) == list(range(100))
    assert (described["state"], described["assignor"], len(described["members"])) == ("Stable", "range", 2)
    assert later == ["new"]


@judges(feature=Feature.COOPERATIVE)
def test_cooperative_members_keep_their_partitions(jvm: Jvm, topic: str, group: str) -> None:
    """KIP-429: a member revokes only the partitions of the new member, and gets them back when it leaves."""
    make_topic(jvm, topic)
    assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    settings = {"group_id": group, "partition_assignment_strategy": assignor, **_QUICK}

    with jvm.consumer(**settings) as stays:
        stays.subscribe(topic)
        stays.poll_until_shared(4)
        with jvm.consumer(**settings) as comes:
            comes.subscribe(topic)
            kept, taken = stays.poll_until_shared(4, comes)
        stays.poll_until_shared(4)
        results = [(what, places) for what, places in stays.rebalances() if places]

    assert (len(kept), len(taken)) == (2, 2)
    assert results == [("assigned", [0, 1, 2, 3]), ("revoked", taken), ("assigned", taken)]


@judges(feature=Feature.STATIC)
def test_static_member_gets_its_partitions_back(jvm: Jvm, topic: str, group: str) -> None:
    """Reference check 36: the other member does not rebalance."""
    make_topic(jvm, topic)

    def member(name: str) -> dict[str, object]:
        return {
            "group_id": group,
            "group_instance_id": name,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 300_000,
        }

    with jvm.consumer(**member("stays")) as stays:
        stays.subscribe(topic)
        with jvm.consumer(**member("goes")) as goes:
            goes.subscribe(topic)
            before = stays.poll_until_shared(4, goes)
            heard, generation = stays.rebalances(), stays.member()["generation"]
        with jvm.consumer(**member("goes")) as back:
            back.subscribe(topic)
            after = stays.poll_until_shared(4, back)
            instances = {one["instance"] for one in jvm.admin("describeGroup", group=group)["members"]}
            later = stays.member()["generation"]

        assert (before, generation) == (after, later)
        assert stays.rebalances() == heard
        assert instances == {"stays", "goes"}


# --- transactions ----------------------------------------------------------------------------------------------------


def read_committed(jvm: Jvm, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    with jvm.consumer(isolation_level=isolation) as consumer:
        consumer.assign((topic, 0), (topic, 1))
        return sorted_values([*consumer.poll(count), *consumer.poll(1, at_most_ms=200)])


@judges(feature=Feature.TRANSACTIONS)
def test_transactions_are_all_or_nothing(jvm: Jvm, topic: str) -> None:
    """read_committed consumers see only committed events, others see everything; administrators see the open
    transaction.
    """
    make_topic(jvm, topic)
    with jvm.producer(transactional_id=f"t-{topic}") as producer:
        producer.init_transactions()
        for value, is_kept in (("one", True), ("two", False), ("three", True)):
            producer.begin()
            producer.send(topic, *({"value": value, "partition": partition} for partition in range(2)))
            producer.commit() if is_kept else producer.abort()
        producer.begin()
        producer.send_values(topic, "open")
        open_one = jvm.admin("transactions", id=f"t-{topic}")
        counts = {"read_committed": 4, "read_uncommitted": 7}
        seen = {kind: read_committed(jvm, topic, count, kind) for kind, count in counts.items()}
        producer.abort()

    assert seen["read_committed"] == ["one", "one", "three", "three"]
    assert seen["read_uncommitted"] == ["one", "one", "open", "three", "three", "two", "two"]
    assert (open_one["states"][f"t-{topic}"], open_one["state"]) == ("Ongoing", "Ongoing")
    assert open_one["places"] == [[topic, 0]]


@judges(feature=Feature.EXACTLY_ONCE)
def test_events_are_read_and_written_exactly_once(jvm: Jvm, topic: str, group: str) -> None:
    """Offsets are committed with the transaction; events of an aborted one are read again."""
    output = f"{topic}-out"
    make_topic(jvm, topic)
    make_topic(jvm, output)
    publish(jvm, topic, *(str(number) for number in range(10)))
    settings = {"group_id": group, "isolation_level": "read_committed"}

    with jvm.producer(transactional_id=f"t-{topic}") as producer:
        producer.init_transactions()
        for is_kept in (False, True):
            with jvm.consumer(**settings) as consumer:
                consumer.subscribe(topic)
                values = consumer.values(10)
                producer.begin()
                producer.send_values(output, *(f"{value}!" for value in values))
                producer.send_offsets(consumer)
                producer.commit() if is_kept else producer.abort()

    assert read_committed(jvm, output, 10) == [f"{number}!" for number in range(10)]
    assert [topic, 0, 10] in jvm.admin("listGroupOffsets", group=group)


@judges(feature=Feature.FENCING)
def test_the_second_producer_of_a_transactional_id_fences_the_first(jvm: Jvm, topic: str) -> None:
    """The old producer fails at its next request, and its open transaction is aborted."""
    make_topic(jvm, topic)
    settings = {"transactional_id": f"t-{topic}"}

    with jvm.producer(**settings) as zombie, jvm.producer(**settings) as successor:
        zombie.init_transactions()
        zombie.begin()
        zombie.send_values(topic, "zombie")
        successor.init_transactions()
        with pytest.raises(ClientError) as result:
            zombie.commit()
        successor.begin()
        successor.send_values(topic, "successor")
        successor.commit()

    assert result.value.name in {"ProducerFencedException", "InvalidProducerEpochException"}
    assert read_committed(jvm, topic, 1) == ["successor"]


# --- administration --------------------------------------------------------------------------------------------------


@judges(feature=Feature.TOPICS)
def test_topics_are_created_described_extended_and_deleted(jvm: Jvm, topic: str) -> None:
    """Names and ids agree in every answer."""
    made = jvm.admin("createTopic", topic=topic, partitions=3, configs={})
    described = jvm.admin("describeTopic", topic=topic)
    listed = jvm.admin("listTopics")
    jvm.admin("createPartitions", topic=topic, partitions=5)
    grown = jvm.admin("describeTopic", topic=topic)
    jvm.admin("deleteTopic", topic=topic)

    assert described == {"id": made["id"], "partitions": 3, "leader": 0, "replicas": 1}
    assert grown == described | {"partitions": 5}
    assert topic in listed
    assert topic not in jvm.admin("listTopics")


@judges(feature=Feature.CONFIGS)
def test_configurations_are_read_and_changed(jvm: Jvm, topic: str) -> None:
    """An entry is set and reset; those of the broker can be read."""
    make_topic(jvm, topic, cleanup_policy="compact")
    before = jvm.admin("describeConfigs", topic=topic)

    jvm.admin("alterConfigs", topic=topic, configs={"delete.retention.ms": "7200000"})
    changed = jvm.admin("describeConfigs", topic=topic)
    jvm.admin("alterConfigs", topic=topic, configs={"delete.retention.ms": None})

    assert before["cleanup.policy"] == ["compact", "DYNAMIC_TOPIC_CONFIG", "LIST"]
    assert changed["delete.retention.ms"] == ["7200000", "DYNAMIC_TOPIC_CONFIG", "LONG"]
    assert jvm.admin("describeConfigs", topic=topic) == before
    assert jvm.admin("describeConfigs", broker="0")["num.partitions"][0] == "4"


@judges(feature=Feature.GROUP_ADMIN)
def test_groups_are_listed_described_reset_and_deleted(jvm: Jvm, topic: str, group: str) -> None:
    """A group with members can neither be reset nor deleted."""
    make_topic(jvm, topic)
    publish(jvm, topic, *"abc")
    with jvm.consumer(group_id=group, client_id="a client") as consumer:
        consumer.subscribe(topic)
        consumer.poll(3)
        consumer.commit((topic, 0, 3, ""), (topic, 1, 0, ""))
        described = jvm.admin("describeGroup", group=group)
        refused = [_refusal(jvm, name, group, topic) for name in ("alterGroupOffsets", "deleteGroup")]
    listed = jvm.admin("listGroups")

    jvm.admin("alterGroupOffsets", group=group, place=(topic, 0), offset=1)
    jvm.admin("deleteGroupOffsets", group=group, place=(topic, 1))
    offsets = jvm.admin("listGroupOffsets", group=group)
    jvm.admin("deleteGroup", group=group)

    assert described["members"] == [{"client": "a client", "instance": "", "partitions": 4}]
    assert refused == ["UnknownMemberIdException", "GroupNotEmptyException"]
    assert (listed[group], offsets) == ("Empty", [[topic, 0, 1]])
    assert group not in jvm.admin("listGroups")


def _refusal(jvm: Jvm, name: str, group: str, topic: str) -> str:
    with pytest.raises(ClientError) as result:
        jvm.admin(name, group=group, place=(topic, 0), offset=0)
    return result.value.name


@judges(feature=Feature.RECORD_ADMIN)
def test_offsets_are_listed_and_records_deleted(jvm: Jvm, topic: str) -> None:
    """Offsets are found by earliest, latest, time and newest time; the log start offset moves."""
    make_topic(jvm, topic)
    sent = publish(jvm, topic, *"abcd")
    first_ms, last_ms = sent[0]["timeMs"], sent[-1]["timeMs"]

    def offset(which: object) -> int:
        return int(jvm.admin("listOffsets", place=(topic, 0), which=str(which))[0])

    before = [offset(which) for which in ("earliest", "latest", first_ms, last_ms + 1)]
    newest = jvm.admin("listOffsets", place=(topic, 0), which="maxTimestamp")
    low = jvm.admin("deleteRecords", place=(topic, 0), before=2)

    assert before == [0, 4, 0, -1]
    assert newest[1] == last_ms
    assert (low, offset("earliest"), offset("latest")) == (2, 2, 4)


@judges(feature=Feature.CLUSTER)
def test_the_cluster_is_described(jvm: Jvm, topic: str) -> None:
    """There is one node, which is the leader of everything and knows the size of every partition."""
    make_topic(jvm, topic, partitions=2)
    publish(jvm, topic, "x" * 1000)

    cluster = jvm.admin("describeCluster")
    sizes = jvm.admin("describeLogDirs", broker=0)

    assert (cluster["controller"], cluster["nodes"], bool(cluster["id"])) == (0, 1, True)
    assert sizes[f"{topic}-0"] > 1000
    assert sizes[f"{topic}-1"] == 0


# --- what goes wrong -------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
@pytest.mark.parametrize(
    ("task", "arguments", "name"),
    [
        ("describeTopic", {"topic": "nowhere"}, "UnknownTopicOrPartitionException"),
        ("createTopic", {"topic": "taken", "partitions": 1, "configs": {}}, "TopicExistsException"),
        ("createTopic", {"topic": "bad", "partitions": 1, "configs": {"x": "y"}}, "InvalidConfigurationException"),
        ("createPartitions", {"topic": "taken", "partitions": 1}, "InvalidPartitionsException"),
        ("deleteGroup", {"group": "nobody"}, "GroupIdNotFoundException"),
        ("describeAcls", {}, "SecurityDisabledException"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_administrators_get_the_right_error(jvm: Jvm, task: str, arguments: Facts, name: str) -> None:
    """They have the types of the client."""
    if "taken" not in jvm.admin("listTopics"):
        make_topic(jvm, "taken")

    with pytest.raises(ClientError) as result:
        jvm.admin(task, **arguments)

    assert result.value.name == name


@judges(feature=Feature.REFUSALS)
def test_a_wrong_key_is_reported(jvm: Jvm, node: Node) -> None:
    """Reference check 6."""
    wrong = node.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")

    with pytest.raises(ClientError) as result:
        jvm.signed_in_as(client_settings(node, connection_string=wrong)).admin("listTopics")

    assert (result.value.name, "InvalidSignature" in result.value.message) == ("SaslAuthenticationException", True)


@judges(feature=Feature.REFUSALS)
def test_event_that_is_too_large_is_refused(jvm: Jvm, topic: str) -> None:
    """Reference check 15: only this event fails, the producer continues."""
    with Node(hubs=[topic], settings={"memory": True}) as small:
        clients = jvm.signed_in_as(client_settings(small))
        with clients.producer(max_request_size=5_000_000, batch_size=5_000_000) as producer:
            with pytest.raises(ClientError) as result:
                producer.send_values(topic, "x" * 1_100_000)
            after = producer.send_values(topic, "small")

    assert (result.value.name, after[0]["offset"]) == ("RecordTooLargeException", 0)
