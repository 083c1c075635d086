"""Publishing over Kafka: accepted batches, their timestamps, the time of the response, and refusals."""

import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.model.entity import CleanupPolicy, Status, TimestampType
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.records.compression import Codec
from hubmere.records.header import CONTROL, TRANSACTIONAL, is_intact, read_header, split_batches
from hubmere.records.records import decode_records
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.metadata import MetadataRequest
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from node_clock import NodeClock


def stored(client: RawClient, offset: int = 0, **place: Any) -> bytes:
    """The batches of a partition, as a consumer gets them."""
    return bytes(only(client.call(a_fetch(offset, **place), 11)).records)


# --- accepted batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 10))
def test_batch_gets_offset_and_append_time_and_is_otherwise_unchanged(client: RawClient, version: int) -> None:
    """Reference check 16: on a hub with append time every event has the time of its append."""
    before_ms = time.time_ns() // 1_000_000
    batch = a_batch(b"a", b"b", key=b"k", timestamp_ms=1)

    answer = only(client.call(a_produce(batch), version))

    kept = stored(client)
    records = decode_records(kept)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert before_ms <= answer.log_append_time_ms <= time.time_ns() // 1_000_000
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert read_header(kept).is_append_time
    assert is_intact(kept)
    assert [(record.sequence_number, record.key, record.value) for record in records] == [
        (0, b"k", b"a"),
        (1, b"k", b"b"),
    ]
    assert {record.time_ms for record in records} == {answer.log_append_time_ms}
    assert kept[61:] == batch[61:]


def test_events_of_a_create_time_hub_keep_the_producers_time() -> None:
    """Kafka Streams needs it; the response then has -1, and clients use their own time."""
    spec = HubSpec(partition_count=1, timestamp_type=TimestampType.CREATE)
    with KafkaNode({"orders": spec}) as node, RawClient(node) as client:
        answer = only(client.sign_in().call(a_produce(a_batch(b"a", timestamp_ms=1_600_000_000_000)), 9))

        record = decode_records(stored(client))[0]

    assert (answer.error_code, answer.log_append_time_ms) == (ErrorCode.NONE, -1)
    assert record.time_ms == 1_600_000_000_000


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_compressed_batch_stays_compressed(client: RawClient, codec: Codec) -> None:
    """Reference check 10: it is stored as it came, with any codec."""
    client.call(a_produce(a_batch(b"x" * 1000, codec=codec)), 9)

    kept = stored(client)

    assert read_header(kept).codec == codec
    assert decode_records(kept)[0].value == b"x" * 1000


def test_every_partition_of_a_request_gets_its_own_answer(client: RawClient) -> None:
    """Reference check 15: one bad batch does not affect the others."""
    parts = (
        ProducePartition(index=0, records=a_batch(b"good")),
        ProducePartition(index=1, records=a_batch(b"x" * (1 << 20))),
        ProducePartition(index=7, records=a_batch(b"nowhere")),
    )
    topics = (ProduceTopic(name="orders", partitions=parts), ProduceTopic(name="missing", partitions=parts[:1]))

    answer = client.call(ProduceRequest(acks=-1, timeout_ms=1000, topics=topics), 9)

    codes = [[part.error_code for part in topic.partitions] for topic in answer.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, unknown], [unknown]]
    assert decode_records(stored(client))[0].value == b"good"


def test_batch_with_acks_1_is_answered_after_the_write(client: RawClient) -> None:
    """The offset is known as soon as the log has the batch."""
    answers = [only(client.call(a_produce(a_batch(b"x"), acks=1), 9)) for _ in range(3)]

    assert [answer.base_offset for answer in answers] == [0, 1, 2]


def test_batch_with_acks_0_has_no_answer(client: RawClient) -> None:
    """Reference check 12: nothing is sent, and the next request is answered normally."""
    client.send(a_produce(a_batch(b"quiet"), acks=0), 9)

    found = client.call(a_fetch(max_wait_ms=5000), 11)

    assert decode_records(bytes(only(found).records))[0].value == b"quiet"


def test_pipelined_batches_keep_their_order(client: RawClient) -> None:
    """Up to five requests of an ordered producer are in flight."""
    for number in range(50):
        client.send(a_produce(a_batch(b"%d" % number)), 9)

    offsets = [only(client.answer()).base_offset for _ in range(50)]

    assert offsets == list(range(50))


# --- refused batches -------------------------------------------------------------------------------------------------


def _flipped(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


def _with_zero_checksum(batch: bytes) -> bytes:
    return batch[:17] + bytes(4) + batch[21:]


_HUGE_COUNT = a_batch(b"a")[:57] + struct.pack(">i", 5) + a_batch(b"a")[61:]

BAD_BATCHES = [
    ("flipped payload", _flipped(a_batch(b"abc"), 65), ErrorCode.CORRUPT_MESSAGE),
    ("no checksum", _with_zero_checksum(a_batch(b"abc")), ErrorCode.CORRUPT_MESSAGE),
    ("null", None, ErrorCode.INVALID_RECORD),
    ("empty", b"", ErrorCode.INVALID_RECORD),
    ("cut header", a_batch(b"a")[:60], ErrorCode.CORRUPT_MESSAGE),
    ("cut records", a_batch(b"abc")[:-1], ErrorCode.CORRUPT_MESSAGE),
    ("two batches", a_batch(b"a") * 2, ErrorCode.INVALID_RECORD),
    ("old magic", _flipped(a_batch(b"a"), 16), ErrorCode.INVALID_RECORD),
    ("control", a_batch(b"a", attributes=CONTROL), ErrorCode.INVALID_RECORD),
    ("count without records", _HUGE_COUNT, ErrorCode.CORRUPT_MESSAGE),
    ("codec 7", a_batch(b"a", attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("producer without number", a_batch(b"a", producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ("stray transaction", a_batch(b"a", attributes=TRANSACTIONAL, producer_id=1), ErrorCode.INVALID_TXN_STATE),
]


@pytest.mark.parametrize(("batch", "code"), [row[1:] for row in BAD_BATCHES], ids=[row[0] for row in BAD_BATCHES])
def test_invalid_batch_is_refused_with_its_code(client: RawClient, batch: bytes | None, code: ErrorCode) -> None:
    """Reference checks 14 and 18: nothing is stored, and the connection stays open."""
    answer = only(client.call(a_produce(batch), 9))

    assert answer.error_code == code
    assert only(client.call(a_fetch(), 11)).high_watermark == 0


def test_zstd_needs_a_newer_version_of_produce(client: RawClient) -> None:
    """KIP-110: an older consumer could not read it."""
    batch = a_batch(b"x" * 100, codec=Codec.ZSTD)

    codes = [only(client.call(a_produce(batch), version)).error_code for version in (6, 7)]

    assert codes == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.NONE]


def test_timestamp_far_in_the_future_is_refused_on_a_create_time_hub() -> None:
    """Reference check 17: it would keep its segment beyond the retention."""
    spec = HubSpec(partition_count=1, timestamp_type=TimestampType.CREATE)
    ahead_ms = time.time_ns() // 1_000_000 + 2 * 3_600_000
    with KafkaNode({"orders": spec}) as node, RawClient(node) as client:
        answer = only(client.sign_in().call(a_produce(a_batch(b"a", timestamp_ms=ahead_ms)), 9))

    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_event_without_a_key_is_refused_by_a_compacted_hub() -> None:
    """Reference 3.11: compaction needs keys."""
    spec = HubSpec(partition_count=1, cleanup_policy=CleanupPolicy.COMPACT)
    with KafkaNode({"orders": spec}) as node, RawClient(node) as client:
        client.sign_in()
        codes = [only(client.call(a_produce(a_batch(b"a", key=key)), 9)).error_code for key in (None, b"k")]

    assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]


@pytest.mark.parametrize("acks", [2, -2])
def test_invalid_acks_is_refused(client: RawClient, acks: int) -> None:
    """Reference 2.7."""
    answer = only(client.call(a_produce(a_batch(b"a"), acks=acks), 9))

    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert only(client.call(a_fetch(), 11)).high_watermark == 0


def test_error_with_acks_0_closes_the_connection(client: RawClient) -> None:
    """Reference check 13: there is no response that could carry an error."""
    client.send(a_produce(a_batch(b"a"), topic="missing", acks=0), 9)

    assert client.is_closed_by_peer()


def test_disabled_hub_accepts_nothing(node: KafkaNode, client: RawClient) -> None:
    """The status applies to open connections too."""
    client.call(a_produce(a_batch(b"a")), 9)
    hub = node.hub()

    node.call(lambda: hub.update(replace(hub.entity, status=Status.SEND_DISABLED)))

    assert only(client.call(a_produce(a_batch(b"b")), 9)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# --- idempotent producers --------------------------------------------------------------------------------------------


def numbered(sequence: int, *, producer: int = 7, epoch: int = 0, count: int = 1) -> bytes:
    """A batch of an idempotent producer."""
    values = [b"%d" % (sequence + index) for index in range(count)]
    return a_batch(*values, producer_id=producer, producer_epoch=epoch, producer_sequence=sequence)


def test_duplicate_batches_are_stored_once(client: RawClient) -> None:
    """Reference check 19: any of the last five is answered with its original offset."""
    first = [only(client.call(a_produce(numbered(sequence)), 9)) for sequence in range(5)]

    again = [only(client.call(a_produce(numbered(sequence)), 9)) for sequence in range(5)]

    assert [answer.base_offset for answer in again] == [answer.base_offset for answer in first] == list(range(5))
    assert [answer.log_append_time_ms for answer in again] == [answer.log_append_time_ms for answer in first]
    assert only(client.call(a_fetch(), 11)).high_watermark == 5


@pytest.mark.parametrize(
    ("sequence", "epoch", "code"),
    [
        (2, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 2, ErrorCode.NONE),
        (1, 1, ErrorCode.NONE),
    ],
    ids=["gap", "older epoch", "newer epoch in mid-count", "newer epoch", "next"],
)
def test_sequence_numbers_must_be_consecutive(client: RawClient, sequence: int, epoch: int, code: ErrorCode) -> None:
    """Reference checks 20 and 21."""
    client.call(a_produce(numbered(0, epoch=1)), 9)

    assert only(client.call(a_produce(numbered(sequence, epoch=epoch)), 9)).error_code == code


def test_sequence_numbers_wrap_around(client: RawClient) -> None:
    """Reference check 24: they have 31 bits."""
    client.call(a_produce(numbered(2**31 - 1)), 9)

    assert only(client.call(a_produce(numbered(0)), 9)).error_code == ErrorCode.NONE


def test_duplicates_are_recognised_after_a_restart(tmp_path: Path) -> None:
    """Reference check 22: a producer retries after the restart of the node."""
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        client.sign_in()
        for sequence in range(3):
            client.call(a_produce(numbered(sequence)), 9)

    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        client.sign_in()
        again = [only(client.call(a_produce(numbered(sequence)), 9)).base_offset for sequence in (1, 2, 3)]

    assert again == [1, 2, 3]


def test_batches_in_flight_when_a_connection_is_lost_are_stored_once(node: KafkaNode) -> None:
    """Reference check 23: acknowledged and unacknowledged batches are sent again together."""
    with RawClient(node) as client:
        client.sign_in()
        for sequence in range(5):
            client.send(a_produce(numbered(sequence)), 9)
        for _ in range(3):
            client.answer()

    with RawClient(node) as client:
        client.sign_in()
        again = [only(client.call(a_produce(numbered(sequence)), 9)).base_offset for sequence in range(5)]
        batches = list(split_batches(stored(client)))

    assert again == list(range(5))
    assert [decode_records(batch)[0].value for batch in batches] == [b"0", b"1", b"2", b"3", b"4"]


# --- throttling ------------------------------------------------------------------------------------------------------

_ONE_UNIT = LimitsBook(profile=Profile.STANDARD)


def test_producer_over_its_units_is_throttled_and_not_read() -> None:
    """Reference check 53 (KIP-219): the answer is sent at once, and later input is not read for the delay."""
    clock = NodeClock(is_stopped=True)
    with KafkaNode(book=_ONE_UNIT, clock=clock) as node, RawClient(node) as client:
        client.sign_in()
        big = a_batch(b"x" * 1_000_000)
        answers = [client.call(a_produce(big), 9) for _ in range(2)]
        client.send(MetadataRequest(topics=()), 5)
        is_read_early = client.has_answer(0.2)
        clock.advance((answers[1].throttle_time_ms + 1) / 1000)
        client.answer()

    assert answers[0].throttle_time_ms == 0
    assert answers[1].throttle_time_ms > 0
    assert [only(answer).error_code for answer in answers] == [ErrorCode.NONE] * 2
    assert not is_read_early


def test_producer_whose_delay_would_exceed_its_timeout_is_refused() -> None:
    """Reference 1.5: the service does the same."""
    clock = NodeClock(is_stopped=True)
    with KafkaNode(book=_ONE_UNIT, clock=clock) as node, RawClient(node) as first, RawClient(node) as second:
        first.sign_in()
        second.sign_in()
        for _ in range(2):
            first.call(a_produce(a_batch(b"x" * 1_000_000)), 9)

        answer = only(second.call(a_produce(a_batch(b"y"), timeout_ms=1), 9))

    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_consumer_over_its_units_is_throttled() -> None:
    """Reference check 53: egress is delayed, never refused."""
    limits = {"egress_bytes_per_unit": 100_000}
    book = LimitsBook(profile=Profile.DEVELOPER, overrides=limits)
    with KafkaNode(book=book) as node, RawClient(node) as client:
        client.sign_in()
        client.call(a_produce(a_batch(b"x" * 150_000)), 9)

        answer: Any = client.call(a_fetch(), 11)

    assert answer.throttle_time_ms > 0
    assert len(only(answer).records) > 150_000
