"""Settlements waiting to become dispositions (AMQP 1.0, 2.7.6).

Decides which deliveries share one disposition: adjacent ones with an equal state, in whatever order they were settled.
Ids are compared as plain numbers; where they wrap at 2^32, one more disposition is sent.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TypeAlias

from hubmere.wire.amqp.codec.encode import write_uint
from hubmere.wire.amqp.codec.frames import FRAME_TYPE_AMQP, frame_of
from hubmere.wire.amqp.codec.performatives import DeliveryState

Settlement: TypeAlias = tuple[int, int, DeliveryState]


def add_settlement(settlements: list[Settlement], first: int, last: int, state: DeliveryState) -> None:
    """Add a range; extends the last range if they are adjacent and have the same state."""
    if settlements:
        begin, end, before = settlements[-1]
        if first == end + 1 and state == before:
            settlements[-1] = (begin, last, before)
            return
    settlements.append((first, last, state))


def merge_settlements(settlements: list[Settlement]) -> list[Settlement]:
    """The ranges in order of their first id; adjacent ranges with an equal state are merged."""
    if len(settlements) < 2:
        return settlements
    result: list[Settlement] = []
    for settlement in sorted(settlements, key=itemgetter(0)):
        add_settlement(result, *settlement)
    return result


_HEAD = b"\x00\x53\x15\xc0"
_ROLE_RECEIVER = b"\x41"
# settled, accepted, batchable null
_TAIL = b"\x41\x00\x53\x24\x45\x40"


def encode_accepted(first: int, last: int) -> bytes:
    """The body of the most frequent disposition, with the same bytes as the general encoder but faster."""
    ids = write_uint(first) + (b"\x40" if first == last else write_uint(last))
    return _HEAD + bytes((len(ids) + 8, 6)) + _ROLE_RECEIVER + ids + _TAIL


# The whole frame for one delivery: frame header, head, size and number of fields, role, delivery-id, no last id, tail.
_NARROW_FRAME = struct.Struct(">IBBH4sBB1sBB7s")
_WIDE_FRAME = struct.Struct(">IBBH4sBB1sBI7s")
_ALONE_TAIL = b"\x40" + _TAIL


def accepted_frame(delivery_id: int, channel: int) -> bytes:
    """The frame that settles one delivery as accepted, with the same bytes as `encode_accepted` but faster."""
    if 0 < delivery_id < 256:
        return _NARROW_FRAME.pack(
            24, 2, FRAME_TYPE_AMQP, channel, _HEAD, 11, 6, _ROLE_RECEIVER, 0x52, delivery_id, _ALONE_TAIL
        )
    if delivery_id:
        return _WIDE_FRAME.pack(
            27, 2, FRAME_TYPE_AMQP, channel, _HEAD, 14, 6, _ROLE_RECEIVER, 0x70, delivery_id, _ALONE_TAIL
        )
    return frame_of(encode_accepted(0, 0), channel)
