"""Floods on one connection: the bytes that each sends first, and those that it repeats.

Most need no credential; the names of the others say so. The chunks are large, so that the sender is never the limit.
"""

import base64
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass

from attack.normal_client import connect
from hubmere.model.security.connection_string import ConnectionString
from hubmere.testing import Node
from hubmere.wire.amqp.codec.frames import FRAME_TYPE_SASL, frame
from hubmere.wire.amqp.codec.performatives import Attach, Begin, Detach, End, Open, SaslInit, Source, Target
from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages.metadata import MetadataRequest
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

_CHUNK_BYTES = 256 * 1024
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
_HEAD_END = b"\r\n\r\n"
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The address of a flood, the bytes that it sends first, and those that it repeats."""

    address: Callable[[Node], str]
    chunk: bytes
    opening: Callable[[Node], bytes] = lambda _: b""

    # What the node sends when the opening is complete, before the flood begins.
    answer: bytes = b""
    # What is sent after that answer.
    second: bytes = b""
    is_tls: bool = False

    def connection(self, node: Node) -> socket.socket:
        """A connection with a complete opening."""
        made = connect(self.address(node))
        if self.is_tls:
            trusted = ssl.create_default_context(cafile=node.ca_file)
            made = trusted.wrap_socket(made, server_hostname="localhost")
        made.sendall(self.opening(node))
        received = b""
        while self.answer not in received:
            data = made.recv(1 << 16)
            assert data, received
            received += data
        made.sendall(self.second)
        return made


def _filled(piece: bytes) -> bytes:
    return piece * max(_CHUNK_BYTES // len(piece), 1)


def amqp_opening(*more: bytes) -> bytes:
    """The bytes that open an AMQP connection without SASL, and further frames."""
    return _AMQP_HEADER + frame(Open(container_id="flood", hostname="localhost")) + b"".join(more)


def _begin() -> bytes:
    return frame(Begin(next_outgoing_id=0, incoming_window=5000, outgoing_window=5000))


def amqp_signed_in(node: Node, *more: bytes) -> bytes:
    """The bytes that open an AMQP connection with the root key (SASL PLAIN), and further frames."""
    parts = ConnectionString.parse(node.emulator_connection_string)
    response = f"\0{parts.key_name}\0{parts.key}".encode()
    init = frame(SaslInit(mechanism="PLAIN", initial_response=response, hostname="localhost"), 0, FRAME_TYPE_SASL)
    return _SASL_HEADER + init + amqp_opening(*more)


def kafka_signed_in(node: Node) -> bytes:
    """The bytes that open a Kafka connection with the root key."""
    engine = ClientConnection(client_id="flood")
    token = b"\0$ConnectionString\0" + node.connection_string.encode()
    engine.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    engine.request(SaslAuthenticateRequest(auth_bytes=token), 2)
    return b"".join(engine.data_to_send())


def _kafka_metadata() -> bytes:
    """A metadata request for every topic."""
    engine = ClientConnection(client_id="flood")
    engine.request(MetadataRequest(topics=None), 1)
    return b"".join(engine.data_to_send())


def _sender() -> bytes:
    """An attach of a sender to a hub, which is refused without a token, and its detach."""
    attach = Attach(
        name="sender",
        handle=0,
        role=False,
        source=Source(address="here"),
        target=Target(address="orders"),
        initial_delivery_count=0,
    )
    return frame(attach) + frame(Detach(handle=0, closed=True))


def websocket_opening(path: str = "/$servicebus/websocket", host: bytes = b"localhost") -> bytes:
    """The request that upgrades a connection to a WebSocket for AMQP."""
    key = base64.b64encode(b"0123456789abcdef")
    return (
        b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    ) % (path.encode(), host, key)


def websocket_frame(opcode: int, payload: bytes = b"", *, is_final: bool = True) -> bytes:
    """One frame of a client, masked with zeros (RFC 6455, 5.2)."""
    first = (0x80 if is_final else 0) | opcode
    if len(payload) < 126:
        head = struct.pack(">BB", first, 0x80 | len(payload))
    elif len(payload) < 1 << 16:
        head = struct.pack(">BBH", first, 0x80 | 126, len(payload))
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, len(payload))
    return head + b"\x00\x00\x00\x00" + payload


_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)

FLOODS: dict[str, Attack] = {
    "AMQP empty frames": Attack(
        address=lambda node: node.amqp, opening=lambda _: amqp_opening(), chunk=_filled(EMPTY_FRAME)
    ),
    "AMQP refused attaches": Attack(
        address=lambda node: node.amqp, opening=lambda _: amqp_opening(_begin()), chunk=_filled(_sender())
    ),
    "AMQP sessions": Attack(
        address=lambda node: node.amqp, opening=lambda _: amqp_opening(), chunk=_filled(_begin() + frame(End()))
    ),
    "AMQP sessions, signed in": Attack(
        address=lambda node: node.amqp, opening=amqp_signed_in, chunk=_filled(_begin() + frame(End()))
    ),
    "AMQP senders, signed in": Attack(
        address=lambda node: node.amqp,
        opening=lambda node: amqp_signed_in(node, _begin()),
        chunk=_filled(_sender()),
    ),
    "AMQP empty frames over TLS": Attack(
        address=lambda node: node.amqps,
        is_tls=True,
        opening=lambda _: amqp_opening(),
        chunk=_filled(EMPTY_FRAME),
    ),
    "Kafka Metadata, signed in": Attack(
        address=lambda node: node.kafka, opening=kafka_signed_in, chunk=_filled(_kafka_metadata())
    ),
    "Kafka ApiVersions": Attack(address=lambda node: node.kafka, chunk=_filled(_API_VERSIONS)),
    "HTTP pipelined requests": Attack(
        address=lambda node: node.http, chunk=_filled(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    ),
    "HTTP refused publications": Attack(
        address=lambda node: node.http,
        chunk=_filled(b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"),
    ),
    "HTTP chunks of one byte": Attack(
        address=lambda node: node.http,
        opening=lambda _: b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunk=_filled(b"1\r\nx\r\n"),
    ),
    "WebSocket pings": Attack(
        address=lambda node: node.http,
        opening=lambda _: websocket_opening(),
        answer=_HEAD_END,
        chunk=_filled(websocket_frame(0x9, b"ping")),
    ),
    "WebSocket empty messages": Attack(
        address=lambda node: node.http,
        opening=lambda _: websocket_opening(),
        answer=_HEAD_END,
        chunk=_filled(websocket_frame(0x2)),
    ),
    "WebSocket AMQP empty frames": Attack(
        address=lambda node: node.http,
        opening=lambda _: websocket_opening(),
        answer=_HEAD_END,
        chunk=_filled(websocket_frame(0x2, EMPTY_FRAME)),
        second=websocket_frame(0x2, amqp_opening()),
    ),
    "WebSocket large messages of empty frames": Attack(
        address=lambda node: node.http,
        opening=lambda _: websocket_opening(),
        answer=_HEAD_END,
        second=websocket_frame(0x2, amqp_opening()),
        chunk=websocket_frame(0x2, EMPTY_FRAME * (_CHUNK_BYTES // 8)),
    ),
}
