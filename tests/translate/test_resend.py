"""An event that was read is published again."""

import pytest
from hypothesis import given

from hubmere.records.records import Record, encode_batch
from hubmere.translate import events, messages_to_batch, publication_from_view, text_key
from hubmere.translate.view import EventView
from translate.builders import NOW_MS, stored
from translate.messages import Sent, messages


def _resent(batch: bytes) -> tuple[EventView, EventView]:
    """The first event of a batch, and the same event published again."""
    (view,) = events(batch, 0, 0, 1)
    (again,) = events(stored(publication_from_view(view, NOW_MS).batch), 0, 0, 1)
    return view, again


@given(messages())
def test_amqp_event_has_every_section_again(sent: Sent) -> None:
    """Types of properties, annotations and body sections that no form shows are those of the original."""
    view, again = _resent(stored(messages_to_batch([sent.payload])))

    assert (again.key, again.body, again.headers) == (view.key, view.body, view.headers)
    assert repr(again.properties) == repr(view.properties)
    assert repr(again.system_properties) == repr(view.system_properties)


@pytest.mark.parametrize(
    "record",
    [
        Record(0, NOW_MS, b"k", b"v", (("h", b"\x00\xff"), ("h", b"twice"), ("n", None))),
        Record(0, NOW_MS, b"\xff\xfe", b"v"),
        Record(0, NOW_MS, b"deleted", None),
        Record(0, NOW_MS, None, b""),
    ],
)
def test_kafka_record_has_its_key_value_and_headers_again(record: Record) -> None:
    """A header may occur twice and be null, a key may be binary, and a value may be missing."""
    _, again = _resent(bytes(encode_batch([record])))

    assert (again.key, again.body, again.headers) == (record.key, record.value, record.headers)


@pytest.mark.parametrize(("key", "text"), [(b"k", "k"), ("é".encode(), "é"), (b"\xff", None), (None, None)])
def test_key_of_a_kafka_record_chooses_a_partition_if_it_is_text(key: bytes | None, text: str | None) -> None:
    """Partition keys are text."""
    (view,) = events(bytes(encode_batch([Record(0, NOW_MS, key, b"v")])), 0, 0, 1)

    assert text_key(view) == text
    assert publication_from_view(view, NOW_MS).partition_key == text
