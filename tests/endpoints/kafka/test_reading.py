"""State between fetches: the cache never hides anything from the client."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from endpoints.kafka.test_fetch import a_session_fetch, put, values_of
from hubmere.endpoints.kafka.fetch.sessions import MAX_SESSIONS
from hubmere.model.entity import Rights, Status
from hubmere.store.catalog.view import Replace
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic


def a_full_fetch(*wanted: tuple[int, int], max_wait_ms: int = 0, **more: Any) -> FetchRequest:
    """A fetch without a session: offsets by partition, in this order."""
    parts = tuple(FetchPartition(index=index, fetch_offset=offset, max_bytes=1000) for index, offset in wanted)
    fields: dict[str, Any] = {"min_bytes": 1, **more}
    return FetchRequest(max_wait_ms=max_wait_ms, topics=(FetchTopic(name="orders", partitions=parts),), **fields)


def partitions_in(answer: Any) -> list[tuple[int, int, list[bytes | None]]]:
    """Partition, end offset and values of each part of an answer."""
    return [
        (part.index, part.high_watermark, values_of(part.records))
        for topic in answer.topics
        for part in topic.partitions
    ]


def watchers(node: KafkaNode, partition: int = 0) -> int:
    """The number of watchers of a partition."""
    return node.call(lambda: len(node.hub().log(partition)._watchers._watchers))  # type: ignore[attr-defined]


# --- complete requests -----------------------------------------------------------------------------------------------


def test_partitions_are_answered_in_the_order_of_each_request(client: RawClient) -> None:
    """librdkafka starts each request with another partition: the answer has the order of the request."""
    put(client, b"a")

    first = client.call(a_full_fetch((0, 0), (1, 0)), 11)
    second = client.call(a_full_fetch((1, 0), (0, 1)), 11)
    put(client, b"b", partition=1)
    third = client.call(a_full_fetch((0, 1), (1, 0)), 11)

    assert partitions_in(first) == [(0, 1, [b"a"]), (1, 0, [])]
    assert partitions_in(second) == [(1, 0, []), (0, 1, [])]
    assert partitions_in(third) == [(0, 1, []), (1, 1, [b"b"])]


def test_events_are_returned_again_for_the_same_offset(client: RawClient) -> None:
    """A client that lost an answer sends the same position again."""
    put(client, b"a")

    answers = [only(client.call(a_fetch(), 11)) for _ in range(3)]

    assert [values_of(part.records) for part in answers] == [[b"a"]] * 3


def test_client_that_seeks_back_reads_again(client: RawClient) -> None:
    """After a wait at the end, earlier events can still be read."""
    put(client, b"a")

    offsets = (0, 1, 1, 0)
    answers = [only(client.call(a_fetch(offset), 11)) for offset in offsets]

    assert [values_of(part.records) for part in answers] == [[b"a"], [], [], [b"a"]]


def test_paused_partition_is_read_when_it_is_named_again(node: KafkaNode, client: RawClient) -> None:
    """It costs nothing while it is paused, and no event is lost."""
    client.call(a_full_fetch((0, 0), (1, 0)), 11)
    assert watchers(node, 1) == 1

    client.call(a_full_fetch((0, 0)), 11)
    assert watchers(node, 1) == 0

    put(client, b"a", partition=1)
    assert partitions_in(client.call(a_full_fetch((0, 0), (1, 0)), 11)) == [(0, 0, []), (1, 1, [b"a"])]


def test_partition_that_is_named_twice_is_answered_once(client: RawClient) -> None:
    """As in Kafka; otherwise an answer could exceed every limit."""
    put(client, b"a")

    assert partitions_in(client.call(a_full_fetch((0, 0), (0, 0)), 11)) == [(0, 1, [b"a"])]


def test_two_fetches_of_different_partitions_wait_independently(node: KafkaNode, client: RawClient) -> None:
    """A client may have several fetches in flight."""
    client.send(a_full_fetch((0, 0), max_wait_ms=200_000), 11)
    client.send(a_full_fetch((1, 0), max_wait_ms=200_000), 11)
    with RawClient(node) as other:
        other.sign_in()
        put(other, b"b", partition=1)
        put(other, b"a", partition=0)

    answers = [client.answer(), client.answer()]

    assert [partitions_in(answer) for answer in answers] == [[(0, 1, [b"a"])], [(1, 1, [b"b"])]]
    assert (watchers(node, 0), watchers(node, 1)) == (0, 1)


def test_new_log_start_of_an_idle_partition_is_returned(node: KafkaNode, client: RawClient) -> None:
    """The cached response of a partition without events is encoded again when one of its numbers changes."""
    put(client, b"a", b"b")
    before = only(client.call(a_fetch(2), 11)).log_start_offset

    node.call(lambda: node.hub().log(0).trim(1))

    assert (before, only(client.call(a_fetch(2), 11)).log_start_offset) == (0, 1)


def test_waiting_reader_before_the_new_log_start_is_answered_at_once(node: KafkaNode, client: RawClient) -> None:
    """Its position no longer exists, so no event would wake it."""
    put(client, b"a", b"b")
    client.send(a_full_fetch((0, 1), max_wait_ms=200_000, min_bytes=1_000_000), 11)
    while not watchers(node):
        pass

    node.call(lambda: node.hub().log(0).trim(2))

    assert only(client.answer()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_version_of_an_answer_is_that_of_its_request(client: RawClient) -> None:
    """A cached response of one version must not be used for another."""
    answers = [client.call(a_full_fetch((0, 0), (1, 0)), version) for version in (11, 12, 4)]

    assert [partitions_in(answer) for answer in answers] == [[(0, 0, []), (1, 0, [])]] * 3


@pytest.mark.parametrize(("client_id", "positions"), [("hubmere-spark", [True, False]), ("other", [False, False])])
def test_clients_of_hubmere_get_the_byte_position_of_a_batch(
    node: KafkaNode, client_id: str, positions: list[bool]
) -> None:
    """The Spark source computes the AMQP offset from it; partitions without events and other clients have none."""
    with RawClient(node, client_id=client_id) as client:
        put(client.sign_in(), b"a")
        full = client.call(a_full_fetch((0, 0), (1, 0)), 12)
        session = client.call(a_session_fetch(0, 0, (0, 0), (1, 0)), 12)

    for answer in (full, session):
        assert [part.log_position >= 0 for part in answer.topics[0].partitions] == positions


def test_wrong_leader_epoch_is_refused_every_time(client: RawClient) -> None:
    """KIP-320: this also holds at the end of a partition."""
    part = FetchPartition(index=0, current_leader_epoch=5, fetch_offset=0, max_bytes=100)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(name="orders", partitions=(part,)),))

    codes = [only(client.call(request, 11)).error_code for _ in range(3)]

    assert codes == [ErrorCode.UNKNOWN_LEADER_EPOCH] * 3


# --- hubs that change under a reader ---------------------------------------------------------------------------------


def test_disabled_hub_returns_nothing_to_its_readers(node: KafkaNode, client: RawClient) -> None:
    """Rights are checked at each read."""
    put(client, b"a")

    codes = []
    for status in (Status.ACTIVE, Status.RECEIVE_DISABLED, Status.ACTIVE):
        changed = replace(node.hub().entity, status=status)
        node.call(partial(node.hub().update, changed))
        codes.append(only(client.call(a_fetch(1), 11)).error_code)

    assert [code == ErrorCode.NONE for code in codes] == [True, False, True]


def test_client_that_signs_in_again_reads_with_its_new_rights(node: KafkaNode) -> None:
    """KIP-368: the rights of the old credential are not used."""
    with RawClient(node, node.add_rule("reader", "Listen")) as client:
        before = only(client.sign_in().call(a_fetch(), 11)).error_code
        changed = replace(node.rule("reader"), rights=Rights.parse(("Send",)))
        node.call(lambda: node.catalog.apply(Replace(changed)))
        after = only(client.sign_in().call(a_fetch(), 11)).error_code

    assert (before, after) == (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_recreated_hub_is_read_from_its_new_log(client: RawClient) -> None:
    """It has the same name, but another log."""
    put(client, b"old", b"older")
    client.call(a_fetch(2), 11)
    client.call(DeleteTopicsRequest(topic_names=("orders",), timeout_ms=1000), 5)
    gone = only(client.call(a_fetch(2), 11)).error_code

    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=-1)
    client.call(CreateTopicsRequest(topics=(topic,), timeout_ms=1000), 5)
    put(client, b"new")

    assert gone == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(client.call(a_fetch(2), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(only(client.call(a_fetch(0), 11)).records) == [b"new"]


# --- sessions --------------------------------------------------------------------------------------------------------


def test_session_returns_later_what_did_not_fit(client: RawClient) -> None:
    """Partitions that did not fit into a response are first in the next one, although they did not move."""
    put(client, b"a" * 600)
    put(client, b"b" * 600, partition=1)
    begun = client.call(replace(a_session_fetch(0, 0, (0, 0), (1, 0)), max_bytes=700), 11)

    followed = client.call(replace(a_session_fetch(begun.session_id, 1, (0, 1)), max_bytes=700), 11)

    assert [(index, len(values)) for index, _, values in partitions_in(begun)] == [(0, 1), (1, 0)]
    assert partitions_in(followed) == [(1, 1, [b"b" * 600])]


def test_partition_that_returned_events_is_last_in_a_session(client: RawClient) -> None:
    """KIP-227: one partition with many events does not starve the others."""
    for partition in (0, 1):
        put(client, b"a" * 600, partition=partition)
        put(client, b"b" * 600, partition=partition)
    number, epoch, order = 0, 0, []

    for wanted in (((0, 0), (1, 0)), ((0, 1),), ((1, 1),)):
        answer = client.call(replace(a_session_fetch(number, epoch, *wanted), max_bytes=700), 11)
        number, epoch = answer.session_id, epoch + 1
        order += [index for index, _, values in partitions_in(answer) if values]

    assert order == [0, 1, 0]


def test_session_is_woken_by_the_partition_that_moved(node: KafkaNode, client: RawClient) -> None:
    """KIP-227: the response has only that partition."""
    number = client.call(a_session_fetch(0, 0, (0, 0), (1, 0)), 12).session_id
    client.send(replace(a_session_fetch(number, 1), max_wait_ms=200_000), 12)
    with RawClient(node) as other:
        put(other.sign_in(), b"b", partition=1)

    assert partitions_in(client.answer()) == [(1, 1, [b"b"])]


def test_new_log_start_is_returned_by_a_session(node: KafkaNode, client: RawClient) -> None:
    """Changed numbers are returned, also without events."""
    put(client, b"a", b"b")
    number = client.call(a_session_fetch(0, 0, (0, 2)), 12).session_id

    node.call(lambda: node.hub().log(0).trim(1))
    answers = [client.call(a_session_fetch(number, epoch), 12) for epoch in (1, 2)]

    starts = [[part.log_start_offset for topic in answer.topics for part in topic.partitions] for answer in answers]
    assert starts == [[1], []]


def test_second_request_of_a_session_ends_the_wait_of_the_first(client: RawClient) -> None:
    """The first one is answered with the available events, in order."""
    number = client.call(a_session_fetch(0, 0, (0, 0)), 12).session_id

    client.send(replace(a_session_fetch(number, 1), max_wait_ms=200_000), 12)
    client.send(a_session_fetch(number, 2), 12)

    assert [partitions_in(client.answer()), partitions_in(client.answer())] == [[], []]


@pytest.mark.parametrize("ends", ["final", "forgotten", "crowded", "lost"])
def test_closed_session_watches_nothing(node: KafkaNode, client: RawClient, ends: str) -> None:
    """The state of a client is released when it is not needed."""
    with RawClient(node) as other:
        number = other.sign_in().call(a_session_fetch(0, 0, (0, 0)), 12).session_id
        before = watchers(node)
        if ends == "final":
            other.call(a_session_fetch(number, -1), 12)
        elif ends == "forgotten":
            other.call(a_session_fetch(number, 1, forget=(0,)), 12)
        elif ends == "crowded":
            for _ in range(MAX_SESSIONS):
                other.call(a_session_fetch(0, 0, (1, 0)), 12)
    client.call(a_fetch(partition=1), 12)
    client.call(a_fetch(partition=1, max_wait_ms=50), 12)

    assert (before, watchers(node)) == (1, 0)


def test_readers_of_one_tail_get_the_answers_to_their_own_requests(node: KafkaNode) -> None:
    """Readers at the end share what is encoded; version, isolation and position of each request still count."""
    with ExitStack() as stack:
        first, *readers = [stack.enter_context(RawClient(node)).sign_in() for _ in range(13)]
        first.call(a_produce(a_batch(b"before")), 9)
        # The next id of each connection differs, so that the response of another reader would not fit.
        for number, reader in enumerate(readers):
            for _ in range(number):
                reader.call(a_fetch(1), 11)
        asked = [(version, isolation) for version in (4, 5, 11, 12) for isolation in (0, 1)] + [(11, 0)] * 4
        for reader, (version, isolation) in zip(readers, asked, strict=True):
            reader.send(a_fetch(1, isolation_level=isolation, max_wait_ms=200_000), version)
        other = readers[-1]
        first.call(a_produce(a_batch(b"now")), 9)
        answers = [only(reader.answer()) for reader in readers]
        behind = only(other.call(a_fetch(0), 11))

    assert [values_of(answer.records) for answer in answers] == [[b"now"]] * 12
    assert [answer.high_watermark for answer in answers] == [2] * 12
    assert [answer.aborted_transactions for answer in answers] == [() if isolation else None for _, isolation in asked]
    assert values_of(behind.records) == [b"before", b"now"]
