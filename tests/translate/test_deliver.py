"""AMQP transfers: how many one call makes, which records a reader sees, and events from Kafka producers."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from hubmere.records.compression import Codec
from hubmere.records.header import read_header, seal, write_header
from hubmere.records.records import Marker, Record, encode_batch, encode_marker
from hubmere.translate import DecodedCache, RuntimeInfo, messages_to_batch
from translate.builders import (
    LOG,
    NOW_MS,
    annotations,
    data,
    deliveries,
    emit,
    pairs,
    section,
    sized,
    stored,
    symbol,
    text,
)

Headers = list[tuple[str, bytes | None]]


def three_events(base: int = 0) -> bytes:
    return stored(messages_to_batch([data(b"a"), data(b"b"), data(b"c")]), base=base)


def from_kafka(*records: Record, codec: Codec = Codec.NONE, attributes: int = 0, **fields: int) -> bytes:
    """A batch of a Kafka producer, stored with its own times."""
    return bytes(
        encode_batch(
            records, base_sequence_number=records[0].sequence_number, codec=codec, attributes=attributes, **fields
        )
    )


def a_record(
    offset: int = 0, *, key: bytes | None = None, value: bytes | None = b"v", headers: Headers | None = None
) -> Record:
    return Record(offset, NOW_MS + offset, key, value, tuple(headers or []))


def bodies(frames: bytes) -> list[bytes]:
    return [bytes(delivered.sections.body[0].raw) for delivered in deliveries(frames)]


def read_annotations(payload_frames: bytes) -> dict[bytes, bytes]:
    raw = deliveries(payload_frames)[0].sections.message_annotations
    assert raw is not None
    return dict(pairs(bytes(raw.value_bytes)))


def test_delivery_ids_are_contiguous_and_wrap() -> None:
    """Ids have 32 bits; clients throw on a gap."""
    emission = emit(three_events(), next_delivery_id=0xFFFF_FFFE)

    assert [got.transfer.delivery_id for got in deliveries(emission.frames)] == [0xFFFF_FFFE, 0xFFFF_FFFF, 0]


def test_every_field_of_a_transfer_is_written() -> None:
    """The Python SDK reads the payload after the eleventh field."""
    (got, *_) = deliveries(emit(three_events(), channel=0x1234, handle=300).frames)

    assert (got.field_count, got.channel, got.transfer.handle) == (11, 0x1234, 300)
    assert (got.transfer.settled, got.transfer.more, got.transfer.batchable, got.transfer.message_format) == (
        True,
        False,
        True,
        0,
    )
    assert got.transfer.delivery_tag == b""


def test_credit_limits_the_number_of_events_and_the_next_call_continues() -> None:
    """A reader with one credit gets one event at a time."""
    first = emit(three_events(), limit=1)
    second = emit(three_events(), first.next_sequence, limit=5)

    assert (first.count, first.next_sequence) == (1, 1)
    assert (second.count, second.next_sequence) == (2, 3)
    assert bodies(first.frames + second.frames) == [data(b"a"), data(b"b"), data(b"c")]


def test_emission_without_credit_is_empty() -> None:
    """It names the next event."""
    emission = emit(three_events(7), 8, limit=0)

    assert (emission.frames, emission.count, emission.next_sequence, emission.long_message) == (b"", 0, 8, None)


def test_byte_limit_always_allows_one_frame() -> None:
    """Otherwise a large event could never be sent."""
    batch = stored(messages_to_batch([data(bytes(600)), data(bytes(600))]))

    emission = emit(batch, max_bytes=10, max_frame_size=1000)

    assert (emission.count, emission.next_sequence, emission.long_message) == (1, 1, None)


def test_an_event_larger_than_a_frame_ends_the_emission() -> None:
    """The engine splits it; earlier events are already framed."""
    batch = stored(messages_to_batch([data(b"a"), data(bytes(5000)), data(b"c")]))

    emission = emit(batch, max_frame_size=4096)
    message = emission.long_message
    rest = emit(batch, emission.next_sequence + 1, max_frame_size=4096)

    assert (emission.count, emission.next_sequence) == (1, 1)
    assert message is not None
    assert message.endswith(data(bytes(5000)))
    assert bodies(rest.frames) == [data(b"c")]


def test_frame_of_exactly_the_maximum_size_is_not_split() -> None:
    """Header and performative count; with one byte more it must be split."""
    batch = stored(messages_to_batch([data(bytes(300))]))
    size = len(emit(batch).frames)

    assert emit(batch, max_frame_size=size).count == 1
    assert emit(batch, max_frame_size=size - 1).long_message is not None


def test_a_split_event_carries_runtime_metrics_too() -> None:
    """The delivery annotations are part of the message that the engine splits."""
    info = RuntimeInfo(last_sequence=2, last_offset=2, last_enqueued_ms=3, retrieved_ms=4)
    batch = three_events()

    emission = emit(batch, 1, runtime=info, max_frame_size=20)

    assert emission.long_message == deliveries(emit(batch, 1, limit=1, runtime=info).frames)[0].payload


def test_several_batches_are_read_in_one_call() -> None:
    """Byte offsets continue from batch to batch."""
    first, second = three_events(), three_events(3)

    emission = emit(first + second, 2, offset=1000)

    assert (emission.count, emission.next_sequence) == (4, 6)
    assert read_annotations(emit(first + second, 3, offset=1000, limit=1).frames)[symbol("x-opt-offset")] == text(
        str(1000 + len(first))
    )


def test_offset_of_a_compacted_hub_is_the_sequence_number() -> None:
    """Compaction moves bytes, so byte offsets would change."""
    found = read_annotations(emit(three_events(40), 41, offset=999, offsets_are_sequences=True).frames)

    assert found[symbol("x-opt-offset")] == text("41")


def test_gaps_of_compaction_are_kept() -> None:
    """Sequence numbers never change; the reader gets fewer events."""
    batch = from_kafka(a_record(10, value=b"a"), a_record(13, value=b"b"), a_record(14, value=b"c"), last_delta=6)

    whole = emit(batch, 10, offsets_are_sequences=True)
    rest = emit(batch, 12, limit=1, offsets_are_sequences=True)

    assert (whole.count, whole.next_sequence) == (3, 17)
    assert (bodies(rest.frames), rest.next_sequence) == ([data(b"b")], 14)


def test_control_batches_are_skipped() -> None:
    """Transaction markers are not events, but they take a sequence number."""
    marker = bytes(encode_marker(Marker(7, 0, True, 0), time_ms=NOW_MS, base_sequence_number=3))

    emission = emit(three_events() + marker, 2)

    assert (emission.count, emission.next_sequence) == (1, 4)
    assert emit(marker, 3).next_sequence == 4


def test_aborted_transactions_are_skipped() -> None:
    """Only transactional batches of the aborted producer inside the range are skipped."""
    aborted = from_kafka(
        a_record(0, value=b"no"), attributes=0x10, producer_id=7, producer_epoch=0, producer_sequence=0
    )
    other = from_kafka(a_record(1, value=b"yes"), attributes=0x10, producer_id=8, producer_epoch=0, producer_sequence=0)
    later = from_kafka(
        a_record(2, value=b"later"), attributes=0x10, producer_id=7, producer_epoch=0, producer_sequence=1
    )

    emission = emit(aborted + other + later, skip=[(7, 0, 1)])

    assert bodies(emission.frames) == [data(b"yes"), data(b"later")]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name.lower())
def test_compressed_batches_are_decompressed_for_amqp_readers(codec: Codec) -> None:
    """They are stored as they came."""
    batch = from_kafka(*(a_record(n, value=b"body %d" % n) for n in range(50)), codec=codec)

    assert bodies(emit(batch).frames) == [data(b"body %d" % n) for n in range(50)]


def test_batch_with_undecodable_records_is_skipped_and_reported() -> None:
    """A valid batch of a Kafka producer may contain anything; readers must skip it and continue."""
    broken = bytearray(three_events())
    broken[61:64] = b"\xff\xff\xff"
    squeezed = bytearray(from_kafka(a_record(3, value=bytes(100)), codec=Codec.GZIP))
    squeezed[70:80] = bytes(10)

    emission = emit(bytes(broken) + bytes(squeezed) + three_events(4))

    assert (emission.count, emission.next_sequence) == (3, 7)
    assert emission.unreadable == ((0, 3), (3, 4))


def test_kafka_record_with_key_and_headers_is_delivered_by_the_rules_of_the_service() -> None:
    """Headers are binary properties, of a repeated name the last one; the key is a separate annotation."""
    headers: Headers = [("a", b"1"), ("n", None), ("a", b"2"), ("long", bytes(300))]
    batch = from_kafka(a_record(key=b"\xff\x00", value=b"v", headers=headers))

    emission = emit(batch)

    properties = deliveries(emission.frames)[0].sections.application_properties
    assert properties is not None
    assert pairs(bytes(properties.value_bytes)) == [
        (text("a"), sized(0xA0, b"2")),
        (text("n"), b"\x40"),
        (text("long"), sized(0xA0, bytes(300))),
    ]
    found = read_annotations(emission.frames)
    assert found[symbol("x-opt-kafka-key")] == sized(0xA0, b"\xff\x00")
    assert symbol("x-opt-partition-key") not in found


def test_header_name_that_is_not_utf_8_is_replaced() -> None:
    """An AMQP string must be UTF-8, otherwise the client fails; Kafka does not check it."""
    batch = bytearray(from_kafka(a_record(headers=[("name", b"1")])))
    at = batch.index(b"name")
    batch[at : at + 4] = b"n\xff\xfee"
    seal(batch)

    (got,) = deliveries(emit(bytes(batch)).frames)

    assert got.sections.application_properties is not None
    assert pairs(bytes(got.sections.application_properties.value_bytes)) == [
        (text("n\ufffd\ufffde"), sized(0xA0, b"1"))
    ]


def test_kafka_event_has_its_own_time_on_a_hub_with_create_time() -> None:
    """CreateTime is the base plus the delta; with AppendTime all records have the time of the batch."""
    batch = from_kafka(a_record(0), a_record(5), last_delta=5)

    found = read_annotations(emit(batch, 5).frames)

    assert found[symbol("x-opt-enqueued-time")] == b"\x83" + (NOW_MS + 5).to_bytes(8, "big")


@pytest.mark.parametrize("value", [None, b""])
def test_kafka_record_without_a_value_is_an_event_with_an_empty_body(value: bytes | None) -> None:
    """AMQP has no null Data section."""
    assert bodies(emit(from_kafka(a_record(key=b"k", value=value))).frames) == [data(b"")]


def test_batches_of_a_foreign_builder_are_read() -> None:
    """The bytes come from another implementation of the record format."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 16)
    for number in range(200):
        builder.append(number, timestamp=NOW_MS, key=None, value=b"x" * number, headers=[])

    assert bodies(emit(bytes(builder.build())).frames) == [data(b"x" * number) for number in range(200)]


FORGED = [
    b"",
    b"\x01\x00\x00",
    b"\x02\x00\x00\x00",
    b"\x01\x00\x01\x00",
    b"\x01\x00\x00\x00\x00",
    b"\x01\x08\x00\x00",
    b"\x01\x08\x00\x00" + section(0x70, b"\xc0\x05\x01\x40"),
    b"\x01\x10\x00\x00" + section(0x72, b"\x45"),
    b"\x01\x02\x00\x00\x40",
    b"\x01\x02\x00\x00\x57",
    b"\x01\x06\x00\x00",
    b"\x01\x07\x00\x00",
    b"\x01\x01\x00\x00\x00",
    b"\x01\x01\x00\x00\x02\x7f",
    b"\x01\x80\x00\x00" + section(0x74, b"\x45"),
    b"\x01\x04\x00\x00",
    b"\x01\x20\x00\x00" + section(0x73, b"\xc0\x03\x01\x40\x40"),
    b"\x01\x01\x00\x00\x01\x00",
]


@pytest.mark.parametrize("envelope", FORGED, ids=lambda envelope: envelope.hex())
def test_forged_envelope_is_an_ordinary_header(envelope: bytes) -> None:
    """A Kafka client may write any header; readers must not get a malformed message."""
    batch = from_kafka(a_record(value=b"\x01v", headers=[("x-opt-amqp", envelope)]))

    (got,) = deliveries(emit(batch).frames)

    assert got.sections.application_properties is not None
    assert pairs(bytes(got.sections.application_properties.value_bytes)) == [
        (text("x-opt-amqp"), sized(0xA0, envelope))
    ]
    assert [bytes(raw.raw) for raw in got.sections.body] == [data(b"\x01v")]


@pytest.mark.parametrize(
    ("key", "value", "envelope", "property_value"),
    [
        (b"\xff", b"v", b"\x01\x00\x01\x00", b"\x41"),
        (None, None, b"\x01\x00\x01\x00", b"\x41"),
        (None, None, b"\x01\x06\x01\x00", b"\x41"),
        (None, b"\x41\x41", b"\x01\x06\x01\x00", b"\x41"),
        (None, b"", b"\x01\x07\x01\x00", b"\x41"),
        (None, b"x" * 300, b"\x01\x02\x01\x00\xa0", b"\x41"),
        (None, None, b"\x01\x02\x01\x00\xa0", b"\x41"),
        (None, b"v", b"\x01\x00\x01\x00", b""),
        (None, b"v", b"\x01\x00\x01\x00", None),
        (None, b"v", b"\x01\x00\x01\x00", b"\x41\x41"),
        (None, b"v", b"\x01\x80\x01\x00" + section(0x74, b"\xc1\x01\x00"), b"\x41"),
    ],
)
def test_envelope_that_does_not_match_its_record_is_an_ordinary_header(
    key: bytes | None, value: bytes | None, envelope: bytes, property_value: bytes | None
) -> None:
    """The key is not UTF-8, the body is not of the stated kind, or a property is not an AMQP value."""
    headers: Headers = [("p", property_value), ("x-opt-amqp", envelope)]

    (got,) = deliveries(emit(from_kafka(a_record(key=key, value=value, headers=headers))).frames)

    assert got.sections.application_properties is not None
    assert pairs(bytes(got.sections.application_properties.value_bytes))[1] == (
        text("x-opt-amqp"),
        sized(0xA0, envelope),
    )
    assert [bytes(raw.raw) for raw in got.sections.body] == [data(value or b"")]


def test_incomplete_batch_ends_the_emission() -> None:
    """The log returns complete batches, so an incomplete one is not read."""
    whole = three_events()

    emission = emit(whole + three_events(3)[:-1])

    assert (emission.count, emission.next_sequence) == (3, 3)


def test_batch_with_an_impossible_record_count_is_unreadable() -> None:
    """It has more records than sequence numbers."""
    batch = bytearray(three_events())
    write_header(batch, read_header(batch)._replace(record_count=4))

    assert emit(bytes(batch)).unreadable == ((0, 3),)


def test_envelope_that_is_not_the_last_header_is_an_ordinary_header() -> None:
    """An envelope describes the headers before it."""
    batch = from_kafka(a_record(headers=[("x-opt-amqp", b"\x01\x00\x00\x00"), ("z", b"")]))

    (got,) = deliveries(emit(batch).frames)

    assert got.sections.application_properties is not None
    assert len(pairs(bytes(got.sections.application_properties.value_bytes))) == 2


def test_mirrored_event_is_equal_to_the_original() -> None:
    """Key, value and headers that a Kafka client copies to another log give the same message."""
    message = annotations(("mine", b"\x41")) + section(0x77, text("body"))
    own = stored(messages_to_batch([message]))
    mirrored = from_kafka(
        a_record(value=b"body", headers=[("x-opt-amqp", b"\x01\x12\x00\x00\xa1" + annotations(("mine", b"\x41")))])
    )

    assert deliveries(emit(own).frames)[0].sections.body == deliveries(emit(mirrored).frames)[0].sections.body
    assert read_annotations(emit(mirrored).frames)[symbol("mine")] == b"\x41"


def test_many_readers_share_one_decoding() -> None:
    """The cache key is the log and the position."""
    cache = DecodedCache()
    batch = three_events()

    emit(batch, cache=cache)
    used = cache.used_bytes
    emit(batch, 1, cache=cache, handle=9)

    assert used > 0
    assert cache.used_bytes == used


def test_cache_of_decoded_batches_is_limited() -> None:
    """Old batches are dropped first.

    One always stays, or a reader with little credit would decode a batch per event.
    """
    cache = DecodedCache(max_bytes=2500)
    for base in range(0, 30, 3):
        emit(three_events(base), base, cache=cache)
        assert cache.used_bytes <= 2500
    large = stored(messages_to_batch([data(bytes(5000))]), base=100)

    emit(large, 100, cache=cache)
    kept = cache.get((LOG, 100, read_header(large).crc))

    assert kept is not None
    assert cache.used_bytes == kept.size_bytes


def test_unreadable_batches_count_in_the_cache() -> None:
    """Otherwise many of them would fill the memory."""
    cache = DecodedCache(max_bytes=5000)
    for base in range(50):
        broken = bytearray(stored(messages_to_batch([data(b"a")]), base=base))
        broken[61:] = b"\xff" * (len(broken) - 61)
        emit(bytes(broken), base, cache=cache)

    assert 0 < cache.used_bytes <= 5000


def test_rewritten_batch_is_not_served_from_the_cache() -> None:
    """Compaction puts other bytes at the same position."""
    cache = DecodedCache()
    before = from_kafka(a_record(0, value=b"a"), a_record(1, value=b"b"))
    after = from_kafka(a_record(1, value=b"b"), last_delta=0)
    rewritten = bytearray(after)
    write_header(rewritten, read_header(rewritten)._replace(base_sequence_number=0))
    seal(rewritten)

    emit(before, cache=cache)
    got = emit(bytes(rewritten), cache=cache)

    assert bodies(got.frames) == [data(b"b")]
