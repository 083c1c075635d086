"""Settlements waiting to become dispositions (AMQP 1.0, 2.7.6).

Decides which deliveries share one disposition: neighbours with an equal state, whatever the order in which they were
settled. Ids are compared as numbers; around the wrap at 2^32 there is one disposition more.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TypeAlias

from hubmere.wire.amqp.codec.encode import write_uint
from hubmere.wire.amqp.codec.performatives import DeliveryState

Settlement: TypeAlias = tuple[int, int, DeliveryState]


def add_settlement(settlements: list[Settlement], first: int, last: int, state: DeliveryState) -> None:
    """Adds a range, joined to the one before where they touch."""
    if settlements:
        begin, end, before = settlements[-1]
        if first == end + 1 and state == before:
            settlements[-1] = (begin, last, before)
            return
    settlements.append((first, last, state))


def merge_settlements(settlements: list[Settlement]) -> list[Settlement]:
    """The ranges in order of their first id, neighbours with an equal state joined."""
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
    """The body of the most frequent disposition of all, as the general writer would write it but cheaper."""
    ids = write_uint(first) + (b"\x40" if first == last else write_uint(last))
    return _HEAD + bytes((len(ids) + 8, 6)) + _ROLE_RECEIVER + ids + _TAIL
