"""Hostile, slow and disconnecting peers, and the stop of the node (reference: AMQP, checks 48 and 50)."""

import logging
import socket
import struct
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, an_event, body_of
from endpoints.amqp.raw_client import WAIT_SECONDS, RawClient
from endpoints.amqp.raw_frames import AMQP_HEADER, CLOSE, frames_of, read_to_end
from hubmere.endpoints.amqp.backpressure import MAX_WAITING_BYTES
from hubmere.endpoints.stream import WRITE_HIGH_WATER_BYTES, Stream
from hubmere.wire.amqp.codec.frames import frame, frame_of
from hubmere.wire.amqp.codec.performatives import Begin, Flow, Open
from hubmere.wire.amqp.signals import DeliveriesReceived
from log_records import messages_of

AN_OPEN = frame(Open(container_id="raw", hostname="localhost"))
A_BEGIN = frame(Begin(next_outgoing_id=0, incoming_window=5000, outgoing_window=5000), 0)

HOSTILE = {
    "size below the header": (b"\x00\x00\x00\x04\x02\x00\x00\x00", b"amqp:connection:framing-error"),
    "size beyond the maximum": (b"\x7f\xff\xff\xff\x02\x00\x00\x00", b"amqp:connection:framing-error"),
    "data offset below the header": (b"\x00\x00\x00\x10\x01\x00\x00\x00" + bytes(8), b"amqp:connection:framing-error"),
    "data offset beyond the frame": (b"\x00\x00\x00\x10\xff\x00\x00\x00" + bytes(8), b"amqp:connection:framing-error"),
    "an unknown frame type": (b"\x00\x00\x00\x0c\x02\x07\x00\x00" + bytes(4), b"amqp:connection:framing-error"),
    "a body that is no performative": (frame_of(b"\x40", 0), b"amqp:decode-error"),
    "a list that promises more than there is": (
        frame_of(b"\x00\x53\x12\xd0\x7f\xff\xff\xff\x00\x00\x00\x0e", 0),
        b"amqp:",
    ),
    "a map nested without end": (frame_of(b"\x00\x53\x12" + b"\xc0\xff\x01" * 200, 0), b"amqp:"),
    "a second open": (AN_OPEN, b"amqp:"),
    "a transfer without a link": (frame_of(b"\x00\x53\x14\xc0\x04\x01\x52\x09", 0), b"amqp:"),
    "a frame for no session": (frame(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1), 77), b"amqp:"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_frame_closes_only_its_own_connection(node: AmqpNode, client: RawClient, name: str) -> None:
    """The condition names the reason."""
    data, condition = HOSTILE[name]
    with socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS) as connection:
        connection.sendall(AMQP_HEADER + AN_OPEN + A_BEGIN + data)
        if name == "a transfer without a link":
            connection.sendall(frame_of(b"\x00\x53\x18\x45", 0))
        answer = read_to_end(connection)

    assert condition in answer
    assert list(frames_of(answer))[-1].code == CLOSE
    client.publish(client.sender("orders"), an_event())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400))
def test_random_bytes_never_affect_other_clients(node: AmqpNode, data: bytes) -> None:
    """After a valid start any bytes may follow; the next client is served."""
    with socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS) as connection:
        connection.sendall(AMQP_HEADER + AN_OPEN + A_BEGIN + data)

    with RawClient(node) as client:
        client.authorize()


def test_reset_connection_is_not_logged_as_an_error(node: AmqpNode, caplog: pytest.LogCaptureFixture) -> None:
    """The Azure SDK for Python resets its connections."""
    caplog.set_level(logging.INFO, logger="hubmere")
    for _ in range(5):
        with RawClient(node) as client:
            client.authorize()
            client.publish(client.sender("orders"), an_event())
            client.reader()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    _until(node, lambda: not node.connections.streams)

    assert not node.call(lambda: node.hub().readers.all())
    assert not node.call(lambda: node.hub().publishers)
    assert not messages_of(caplog, "hubmere")


def _until(node: AmqpNode, fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not node.call(fact):
        assert time.monotonic() < deadline


def _stop_all(node: AmqpNode) -> None:
    def stop() -> None:
        for stream in list(node.connections.streams):
            stream.stop()

    node.call(stop)


def test_reader_that_does_not_read_its_socket_uses_little_memory(node: AmqpNode, client: RawClient) -> None:
    """It grants credit for everything and never reads: the node stops at its high-water mark."""
    sender = client.sender("orders/Partitions/0")
    batch = a_batch([an_event(bytes(10_000)) for _ in range(100)])
    for _ in range(20):
        client.publish(sender, batch, message_format=BATCH_FORMAT)
    with RawClient(node) as slow:
        slow.authorize()
        reader = slow.reader()
        reader.grant(1_000_000)
        slow.flush()
        _until(node, lambda: any(not stream.is_writable for stream in node.connections.streams))

        buffered = node.call(lambda: max(_buffered(stream) for stream in node.connections.streams))
        received = 0
        while received < 2000:
            received += len(slow.expect(DeliveriesReceived).ids)

    assert buffered < WRITE_HIGH_WATER_BYTES + 512 * 1024
    assert received == 2000


def _buffered(stream: Stream) -> int:
    transport = stream._transport
    return 0 if transport is None else transport.get_write_buffer_size()


def test_sender_is_not_read_while_too_many_publications_are_pending(
    node: AmqpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back-pressure: uncommitted publications are bounded, and reading resumes after their commit."""
    with RawClient(node) as client:
        client.authorize()
        sender = client.sender("orders/Partitions/0")
        client.await_window(sender)
        session = next(stream.session for stream in node.connections.streams)
        node.call(lambda: session.backpressure.hold(MAX_WAITING_BYTES + 1))  # type: ignore[union-attr]
        number = sender.send(an_event())
        assert not client.poll(0.2)

        node.call(lambda: session.backpressure.release(MAX_WAITING_BYTES + 1))  # type: ignore[union-attr]

        assert client.outcomes([number])


def test_a_stopping_node_closes_connections_in_order(node: AmqpNode, client: RawClient) -> None:
    """Links are detached, the connection is closed, and clients reconnect."""
    sender, reader = client.sender("orders"), client.reader()
    client.publish(sender, an_event())

    _stop_all(node)

    assert client.detached(sender).condition == "amqp:link:detach-forced"
    assert client.detached(reader).condition == "amqp:link:detach-forced"
    assert client.closed().condition == "amqp:connection:forced"


def test_accepted_events_are_settled_before_the_node_stops(node: AmqpNode, client: RawClient) -> None:
    """An event that is stored but not acknowledged would be sent again."""
    sender = client.sender("orders/Partitions/0")
    client.await_window(sender)
    ids = [sender.send(an_event(f"{n}")) for n in range(100)]
    client.flush()

    _stop_all(node)
    client.detached(sender)
    stored = node.call(lambda: node.hub().log(0).state.committed)

    assert len(client.outcomes(ids[:stored])) == stored


def test_sessions_of_a_connection_are_independent(client: RawClient) -> None:
    """JavaScript begins one session per link."""
    other = client.begin()
    one = client.sender("orders/Partitions/0")
    two = client.sender("orders/Partitions/0", session=other)
    client.publish(one, an_event("a"))
    client.publish(two, an_event("b"))
    other.end()
    client.publish(one, an_event("c"))

    assert [body_of(message) for message in client.receive(client.reader(), 3)] == [b"a", b"b", b"c"]
