"""An event as a record and as a transfer, compared with bytes written by hand from the specifications."""

from hubmere.records.header import HEADER_BYTES
from hubmere.translate import BATCH_FORMAT, RuntimeInfo, delivery_annotations, messages_to_batch, publication_from_amqp
from translate.builders import (
    annotations,
    application_properties,
    batch_of,
    compound,
    data,
    deliveries,
    emit,
    section,
    sized,
    stored,
    symbol,
    text,
)


def record_of(message: bytes, key: str | None = None) -> bytes:
    """The only record of a published message, without the batch header."""
    envelope = b"" if key is None else annotations(("x-opt-partition-key", text(key)))
    return bytes(publication_from_amqp(batch_of(message, envelope=envelope), BATCH_FORMAT).batch[HEADER_BYTES:])


def test_event_with_only_a_body_is_a_record_without_headers() -> None:
    """Without key and properties there is no overhead."""
    record = record_of(data(b"hi"))

    # length 8, attributes, time delta, offset delta, null key, value "hi", no headers
    assert record == bytes.fromhex("10 00 00 00 01 04 6869 00".replace(" ", ""))


def test_partition_key_needs_an_envelope_without_flags() -> None:
    """The partition key is the key of the record, and the envelope marks the record as an AMQP event."""
    record = record_of(data(b"hi"), key="k")

    envelope = b"\x14x-opt-amqp" + bytes.fromhex("08 01000000".replace(" ", ""))
    fields = bytes.fromhex("000000") + b"\x02k" + b"\x04hi" + b"\x02" + envelope
    assert record == bytes((len(fields) * 2,)) + fields


def test_application_properties_are_headers_with_their_amqp_encoding() -> None:
    """Kafka readers of Event Hubs see AMQP-encoded values; nothing is encoded again."""
    record = record_of(application_properties(("n", b"\x54\x05"), ("s", text("x"))) + data(b""))

    headers = b"\x02n\x04\x54\x05" + b"\x02s\x06\xa1\x01x" + b"\x14x-opt-amqp" + b"\x08" + b"\x01\x00\x02\x00"
    fields = b"\x00\x00\x00" + b"\x01" + b"\x00" + b"\x06" + headers
    assert record == bytes((len(fields) * 2,)) + fields


def test_seven_properties_are_shown_to_kafka_readers_as_text() -> None:
    """Ids have their canonical form, times are ISO 8601, binary ids are base64; the section itself is stored whole."""
    identity = b"\x98" + bytes.fromhex("0123456789abcdef0123456789abcdef")
    created = b"\x83" + (1_700_000_000_123).to_bytes(8, "big")
    fields = [
        identity,
        sized(0xA0, b"me"),
        text("to"),
        b"\x40",
        text("back"),
        b"\x40",
        symbol("a/b"),
        symbol("gzip"),
        b"\x40",
        created,
    ]
    properties = section(0x73, compound(0xC0, fields))
    record = record_of(properties + data(b"x"))

    expected = [
        (b"message-id", b"01234567-89ab-cdef-0123-456789abcdef"),
        (b"user-id", b"me"),
        (b"to", b"to"),
        (b"reply-to", b"back"),
        (b"content-type", b"a/b"),
        (b"content-encoding", b"gzip"),
        (b"creation-time", b"2023-11-14T22:13:20.123Z"),
    ]
    headers = b"".join(bytes((len(name) * 2,)) + name + bytes((len(value) * 2,)) + value for name, value in expected)
    assert headers in record
    assert record.endswith(b"\x01\x20\x00\x07" + properties)


def test_message_without_a_body_is_a_tombstone() -> None:
    """On a compacted hub a null value with a key deletes the key; a body of null does the same, but remains a body."""
    absent = record_of(section(0x70, b"\x45"), key="k")
    null = record_of(section(0x77, b"\x40"), key="k")

    assert absent[2:6] == null[2:6] == b"\x00\x00\x02k"
    assert absent[6:7] == null[6:7] == b"\x01"
    assert absent.endswith(b"\x01\x09\x00\x00\x00" + section(0x70, b"\x45"))
    assert null.endswith(b"\x01\x02\x00\x00\x40")


def test_a_transfer_has_eleven_fields_and_the_layout_of_the_service() -> None:
    """The payload is as recorded from the service, with the four-byte form of the delivery-id (golden frame of the
    reference).
    """
    batch = stored(messages_to_batch([data(b"hi")]), base=5)

    frames = emit(batch, 5, offset=320).frames

    performative = "005314c0120b5203700000000" + "0a0004341424040404041"
    payload = (
        "005372c17108a31b782d6f70742d73657175656e63652d6e756d6265722d65706f636854ff"
        "a315782d6f70742d73657175656e63652d6e756d626572810000000000000005a30c782d6f70742d6f6666736574a103333230"
        "a313782d6f70742d656e7175657565642d74696d65830000018bcfe56800005375a0026869"
    )
    body = bytes.fromhex("02000001" + performative + payload)
    assert frames == (len(body) + 4).to_bytes(4, "big") + body


def test_large_handle_has_its_long_encoding() -> None:
    """The delivery is settled and has an empty tag; the delivery-id is at its largest."""
    batch = stored(messages_to_batch([data(b"hi")]))

    frames = emit(batch, handle=0x1234, next_delivery_id=0xFFFF_FFFF).frames

    performative = "005314c0150b" + "7000001234" + "70ffffffff" + "a000" + "43" + "41" + "42" + "40404040" + "41"
    assert frames[8:].startswith(bytes.fromhex(performative) + b"\x00\x53\x72")


def test_header_section_is_stored_but_not_delivered() -> None:
    """As in the service: a reader that applies time-to-live would discard events that the hub still has."""
    header = section(0x70, compound(0xC0, [b"\x41", b"\x50\x0a", b"\x70\x00\x00\x00\x01"]))
    record = record_of(header + data(b"hi"))
    batch = stored(messages_to_batch([header + data(b"hi")]))

    (got,) = deliveries(emit(batch).frames)

    assert record.endswith(b"\x01\x08\x00\x00" + header)
    assert got.payload.startswith(b"\x00\x53\x72")
    assert got.payload.endswith(data(b"hi"))


def test_delivery_annotations_after_the_body_are_the_last_section() -> None:
    """The Python SDK writes them there, and the service delivers them there; those before the body are dropped."""
    behind = section(0x71, compound(0xC1, [symbol("hop"), b"\x41"]))
    footer = section(0x78, compound(0xC1, [symbol("f"), b"\x42"]))
    sent = [data(b"plain") + behind, data(b"hi") + behind + footer, behind + data(b"before")]
    batch = stored(messages_to_batch(sent))

    plain, footed, before = [got.payload for got in deliveries(emit(batch).frames)]

    assert plain.endswith(data(b"plain") + behind)
    assert footed.endswith(data(b"hi") + footer + behind)
    assert before.endswith(data(b"before"))
    assert behind not in before


def test_runtime_metrics_are_the_first_section() -> None:
    """Delivery annotations come before message annotations (AMQP 1.0, 3.2), without a header before them."""
    batch = stored(messages_to_batch([section(0x70, b"\x45") + data(b"hi")]))
    info = RuntimeInfo(last_sequence=9, last_offset=77, last_enqueued_ms=3, retrieved_ms=4)

    (got,) = deliveries(emit(batch, runtime=info).frames)

    entries = [
        symbol("last_enqueued_sequence_number_epoch") + b"\x54\xff",
        symbol("last_enqueued_sequence_number") + b"\x81" + (9).to_bytes(8, "big"),
        symbol("last_enqueued_offset") + text("77"),
        symbol("last_enqueued_time_utc") + b"\x83" + (3).to_bytes(8, "big"),
        symbol("runtime_info_retrieval_time_utc") + b"\x83" + (4).to_bytes(8, "big"),
    ]
    expected = section(0x71, b"\xc1" + bytes((len(b"".join(entries)) + 1, 10)) + b"".join(entries))
    assert delivery_annotations(info) == expected
    assert got.payload.startswith(expected + b"\x00\x53\x72")
