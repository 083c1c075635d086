"""Settlements waiting to become dispositions (AMQP 1.0, 2.7.6).

Decides which deliveries share one disposition: adjacent ones with an equal state, in whatever order they were settled.
Ids are compared as plain numbers; where they wrap at 2^32, one more disposition is sent.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TypeAlias

from hubmere.wire.amqp.codec.encode import write_uint
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
