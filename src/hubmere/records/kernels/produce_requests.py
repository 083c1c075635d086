"""Runs of small Kafka Produce requests: the numbers and batches of requests whose other bytes are equal."""

from typing import Final

from .amqp_values import read_u32

# Frame length, API key with version, correlation id.
_HEAD_BYTES: Final = 12
# Partition, topic and request end with a tag section each; only empty ones match (KIP-482).
_NO_TAGS: Final = b"\x00\x00\x00"
# The largest varint of two bytes; a longer one is above any `largest` that callers use.
_MAX_VARINT: Final = 0x3FFF


def take_requests(
    data: bytes, at: int, key: bytes, middle: bytes, is_flexible: bool, largest: int, most: int
) -> tuple[int, list[int], list[int], list[bytes]]:
    """Where the complete requests at `at` with the same fixed bytes end; their correlation ids, partitions and batches.

    A request has these parts: its length in four bytes; `key`, which is API key and version; the correlation id;
    `middle`; the partition; the size of the batch, in four bytes or, if `is_flexible`, plus one as a varint; the batch;
    and, if `is_flexible`, three empty tag sections. `largest` limits its length, and `most` the number of requests.
    """
    ids: list[int] = []
    indexes: list[int] = []
    batches: list[bytes] = []
    end = len(data)
    index_at = _HEAD_BYTES + len(middle)
    # Partition, a size in its widest form, and one byte of a batch.
    least = index_at - 4 + 9
    while at + 4 + least <= end and len(ids) < most:
        length = read_u32(data, at, end)
        stop = at + 4 + length
        if length < least or length > largest or stop > end:
            break
        if data[at + 4 : at + 8] != key or data[at + _HEAD_BYTES : at + index_at] != middle:
            break
        start = at + index_at + 4
        if is_flexible:
            size = data[start]
            start += 1
            if size > 127:
                size = size & 127 | data[start] << 7
                start += 1
            size -= 1
            if size >= _MAX_VARINT or start + size + 3 != stop or data[stop - 3 : stop] != _NO_TAGS:
                break
        else:
            size = read_u32(data, start, end)
            start += 4
            if start + size != stop:
                break
        if size <= 0:
            break
        ids.append(_to_signed(read_u32(data, at + 8, end)))
        indexes.append(_to_signed(read_u32(data, at + index_at, end)))
        batches.append(data[start : start + size])
        at = stop
    return at, ids, indexes, batches


def _to_signed(number: int) -> int:
    return number - 0x1_0000_0000 if number > 0x7FFF_FFFF else number
