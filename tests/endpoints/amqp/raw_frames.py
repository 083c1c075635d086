"""Frames as bytes: split them from a stream and check their encoding, without a codec."""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_OUTCOME = 0x40, 0x44

# The number of fields of each performative (AMQP 1.0, 2.7 and 5.3.3).
FIELDS = {
    OPEN: 10,
    BEGIN: 8,
    ATTACH: 14,
    FLOW: 11,
    TRANSFER: 11,
    DISPOSITION: 6,
    DETACH: 3,
    END: 1,
    CLOSE: 1,
    SASL_MECHANISMS: 1,
    SASL_OUTCOME: 2,
}


class RawFrame(NamedTuple):
    """One frame with a performative; `code` and `fields` are read from fixed positions."""

    channel: int
    code: int
    fields: int
    body: bytes


def frames_of(data: bytes) -> Iterator[RawFrame]:
    """The performatives in a stream; protocol headers and heartbeats are left out."""
    at = 0
    while at + 8 <= len(data):
        if data[at : at + 4] == b"AMQP":
            at += 8
            continue
        size, doff, _kind, channel = struct.unpack_from(">IBBH", data, at)
        body = data[at + doff * 4 : at + size]
        at += size
        if body:
            yield _frame(channel, body)


def _frame(channel: int, body: bytes) -> RawFrame:
    assert body[:2] == b"\x00\x53", "the descriptor is a smallulong"
    assert body[3] in (0xC0, 0xD0), "the fields are a list8 or list32, never list0"
    count = body[5] if body[3] == 0xC0 else struct.unpack_from(">I", body, 8)[0]
    return RawFrame(channel, body[2], count, body)


def read_until(connection: socket.socket, *codes: int) -> bytes:
    """Read until some performatives have arrived in this order; returns all bytes."""
    data = b""
    while True:
        seen = [frame.code for frame in frames_of(_whole(data))]
        if _contains_in_order(seen, codes):
            return data
        piece = connection.recv(65536)
        assert piece, f"the server closed after {seen}"
        data += piece


def read_to_end(connection: socket.socket) -> bytes:
    """Read everything until the server closes."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def _whole(data: bytes) -> bytes:
    at = 0
    while at + 8 <= len(data):
        size = 8 if data[at : at + 4] == b"AMQP" else struct.unpack_from(">I", data, at)[0]
        if at + size > len(data):
            break
        at += size
    return data[:at]


def _contains_in_order(seen: list[int], wanted: tuple[int, ...]) -> bool:
    places = iter(seen)
    return all(code in places for code in wanted)
