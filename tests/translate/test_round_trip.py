"""An AMQP reader gets exactly what an AMQP publisher sent, and a Kafka reader gets it as records."""

from itertools import pairwise

from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubmere.model.offsets import index_at_offset, spread_offset
from hubmere.translate import BATCH_FORMAT, DecodedCache, messages_to_batch, publication_from_amqp
from translate.builders import (
    NOW_MS,
    Delivered,
    batch_of,
    deliveries,
    emit,
    pairs,
    section,
    sized,
    stored,
    symbol,
    text,
)
from translate.messages import Sent, messages

COMMON = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def assert_same(got: Delivered, sent: Sent, *, sequence: int, offset: int, key: str | None = None) -> None:
    sections = got.sections
    assert sections.header is None
    assert (sections.properties and bytes(sections.properties.value_bytes)) == sent.properties
    assert (sections.footer and bytes(sections.footer.value_bytes)) == sent.footer
    assert [bytes(raw.raw) for raw in sections.body] == sent.body
    assert (sections.delivery_annotations and bytes(sections.delivery_annotations.raw)) == sent.trailing
    assert got.payload.endswith(sent.trailing or b"")

    found = sections.application_properties
    assert (found and pairs(bytes(found.value_bytes))) == sent.application

    assert sections.message_annotations is not None
    placed = [
        (symbol("x-opt-sequence-number-epoch"), b"\x54\xff"),
        (symbol("x-opt-sequence-number"), b"\x81" + sequence.to_bytes(8, "big")),
        (symbol("x-opt-offset"), text(str(offset))),
        (symbol("x-opt-enqueued-time"), b"\x83" + NOW_MS.to_bytes(8, "big")),
    ]
    keyed = [] if key is None else [(symbol("x-opt-partition-key"), text(key))]
    assert pairs(bytes(sections.message_annotations.value_bytes)) == [*placed, *keyed, *sent.annotations]


@COMMON
@given(st.lists(messages(), min_size=1, max_size=4), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_batch_is_read_back_message_by_message(sent: list[Sent], base: int, offset: int) -> None:
    """Sections, types and encodings survive storage (reference: lossless storage of an AMQP message)."""
    publication = publication_from_amqp(batch_of(*(message.payload for message in sent)), BATCH_FORMAT)
    batch = stored(publication.batch, base=base)

    emission = emit(batch, base, offset=offset)

    got = deliveries(emission.frames)
    assert emission.count == len(got) == len(sent) == publication.count
    for index, (delivered, message) in enumerate(zip(got, sent, strict=True)):
        place = spread_offset(offset, len(batch), len(sent), index)
        assert_same(delivered, message, sequence=base + index, offset=place)


@COMMON
@given(messages(), st.text(min_size=1, max_size=128))
def test_single_message_with_a_key_is_read_back_with_the_key(sent: Sent, key: str) -> None:
    """The key is stored as the key of the record and delivered as an annotation."""
    envelope = b"\x00\x53\x72\xd1" + _map_body(symbol("x-opt-partition-key") + text(key))
    publication = publication_from_amqp(batch_of(sent.payload, envelope=envelope), BATCH_FORMAT)
    batch = stored(publication.batch)

    got = deliveries(emit(batch).frames)

    assert publication.partition_key == key
    assert_same(got[0], sent, sequence=0, offset=0, key=key)
    assert next(DefaultRecordBatch(batch)).key == key.encode()


def _map_body(entries: bytes) -> bytes:
    return (len(entries) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + entries


@COMMON
@given(st.lists(messages(), min_size=1, max_size=4))
def test_a_run_of_single_messages_is_stored_like_a_batch_of_them(sent: list[Sent]) -> None:
    """A reader cannot see whether events came in one delivery or in several."""
    payloads = [message.payload for message in sent]

    run = messages_to_batch(payloads)

    assert run == publication_from_amqp(batch_of(*payloads), BATCH_FORMAT).batch


@COMMON
@given(st.lists(messages(), min_size=1, max_size=4))
def test_kafka_readers_get_intact_records(sent: list[Sent]) -> None:
    """A foreign record reader finds a valid checksum, contiguous numbers and the properties as headers."""
    batch = stored(publication_from_amqp(batch_of(*(message.payload for message in sent)), BATCH_FORMAT).batch, base=40)

    reader = DefaultRecordBatch(batch)
    is_intact = reader.validate_crc()
    records = list(reader)

    assert is_intact
    assert [record.offset for record in records] == [40 + index for index in range(len(sent))]
    assert {record.timestamp for record in records} == {NOW_MS}
    for record, message in zip(records, sent, strict=True):
        expected = [(name[2:].decode(), value) for name, value in message.application or []]
        assert record.headers[: len(expected)] == expected


@COMMON
@given(st.lists(messages(), min_size=2, max_size=6), st.data())
def test_messages_do_not_depend_on_how_they_are_read(sent: list[Sent], choices: st.DataObject) -> None:
    """Credit, space and start position only split the stream; they never change an event."""
    batch = stored(publication_from_amqp(batch_of(*(message.payload for message in sent)), BATCH_FORMAT).batch, base=5)
    whole = [delivered.payload for delivered in deliveries(emit(batch, 5).frames)]
    cache = DecodedCache(choices.draw(st.sampled_from([0, 1 << 20])))

    got: list[bytes] = []
    sequence = 5
    while sequence < 5 + len(sent):
        limit = choices.draw(st.integers(1, 3))
        emission = emit(batch, sequence, limit=limit, cache=cache, next_delivery_id=len(got))
        assert emission.count >= 1
        got += [delivered.payload for delivered in deliveries(emission.frames)]
        sequence = emission.next_sequence

    assert got == whole


@COMMON
@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(0, 1 << 50))
def test_offset_of_every_event_finds_that_event(sizes: list[int], offset: int) -> None:
    """Byte offsets are unique, increase with the events, stay inside their batch and lead back to the event."""
    batch = stored(messages_to_batch([section(0x75, sized(0xA0, bytes(size))) for size in sizes]))

    offsets = [int(found_offset(delivered)) for delivered in deliveries(emit(batch, offset=offset).frames)]

    assert offsets[0] == offset
    assert all(before < after for before, after in pairwise([*offsets, offset + len(batch)]))
    for index, place in enumerate(offsets):
        assert index_at_offset(offset, len(batch), len(sizes), place) == index
        assert index_at_offset(offset, len(batch), len(sizes), place + 1) == index + 1


def found_offset(delivered: Delivered) -> bytes:
    raw = delivered.sections.message_annotations
    assert raw is not None
    return dict(pairs(bytes(raw.value_bytes)))[symbol("x-opt-offset")][2:]
