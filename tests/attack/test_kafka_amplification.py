"""Kafka requests whose answer or work is larger than the request: limited, without duplicates, and answered in slices.

The attacker and a normal client send while the node's loop is paused, so that both requests have arrived when it
continues. The tests check the order of the answers, not the time.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_produce
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import MAX_ENTRIES, MAX_NAMES, SLICE_ENTRIES
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.connection import MAX_PLAIN_REQUEST_BYTES, Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    LogDirTopic,
)
from hubmere.wire.kafka.messages.configs import ConfigResource, DescribeConfigsRequest
from hubmere.wire.kafka.messages.consumer_groups import ConsumerGroupDescribeRequest
from hubmere.wire.kafka.messages.fetch import (
    EpochPartition,
    EpochTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
)
from hubmere.wire.kafka.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from hubmere.wire.kafka.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    MetadataRequest,
    MetadataRequestTopic,
)
from hubmere.wire.kafka.messages.offsets import (
    FindCoordinatorRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from hubmere.wire.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

_PARTITIONS = 2000
_MANY = 20_000
_NAMES = [f"n{number}" for number in range(5 * SLICE_ENTRIES)]
_INDEXES = tuple(range(_PARTITIONS))
_NORMAL_REQUEST = MetadataRequest(topics=(), allow_auto_topic_creation=False)


def a_wide_fetch(indexes: Iterable[int]) -> FetchRequest:
    parts = tuple(FetchPartition(index=index, fetch_offset=0, max_bytes=1000) for index in indexes)
    topics = (FetchTopic(name="wide", partitions=parts),)
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=topics)


# Requests whose answers have many entries, each in its version.
_LONG: list[tuple[Any, int]] = [
    (MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in _NAMES)), 12),
    (MetadataRequest(topics=(MetadataRequestTopic(name="wide"),)), 12),
    (MetadataRequest(topics=None), 12),
    (
        DescribeTopicPartitionsRequest(topics=tuple(DescribeTopicPartitionsTopic(name=name) for name in _NAMES)),
        0,
    ),
    (
        DescribeConfigsRequest(resources=tuple(ConfigResource(resource_type=2, resource_name=name) for name in _NAMES)),
        4,
    ),
    (FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(_NAMES)), 4),
    (DescribeGroupsRequest(groups=tuple(_NAMES)), 5),
    (ConsumerGroupDescribeRequest(group_ids=tuple(_NAMES), include_authorized_operations=False), 0),
    (DeleteGroupsRequest(group_ids=tuple(_NAMES)), 2),
    (DeleteTopicsRequest(topic_names=tuple(_NAMES), timeout_ms=1000), 5),
    (DescribeTransactionsRequest(transactional_ids=tuple(_NAMES)), 0),
    (DescribeLogDirsRequest(topics=(LogDirTopic(name="wide", partitions=_INDEXES),)), 4),
    (
        DescribeProducersRequest(topics=(DescribeProducersTopic(name="wide", partition_indexes=_INDEXES),)),
        0,
    ),
    (a_wide_fetch(_INDEXES), 11),
    (
        ListOffsetsRequest(
            topics=(
                ListOffsetsTopic(
                    name="wide",
                    partitions=tuple(ListOffsetsPartition(index=index, timestamp_ms=-1) for index in _INDEXES),
                ),
            )
        ),
        7,
    ),
    (
        OffsetForLeaderEpochRequest(
            topics=(
                EpochTopic(
                    name="wide", partitions=tuple(EpochPartition(index=index, leader_epoch=0) for index in _INDEXES)
                ),
            )
        ),
        4,
    ),
    (
        OffsetFetchRequest(
            groups=(
                OffsetFetchGroup(group_id="g", topics=(OffsetFetchTopic(name="wide", partition_indexes=_INDEXES),)),
            )
        ),
        8,
    ),
    (
        OffsetCommitRequest(
            group_id="g",
            topics=(
                OffsetCommitTopic(
                    name="wide",
                    partitions=tuple(
                        OffsetCommitPartition(index=index, committed_offset=1, committed_metadata="")
                        for index in _INDEXES
                    ),
                ),
            ),
        ),
        8,
    ),
    (
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=(
                TxnOffsetCommitTopic(
                    name="wide",
                    partitions=tuple(
                        TxnOffsetCommitPartition(index=index, committed_offset=1, committed_metadata="")
                        for index in _INDEXES
                    ),
                ),
            ),
        ),
        3,
    ),
    (
        AddPartitionsToTxnRequest(
            transactional_id="t",
            producer_id=1,
            producer_epoch=0,
            topics=(AddPartitionsToTxnTopic(name="wide", partitions=_INDEXES),),
        ),
        3,
    ),
    (
        DeleteRecordsRequest(
            topics=(
                DeleteRecordsTopic(
                    name="wide",
                    partitions=tuple(DeleteRecordsPartition(index=index, offset=-1) for index in _INDEXES),
                ),
            ),
            timeout_ms=1000,
        ),
        2,
    ),
]


def kind(value: object) -> str:
    return type(value).__name__ if not isinstance(value, int) else ""


@pytest.fixture(scope="module")
def node() -> Iterator[KafkaNode]:
    """A hub with many partitions and a small one; auto-creation is off."""
    hubs: dict[str, int | HubSpec] = {"wide": _PARTITIONS, "orders": 1}
    with KafkaNode(hubs, book=LimitsBook(profile=Profile.UNLIMITED), auto_create_hubs=False) as node:
        yield node


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The client ids of answered requests, in the order of the answers."""
    order: list[str] = []

    def recorded(respond: Callable[[KafkaSession, Request, Any], None]) -> Callable[[KafkaSession, Request, Any], None]:
        def record(session: KafkaSession, request: Request, body: Any) -> None:
            order.append(request.client_id or "")
            respond(session, request, body)

        return record

    for name in ("respond", "respond_frames", "respond_buffers"):
        monkeypatch.setattr(KafkaSession, name, recorded(getattr(KafkaSession, name)))
    return order


@pytest.mark.parametrize(("request_", "version"), _LONG, ids=kind)
def test_normal_client_is_served_between_slices(
    node: KafkaNode, answered: list[str], request_: Any, version: int
) -> None:
    """Its request came second and is answered first: a long answer takes many turns, and others are served between
    them.
    """
    with (
        RawClient(node, client_id="attacker") as attacker,
        RawClient(node, client_id="normal") as client,
    ):
        attacker.sign_in()
        client.sign_in()
        with node.held():
            attacker.send(request_, version)
            client.send(_NORMAL_REQUEST, 12)

        client.answer()
        attacker.answer()

    # Clients of earlier tests may still get answers.
    assert [name for name in answered if name in ("normal", "attacker")][-2:] == ["normal", "attacker"]


def test_requests_after_a_long_answer_wait_and_keep_their_order(node: KafkaNode) -> None:
    """A connection has one long answer at a time, so that many of them in one read do not use much memory."""
    wanted = tuple(MetadataRequestTopic(name=name) for name in _NAMES)
    with RawClient(node) as client:
        client.sign_in()
        with node.held():
            for count in (1, len(wanted), 2, len(wanted), 3):
                client.engine.request(MetadataRequest(topics=wanted[:count]), 12)
            client.socket.sendall(b"".join(client.engine.data_to_send()))

        counts = [len(client.answer().topics) for _ in range(5)]

    assert counts == [1, len(wanted), 2, len(wanted), 3]


def test_client_that_disconnects_during_its_answer_affects_no_other(node: KafkaNode) -> None:
    """The rest of its answer is dropped."""
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in _NAMES))
    for _ in range(5):
        with RawClient(node) as attacker:
            attacker.sign_in().send(request, 12)

    with RawClient(node) as client:
        assert client.sign_in().call(_NORMAL_REQUEST, 12).topics == ()


# --- names that are given twice --------------------------------------------------------------------------------------


_REPEATED: list[tuple[Any, int, Callable[[Any], int]]] = [
    (
        MetadataRequest(topics=(MetadataRequestTopic(name="orders"),) * _MANY),
        12,
        lambda answer: len(answer.topics),
    ),
    (
        DescribeConfigsRequest(resources=(ConfigResource(resource_type=2, resource_name="orders"),) * _MANY),
        4,
        lambda answer: len(answer.results),
    ),
    (
        FindCoordinatorRequest(key_type=0, coordinator_keys=("g",) * _MANY),
        4,
        lambda answer: len(answer.coordinators),
    ),
    (DescribeGroupsRequest(groups=("g",) * _MANY), 5, lambda answer: len(answer.groups)),
    (
        ConsumerGroupDescribeRequest(group_ids=("g",) * _MANY, include_authorized_operations=False),
        0,
        lambda answer: len(answer.groups),
    ),
    (DeleteGroupsRequest(group_ids=("g",) * _MANY), 2, lambda answer: len(answer.results)),
    (
        DeleteTopicsRequest(topic_names=("orders",) * _MANY, timeout_ms=1000),
        5,
        lambda answer: len(answer.responses),
    ),
    (
        DescribeTransactionsRequest(transactional_ids=("t",) * _MANY),
        0,
        lambda answer: len(answer.transaction_states),
    ),
    (
        DescribeLogDirsRequest(topics=(LogDirTopic(name="orders", partitions=(0,)),) * _MANY),
        4,
        lambda answer: sum(len(topic.partitions) for topic in answer.results[0].topics),
    ),
    (
        DescribeProducersRequest(topics=(DescribeProducersTopic(name="orders", partition_indexes=(0, 0)),) * 1000),
        0,
        lambda answer: sum(len(topic.partitions) for topic in answer.topics),
    ),
    (
        OffsetFetchRequest(
            group_id="g", topics=(OffsetFetchTopic(name="orders", partition_indexes=(0, 0)),) * (_MANY // 2)
        ),
        7,
        lambda answer: sum(len(topic.partitions) for topic in answer.topics),
    ),
]


@pytest.mark.parametrize(("request_", "version", "entries"), _REPEATED, ids=kind)
def test_repeated_name_is_answered_once(
    node: KafkaNode, request_: Any, version: int, entries: Callable[[Any], int]
) -> None:
    """Before, 120 KB that named a hub 20,000 times were answered with 17 MB, and blocked the node for seconds."""
    with RawClient(node) as client:
        answer = client.sign_in().call(request_, version)

    assert entries(answer) == 1


def test_group_that_is_named_twice_is_refused_the_second_time(node: KafkaNode) -> None:
    """All its committed offsets are returned once."""
    groups = (OffsetFetchGroup(group_id="g", topics=None),) * 3
    with RawClient(node) as client:
        answer = client.sign_in().call(OffsetFetchRequest(groups=groups), 8)

    assert [group.error_code for group in answer.groups] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


def test_partition_that_is_named_twice_in_list_offsets_is_refused(node: KafkaNode) -> None:
    """As in Kafka; other partitions are answered."""
    parts = tuple(ListOffsetsPartition(index=index, timestamp_ms=-1) for index in (0, 1, 0))
    with RawClient(node) as client:
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="wide", partitions=parts),))
        (topic,) = client.sign_in().call(request, 7).topics

    codes = [(part.index, part.error_code) for part in topic.partitions]
    assert codes == [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE), (0, ErrorCode.INVALID_REQUEST)]


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_over", [False, True])
def test_names_beyond_the_limit_are_refused_one_by_one(node: KafkaNode, is_over: bool) -> None:
    """Each name gets an error with the reason."""
    names = [f"n{number}" for number in range(MAX_NAMES + is_over)]
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    resources = tuple(ConfigResource(resource_type=2, resource_name=name) for name in names)
    with RawClient(node) as client:
        result = client.sign_in().call(MetadataRequest(topics=topics), 12).topics
        configs = client.call(DescribeConfigsRequest(resources=resources), 4).results
        groups = client.call(DescribeGroupsRequest(groups=tuple(names)), 5).groups
        coordinators = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(names)), 4).coordinators

    wrong, fine = ErrorCode.INVALID_REQUEST, ErrorCode.NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {topic.error_code for topic in result} == {wrong if is_over else unknown}
    assert {config.error_code for config in configs} == {wrong if is_over else unknown}
    assert {group.error_code for group in groups} == {wrong if is_over else fine}
    assert {found.error_code for found in coordinators} == {wrong if is_over else fine}
    if is_over:
        assert configs[0].error_message == f"More than {MAX_NAMES} names in one request is not supported."


def test_request_with_too_many_entries_closes_only_its_connection(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason."""
    topic = OffsetFetchTopic(name="wide", partition_indexes=tuple(range(MAX_ENTRIES + 1)))
    with RawClient(node) as attacker, RawClient(node) as client, caplog.at_level("INFO", logger="hubmere.kafka"):
        client.sign_in()
        attacker.sign_in().send(OffsetFetchRequest(group_id="g", topics=(topic,)), 7)

        assert attacker.is_closed_by_peer()
        assert client.call(_NORMAL_REQUEST, 12).topics == ()
    assert f"entries; {MAX_ENTRIES} is the most" in caplog.text


def test_fetch_of_too_many_partitions_closes_its_connection(node: KafkaNode) -> None:
    """Unknown partitions count too."""
    with RawClient(node) as attacker:
        attacker.sign_in().send(a_wide_fetch(range(MAX_ENTRIES + 1)), 11)

        assert attacker.is_closed_by_peer()


def test_fetch_in_slices_returns_the_same_as_a_short_one(node: KafkaNode) -> None:
    """It returns the first events within the requested bytes, and one part for each partition."""
    with RawClient(node) as client:
        client.sign_in()
        for partition in (3, 1500, 1999):
            client.call(a_produce(a_batch(bytes(400)), topic="wide", partition=partition), 9)

        (topic,) = client.call(a_wide_fetch(_INDEXES), 11).topics

    found = [part.index for part in topic.partitions if part.records]
    assert len(topic.partitions) == _PARTITIONS
    assert found == [3, 1500]


def test_long_list_of_short_names_closes_its_connection_before_it_is_decoded(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Decoding a megabyte of one-letter names would take longer than any answer."""
    name = MetadataRequestTopic(name="n" * 100)
    topics = (name,) * (MAX_PLAIN_REQUEST_BYTES // 100)
    with RawClient(node) as attacker, caplog.at_level("INFO", logger="hubmere.kafka"):
        attacker.sign_in().send(MetadataRequest(topics=topics), 12)

        assert attacker.is_closed_by_peer()
    assert f"{MAX_PLAIN_REQUEST_BYTES} is the most" in caplog.text
