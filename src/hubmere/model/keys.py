"""Partition keys: which are valid, and which partition a key belongs to.

The hash is Bob Jenkins' lookup3 (`hashlittle2`, both seeds 0) over the key's UTF-8 bytes, folded to 16 bits, with a
truncating remainder, so that a key lands in the partition where it would land in Azure (reference: AMQP 4.4).
"""

from functools import lru_cache
from struct import Struct

from hubmere.model.errors import InvalidArgument

# The service's limit on a partition key; the Java client enforces it.
MAX_PARTITION_KEY_CHARACTERS = 128

_MASK = 0xFFFFFFFF
_SEED = 0xDEADBEEF
_BLOCK = Struct("<III")

# Keys repeat (a device, a customer), so a bounded cache compensates for the interpreted hash.
_REMEMBERED_KEYS = 16_384


def check_partition_key(key: str | None) -> None:
    """Refuse a partition key that is too long or that UTF-8 cannot encode."""
    if key is None:
        return
    if len(key) > MAX_PARTITION_KEY_CHARACTERS:
        raise InvalidArgument("partition key", key, f"at most {MAX_PARTITION_KEY_CHARACTERS} characters")
    if any("\ud800" <= character <= "\udfff" for character in key):
        raise InvalidArgument("partition key", ascii(key), "whole Unicode characters")


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    a = ((a - c) & _MASK) ^ _rotate(c, 4)
    c = (c + b) & _MASK
    b = ((b - a) & _MASK) ^ _rotate(a, 6)
    a = (a + c) & _MASK
    c = ((c - b) & _MASK) ^ _rotate(b, 8)
    b = (b + a) & _MASK
    a = ((a - c) & _MASK) ^ _rotate(c, 16)
    c = (c + b) & _MASK
    b = ((b - a) & _MASK) ^ _rotate(a, 19)
    a = (a + c) & _MASK
    c = ((c - b) & _MASK) ^ _rotate(b, 4)
    b = (b + a) & _MASK
    return a, b, c


def _finish(a: int, b: int, c: int) -> tuple[int, int]:
    c = ((c ^ b) - _rotate(b, 14)) & _MASK
    a = ((a ^ c) - _rotate(c, 11)) & _MASK
    b = ((b ^ a) - _rotate(a, 25)) & _MASK
    c = ((c ^ b) - _rotate(b, 16)) & _MASK
    a = ((a ^ c) - _rotate(c, 4)) & _MASK
    b = ((b ^ a) - _rotate(a, 14)) & _MASK
    c = ((c ^ b) - _rotate(b, 24)) & _MASK
    return c, b


def lookup3(data: bytes) -> tuple[int, int]:
    """Both 32-bit results of `hashlittle2` with seeds 0: primary (c) and secondary (b)."""
    a = b = c = (_SEED + len(data)) & _MASK
    at = 0
    # The last block, even a full one, goes through the final mix instead.
    while len(data) - at > _BLOCK.size:
        x, y, z = _BLOCK.unpack_from(data, at)
        a, b, c = _mix((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)
        at += _BLOCK.size
    if at == len(data):
        return c, b
    x, y, z = _BLOCK.unpack(data[at:].ljust(_BLOCK.size, b"\0"))
    return _finish((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)


@lru_cache(maxsize=_REMEMBERED_KEYS)
def key_hash(key: str) -> int:
    """The signed 16-bit hash of a partition key."""
    c, b = lookup3(key.encode())
    folded = (c ^ b) & 0xFFFF
    return folded - 0x10000 if folded & 0x8000 else folded


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition of a key, for a fixed partition count."""
    return abs(key_hash(key)) % partition_count
