"""KIP-467: a refused batch is answered with the invalid records, so that a producer can send the others."""

import time

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_produce, only
from hubmere.endpoints.kafka.produce.record_errors import MAX_RECORD_ERRORS
from hubmere.model.entity import CleanupPolicy, TimestampType
from hubmere.model.spec import HubSpec
from hubmere.records.compression import Codec
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.errors import ErrorCode

_HOUR_MS = 3_600_000
_COMPACTED = HubSpec(partition_count=1, cleanup_policy=CleanupPolicy.COMPACT)


def a_batch_of(*keys: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(place, 1_700_000_000_000, key, b"value") for place, key in enumerate(keys)]
    return bytes(encode_batch(records, codec=codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_without_a_key_are_reported(codec: Codec) -> None:
    """This also works in a compressed batch."""
    with KafkaNode({"orders": _COMPACTED}) as node, RawClient(node) as client:
        batch = a_batch_of(b"k", None, b"k", None, codec=codec)

        answer = only(client.sign_in().call(a_produce(batch), 9))

    why = "Compacted topic cannot accept message without key in topic partition orders-0."
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [(error.batch_index, error.message) for error in answer.record_errors] == [(1, why), (3, why)]
    assert answer.error_message.startswith("One or more records have been rejected due to 2 record errors in total")


def test_records_too_far_in_the_future_are_reported() -> None:
    """The error has the latest accepted time."""
    spec = HubSpec(partition_count=1, timestamp_type=TimestampType.CREATE)
    now_ms = time.time_ns() // 1_000_000
    times_ms = (now_ms, now_ms + 2 * _HOUR_MS, now_ms - 2 * _HOUR_MS)
    batch = bytes(encode_batch([Record(place, time_ms, None, b"x") for place, time_ms in enumerate(times_ms)]))
    with KafkaNode({"orders": spec}) as node, RawClient(node) as client:
        answer = only(client.sign_in().call(a_produce(batch), 9))

    (error,) = answer.record_errors
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    assert (error.batch_index, str(times_ms[1]) in error.message) == (1, True)


@pytest.mark.parametrize("version", range(3, 10))
def test_versions_before_8_have_no_record_errors(version: int) -> None:
    """They get only the code."""
    with KafkaNode({"orders": _COMPACTED}) as node, RawClient(node) as client:
        answer = only(client.sign_in().call(a_produce(a_batch_of(None)), version))

    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == ([0] if version >= 8 else [])


def test_number_of_reported_records_is_limited() -> None:
    """A small request must not cause a large answer."""
    with KafkaNode({"orders": _COMPACTED}) as node, RawClient(node) as client:
        answer = only(client.sign_in().call(a_produce(a_batch_of(*[None] * (MAX_RECORD_ERRORS + 50))), 9))

    assert len(answer.record_errors) == MAX_RECORD_ERRORS


def test_error_of_the_whole_batch_reports_no_record(client: RawClient) -> None:
    """A wrong checksum belongs to no single record."""
    batch = bytearray(a_batch_of(b"k"))
    batch[-1] ^= 1

    answer = only(client.call(a_produce(bytes(batch)), 9))

    assert (answer.error_code, answer.record_errors) == (ErrorCode.CORRUPT_MESSAGE, ())
