"""From the first byte to the first link: headers, SASL, open, begin, attach (reference: AMQP 1, checks 1 to 12)."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import WAIT_SECONDS, RawClient, Refused
from endpoints.amqp.raw_frames import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    END,
    FIELDS,
    FLOW,
    OPEN,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    frames_of,
    read_to_end,
    read_until,
)
from hubmere.model.names import ROOT_RULE
from hubmere.wire.amqp import ClientCredentials
from hubmere.wire.amqp.codec.frames import FRAME_TYPE_SASL, HEADER_SASL, frame, frame_of
from hubmere.wire.amqp.codec.performatives import Attach, Begin, End, Open, SaslInit, Source, Target
from hubmere.wire.amqp.signals import ConnectionOpened
from log_records import records_of
from node_clock import NodeClock

ANONYMOUS_INIT = frame(SaslInit("ANONYMOUS", b"", "localhost"), 0, 1)


@contextmanager
def connected(node: AmqpNode) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS) as connection:
        yield connection


def an_attach(name: str, handle: int, *, is_sender: bool) -> bytes:
    return frame(
        Attach(
            name=name,
            handle=handle,
            role=not is_sender,
            source=Source(address="$cbs"),
            target=Target(address="$cbs"),
            initial_delivery_count=0 if is_sender else None,
        ),
        1,
    )


def an_open(**fields: int | None) -> bytes:
    return frame(Open(container_id="raw", hostname="localhost", **fields))  # type: ignore[arg-type]


A_BEGIN = frame(Begin(next_outgoing_id=0, incoming_window=5000, outgoing_window=5000), 1)


def test_the_sasl_header_is_answered_with_the_mechanisms(node: AmqpNode) -> None:
    """Each SDK picks one mechanism and fails without it."""
    with connected(node) as connection:
        connection.sendall(SASL_HEADER)

        answer = read_until(connection, SASL_MECHANISMS)

    assert answer.startswith(SASL_HEADER)
    for mechanism in (b"MSSBCBS", b"PLAIN", b"ANONYMOUS"):
        assert mechanism in answer


def test_a_connection_without_sasl_works(node: AmqpNode) -> None:
    """JavaScript clients with a signature in their connection string do not use SASL."""
    with RawClient(node, is_plain_amqp=True) as client:
        client.authorize()

        link = client.sender("orders")

    assert link.is_sender


@pytest.mark.parametrize(
    "junk", [b"AMQP\x01\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01"]
)
def test_unknown_protocol_header_is_answered_with_ours_and_closed(node: AmqpNode, junk: bytes) -> None:
    """AMQP 1.0, 2.2: answer with a supported header, then close."""
    with connected(node) as connection:
        connection.sendall(junk)

        assert read_to_end(connection) == SASL_HEADER


def test_sasl_may_be_pipelined(node: AmqpNode) -> None:
    """Proton-J sends header and init in one segment before it has read the mechanisms."""
    with connected(node) as connection:
        connection.sendall(SASL_HEADER + frame(SaslInit("ANONYMOUS", None, None), 0, 1))

        answer = read_until(connection, SASL_MECHANISMS, SASL_OUTCOME)

    assert answer.endswith(bytes.fromhex("0000001102010000005344c00402500040"))


def test_wrong_key_ends_with_an_outcome(node: AmqpNode) -> None:
    """No AMQP header follows a failed sign-in."""
    response = b"\x00RootManageSharedAccessKey\x00wrong"
    with connected(node) as connection:
        connection.sendall(SASL_HEADER + frame(SaslInit("PLAIN", response, "localhost"), 0, 1))

        answer = read_to_end(connection)

    last = list(frames_of(answer))[-1]
    assert last.code == SASL_OUTCOME
    assert last.body[6:8] == b"\x50\x01"
    assert AMQP_HEADER not in answer


def test_name_and_key_of_a_rule_are_enough(node: AmqpNode) -> None:
    """Simple AMQP clients do not use the claims node; PLAIN gives their connection the rights of the rule."""
    credentials = ClientCredentials.plain("RootManageSharedAccessKey", node.key)

    with RawClient(node, credentials=credentials) as client:
        client.publish(client.sender("orders/Partitions/0"), an_event("in"))

        assert len(client.receive(client.reader(), 1)) == 1


def test_key_gives_only_the_rights_of_its_rule(node: AmqpNode) -> None:
    """A device that may send must not read."""
    node.add_rule("sender", "Send")
    credentials = ClientCredentials.plain("sender", node.rule("sender").primary_key)

    with RawClient(node, credentials=credentials) as client:
        client.publish(client.sender("orders"), an_event())

        with pytest.raises(Refused) as refused:
            client.reader()

    assert refused.value.condition == "amqp:unauthorized-access"


def test_external_needs_a_client_certificate(node: AmqpNode) -> None:
    """It is offered, but proves nothing on a port without TLS."""
    with connected(node) as connection:
        connection.sendall(SASL_HEADER + frame(SaslInit("EXTERNAL", b"", "localhost"), 0, 1))

        assert read_to_end(connection).endswith(bytes.fromhex("5344c00402500140"))


def test_all_frames_may_arrive_in_one_write(node: AmqpNode) -> None:
    """The Azure SDK for Python pipelines header, open, begin and two attaches; the answers come in order."""
    with connected(node) as connection:
        connection.sendall(
            SASL_HEADER
            + ANONYMOUS_INIT
            + AMQP_HEADER
            + an_open()
            + A_BEGIN
            + an_attach("s", 1, is_sender=True)
            + an_attach("r", 2, is_sender=False)
        )

        answer = read_until(connection, OPEN, BEGIN, ATTACH, ATTACH)

    codes = [found.code for found in frames_of(answer)]
    assert [code for code in codes if code in (OPEN, BEGIN, ATTACH)] == [OPEN, BEGIN, ATTACH, ATTACH]
    assert FLOW in codes


def test_every_performative_has_all_fields(client: RawClient) -> None:
    """The Azure SDK for Python reads fields by position: no field may be omitted, and list0 is not allowed."""
    client.publish(client.sender("orders/Partitions/0"), an_event())
    reader = client.reader()
    client.receive(reader, 1)
    reader.detach()
    client.flush()
    assert client.session is not None
    client.session.end()
    client.engine.close()
    client.until_gone()

    seen = list(frames_of(bytes(client.transcript)))

    assert {found.code for found in seen} >= set(FIELDS)
    for found in seen:
        assert found.fields == FIELDS[found.code], hex(found.code)


def test_open_has_the_fields_that_sdks_need(node: AmqpNode) -> None:
    """.NET refuses idle time-outs below 5 s, Python needs the frame size."""
    client = RawClient(node)
    client.engine.open()
    client.flush()

    opened = client.expect(ConnectionOpened).open
    client.socket.close()

    assert opened.container_id
    assert opened.max_frame_size == 65536
    assert opened.channel_max == 4999
    assert opened.idle_time_out == 120_000


def test_begin_has_channel_and_handle_max(node: AmqpNode) -> None:
    """Python stops allocating links above handle-max, so it must be present."""
    with connected(node) as connection:
        connection.sendall(
            AMQP_HEADER + an_open() + frame(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9), 7)
        )

        begin = list(frames_of(read_until(connection, OPEN, BEGIN)))[-1]

    assert begin.channel == 7
    assert begin.body[6:9] == b"\x60\x00\x07"
    assert struct.pack(">I", 8191) in begin.body


def test_attach_echoes_source_and_target(client: RawClient) -> None:
    """Both must be present with their address, otherwise Python waits for ever."""
    _, as_receiver = client.attach(
        is_sender=True, source=Source(address="sender-link-1"), target=Target(address="orders")
    )
    _, as_sender = client.attach(
        is_sender=False,
        source=Source(address="orders/ConsumerGroups/$Default/Partitions/0"),
        target=Target(address="receiver-link-1"),
    )

    assert isinstance(as_receiver.target, Target)
    assert (as_receiver.source and as_receiver.source.address, as_receiver.target.address) == (
        "sender-link-1",
        "orders",
    )
    assert as_receiver.max_message_size == 1 << 20
    assert as_receiver.initial_delivery_count is None
    assert isinstance(as_sender.target, Target)
    assert as_sender.target.address == "receiver-link-1"
    assert as_sender.initial_delivery_count == 0


@pytest.mark.parametrize(
    ("address", "credit"), [("$cbs", 100), ("$management", 100), ("orders", 300), ("orders/Partitions/0", 1000)]
)
def test_credit_follows_every_attach_of_a_sender(node: AmqpNode, address: str, credit: int) -> None:
    """JavaScript waits for it, also on the service nodes, and for next-incoming-id."""
    with RawClient(node, credentials=ClientCredentials.plain(ROOT_RULE, node.key)) as client:
        link = client.sender(address)
        while not link.credit:
            client.poll()

    flow = next(found for found in reversed(list(frames_of(bytes(client.transcript)))) if found.code == FLOW)
    assert flow.body[6] != 0x40
    assert link.credit == credit


def test_quiet_connection_gets_heartbeats(node: AmqpNode) -> None:
    """A peer that announced an idle time-out gets a frame at least at half of it."""
    with RawClient(node, idle_timeout_ms=1000) as client:
        before = len(client.transcript)
        while b"\x00\x00\x00\x08\x02\x00\x00\x00" not in client.transcript[before:]:
            assert client.poll()


def test_silent_peer_is_closed_with_one_reason() -> None:
    """It is asked for a flow first; then detach of every link, end and close, all with the condition by which clients
    connect again."""
    clock = NodeClock()
    with AmqpNode(idle_timeout_s=600.0, clock=clock) as node, RawClient(node) as client:
        client.authorize(seconds=100_000)
        client.sender("orders")
        client.reader()
        client.socket.settimeout(WAIT_SECONDS)
        clock.advance(600)
        asked = read_until(client.socket, FLOW)
        clock.advance(600)

        found = list(frames_of(asked + read_to_end(client.socket)))

    assert FLOW in [one.code for one in found]
    ends = [one for one in found if one.code in (DETACH, END, CLOSE)]
    assert [one.code for one in ends] == [DETACH] * 4 + [END, CLOSE]
    for one in ends:
        assert b"amqp:connection:forced" in one.body
        assert b"inactive for more than the allowed 1200000 milliseconds and is closed by container '" in one.body


def test_short_encodings_of_end_and_close_are_accepted(node: AmqpNode) -> None:
    """JavaScript and Proton send list0."""
    with connected(node) as connection:
        connection.sendall(AMQP_HEADER + an_open() + A_BEGIN)
        read_until(connection, OPEN, BEGIN)
        connection.sendall(frame_of(b"\x00\x53\x17\x45", 1) + frame_of(b"\x00\x53\x18\x45", 0))

        codes = [found.code for found in frames_of(read_to_end(connection))]

    assert codes[-1] == CLOSE


def test_links_may_be_detached_after_the_end_of_their_session(node: AmqpNode) -> None:
    """The Azure SDK for Python does this."""
    with connected(node) as connection:
        connection.sendall(AMQP_HEADER + an_open() + A_BEGIN + an_attach("s", 1, is_sender=True))
        read_until(connection, ATTACH, FLOW)
        connection.sendall(frame(End(), 1) + frame_of(b"\x00\x53\x16\xc0\x05\x03\x52\x01\x41\x40", 1))
        connection.sendall(frame_of(b"\x00\x53\x18\x45", 0))

        last = list(frames_of(read_to_end(connection)))[-1]

    assert last.code == CLOSE
    assert b"amqp:" not in last.body


def test_a_peer_that_never_opens_is_disconnected() -> None:
    """A socket without a client must be released."""
    clock = NodeClock()
    with AmqpNode(handshake_timeout_s=600.0, clock=clock) as node, connected(node) as connection:
        connection.sendall(SASL_HEADER)
        read_until(connection, SASL_MECHANISMS)

        clock.advance(600)

        assert list(frames_of(read_to_end(connection)))[-1].code == SASL_OUTCOME


def test_peer_that_does_not_authenticate_is_disconnected() -> None:
    """An open connection without a valid token must not stay open."""
    clock = NodeClock()
    with AmqpNode(handshake_timeout_s=600.0, clock=clock) as node, RawClient(node) as client:
        clock.advance(600)

        assert client.closed().condition == "amqp:connection:forced"


def test_authenticated_peer_is_not_disconnected() -> None:
    """The sign-in timeout does not apply to it."""
    clock = NodeClock()
    with AmqpNode(handshake_timeout_s=600.0, idle_timeout_s=36_000.0, clock=clock) as node, RawClient(node) as client:
        client.authorize()
        clock.advance(601)

        assert not client.poll(0.2)
        client.publish(client.sender("orders"), an_event())


def test_peer_without_a_token_may_have_few_links(node: AmqpNode) -> None:
    """A client that is not authenticated gets little memory."""
    with RawClient(node) as client:
        assert client.session is not None
        for number in range(40):
            client.session.attach(f"link-{number}", is_sender=True, target=Target(address="$cbs"))
        client.flush()

        assert client.closed().condition == "amqp:resource-limit-exceeded"


def test_flood_after_the_credentials_is_refused_without_an_error_in_the_log(
    node: AmqpNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Input before the SASL outcome is limited; the peer gets the reason, and there is no traceback."""
    credentials = ClientCredentials.plain("RootManageSharedAccessKey", node.key)
    init = SaslInit(mechanism=credentials.mechanism, initial_response=credentials.initial_response)
    with socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS) as client:
        client.sendall(HEADER_SASL + frame(init, 0, FRAME_TYPE_SASL) + bytes(64 * 1024))
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 16):
                pass

    assert not [record for record in records_of(caplog, "hubmere") if record.exc_info]
