"""Kafka fetches: content, size and time of responses, and offsets by time."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.model.entity import CaptureDescription, TimestampType
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.records.compression import Codec
from hubmere.records.header import read_header, split_batches
from hubmere.records.records import decode_records
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochPartition,
    EpochTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
)
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest


def put(client: RawClient, *values: bytes, **place: Any) -> int:
    """Publish one batch; returns its offset."""
    answer = only(client.call(a_produce(a_batch(*values), **place), 9))
    assert answer.error_code == ErrorCode.NONE
    return int(answer.base_offset)


def values_of(records: Any) -> list[bytes | None]:
    return [record.value for batch in split_batches(bytes(records)) for record in decode_records(batch)]


# --- the capture job -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_captured", "is_job", "is_charged"), [(True, True, False), (False, True, True), (True, False, True)]
)
def test_only_the_capture_job_reads_captured_hubs_without_egress(
    is_captured: bool, is_job: bool, is_charged: bool
) -> None:
    """Reference: service 6, Capture uses no egress; the client id of the job has no effect for other clients."""
    book = LimitsBook(profile=Profile.DEVELOPER, overrides={"egress_bytes_per_unit": 100_000})
    wish = HubSpec(partition_count=1, capture=CaptureDescription(enabled=is_captured))
    with KafkaNode({"orders": wish}, book=book) as node:
        proof = node.call(lambda: node.broker.access.capture_credential(node.hub().entity))
        string = node.connection_string(hub="orders") + (f";CaptureCredential={proof}" if is_job else "")
        with RawClient(node, string, client_id="hubmere-capture") as client:
            client.sign_in()
            client.call(a_produce(a_batch(b"x" * 150_000)), 9)
            answer: Any = client.call(a_fetch(), 11)
        counted = node.call(lambda: node.hub().counters.outgoing_messages)

    assert len(only(answer).records) > 150_000
    assert (answer.throttle_time_ms > 0, counted > 0) == (is_charged, is_charged)


def test_a_capture_credential_of_another_hub_is_refused() -> None:
    """It is signed for one hub; a wrong one is refused with the reason."""
    with KafkaNode({"orders": 1, "others": 1}) as node:
        proof = node.call(lambda: node.broker.access.capture_credential(node.hub("others").entity))
        string = f"{node.connection_string(hub='orders')};CaptureCredential={proof}"
        with RawClient(node, string) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), 2)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# --- responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_reads_the_same_events(client: RawClient, version: int) -> None:
    """Reference 2.2: clients use very different versions."""
    put(client, b"a", b"b")

    part = only(client.call(a_fetch(), version))

    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (ErrorCode.NONE, 2, 2)
    assert values_of(part.records) == [b"a", b"b"]


def test_offset_inside_a_batch_returns_the_whole_batch(client: RawClient) -> None:
    """Reference check 27: clients drop the earlier records; starting at the next batch would lose events."""
    put(client, *(b"%d" % number for number in range(10)))
    put(client, *(b"%d" % number for number in range(10, 20)))

    part = only(client.call(a_fetch(15), 11))

    assert read_header(bytes(part.records)).base_sequence_number == 10
    assert part.high_watermark == 20


def test_batch_larger_than_requested_is_returned_whole(client: RawClient) -> None:
    """Reference check 26: otherwise it could never be read."""
    put(client, b"x" * 900_000)

    part = only(client.call(a_fetch(max_bytes=100, partition_max_bytes=100), 11))

    assert values_of(part.records) == [b"x" * 900_000]


@pytest.mark.parametrize(("offset", "code"), [(0, 1), (1, 0), (3, 0), (4, 1), (-1, 1)])
def test_only_offsets_between_start_and_end_can_be_read(
    node: KafkaNode, client: RawClient, offset: int, code: int
) -> None:
    """Reference check 28: a reader waits at the end; beyond it or before the start is an error."""
    put(client, b"a", b"b", b"c")
    node.call(lambda: node.hub().log(0).trim(1))

    part = only(client.call(a_fetch(offset), 11))

    assert part.error_code == code
    assert (part.high_watermark, part.log_start_offset) == (3, 1)


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("orders", 2), ("orders", -1), ("Orders", 0)])
def test_unknown_topics_and_partitions_cannot_be_read(client: RawClient, topic: str, partition: int) -> None:
    """Topic names are case-sensitive, as everywhere in Kafka."""
    part = only(client.call(a_fetch(topic=topic, partition=partition, max_wait_ms=5000), 11))

    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _of_both(max_bytes: int, offsets: tuple[int, int]) -> FetchRequest:
    parts = tuple(
        FetchPartition(index=index, fetch_offset=offset, max_bytes=max_bytes) for index, offset in enumerate(offsets)
    )
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=(FetchTopic(name="orders", partitions=parts),)
    )


def test_size_of_an_answer_is_limited_and_later_partitions_wait(client: RawClient) -> None:
    """Reference check 30: a client that has read the first partition gets the second one next."""
    put(client, b"a" * 600)
    put(client, b"b" * 600, partition=1)

    first = client.call(_of_both(700, (0, 0)), 11).topics[0].partitions
    second = client.call(_of_both(700, (1, 0)), 11).topics[0].partitions

    assert [len(part.records) > 0 for part in first] == [True, False]
    assert [len(part.records) > 0 for part in second] == [False, True]


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, ErrorCode.NONE), (0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_leader_epoch_is_checked_if_it_is_given(client: RawClient, epoch: int, code: ErrorCode) -> None:
    """KIP-320: a client with a newer epoch must refresh its metadata."""
    part = FetchPartition(index=0, current_leader_epoch=epoch, fetch_offset=0, max_bytes=100)
    topics = (FetchTopic(name="orders", partitions=(part,)),)

    answer = client.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)

    assert only(answer).error_code == code


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_reader_at_the_end_waits_and_gets_an_empty_answer(client: RawClient) -> None:
    """Reference check 25: an immediate answer would cause a busy loop."""
    started = time.monotonic()

    part = only(client.call(a_fetch(max_wait_ms=200), 11))

    assert (part.error_code, bytes(part.records)) == (ErrorCode.NONE, b"")
    assert time.monotonic() - started >= 0.19


def test_waiting_reader_is_woken_by_an_event(node: KafkaNode, client: RawClient) -> None:
    """Reference check 25: the answer comes long before its timeout."""
    client.send(a_fetch(max_wait_ms=200_000), 11)
    with RawClient(node) as other:
        put(other.sign_in(), b"at last")

        assert values_of(only(client.answer()).records) == [b"at last"]


def test_reader_with_min_bytes_waits_for_them(node: KafkaNode, client: RawClient) -> None:
    """fetch.min.bytes gives one large answer instead of many small ones."""
    client.send(a_fetch(max_wait_ms=200_000, min_bytes=2_000), 11)
    with RawClient(node) as other:
        other.sign_in()
        for number in range(5):
            put(other, b"%d" % number * 500)

        found = values_of(only(client.answer()).records)

    assert 3 <= len(found) <= 5


def test_reader_of_many_partitions_gets_one_answer(node: KafkaNode, client: RawClient) -> None:
    """The first partition with an event triggers it; nothing is answered twice."""
    request = _of_both(1000, (0, 0))
    client.send(FetchRequest(max_wait_ms=200_000, min_bytes=1, topics=request.topics), 11)
    with RawClient(node) as other:
        other.sign_in()
        put(other, b"late", partition=1)
        parts = client.answer().topics[0].partitions
        put(other, b"later", partition=0)

    assert values_of(parts[1].records) == [b"late"]
    assert only(client.call(a_fetch(), 11)).high_watermark == 1


def test_reader_that_disconnects_affects_no_other(node: KafkaNode, client: RawClient) -> None:
    """A waiting fetch is dropped with its connection."""
    with RawClient(node) as other:
        other.sign_in().send(a_fetch(max_wait_ms=200_000), 11)
        assert client.call(a_fetch(), 11)

    assert put(client, b"a") == 0


def test_answers_are_sent_in_the_order_of_the_requests(client: RawClient) -> None:
    """Reference pitfall 5: clients match answers by order; a waiting fetch holds back later answers."""
    client.send(a_fetch(max_wait_ms=100), 11)
    client.send(a_produce(a_batch(b"behind"), partition=1), 9)

    assert bytes(only(client.answer()).records) == b""
    assert only(client.answer()).base_offset == 0


# --- sessions --------------------------------------------------------------------------------------------------------


def a_session_fetch(
    session_id: int, epoch: int, *wanted: tuple[int, int], forget: tuple[int, ...] = ()
) -> FetchRequest:
    """A request of a fetch session: offsets by partition, and partitions to forget."""
    parts = tuple(FetchPartition(index=index, fetch_offset=offset, max_bytes=1000) for index, offset in wanted)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic(name="orders", partitions=parts),) if parts else (),
        forgotten_topics=(ForgottenTopic(name="orders", partitions=forget),) if forget else (),
    )


def _partitions_in(answer: Any) -> list[int]:
    return [part.index for topic in answer.topics for part in topic.partitions]


def test_session_returns_only_changes(client: RawClient) -> None:
    """KIP-227: thousands of idle partitions cost nothing, in both directions."""
    begun = client.call(a_session_fetch(0, 0, (0, 0), (1, 0)), 11)
    quiet = client.call(a_session_fetch(begun.session_id, 1), 11)
    put(client, b"news", partition=1)
    moved = client.call(a_session_fetch(begun.session_id, 2), 11)
    forgotten = client.call(a_session_fetch(begun.session_id, 3, forget=(1,)), 11)

    assert begun.session_id > 0
    assert [_partitions_in(answer) for answer in (begun, quiet, moved, forgotten)] == [[0, 1], [], [1], []]


@pytest.mark.parametrize(
    ("epoch", "is_known", "code"),
    [
        (1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (7, True, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, True, ErrorCode.NONE),
        (-1, True, ErrorCode.NONE),
    ],
)
def test_session_requests_must_have_consecutive_epochs(
    client: RawClient, epoch: int, is_known: bool, code: ErrorCode
) -> None:
    """KIP-227: after this error a client begins a new session."""
    number = client.call(a_session_fetch(0, 0, (0, 0)), 11).session_id

    answer = client.call(a_session_fetch(number if is_known else number ^ 1, epoch), 11)

    assert answer.error_code == code


def test_request_without_a_session_is_answered_completely(client: RawClient) -> None:
    """Reference check 29: clients may work without sessions."""
    answers = [client.call(a_session_fetch(0, -1, (0, 0)), 11) for _ in range(2)]

    assert [(answer.session_id, _partitions_in(answer)) for answer in answers] == [(0, [0]), (0, [0])]


def test_closed_session_is_unknown(client: RawClient) -> None:
    """Epoch -1 closes it."""
    number = client.call(a_session_fetch(0, 0, (0, 0)), 11).session_id

    client.call(a_session_fetch(number, -1), 11)

    again = client.call(a_session_fetch(number, 1), 11)
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# --- finding a place -------------------------------------------------------------------------------------------------


def find(client: RawClient, time_ms: int, version: int = 7, **more: Any) -> tuple[int, int]:
    """Offset and time in the answer of ListOffsets."""
    part = ListOffsetsPartition(index=0, timestamp_ms=time_ms)
    topics = (ListOffsetsTopic(name="orders", partitions=(part,)),)
    found = only(client.call(ListOffsetsRequest(topics=topics, **more), version))
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.timestamp_ms


_T1, _T2, _T3 = 1_600_000_001_000, 1_600_000_002_000, 1_600_000_003_000


@pytest.fixture
def timed() -> Iterator[RawClient]:
    """A client of a hub with CreateTime, whose first partition has three times in two batches."""
    spec = HubSpec(partition_count=1, timestamp_type=TimestampType.CREATE)
    with KafkaNode({"orders": spec}) as node, RawClient(node) as client:
        client.sign_in()
        client.call(a_produce(a_batch(b"t1", timestamp_ms=_T1)), 9)
        client.call(a_produce(a_batch(b"t2", b"t2+1", timestamp_ms=_T2, codec=Codec.GZIP)), 9)
        client.call(a_produce(a_batch(b"t3", timestamp_ms=_T3)), 9)
        yield client


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (LATEST_TIMESTAMP, (4, -1)),
        (EARLIEST_TIMESTAMP, (0, -1)),
        (MAX_TIMESTAMP, (3, _T3)),
        (0, (0, _T1)),
        (_T2, (1, _T2)),
        (_T2 + 1, (2, _T2 + 1)),
        (_T3, (3, _T3)),
        (_T3 + 1, (-1, -1)),
        (-77, (-1, -1)),
    ],
)
def test_offset_is_found_by_time_and_by_special_timestamps(
    timed: RawClient, asked: int, found: tuple[int, int]
) -> None:
    """Reference check 31: this works inside a compressed batch too."""
    assert find(timed, asked) == found


@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_of_list_offsets_finds_the_end(client: RawClient, version: int) -> None:
    """Reference 2.2."""
    put(client, b"a")

    assert find(client, LATEST_TIMESTAMP, version) == (1, -1)


def test_time_on_an_append_time_hub_is_that_of_the_append(client: RawClient) -> None:
    """The producer's time is not used there."""
    answer = only(client.call(a_produce(a_batch(b"a", b"b", timestamp_ms=1)), 9))

    assert find(client, answer.log_append_time_ms) == (0, answer.log_append_time_ms)
    assert find(client, MAX_TIMESTAMP) == (0, answer.log_append_time_ms)


def test_empty_partition_has_no_newest_time(client: RawClient) -> None:
    """Reference 2.9."""
    assert find(client, MAX_TIMESTAMP) == (-1, -1)


def test_offset_of_an_unknown_partition_is_refused(client: RawClient) -> None:
    """The error applies to that partition."""
    part = ListOffsetsPartition(index=9, timestamp_ms=LATEST_TIMESTAMP)
    topics = (ListOffsetsTopic(name="orders", partitions=(part,)),)

    answer = only(client.call(ListOffsetsRequest(topics=topics), 7))

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("epoch", "end"), [(0, 2), (3, -1)])
def test_end_of_an_epoch_is_returned(client: RawClient, epoch: int, end: int) -> None:
    """KIP-101: Java consumers request it after a change of the leader."""
    put(client, b"a", b"b")
    topic = EpochTopic(name="orders", partitions=(EpochPartition(index=0, leader_epoch=epoch),))

    answer = only(client.call(OffsetForLeaderEpochRequest(topics=(topic,)), 4))

    assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, end)
