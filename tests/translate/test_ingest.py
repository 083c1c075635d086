"""Publications: keys, publishers, producers, and refusals."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.errors import InvalidArgument, UndecodableMessage
from hubmere.records.header import read_header
from hubmere.translate import (
    BATCH_FORMAT,
    ProducerStamp,
    keyed_messages,
    messages_to_batch,
    publication_from_amqp,
)
from translate.builders import (
    annotations,
    batch_of,
    compound,
    data,
    deliveries,
    emit,
    pairs,
    producer_annotations,
    section,
    stored,
    symbol,
    text,
)

KEYED = annotations(("x-opt-partition-key", text("k")))


def annotations_read(batch: bytearray) -> list[dict[bytes, bytes]]:
    """The annotations of every event, as a reader gets them."""
    found = []
    for delivered in deliveries(emit(stored(batch)).frames):
        raw = delivered.sections.message_annotations
        assert raw is not None
        found.append(dict(pairs(bytes(raw.value_bytes))))
    return found


def test_batch_header_leaves_fields_of_the_log_empty() -> None:
    """Position, times and checksum are zero; size and counts are set."""
    batch = publication_from_amqp(batch_of(data(b"a"), data(b"b")), BATCH_FORMAT).batch

    header = read_header(batch)

    assert (header.base_sequence_number, header.crc, header.base_time_ms, header.max_time_ms) == (0, 0, 0, 0)
    assert (header.size_bytes, header.record_count, header.last_delta) == (len(batch), 2, 1)
    assert (header.producer_id, header.producer_epoch, header.producer_sequence) == (-1, -1, -1)


def test_size_of_a_publication_is_that_of_the_sent_bytes() -> None:
    """Limits and quotas count the publisher's bytes, not ours."""
    payload = batch_of(data(bytes(500)), envelope=KEYED)

    assert publication_from_amqp(memoryview(payload), BATCH_FORMAT).size_bytes == len(payload)


@pytest.mark.parametrize("message_format", [0, 1, 0x8001_3701])
def test_only_the_batch_format_is_a_batch(message_format: int) -> None:
    """In another format, several data sections belong to one event."""
    publication = publication_from_amqp(data(b"a") + data(b"b"), message_format)

    assert publication.count == 1


def test_null_body_of_javascript_is_stored_as_null() -> None:
    """The JavaScript SDK writes null into a Data section, and reads null again; for Kafka the record has no value."""
    null = section(0x75, b"\x40")
    publication = publication_from_amqp(batch_of(null, KEYED + null), BATCH_FORMAT)

    batch = stored(publication.batch)

    assert [bytes(raw.raw) for got in deliveries(emit(batch).frames) for raw in got.sections.body] == [null, null]
    assert [record.value for record in DefaultRecordBatch(batch)] == [None, None]


def test_null_among_several_data_sections_is_refused() -> None:
    """Their binaries are one value, in which null has no place."""
    with pytest.raises(UndecodableMessage):
        publication_from_amqp(data(b"a") + section(0x75, b"\x40"), 0)


def test_key_of_the_envelope_applies_to_every_event() -> None:
    """It overrides keys of the inner messages."""
    payload = batch_of(data(b"a"), annotations(("x-opt-partition-key", text("other"))) + data(b"b"), envelope=KEYED)

    publication = publication_from_amqp(payload, BATCH_FORMAT)

    assert publication.partition_key == "k"
    assert [found[symbol("x-opt-partition-key")] for found in annotations_read(publication.batch)] == [text("k")] * 2


def test_without_an_envelope_key_the_first_message_decides() -> None:
    """A batch is stored in one partition, so it has one key."""
    publication = publication_from_amqp(batch_of(KEYED + data(b"a"), data(b"b")), BATCH_FORMAT)

    assert publication.partition_key == "k"
    assert [found[symbol("x-opt-partition-key")] for found in annotations_read(publication.batch)] == [text("k")] * 2


@pytest.mark.parametrize(
    "value",
    [b"\x40", b"\x54\x05", symbol("k"), b"\xa0\x01k", b"\xa1\x00"],
    ids=["null", "int", "symbol", "binary", "empty"],
)
def test_value_that_is_not_a_string_is_not_a_key(value: bytes) -> None:
    """Reference: a key that is not a string is ignored, and so is an empty one."""
    publication = publication_from_amqp(annotations(("x-opt-partition-key", value)) + data(b"a"), 0)

    assert publication.partition_key is None
    assert symbol("x-opt-partition-key") not in annotations_read(publication.batch)[0]


@pytest.mark.parametrize(("key", "is_taken"), [("x" * 128, True), ("€" * 128, True), ("x" * 129, False)])
def test_a_key_has_at_most_128_characters(key: str, is_taken: bool) -> None:
    """The limit counts characters, not bytes."""
    payload = section(0x72, compound(0xC1, [symbol("x-opt-partition-key"), text(key)])) + data(b"a")

    if is_taken:
        assert publication_from_amqp(payload, 0).partition_key == key
    else:
        with pytest.raises(InvalidArgument):
            publication_from_amqp(payload, 0)


@pytest.mark.parametrize("broken", [b"\x00\x53\x72\xc1", b"\x00\x53\x72\x45", b"\x01"])
def test_a_key_in_a_damaged_message_is_refused(broken: bytes) -> None:
    """Reading the key must not raise anything else."""
    with pytest.raises(UndecodableMessage):
        publication_from_amqp(broken + b"x-opt-partition-key", 0)


def test_key_after_other_annotations_or_after_the_body_is_found() -> None:
    """Sections of a single message may come in any order."""
    payload = data(b"a") + annotations(("mine", b"\x44"), ("x-opt-partition-key", text("k")))

    assert keyed_messages([data(b"b"), payload]) == [1]
    assert publication_from_amqp(payload, 0).partition_key == "k"


def test_name_of_the_key_inside_a_body_is_ignored() -> None:
    """Only annotations can have a key."""
    payload = data(b"x-opt-partition-key")

    assert keyed_messages([payload, data(b"a")]) == []
    assert publication_from_amqp(payload, 0).partition_key is None
    assert publication_from_amqp(batch_of(payload), BATCH_FORMAT).partition_key is None


def test_publisher_sets_key_and_name_of_its_events() -> None:
    """Reference: the publisher's name is the key, and x-opt-publisher is set on every event."""
    payload = batch_of(data(b"a"), annotations(("mine", b"\x41")) + data(b"b"))

    publication = publication_from_amqp(payload, BATCH_FORMAT, publisher="dev-01", resolve_key=lambda _: "dev-01")

    assert publication.partition_key == "dev-01"
    for found in annotations_read(publication.batch):
        assert found[symbol("x-opt-publisher")] == found[symbol("x-opt-partition-key")] == text("dev-01")


def test_the_broker_decides_which_key_is_stored() -> None:
    """It gets the key that was sent, or None."""
    sent: list[str | None] = []

    def resolve_key(key: str | None) -> str | None:
        sent.append(key)
        return "other"

    publications = [publication_from_amqp(payload, 0, resolve_key=resolve_key) for payload in (KEYED, data(b"a"))]

    assert sent == ["k", None]
    assert [publication.partition_key for publication in publications] == ["other", "other"]


@pytest.mark.parametrize(
    "name",
    [
        "x-opt-sequence-number-epoch",
        "x-opt-sequence-number",
        "x-opt-offset",
        "x-opt-enqueued-time",
        "x-opt-publisher",
        "x-opt-kafka-key",
    ],
)
def test_annotations_of_the_broker_are_removed_from_published_messages(name: str) -> None:
    """Otherwise a reader could not trust them; other annotations stay."""
    message = annotations((name, text("forged")), ("mine", b"\x41")) + data(b"a")

    (found,) = annotations_read(publication_from_amqp(message, 0).batch)

    assert found.get(symbol(name)) != text("forged")
    assert found[symbol("mine")] == b"\x41"


def test_producer_annotations_set_the_producer_fields_of_the_batch() -> None:
    """The log compares the producer fields of the batch; readers get the annotations as sent."""
    payload = batch_of(*(producer_annotations(number) + data(b"a") for number in (41, 42, 43)))

    publication = publication_from_amqp(payload, BATCH_FORMAT)

    header = read_header(publication.batch)
    assert (
        publication.producer
        == ProducerStamp(7, 1, 41)
        == (header.producer_id, header.producer_epoch, header.producer_sequence)
    )
    found = annotations_read(publication.batch)
    name = symbol("com.microsoft:producer-sequence-number")
    assert [event[name] for event in found] == [b"\x71" + number.to_bytes(4, "big") for number in (41, 42, 43)]


def test_producer_annotations_may_have_their_shortest_encoding() -> None:
    """Reference: the types are long, short and int, which may be encoded in fewer bytes."""
    message = annotations(
        ("com.microsoft:producer-id", b"\x55\x07"),
        ("com.microsoft:producer-epoch", b"\x61\x00\x00"),
        ("com.microsoft:producer-sequence-number", b"\x44"),
    )

    assert publication_from_amqp(message + data(b"a"), 0).producer == ProducerStamp(7, 0, 0)


def test_sequence_numbers_of_a_producer_wrap_around() -> None:
    """2^31 - 1 is followed by 0, as in the record format."""
    payload = batch_of(producer_annotations(0x7FFF_FFFF) + data(b"a"), producer_annotations(0) + data(b"b"))

    assert publication_from_amqp(payload, BATCH_FORMAT).producer == ProducerStamp(7, 1, 0x7FFF_FFFF)


def test_link_without_idempotence_stores_producer_annotations_unchanged() -> None:
    """A program that forwards events copies annotations without being their producer."""
    publication = publication_from_amqp(producer_annotations(41) + data(b"a"), 0, idempotent=False)

    assert publication.producer is None
    assert read_header(publication.batch).producer_id == -1
    assert symbol("com.microsoft:producer-id") in annotations_read(publication.batch)[0]


@pytest.mark.parametrize(
    "payload",
    [
        batch_of(producer_annotations(1) + data(b"a"), producer_annotations(3) + data(b"b")),
        batch_of(producer_annotations(1) + data(b"a"), data(b"b")),
        batch_of(producer_annotations(1) + data(b"a"), producer_annotations(2, epoch=2) + data(b"b")),
        batch_of(producer_annotations(1) + data(b"a"), producer_annotations(2, producer_id=8) + data(b"b")),
        batch_of(producer_annotations(-1) + data(b"a")),
        batch_of(annotations(("com.microsoft:producer-id", b"\x55\x07")) + data(b"a")),
        batch_of(annotations(("com.microsoft:producer-id", text("7"))) + data(b"a")),
    ],
    ids=["gap", "missing", "two epochs", "two producers", "negative", "incomplete", "not a number"],
)
def test_inconsistent_producer_annotations_refuse_the_batch(payload: bytes) -> None:
    """An incomplete numbering cannot be checked for duplicates."""
    with pytest.raises(UndecodableMessage):
        publication_from_amqp(payload, BATCH_FORMAT)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        KEYED,
        batch_of(b""),
        batch_of(b"\x01"),
        batch_of(data(b"a")) + b"\x00\x53\x75\xa0\x05a",
        batch_of(data(b"a") + b"\x00\x53\x99\x40"),
        batch_of(data(b"a"), envelope=section(0x77, b"\x40")),
        batch_of(data(b"a")) + KEYED,
        batch_of(section(0x77, b"\x40") + section(0x77, b"\x40")),
        batch_of(data(b"a") + section(0x77, b"\x40")),
        batch_of(section(0x70, b"\x45") * 2 + data(b"a")),
        batch_of(section(0x74, compound(0xC1, [b"\xa1\x01\xff", b"\x40"]))),
        batch_of(section(0x74, b"\xc1\x03\x01\xa1\x00")),
        batch_of(section(0x73, b"\xc0\x02\x02\x40")),
        batch_of(section(0x77, b"\xc0\x7f\x01\x40")),
        batch_of(section(0x77, b"\x57")),
        batch_of(section(0x72, compound(0xC1, [symbol("x-opt-partition-key"), b"\xa1\x01\xff"]))),
    ],
)
def test_undecodable_message_refuses_the_whole_batch(payload: bytes) -> None:
    """Without a data section, or with an undecodable message inside, nothing is stored."""
    with pytest.raises(UndecodableMessage):
        publication_from_amqp(payload, BATCH_FORMAT)


def test_deep_nesting_is_refused() -> None:
    """A deeply nested message must not exhaust the stack, neither here nor in a reader."""
    value = b"\x40"
    for _ in range(60):
        value = compound(0xC0, [value], wide=True)

    with pytest.raises(UndecodableMessage):
        publication_from_amqp(section(0x77, value), 0)
    with pytest.raises(UndecodableMessage):
        publication_from_amqp(section(0x77, b"\x00" * 5000 + b"\x40"), 0)


def test_one_bad_message_refuses_a_run_of_single_sends() -> None:
    """The endpoint then publishes them one by one and rejects the bad one."""
    with pytest.raises(UndecodableMessage):
        messages_to_batch([data(b"a"), b"\x00\x53", data(b"b")])


@given(st.binary(max_size=60), st.sampled_from([0, BATCH_FORMAT]))
def test_arbitrary_bytes_are_stored_or_refused(payload: bytes, message_format: int) -> None:
    """Hostile input must not cause another error."""
    try:
        publication = publication_from_amqp(payload, message_format)
    except UndecodableMessage:
        return
    assert emit(stored(publication.batch)).count == publication.count


@pytest.mark.parametrize("size", [0, 10_000])
def test_key_is_found_in_large_messages_as_in_small_ones(size: int) -> None:
    """A short body has another constructor than a long one, but the result is the same."""
    body, named = data(bytes(size)), data(bytes(size) + b"x-opt-partition-key")

    assert keyed_messages([body, KEYED + body, named, body + KEYED]) == [1, 3]
    assert keyed_messages([body, named]) == []
    assert publication_from_amqp(KEYED + body, 0).partition_key == "k"
    assert publication_from_amqp(body + KEYED, 0).partition_key == "k"
    assert publication_from_amqp(named, 0).partition_key is None
    assert publication_from_amqp(batch_of(KEYED + body), BATCH_FORMAT).partition_key == "k"


@pytest.mark.parametrize("size", [0, 10_000])
def test_search_for_a_key_in_a_damaged_message_does_not_raise(size: int) -> None:
    """The publication refuses it; the search must not close the connection."""
    assert keyed_messages([data(b"a"), data(bytes(size))[:-1], b""]) == [1]
