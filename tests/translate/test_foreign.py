"""Messages that are written and read by foreign codecs: Qpid Proton, and the codec of the Azure SDK."""

import uuid

import proton
from azure.eventhub._pyamqp._decode import decode_payload
from azure.eventhub._pyamqp._encode import encode_payload
from azure.eventhub._pyamqp.message import Message
from proton import int32 as proton_int32
from proton import symbol as proton_symbol
from proton import timestamp as proton_timestamp

from hubmere.translate import BATCH_FORMAT, publication_from_amqp
from translate.builders import NOW_MS, batch_of, deliveries, emit, stored


def delivered(payload: bytes, message_format: int = 0) -> list[bytes]:
    """The message that a reader gets for a publication."""
    batch = stored(publication_from_amqp(payload, message_format).batch, base=3)
    return [got.payload for got in deliveries(emit(batch, 3, offset=70).frames)]


def test_message_of_proton_survives_a_round_trip() -> None:
    """It has every kind of property that Proton can write."""
    sent = proton.Message(
        body={"deep": [1, "two", 3.0, None]},
        id=uuid.uuid5(uuid.NAMESPACE_DNS, "hubmere"),
        subject="s",
        reply_to="r",
        correlation_id=7,
        content_type="application/json",
        group_id="g",
        creation_time=1_700_000_000.5,
        ttl=60.0,
        durable=True,
        properties={
            "text": "x",
            "long": 1 << 40,
            "true": True,
            "none": None,
            "when": proton_timestamp(5),
            "sym": proton_symbol("y"),
        },
        annotations={proton_symbol("mine"): [1, 2]},
    )

    (payload,) = delivered(sent.encode())

    got = proton.Message()
    got.decode(payload)
    for name in (
        "body",
        "id",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "group_id",
        "creation_time",
    ):
        assert getattr(got, name) == getattr(sent, name), name
    assert got.properties == sent.properties
    assert [type(value) for value in got.properties.values()] == [type(value) for value in sent.properties.values()]
    assert got.annotations["mine"] == [1, 2]
    assert (got.annotations["x-opt-sequence-number"], got.annotations["x-opt-enqueued-time"]) == (3, NOW_MS)
    assert got.annotations["x-opt-offset"] == "70"
    assert got.annotations["x-opt-sequence-number-epoch"] == proton_int32(-1)
    assert (got.ttl, got.durable) == (0.0, False), "the service delivers no header"


def test_batch_of_the_azure_sdk_survives_a_round_trip() -> None:
    """The SDK encodes annotations and properties in its own way, and decodes ours."""
    inner = [
        bytes(
            encode_payload(
                bytearray(),
                Message(
                    data=[b"body %d" % n],
                    application_properties={b"prop": "value", b"number": n},
                    message_annotations={b"x-opt-partition-key": "key"},
                ),
            )
        )
        for n in range(3)
    ]

    payloads = delivered(batch_of(*inner), BATCH_FORMAT)

    assert publication_from_amqp(inner[0], 0).partition_key == "key"
    for number, payload in enumerate(payloads):
        got = decode_payload(memoryview(payload))
        assert list(got.data) == [b"body %d" % number]
        assert got.application_properties == {b"prop": b"value", b"number": number}
        assert got.message_annotations[b"x-opt-partition-key"] == b"key"
        assert got.message_annotations[b"x-opt-sequence-number"] == 3 + number
