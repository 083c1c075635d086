"""Wrapping 32-bit arithmetic for delivery-ids, delivery-counts and transfer-ids.

Decides how such numbers are added and compared; keeps no state. AMQP 1.0, 2.8.10 refers to RFC 1982.
"""

from __future__ import annotations

SERIAL_MASK = 0xFFFF_FFFF
_HALF = 0x8000_0000


def serial_add(value: int, amount: int) -> int:
    """`value` plus `amount`, which may be negative."""
    return (value + amount) & SERIAL_MASK


def serial_distance(start: int, end: int) -> int:
    """The distance from `start` to `end`; negative when `end` is before `start`. Between -2^31 and 2^31 - 1."""
    distance = (end - start) & SERIAL_MASK
    return distance - 0x1_0000_0000 if distance >= _HALF else distance
