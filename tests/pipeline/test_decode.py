"""Record batches become rows: which events, and what each column shows."""

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


def test_event_without_anything_has_every_column() -> None:
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
    """Strings as they are, other types in JSON, as the connector shows them."""
    batch = publication_from_amqp(AMQP_BODY_AND_KEY, 0).batch

    (row,) = decoded(stored(batch, 0))

    assert row["partitionKey"] == "device-1"
    assert row["properties"] == {"color": "red", "size": "5"}
    assert row["systemProperties"] == {"x-opt-partition-key": "device-1"}


def test_event_looks_the_same_from_all_three_protocols() -> None:
    """A query must not care how its events came."""
    by_amqp = publication_from_amqp(amqp.application_properties(("color", amqp.text("red"))) + amqp.data(b"x"), 0)
    by_http = publication_from_http([HttpEvent(body=b"x", properties={"color": "red"})])
    by_kafka = [Record(0, NOW_MS, None, b"x", (("color", b"red"),))]

    rows = decoded(stored(by_amqp.batch, 0), stored(by_http.batch, 0), kafka_batch(by_kafka))

    assert rows[0] == rows[1] == rows[2]


def test_publisher_has_a_column() -> None:
    """Events of a publisher's own endpoint carry its name as key too."""
    batch = publication_from_amqp(amqp.data(b"x"), 0, publisher="sensor", resolve_key=lambda _: "sensor").batch

    (row,) = decoded(stored(batch, 0))

    assert (row["publisher"], row["partitionKey"]) == ("sensor", "sensor")


def test_message_properties_and_annotations_are_system_properties() -> None:
    """What the connector knows by the names of AMQP."""
    message = (
        amqp.annotations(("x-opt-custom", b"\x71\x00\x00\x00\x07"))
        + amqp.section(0x73, amqp.compound(0xC0, [amqp.text("id-1"), b"\x40", b"\x40", amqp.text("subject-1")]))
        + amqp.data(b"x")
    )

    (row,) = decoded(stored(publication_from_amqp(message, 0).batch, 0))

    assert row["systemProperties"] == {"x-opt-custom": "7", "message-id": "id-1", "subject": "subject-1"}


def test_kafka_key_is_a_system_property_and_not_the_partition_key() -> None:
    """As in Azure: Kafka's partitioner is not the service's."""
    (row,) = decoded(kafka_batch([Record(0, NOW_MS, b"k", b"v", (("h", None), ("bin", b"\xff\x01")))]))

    assert row["partitionKey"] is None
    assert row["systemProperties"] == {"x-opt-kafka-key": "k"}
    assert row["properties"] == {"h": "null", "bin": "[-1,1]"}


def test_null_and_empty_bodies_differ() -> None:
    """A tombstone is not an empty event."""
    rows = decoded(kafka_batch([Record(0, NOW_MS, b"k", None), Record(1, NOW_MS, b"k", b"")]))

    assert bodies(rows) == [None, b""]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_opened(codec: Codec) -> None:
    """Producers choose."""
    rows = decoded(kafka_batch(plain(100), codec=codec))

    assert bodies(rows) == [record.value for record in plain(100)]


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), data=st.data())
def test_any_range_of_any_batches_is_exact(sizes: list[int], data: st.DataObject) -> None:
    """Offsets and sequence numbers decide, not where batches begin."""
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


def test_offset_is_the_sequence_number_where_no_byte_numbers_are_kept() -> None:
    """Compacted hubs, and brokers that are not ours."""
    rows = decoded(kafka_batch(plain(3), base=40))

    assert [row["offset"] for row in rows] == ["40", "41", "42"]


def test_times_are_the_producers_own_where_the_hub_keeps_those() -> None:
    """Only a batch that was stamped on append has one time for all."""
    batch = kafka_batch([Record(0, NOW_MS, None, b"a"), Record(1, NOW_MS + 5, None, b"b")])
    unstamped = bytearray(batch)
    unstamped[22] &= ~0x08
    seal(unstamped)

    rows = decoded(bytes(unstamped))

    assert (rows[1]["enqueuedTime"] - rows[0]["enqueuedTime"]).microseconds == 5000


def test_aborted_transaction_is_left_out_and_the_next_of_its_producer_is_not() -> None:
    """A transaction that was aborted ends with its marker."""
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


def test_batch_that_cannot_be_read_is_left_out_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A producer may fill a valid batch with anything; it must not stop every query for ever."""
    broken = bytearray(kafka_batch(plain(3), base=5))
    broken[62:70] = b"\xff" * 8
    seal(broken)

    with caplog.at_level(logging.WARNING, "hubmere.spark"):
        rows = decoded(bytes(broken), kafka_batch(plain(1, "good"), base=8))

    assert bodies(rows) == [b"good 0"]
    assert "5 to 7" in caplog.text


def test_only_wanted_columns_are_made_in_their_order() -> None:
    """Only the requested columns are decoded."""
    schema = pa.schema([SCHEMA.field("sequenceNumber"), SCHEMA.field("body")])

    rows = decoded(kafka_batch(plain(2)), schema=schema)

    assert [list(row.items()) for row in rows] == [
        [("sequenceNumber", 0), ("body", b"event 0")],
        [("sequenceNumber", 1), ("body", b"event 1")],
    ]


def test_nothing_in_the_range_is_no_batch() -> None:
    """Spark is not handed empty batches."""
    assert decoded(kafka_batch(plain(3)), start=3, end=9) == []
    assert decoded() == []
