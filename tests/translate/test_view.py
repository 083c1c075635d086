"""Events decoded for people."""

from hubmere.model.offsets import spread_offset
from hubmere.records.compression import Codec
from hubmere.records.records import Marker, Record, encode_batch, encode_marker
from hubmere.translate import BATCH_FORMAT, TypedValue, events, messages_to_batch, publication_from_amqp
from hubmere.wire.amqp.codec.types import Int, Symbol
from translate.builders import (
    NOW_MS,
    annotations,
    application_properties,
    batch_of,
    compound,
    data,
    section,
    stored,
    symbol,
    text,
)


def test_amqp_event_is_shown_with_types_positions_and_headers() -> None:
    """The Explorer shows the AMQP and the Kafka form of one event."""
    message = (
        annotations(("mine", b"\x41"))
        + section(0x73, compound(0xC0, [text("id-1"), b"\x40", b"\x40", text("subject")]))
        + application_properties(("n", b"\x54\x05"))
        + data(b"body")
    )
    payload = batch_of(data(b"first"), message)
    publication = publication_from_amqp(payload, BATCH_FORMAT, publisher="dev", resolve_key=lambda _: "dev")
    batch = stored(publication.batch, base=10)

    (view,) = events(batch, 500, 11, 5)

    assert (view.sequence, view.offset, view.enqueued_ms) == (11, spread_offset(500, len(batch), 2, 1), NOW_MS)
    assert (view.key, view.partition_key, view.publisher, view.body) == (b"dev", "dev", "dev", b"body")
    assert view.properties == {"n": TypedValue("int", Int(5))}
    assert view.system_properties["message-id"] == TypedValue("string", "id-1")
    assert view.system_properties["subject"] == TypedValue("string", "subject")
    assert view.system_properties["mine"] == TypedValue("boolean", True)
    assert [name for name, _ in view.headers] == ["n", "message-id", "x-opt-amqp"]


def test_a_kafka_event_is_shown_with_its_key_and_binary_headers() -> None:
    """It may be compressed; its key is not a partition key."""
    records = [Record(0, NOW_MS, b"k", b"v", (("h", b"1"), ("n", None)))]
    batch = bytes(encode_batch(records, base_sequence_number=0, codec=Codec.GZIP))

    (view,) = events(batch, 0, 0, 5)

    assert (view.key, view.partition_key, view.publisher, view.body) == (b"k", None, None, b"v")
    assert view.properties == {"h": TypedValue("binary", b"1"), "n": TypedValue("null", None)}
    assert view.headers == (("h", b"1"), ("n", None))
    assert view.system_properties == {"x-opt-kafka-key": TypedValue("binary", b"k")}


def test_number_of_shown_events_is_limited() -> None:
    """They start at the requested event and continue over batches."""
    batches = stored(messages_to_batch([data(b"a"), data(b"b")])) + stored(
        messages_to_batch([data(b"c"), data(b"d")]), base=2
    )

    shown = events(batches, 0, 1, 2)

    assert [(view.sequence, view.body) for view in shown] == [(1, b"b"), (2, b"c")]


def test_on_a_compacted_hub_the_offset_is_the_sequence_number() -> None:
    """It is the same in the annotations of a receiver."""
    batch = stored(messages_to_batch([data(b"a"), data(b"b")]), base=7)

    assert [view.offset for view in events(batch, 999, 7, 5, offsets_are_sequences=True)] == [7, 8]


def test_unreadable_batches_and_markers_are_omitted() -> None:
    """The Explorer skips damaged records, undecodable compression and transaction markers."""
    broken = bytearray(stored(messages_to_batch([data(b"a")])))
    broken[61:] = b"\xff" * (len(broken) - 61)
    squeezed = bytearray(encode_batch([Record(1, NOW_MS, None, bytes(100))], base_sequence_number=1, codec=Codec.GZIP))
    squeezed[70:80] = bytes(10)
    marker = encode_marker(Marker(7, 0, True, 0), time_ms=NOW_MS, base_sequence_number=2)

    batches = bytes(broken + squeezed + marker) + stored(messages_to_batch([data(b"b")]), base=3)
    reported: list[tuple[int, int]] = []

    shown = events(batches, 0, 0, 5, on_unreadable=lambda first, following: reported.append((first, following)))

    assert [view.body for view in shown] == [b"b"]
    assert reported == [(0, 1), (1, 2)]


def test_types_are_named_as_in_the_specification() -> None:
    """This includes symbols and described values."""
    message = application_properties(
        ("s", symbol("x")), ("d", b"\x00" + symbol("u") + text("v")), ("t", b"\x83" + bytes(8))
    )
    batch = stored(messages_to_batch([message + data(b"")]))

    (view,) = events(batch, 0, 0, 1)

    assert [value.type for value in view.properties.values()] == ["symbol", "described", "timestamp"]
    assert view.properties["s"].value == Symbol("x")


def test_a_section_that_cannot_be_shown_does_not_hide_the_others() -> None:
    """The broker does not change text that is not UTF-8; the explorer shows the other sections."""
    message = annotations(("mine", b"\x41")) + application_properties(("p", b"\xa1\x01\xff")) + data(b"body")

    (view,) = events(stored(messages_to_batch([message])), 0, 0, 1)

    assert view.properties == {}
    assert view.system_properties["mine"].value is True
    assert view.headers[0] == ("p", b"\xa1\x01\xff")
