"""Events published over HTTPS, as AMQP and Kafka readers see them."""

import uuid

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from hubmere.model.errors import InvalidArgument
from hubmere.translate import HttpEvent, Publication, UserProperty, publication_from_http
from hubmere.wire.amqp.codec.message import Data, Message, read_message
from hubmere.wire.amqp.codec.types import Int, Long, Symbol, UInt
from translate.builders import deliveries, emit, stored


def messages_read(publication: Publication) -> list[Message]:
    return [read_message(got.payload) for got in deliveries(emit(stored(publication.batch)).frames)]


def test_user_properties_have_the_types_of_the_service() -> None:
    """int when it fits, else long; double, boolean and string are unchanged."""
    properties: dict[str, UserProperty] = {"n": 5, "big": 1 << 40, "f": 1.5, "b": True, "s": "x"}

    (message,) = messages_read(publication_from_http([HttpEvent(body=b"hi", properties=properties)]))

    assert message.application_properties == properties
    types = [type(value) for value in (message.application_properties or {}).values()]
    assert types == [Int, Long, float, bool, str]
    assert message.body == Data((b"hi",))


def test_kafka_readers_see_compact_encodings_and_the_content_type() -> None:
    """Reference check 48, and Content-Type as a text header."""
    event = HttpEvent(body=b"hi", properties={"n": 5, "b": True, "s": "x"}, content_type="text/plain")

    (record,) = DefaultRecordBatch(stored(publication_from_http([event]).batch))

    assert record.value == b"hi"
    assert record.headers[:-1] == [
        ("n", b"\x54\x05"),
        ("b", b"\x41"),
        ("s", b"\xa1\x01x"),
        ("content-type", b"text/plain"),
    ]


def test_typed_properties_of_an_event_that_is_sent_again_keep_their_types() -> None:
    """JSON has no such values, but events of AMQP and Kafka clients do."""
    unique = uuid.UUID(int=7)
    properties: dict[str, UserProperty] = {"id": unique, "raw": b"\x00", "none": None, "u": UInt(5), "s": Symbol("x")}

    (message,) = messages_read(publication_from_http([HttpEvent(body=b"hi", properties=properties)]))

    found = message.application_properties or {}
    assert found == properties
    assert [type(value) for value in found.values()] == [uuid.UUID, bytes, type(None), UInt, Symbol]


def test_broker_properties_fill_the_properties_section() -> None:
    """Each name has its AMQP field; the time to live is stored in the header, which is not delivered."""
    event = HttpEvent(
        body=b"",
        message_id="m",
        correlation_id="c",
        content_type="a/b",
        label="l",
        to="t",
        reply_to="r",
        session_id="s",
        time_to_live_ms=60_000,
    )

    publication = publication_from_http([event])
    (message,) = messages_read(publication)

    found = message.properties
    assert found is not None
    assert (found.message_id, found.correlation_id, found.content_type) == ("m", "c", "a/b")
    assert (found.subject, found.to, found.reply_to, found.group_id) == ("l", "t", "r", "s")
    assert bytes.fromhex("00 53 70 c0 08 03 40 40 70 00 00 ea 60") in publication.batch
    assert message.header is None


def test_event_without_properties_has_only_a_body() -> None:
    """Nothing is stored that the client did not send."""
    (message,) = messages_read(publication_from_http([HttpEvent(body=b"hi")]))

    assert (message.header, message.properties, message.application_properties) == (None, None, None)


def test_a_batch_is_one_publication_with_one_key() -> None:
    """The batch is atomic, contiguous and in one partition; properties are only on the events that had them."""
    events = [HttpEvent(body=b"a", partition_key="k", properties={"p": 1}), HttpEvent(body=b"bc", partition_key="k")]

    publication = publication_from_http(events)

    assert (publication.count, publication.partition_key, publication.size_bytes) == (2, "k", 3)
    first, second = messages_read(publication)
    assert (first.application_properties, second.application_properties) == ({"p": 1}, None)


def test_different_keys_in_one_batch_are_refused() -> None:
    """The events could not be in one partition."""
    with pytest.raises(InvalidArgument):
        publication_from_http([HttpEvent(body=b"a", partition_key="k"), HttpEvent(body=b"b")])


def test_publisher_sets_name_and_key() -> None:
    """As over AMQP, the broker resolves the key."""
    publication = publication_from_http(
        [HttpEvent(body=b"a")], publisher="dev-01", resolve_key=lambda key: key or "dev-01"
    )

    (message,) = messages_read(publication)

    assert message.message_annotations is not None
    assert (
        message.message_annotations["x-opt-publisher"] == message.message_annotations["x-opt-partition-key"] == "dev-01"
    )


@pytest.mark.parametrize(
    "events",
    [
        [],
        [HttpEvent(body=b"", properties={"n": 1 << 64})],
        [HttpEvent(body=b"", content_type="té/xt")],
        [HttpEvent(body=b"", partition_key="k" * 129)],
        [HttpEvent(body=b"", partition_key="\ud800")],
        [HttpEvent(body=b"", properties={"\ud800": "x"})],
        [HttpEvent(body=b"", message_id="\ud800")],
    ],
    ids=["no event", "number", "content type", "long key", "half a key", "half a name", "half an id"],
)
def test_values_that_amqp_cannot_express_are_refused(events: list[HttpEvent]) -> None:
    """The refusal names the argument."""
    with pytest.raises(InvalidArgument):
        publication_from_http(events)
