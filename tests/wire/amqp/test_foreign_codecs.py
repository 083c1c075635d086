"""Bytes from and to two foreign implementations: Qpid Proton and the AMQP library of the Azure SDK for Python."""

from __future__ import annotations

import uuid
from typing import Any

import proton
import pytest
from azure.eventhub._pyamqp import _decode as sdk_decode
from azure.eventhub._pyamqp import _encode as sdk_encode
from azure.eventhub._pyamqp import endpoints as sdk_endpoints
from azure.eventhub._pyamqp import message as sdk_message
from azure.eventhub._pyamqp import performatives as sdk
from hypothesis import given
from hypothesis import strategies as st

from hubmere.wire.amqp import Connection, EngineOptions, Role
from hubmere.wire.amqp.codec.composites import read_described, write_described
from hubmere.wire.amqp.codec.decode import decode_value
from hubmere.wire.amqp.codec.encode import encode_value
from hubmere.wire.amqp.codec.message import AmqpValue, Data, Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import (
    ACCEPTED,
    Begin,
    Close,
    Detach,
    Disposition,
    Error,
    Flow,
    Header,
    Open,
    Properties,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from hubmere.wire.amqp.codec.types import Described, Int, Long, Symbol, Timestamp, UInt, ULong
from hubmere.wire.amqp.signals import AttachRequested, ConnectionClosed, CreditChanged, Signal
from wire.amqp.builders import a_server, deliveries, kinds, only
from wire.amqp.values import ARRAYS, SCALAR, SYMBOLS, typed

PROTON_VALUES = st.recursive(
    SCALAR | ARRAYS.filter(lambda array: bool(array.items)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(SYMBOLS, inner, max_size=4),
        # Proton miscounts a list that holds a described value inside a described value.
        st.builds(Described, SYMBOLS, inner.filter(lambda value: not isinstance(value, Described))),
    ),
    max_leaves=8,
)


def through_proton(data: bytes) -> bytes:
    """Decode and encode a value with Proton's own codec."""
    codec = proton.Data()
    assert codec.decode(data) == len(data)
    codec.rewind()
    return bytes(codec.encode())


@given(PROTON_VALUES)
def test_proton_reads_our_values_and_we_read_those_of_proton(value: Any) -> None:
    """Types survive a foreign decoder and encoder."""
    again, _end = decode_value(through_proton(encode_value(value)))

    assert typed(again) == typed(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (UInt(300), 300),
        (ULong(5), 5),
        (Int(-5), -5),
        (Long(1 << 40), 1 << 40),
        (Timestamp(1_700_000_000_000), 1_700_000_000_000),
        (1.5, 1.5),
        ("text", b"text"),
        (Symbol("sym"), b"sym"),
        (b"raw", b"raw"),
        (uuid.UUID(int=5), uuid.UUID(int=5)),
        ([Int(1), "a"], [1, b"a"]),
        ({Symbol("k"): Long(2)}, {b"k": 2}),
    ],
)
def test_the_sdk_reads_our_values(value: Any, expected: Any) -> None:
    """Its decoder returns text as bytes and drops the integer types."""
    data = memoryview(encode_value(value))

    rest, decoded = sdk_decode._DECODE_BY_CONSTRUCTOR[data[0]](data[1:])

    assert decoded == expected
    assert not rest


def from_sdk(performative: Any) -> Any:
    """A performative that the SDK has encoded and we have decoded."""
    _head, body = sdk_encode.encode_frame(performative)
    assert body is not None
    return read_described(bytes(body))[0]


def test_frames_of_the_sdk_are_read() -> None:
    """The fields that a consumer of the SDK sets are decoded correctly."""
    open_frame = sdk.OpenFrame("id", "host", 1048576, 65535, None, None, None, None, None, {"product": "sdk"})
    begin = sdk.BeginFrame(None, 0, 65536, 65536, 4294967295, None, None, None)
    source = sdk_endpoints.Source(address="hub/ConsumerGroups/$Default/Partitions/0")
    attach = sdk.AttachFrame(
        name="l", handle=3, role=True, send_settle_mode=0, rcv_settle_mode=1, source=source,
        target=sdk_endpoints.Target(address="me"), unsettled=None, incomplete_unsettled=False,
        initial_delivery_count=None, max_message_size=1048576, offered_capabilities=None,
        desired_capabilities=[b"com.microsoft:enable-receiver-runtime-metric"], properties=None,
    )  # fmt: skip
    flow = sdk.FlowFrame(0, 65536, 0, 65536, 3, 0, 300, None, False, False, None)

    assert from_sdk(open_frame) == Open("id", "host", 1048576, properties={"product": "sdk"})
    assert from_sdk(begin) == Begin(None, 0, 65536, 65536)
    read = from_sdk(attach)
    assert (read.name, read.handle, read.role, read.rcv_settle_mode) == ("l", 3, True, 1)
    assert read.source.address == "hub/ConsumerGroups/$Default/Partitions/0"
    assert read.desired_capabilities == ("com.microsoft:enable-receiver-runtime-metric",)
    assert from_sdk(flow).link_credit == 300


@pytest.mark.parametrize(
    ("performative", "expected"),
    [
        (Open("id", None, 65536, 4999, 240000), [b"id", None, 65536, 4999, 240000, None, None, None, None, None]),
        (Begin(1, 1, 5000, 65536, 255), [1, 1, 5000, 65536, 255, None, None, None]),
        (Flow(0, 5000, 1, 9, 2, 0, 300, 0, None, False), [0, 5000, 1, 9, 2, 0, 300, 0, None, False, None]),
        (Detach(1, True, Error("amqp:link:stolen", "x")), [1, True, [b"amqp:link:stolen", b"x", None]]),
        (Close(), [None]),
        (Disposition(True, 1, 5, True, ACCEPTED), [True, 1, 5, True, {"accepted": []}, None]),
        (SaslOutcome(0), [0, None]),
        (SaslInit("PLAIN", b"x", "h"), [b"PLAIN", b"x", b"h"]),
    ],
)
def test_the_sdk_finds_our_fields_by_position(performative: Any, expected: list[Any]) -> None:
    """It indexes the list without checking its length, so every field must be present."""
    _code, fields = sdk_decode.decode_frame(memoryview(write_described(performative)))

    assert [_plain(field) for field in fields] == expected


def _plain(field: Any) -> Any:
    return [_plain(item) for item in field] if isinstance(field, list | tuple) else field


def test_the_sdk_finds_the_payload_after_eleven_fields() -> None:
    """A transfer with fewer fields loses its payload there."""
    head = write_described(Transfer(1, 2, b"t", 0, True, False, batchable=True))

    _code, fields = sdk_decode.decode_frame(memoryview(head + b"payload"))

    assert len(fields) == 12
    assert bytes(fields[11]) == b"payload"


def test_messages_of_the_sdk_are_read_and_ours_by_it() -> None:
    """Header, annotations, properties and body, both ways."""
    theirs = bytearray()
    sdk_encode.encode_payload(
        theirs,
        sdk_message.Message(
            header=sdk_message.Header(durable=True),
            message_annotations={b"x-opt-partition-key": "key"},
            properties=sdk_message.Properties(message_id="m"),
            application_properties={"n": 5},
            data=[b"body"],
        ),
    )
    ours = Message(
        header=Header(durable=True),
        message_annotations={Symbol("x-opt-sequence-number"): Long(7)},
        properties=Properties(correlation_id="m"),
        application_properties={"status-code": Int(202)},
        body=AmqpValue("v"),
    )

    read = read_message(bytes(theirs))
    seen = sdk_decode.decode_payload(memoryview(write_message(ours)))

    assert read.header == Header(durable=True)
    assert read.message_annotations == {"x-opt-partition-key": "key"}
    assert read.properties == Properties(message_id="m")
    assert typed(read.application_properties) == typed({"n": Int(5)})
    assert read.body == Data((b"body",))
    assert seen.message_annotations == {b"x-opt-sequence-number": 7}
    assert seen.application_properties == {b"status-code": 202}
    assert seen.properties.correlation_id == b"m"
    assert seen.value == b"v"


class ProtonClient:
    """Proton's engine without a socket, connected to ours."""

    def __init__(self, server: Connection) -> None:
        self.server = server
        self.transport = proton.Transport()
        self.connection = proton.Connection()
        self.connection.container = "proton"
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()

    def exchange(self) -> list[Signal]:
        """Transfers bytes until both have nothing to send; returns our signals."""
        signals: list[Signal] = []
        while True:
            pending = self.transport.pending()
            upward = bytes(self.transport.peek(pending)) if pending > 0 else b""
            if upward:
                self.transport.pop(len(upward))
                signals += self.server.receive_data(upward, 0.0)
            downward = self.server.data_to_send()
            if downward:
                self.transport.push(downward)
            if not upward and not downward:
                return signals


def test_proton_sends_to_our_engine() -> None:
    """Short field lists, its own encodings and a message in several frames."""
    client = ProtonClient(Connection(Role.SERVER, EngineOptions(max_frame_size=1024), 0.0))
    sender = client.session.sender("s")
    sender.target.address = "hub"
    sender.open()
    link = only(client.exchange(), AttachRequested).link
    link.accept(max_message_size=1 << 20)
    link.grant(10)
    client.exchange()

    sent = []
    for number, body in enumerate([b"a", b"b" * 5000, b"c"]):
        sent.append(sender.delivery(str(number)))
        sender.send(body)
        sender.advance()
    received = deliveries(client.exchange())
    link.settle(received[0][0], received[-1][0], state=ACCEPTED)
    client.exchange()

    assert [payload for *_rest, payload in received] == [b"a", b"b" * 5000, b"c"]
    assert [delivery.remote_state for delivery in sent] == [proton.Delivery.ACCEPTED] * 3
    assert all(delivery.settled for delivery in sent)


def test_proton_receives_from_our_engine() -> None:
    """Its flow has null session fields until it has read our begin; a large message is sent in several frames."""
    client = ProtonClient(Connection(Role.SERVER, EngineOptions(max_frame_size=1024), 0.0))
    receiver = client.session.receiver("r")
    receiver.source.address = "hub"
    receiver.open()
    receiver.flow(5)
    signals = client.exchange()
    link = only(signals, AttachRequested).link
    link.accept(max_message_size=1 << 20)
    only(signals, CreditChanged)
    client.exchange()
    receiver.flow(5)
    client.exchange()

    link.send(b"one", settled=False)
    link.send(b"2" * 5000, settled=False)
    client.exchange()
    bodies = []
    for _ in range(2):
        bodies.append(bytes(receiver.recv(100_000)))
        delivery = receiver.current
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
    settled = client.exchange()

    assert bodies == [b"one", b"2" * 5000]
    assert link.credit == 8
    assert kinds(settled) == ["DispositionReceived"] * len(settled)
    assert settled


def test_proton_closes_in_order() -> None:
    """It writes end and close as list0, and expects an answer to each."""
    client = ProtonClient(a_server(b"")[0])
    client.exchange()

    client.session.close()
    client.connection.close()
    signals = client.exchange()

    only(signals, ConnectionClosed)
    assert client.connection.state == proton.Endpoint.LOCAL_CLOSED | proton.Endpoint.REMOTE_CLOSED


def test_source_and_target_reach_proton() -> None:
    """A generic client shows the echoed attach to its user."""
    client = ProtonClient(a_server(b"")[0])
    receiver = client.session.receiver("r")
    receiver.source.address = "asked"
    receiver.open()
    link = only(client.exchange(), AttachRequested).link

    link.accept(source=Source("given"), target=Target("there"), max_message_size=77)
    client.exchange()

    assert receiver.remote_source.address == "given"
    assert receiver.remote_target.address == "there"
    assert receiver.remote_max_message_size == 77
