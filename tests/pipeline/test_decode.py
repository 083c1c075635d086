"""Record batches become rows: which events, and the content of each column."""

import logging
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.offsets import spread_offset
from hubmere.pipeline.decode import SCHEMA
from hubmere.records.compression import Codec
from hubmere.records.header import TRANSACTIONAL, seal
from hubmere.records.records import Record
from hubmere.translate import HttpEvent, publication_from_amqp, publication_from_http
from pipeline.batches import NOW_MS, decoded, kafka_batch, marker, plain, stored
from translate import builders as amqp

AMQP_BODY_AND_KEY = (
    amqp.annotations(("x-opt-partition-key", amqp.text("device-1")))
    + amqp.application_properties(("color", amqp.text("red")), ("size", b"\x54\x05"))
    + amqp.data(b"hello")
)


def bodies(rows: list[dict[str, object]]) -> list[object]:
    return [row["body"] for row in rows]


def test_event_with_only_a_body_has_every_column() -> None:
    """The nine columns of Microsoft's connector, with their types."""
    (row,) = decoded(kafka_batch(plain(1), base=7), position=1000)

    assert row == {
        "body": b"event 0",
        "partition": "3",
        "offset": "1000",
        "sequenceNumber": 7,
        "enqueuedTime": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "publisher": None,
        "partitionKey": None,
        "properties": {},
        "systemProperties": {},
    }


def test_amqp_event_shows_key_and_typed_properties() -> None:
    """Strings are unchanged and other types are JSON, as in the connector."""
    batch = publication_from_amqp(AMQP_BODY_AND_KEY, 0).batch

    (row,) = decoded(stored(batch, 0))

    assert row["partitionKey"] == "device-1"
    assert row["properties"] == {"color": "red", "size": "5"}
    assert row["systemProperties"] == {"x-opt-partition-key": "device-1"}


def test_event_looks_the_same_from_all_three_protocols() -> None:
    """A query must not depend on how its events were published."""
    by_amqp = publication_from_amqp(amqp.application_properties(("color", amqp.text("red"))) + amqp.data(b"x"), 0)
    by_http = publication_from_http([HttpEvent(body=b"x", properties={"color": "red"})])
    by_kafka = [Record(0, NOW_MS, None, b"x", (("color", b"red"),))]

    rows = decoded(stored(by_amqp.batch, 0), stored(by_http.batch, 0), kafka_batch(by_kafka))

    assert rows[0] == rows[1] == rows[2]


def test_publisher_has_a_column() -> None:
    """Events of a publisher have its name as key too."""
    batch = publication_from_amqp(amqp.data(b"x"), 0, publisher="sensor", resolve_key=lambda _: "sensor").batch

    (row,) = decoded(stored(batch, 0))

    assert (row["publisher"], row["partitionKey"]) == ("sensor", "sensor")


def test_message_properties_and_annotations_are_system_properties() -> None:
    """The connector shows them under their AMQP names."""
    message = (
        amqp.annotations(("x-opt-custom", b"\x71\x00\x00\x00\x07"))
        + amqp.section(0x73, amqp.compound(0xC0, [amqp.text("id-1"), b"\x40", b"\x40", amqp.text("subject-1")]))
        + amqp.data(b"x")
    )

    (row,) = decoded(stored(publication_from_amqp(message, 0).batch, 0))

    assert row["systemProperties"] == {"x-opt-custom": "7", "message-id": "id-1", "subject": "subject-1"}


def test_kafka_key_is_a_system_property_and_not_the_partition_key() -> None:
    """As in Azure, where Kafka's partitioner differs from that of the service."""
    (row,) = decoded(kafka_batch([Record(0, NOW_MS, b"k", b"v", (("h", None), ("bin", b"\xff\x01")))]))

    assert row["partitionKey"] is None
    assert row["systemProperties"] == {"x-opt-kafka-key": "k"}
    assert row["properties"] == {"h": "null", "bin": "[-1,1]"}


def test_null_and_empty_bodies_differ() -> None:
    """A tombstone is not an empty event."""
    rows = decoded(kafka_batch([Record(0, NOW_MS, b"k", None), Record(1, NOW_MS, b"k", b"")]))

    assert bodies(rows) == [None, b""]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_decoded(codec: Codec) -> None:
    """Producers choose the codec."""
    rows = decoded(kafka_batch(plain(100), codec=codec))

    assert bodies(rows) == [record.value for record in plain(100)]


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), data=st.data())
def test_any_range_of_any_batches_is_exact(sizes: list[int], data: st.DataObject) -> None:
    """Offsets and sequence numbers decide, not the boundaries of batches."""
    batches, base, expected, position = [], 0, [], 500
    for number, size in enumerate(sizes):
        batch = kafka_batch(plain(size, f"batch {number}"), base=base)
        batches.append(batch)
        for index in range(size):
            offset = spread_offset(position, len(batch), size, index)
            expected.append((f"batch {number} {index}".encode(), base + index, str(offset)))
        base, position = base + size, position + len(batch)
    start = data.draw(st.integers(0, base))
    end = data.draw(st.integers(start, base))

    rows = decoded(*batches, start=start, end=end, position=500)

    assert [(row["body"], row["sequenceNumber"], row["offset"]) for row in rows] == expected[start:end]


def test_offset_is_the_sequence_number_without_byte_positions() -> None:
    """This applies to compacted hubs, and to other brokers."""
    rows = decoded(kafka_batch(plain(3), base=40))

    assert [row["offset"] for row in rows] == ["40", "41", "42"]


def test_times_are_those_of_the_producers_on_a_create_time_hub() -> None:
    """Only a batch with append time has one time for all records."""
    batch = kafka_batch([Record(0, NOW_MS, None, b"a"), Record(1, NOW_MS + 5, None, b"b")])
    unstamped = bytearray(batch)
    unstamped[22] &= ~0x08
    seal(unstamped)

    rows = decoded(bytes(unstamped))

    assert (rows[1]["enqueuedTime"] - rows[0]["enqueuedTime"]).microseconds == 5000


def test_aborted_transaction_is_skipped_and_the_next_of_its_producer_is_not() -> None:
    """An aborted transaction ends with its marker."""
    transactional: dict[str, Any] = {"attributes": TRANSACTIONAL, "producer_id": 9, "producer_epoch": 0}
    rows = decoded(
        kafka_batch(plain(2, "before"), base=0),
        kafka_batch(plain(2, "aborted"), base=2, producer_sequence=0, **transactional),
        kafka_batch(plain(1, "between"), base=4),
        marker(5, 9, commit=False),
        kafka_batch(plain(2, "kept"), base=6, producer_sequence=2, **transactional),
        marker(8, 9, commit=True),
        aborted=((9, 2),),
    )

    assert [str(row["body"], "utf-8").split()[0] for row in rows] == ["before"] * 2 + ["between"] + ["kept"] * 2


def test_undecodable_batch_is_skipped_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A valid batch of a producer may contain anything; it must not stop every query for ever."""
    broken = bytearray(kafka_batch(plain(3), base=5))
    broken[62:70] = b"\xff" * 8
    seal(broken)

    with caplog.at_level(logging.WARNING, "hubmere.spark"):
        rows = decoded(bytes(broken), kafka_batch(plain(1, "good"), base=8))

    assert bodies(rows) == [b"good 0"]
    assert "5 to 7" in caplog.text


def test_only_requested_columns_are_decoded_in_their_order() -> None:
    """Other columns cost nothing."""
    schema = pa.schema([SCHEMA.field("sequenceNumber"), SCHEMA.field("body")])

    rows = decoded(kafka_batch(plain(2)), schema=schema)

    assert [list(row.items()) for row in rows] == [
        [("sequenceNumber", 0), ("body", b"event 0")],
        [("sequenceNumber", 1), ("body", b"event 1")],
    ]


def test_range_without_events_gives_no_batch() -> None:
    """Spark gets no empty batches."""
    assert decoded(kafka_batch(plain(3)), start=3, end=9) == []
    assert decoded() == []
