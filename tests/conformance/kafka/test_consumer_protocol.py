"""Consumer groups whose partitions the node assigns (KIP-848): Kafka's Java clients and tools, and librdkafka."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import KafkaException, ShareConsumer
from confluent_kafka import Producer as RdProducer

from conformance.clients import Jars
from conformance.conformance_node import Transport
from conformance.driver import ClientError, Driver
from conformance.kafka.apache import Ended, client_settings, write_settings
from conformance.kafka.conftest import TRANSPORTS, a_driver
from conformance.kafka.jvm import Consumer, Jvm
from conformance.kafka.kafka_clients import librdkafka
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges
java = judges(client=Name.KAFKA_JAVA_4)
tools = judges(client=Name.KAFKA_TOOLS_4)
rdkafka = judges(client=Name.CONFLUENT)

pytestmark = [pytest.mark.foreign, judges(transport=Transport.PLAIN, feature=Feature.CONSUMER_PROTOCOL)]

# Classic members also learn of a rebalance with their next heartbeat.
_CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 200, "session_timeout_ms": 60_000}
_CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """Clients before 4.0 have only an experimental version of the protocol."""
    with a_driver(Jars.KAFKA_4) as driver:
        yield driver


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    found: Transport = request.param
    return found


@pytest.fixture
def jvm(driver: Driver, node: Node) -> Jvm:
    return Jvm(driver, client_settings(node))


@pytest.fixture
def jvm_by_transport(driver: Driver, node: Node, transport: Transport) -> Jvm:
    return Jvm(driver, client_settings(node, tls=transport is Transport.TLS))


def make_topic(jvm: Jvm, topic: str, partitions: int = 4) -> None:
    jvm.admin("createTopic", topic=topic, partitions=partitions, configs={})


def publish(jvm: Jvm, topic: str, count: int, partitions: int = 4) -> list[str]:
    values = [str(number) for number in range(count)]
    with jvm.producer() as producer:
        producer.send(topic, *({"value": value, "partition": int(value) % partitions} for value in values))
    return values


def owned(shares: list[list[int]]) -> list[int]:
    return sorted(partition for share in shares for partition in share)


# --- Java ------------------------------------------------------------------------------------------------------------


@java
def test_members_share_partitions_and_take_over(jvm_by_transport: Jvm, topic: str, group: str) -> None:
    """There are one, two and three members; each partition has one reader, and nothing is read twice after a commit."""
    jvm = jvm_by_transport
    make_topic(jvm, topic)
    values = publish(jvm, topic, 40)
    with (
        jvm.consumer(group_id=group, **_CONSUMER) as first,
        jvm.consumer(group_id=group, **_CONSUMER) as second,
    ):
        first.subscribe(topic)
        read = [one["value"] for one in first.poll(40)]
        first.commit(*((topic, partition, 10, "") for partition in range(4)))
        second.subscribe(topic)
        shared = first.poll_until_shared(4, second)
        with jvm.consumer(group_id=group, **_CONSUMER) as third:
            third.subscribe(topic)
            thirds = first.poll_until_shared(4, second, third)
        again = first.poll_until_shared(4, second)
        late = first.poll(1, second, at_most_ms=500)

        assert sorted(read) == sorted(values)
        assert [sorted(map(len, shares)) for shares in (shared, thirds, again)] == [[2, 2], [1, 1, 2], [2, 2]]
        assert owned(thirds) == [0, 1, 2, 3]
        assert late == []
        # The rebalance is incremental: the first member gave up two partitions and kept the others.
        assert ["revoked", second.rebalances()[1][1]] in first.rebalances()


@java
@judges(feature=Feature.REGEX_SUBSCRIPTION)
def test_pattern_includes_topics_that_are_created_later(jvm_by_transport: Jvm, topic: str, group: str) -> None:
    """The node evaluates RE2; topics that do not match are not read."""
    jvm = jvm_by_transport
    make_topic(jvm, f"{topic}-eu", 1)
    make_topic(jvm, f"other-{topic}-eu", 1)
    with jvm.consumer(group_id=group, **_CONSUMER) as consumer:
        consumer.subscribe_pattern(f"{topic}-(eu|us)")
        with jvm.producer() as producer:
            producer.send_values(f"{topic}-eu", "first")
            first = consumer.values(1)
            make_topic(jvm, f"{topic}-us", 1)
            producer.send_values(f"{topic}-us", "second")
            producer.send_values(f"other-{topic}-eu", "of another topic")
        second = consumer.values(1)
        rest = consumer.poll(1, at_most_ms=500)

    assert (first, second, rest) == (["first"], ["second"], [])


@java
@judges(feature=Feature.REGEX_SUBSCRIPTION)
def test_invalid_pattern_is_refused(jvm: Jvm, group: str) -> None:
    """The client's own error has the reason."""
    with jvm.consumer(group_id=group, **_CONSUMER) as consumer:
        consumer.subscribe_pattern("orders(")
        with pytest.raises(ClientError) as result:
            consumer.poll(1)

    assert (result.value.name, "missing )" in result.value.message) == ("InvalidRegularExpression", True)


@java
def test_static_member_gets_its_partitions_back(jvm: Jvm, topic: str, group: str) -> None:
    """The other member is not affected."""
    make_topic(jvm, topic)
    with jvm.consumer(group_id=group, group_instance_id="stays", **_CONSUMER) as stays:
        stays.subscribe(topic)
        with jvm.consumer(group_id=group, group_instance_id="goes", **_CONSUMER) as goes:
            goes.subscribe(topic)
            before = stays.poll_until_shared(4, goes)
            results = stays.rebalances()
        with jvm.consumer(group_id=group, group_instance_id="goes", **_CONSUMER) as back:
            back.subscribe(topic)
            after = stays.poll_until_shared(4, back)

        assert (after, stays.rebalances()) == (before, results)


@java
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_requested_assignor_is_used(jvm: Jvm, topic: str, group: str, assignor: str) -> None:
    """Administrators see its name."""
    make_topic(jvm, topic)
    settings = {"group_id": group, "group_remote_assignor": assignor, **_CONSUMER}
    with jvm.consumer(**settings) as first, jvm.consumer(**settings) as second:
        first.subscribe(topic)
        second.subscribe(topic)
        shares = first.poll_until_shared(4, second)
        described = jvm.admin("describeGroup", group=group)

    assert (owned(shares), described["assignor"], described["state"]) == ([0, 1, 2, 3], assignor, "Stable")


@java
def test_unknown_assignor_is_refused(jvm: Jvm, topic: str, group: str) -> None:
    """The error lists the supported names."""
    make_topic(jvm, topic)
    with jvm.consumer(group_id=group, group_remote_assignor="nearest", **_CONSUMER) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(ClientError) as result:
            consumer.poll(1)

    assert (result.value.name, "uniform, range" in result.value.message) == ("UnsupportedAssignorException", True)


@java
def test_offsets_are_read_written_and_committed_exactly_once(jvm: Jvm, topic: str, group: str) -> None:
    """A transactional producer commits for a member with its epoch."""
    make_topic(jvm, topic, 1)
    publish(jvm, topic, 3, 1)
    with (
        jvm.consumer(group_id=group, **_CONSUMER) as consumer,
        jvm.producer(transactional_id=f"t-{topic}") as producer,
    ):
        consumer.subscribe(topic)
        consumer.poll(3)
        producer.init_transactions()
        producer.begin()
        producer.send_offsets(consumer)
        producer.commit()

        assert consumer.committed((topic, 0)) == [[0, 3, ""]]


@java
def test_members_continue_after_a_crash_of_the_node(driver: Driver, topic: str, group: str) -> None:
    """They have the same epochs and partitions, also classic members: there is no rebalance."""
    settings = {"group_consumer_heartbeat_interval_s": 0.3, "group_consumer_session_timeout_s": 300.0}
    with Node(settings={"as": "unlimited", **settings}) as node:
        jvm = Jvm(driver, client_settings(node))
        make_topic(jvm, topic)
        with members(jvm, topic, group, _CONSUMER, _CONSUMER, _CLASSIC) as found:
            first, *others = found
            shares = first.poll_until_shared(4, *others)
            results = [one.rebalances() for one in found]

            node.kill()
            node.restart()
            values = publish(jvm, topic, 40)
            read = first.poll(40, *others)

            assert sorted(one["value"] for one in read) == sorted(values)
            assert [one.rebalances() for one in found] == results
            assert first.poll_until_shared(4, *others) == shares


# --- migration -------------------------------------------------------------------------------------------------------


@contextmanager
def members(jvm: Jvm, topic: str, group: str, *kinds: dict[str, Any]) -> Iterator[list[Consumer]]:
    with ExitStack() as stack:
        found = [stack.enter_context(jvm.consumer(group_id=group, **kind)) for kind in kinds]
        for consumer in found:
            consumer.subscribe(topic)
        yield found


@java
@judges(feature=Feature.MIGRATION)
@pytest.mark.parametrize("strategy", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_group_moves_from_classic_to_consumer_and_back(
    jvm_by_transport: Jvm, topic: str, group: str, strategy: str
) -> None:
    """group.protocol is changed in both directions, one member at a time; each partition always has one reader."""
    jvm = jvm_by_transport
    make_topic(jvm, topic)
    publish(jvm, topic, 40)
    classic = {**_CLASSIC, "partition_assignment_strategy": f"org.apache.kafka.clients.consumer.{strategy}"}
    with ExitStack() as rest:
        with members(jvm, topic, group, classic, classic) as (one, two):
            assert sorted(map(len, one.poll_until_shared(4, two))) == [2, 2]
            (up,) = rest.enter_context(members(jvm, topic, group, _CONSUMER))
            mixed = one.poll_until_shared(4, two, up)
            kinds = jvm.admin("describeGroup", group=group)["members"]
            up.commit(*((topic, partition, 5, "") for partition in mixed[2]))
        alone = up.poll_until_shared(4)
        (down,) = rest.enter_context(members(jvm, topic, group, classic))
        halves = up.poll_until_shared(4, down)

    assert (owned(mixed), alone, owned(halves), len(kinds)) == ([0, 1, 2, 3], [[0, 1, 2, 3]], [0, 1, 2, 3], 3)


@java
@judges(feature=Feature.MIGRATION)
def test_group_is_classic_again_when_the_last_consumer_member_leaves(jvm: Jvm, topic: str, group: str) -> None:
    """Committed offsets stay with the group."""
    make_topic(jvm, topic)
    publish(jvm, topic, 8)
    with jvm.consumer(group_id=group, **_CLASSIC) as classic:
        with jvm.consumer(group_id=group, **_CONSUMER) as consumer:
            consumer.subscribe(topic)
            consumer.poll(8)
            consumer.commit(*((topic, partition, 2, "") for partition in range(4)))
            classic.subscribe(topic)
            consumer.poll_until_shared(4, classic)
        alone = classic.poll_until_shared(4)
        described = jvm.admin("describeGroup", group=group)

        assert (alone, described["assignor"]) == ([[0, 1, 2, 3]], "range")
        assert classic.poll(1, at_most_ms=500) == []


# --- tools -----------------------------------------------------------------------------------------------------------

_TOOLS = "org.apache.kafka.tools.consumer"


@pytest.fixture
def run(jvm: Jvm, node: Node, tmp_path: Path) -> Callable[..., Ended]:
    """Runs a tool as its script would, signed in."""
    settings = client_settings(node)
    server = settings.pop("bootstrap.servers")
    config = str(write_settings(tmp_path / "client.properties", settings))

    def run(main: str, *arguments: str) -> Ended:
        # By default the tool for groups gives the node five seconds.
        patience = ("--timeout", "100000") if main == "group.ConsumerGroupCommand" else ()
        place = ("--bootstrap-server", server, "--command-config", config)
        return jvm.tool(f"{_TOOLS}.{main}", *place, *patience, *arguments)

    return run


@tools
def test_tools_describe_a_consumer_group(run: Callable[..., Ended], jvm: Jvm, topic: str, group: str) -> None:
    """The output has members with epochs, the state with its assignor, and the type in the list."""
    make_topic(jvm, topic, 2)
    with jvm.consumer(group_id=group, client_id="reader", **_CONSUMER) as consumer:
        consumer.subscribe(topic)
        consumer.poll_until_shared(2)
        describe = ("group.ConsumerGroupCommand", "--describe", "--group", group)
        found = run(*describe, "--members", "--verbose")
        state = run(*describe, "--state", "--verbose")
        listed = run("group.ConsumerGroupCommand", "--list", "--type", "consumer")
    after = run("group.ConsumerGroupCommand", "--delete", "--group", group)

    assert f"{topic}:0,1" in found.out
    assert "CURRENT-EPOCH" in found.out
    assert ("uniform" in state.out, "Stable" in state.out) == (True, True)
    assert any(line.split()[:1] == [group] for line in listed.lines())
    assert "successful" in after.out


@tools
def test_console_consumer_reads_with_the_consumer_protocol(
    run: Callable[..., Ended], jvm: Jvm, topic: str, group: str
) -> None:
    """Kafka 4.3's console consumer recommends it."""
    make_topic(jvm, topic)
    values = publish(jvm, topic, 8)

    ended = run(
        "ConsoleConsumer",
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "8", "--timeout-ms", "200000"),
        *("--command-property", "group.protocol=consumer"),
    )

    assert sorted(ended.lines()) == sorted(values)


@tools
@judges(feature=Feature.REFUSALS)
def test_share_groups_are_refused_with_a_reason(run: Callable[..., Ended], jvm: Jvm, topic: str, group: str) -> None:
    """KIP-932 is not supported: the console prints that and ends, instead of waiting."""
    make_topic(jvm, topic)

    ended = run("ConsoleShareConsumer", "--topic", topic, "--group", group, "--timeout-ms", "200000")

    assert "does not support" in ended.out + ended.err


# --- librdkafka ------------------------------------------------------------------------------------------------------


@contextmanager
def consuming(node: Node, group: str, **more: Any) -> Iterator[RdConsumer]:
    settings = librdkafka(node, group_id=group, group_protocol="consumer", auto_offset_reset="earliest", **more)
    consumer = RdConsumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(condition: Callable[[], bool], *consumers: RdConsumer) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is None, message.error()


def publish_rd(node: Node, topic: str, count: int = 8) -> None:
    producer = RdProducer(librdkafka(node))
    for number in range(count):
        producer.produce(topic, value=str(number), partition=number % 4)
    assert producer.flush(_PATIENCE_S) == 0


@rdkafka
def test_librdkafka_members_share_partitions_and_take_over(node: Node, topic: str, group: str) -> None:
    """A member that waits for partitions gets them."""
    publish_rd(node, topic)
    with consuming(node, group) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == 4, first)
        with consuming(node, group) as second:
            second.subscribe([topic])
            poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
            shares = {part.partition for one in (first, second) for part in one.assignment()}
        poll_until(lambda: len(first.assignment()) == 4, first)

    assert shares == {0, 1, 2, 3}


@rdkafka
@judges(feature=Feature.REGEX_SUBSCRIPTION)
def test_librdkafka_pattern_includes_topics_that_are_created_later(node: Node, topic: str, group: str) -> None:
    """A name that begins with ^ is a pattern; the node evaluates it."""
    publish_rd(node, f"{topic}-a")
    with consuming(node, group) as consumer:
        consumer.subscribe([f"^{topic}-.*"])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer)
        publish_rd(node, f"{topic}-b")
        poll_until(lambda: len(consumer.assignment()) == 8, consumer)


@rdkafka
def test_librdkafka_static_member_gets_its_partitions_back(node: Node, topic: str, group: str) -> None:
    """The other member does not rebalance."""
    publish_rd(node, topic)
    rebalances: list[str] = []
    with consuming(node, group, group_instance_id="stays") as stays:
        stays.subscribe([topic], on_revoke=lambda *_: rebalances.append("revoked"))
        with consuming(node, group, group_instance_id="goes") as goes:
            goes.subscribe([topic])
            poll_until(lambda: len(stays.assignment()) == len(goes.assignment()) == 2, stays, goes)
            before, places = len(rebalances), {part.partition for part in goes.assignment()}
        with consuming(node, group, group_instance_id="goes") as back:
            back.subscribe([topic])
            poll_until(lambda: len(back.assignment()) == 2, stays, back)

            assert ({part.partition for part in back.assignment()}, len(rebalances)) == (places, before)


@rdkafka
@judges(feature=Feature.MIGRATION)
def test_librdkafka_classic_and_consumer_members_share_a_group(node: Node, topic: str, group: str) -> None:
    """A classic member joins first, then a consumer member, and the classic one leaves."""
    publish_rd(node, topic)
    with consuming(node, group) as consumer:
        classic = RdConsumer(librdkafka(node, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=200))
        classic.subscribe([topic])
        poll_until(lambda: len(classic.assignment()) == 4, classic)
        consumer.subscribe([topic])
        poll_until(lambda: len(classic.assignment()) == len(consumer.assignment()) == 2, classic, consumer)
        classic.close()
        poll_until(lambda: len(consumer.assignment()) == 4, consumer)


@rdkafka
@judges(feature=Feature.REFUSALS)
def test_librdkafka_share_groups_are_refused_with_a_reason(node: Node, topic: str, group: str) -> None:
    """KIP-932 is not supported: the consumer fails at once, instead of waiting without an error."""
    consumer = ShareConsumer(librdkafka(node, group_id=group))
    consumer.subscribe([topic])

    def poll_for_a_while() -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            consumer.poll(0.2)

    try:
        with pytest.raises(KafkaException) as result:
            poll_for_a_while()
    finally:
        consumer.close()

    assert result.value.args[0].name() == "UNSUPPORTED_VERSION"
