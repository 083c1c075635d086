"""Finds the next intact batch after a broken one, so that a damaged range is as short as possible.

1. If the length in the broken batch's header leads to an intact batch, that one is the result.
2. Otherwise every position that could be the start of a batch is tried: magic, length, sequence number and checksum
   must fit. An event may contain bytes that look like a batch, so the candidate must also be followed by the end of
   the file or by a batch header that continues its numbering.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from hubmere.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, is_intact, read_header

# Read size of the search.
_WINDOW_BYTES = 1024 * 1024
# Sequence numbers of one segment have the same upper half, or the next one.
_UPPER_SHIFT = 32
_MAGIC_AT = 16
# The smallest unit that a disk writes: an interrupted write leaves whole sectors empty.
_SECTOR_BYTES = 512

Read = Callable[[int, int], bytes]


class Stretch(NamedTuple):
    """Where to search: bytes from `position` to `end` of a file, and the sequence numbers that may be there."""

    position: int
    end: int
    first_sequence: int
    last_sequence: int  # the largest possible one
    has_gaps: bool = False  # sequence numbers may be missing between batches: the log is compacted


def find_intact(read: Read, stretch: Stretch) -> tuple[int, BatchHeader] | None:
    """The first intact batch after the broken one at `position`; None if there is none before `end`."""
    follower = _follower(read, stretch)
    if follower is not None:
        return follower
    upper = stretch.first_sequence >> _UPPER_SHIFT
    heads = b"|".join(re.escape((half & 0xFFFFFFFF).to_bytes(4, "big")) for half in (upper, upper + 1))
    pattern = re.compile(b"(?:%s)[\\s\\S]{%d}%c" % (heads, _MAGIC_AT - 4, MAGIC))
    at = stretch.position + 1
    while stretch.end - at >= HEADER_BYTES:
        window = read(at, min(_WINDOW_BYTES + HEADER_BYTES, stretch.end - at))
        found = _search(read, window, at, pattern, stretch)
        if found is not None:
            return found
        if len(window) <= HEADER_BYTES:
            return None
        at += len(window) - HEADER_BYTES + 1
    return None


def batch_at(read: Read, position: int, end: int) -> tuple[bytes, BatchHeader] | None:
    """The batch at a position, if its header is plausible and its checksum matches; else None."""
    head = read(position, HEADER_BYTES) if end - position >= HEADER_BYTES else b""
    if len(head) < HEADER_BYTES:
        return None
    header = read_header(head)
    if not is_possible(header, end - position):
        return None
    batch = read(position, header.size_bytes)
    return (batch, header) if len(batch) == header.size_bytes and is_intact(batch) else None


def is_possible(header: BatchHeader, room_bytes: int) -> bool:
    """Whether a header is plausible for a batch of at most `room_bytes` bytes."""
    return (
        header.magic == MAGIC
        and HEADER_BYTES - LENGTH_PREFIX_BYTES <= header.length <= room_bytes - LENGTH_PREFIX_BYTES
        and header.last_delta >= 0
        and header.record_count >= 0
        and header.base_sequence_number >= 0
    )


def looks_unwritten(read: Read, position: int, end: int) -> bool:
    """Whether bytes contain an empty sector: then a power cut interrupted a write that was never acknowledged."""
    empty_sector = bytes(_SECTOR_BYTES)
    while position < end:
        window = read(position, min(_WINDOW_BYTES, end - position))
        if empty_sector in window:
            return True
        if len(window) < _SECTOR_BYTES or position + len(window) >= end:
            return False
        position += len(window) - _SECTOR_BYTES + 1
    return False


def _follower(read: Read, stretch: Stretch) -> tuple[int, BatchHeader] | None:
    """The batch after the broken one, if the length in the broken one's header leads to it."""
    head = read(stretch.position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    length = read_header(head).length
    position = stretch.position + LENGTH_PREFIX_BYTES + length
    if length < HEADER_BYTES - LENGTH_PREFIX_BYTES or position >= stretch.end:
        return None
    found = batch_at(read, position, stretch.end)
    if found is None or not _may_follow(found[1], stretch):
        return None
    return position, found[1]


def _search(
    read: Read, window: bytes, start: int, pattern: "re.Pattern[bytes]", stretch: Stretch
) -> tuple[int, BatchHeader] | None:
    match = pattern.search(window)
    while match is not None:
        at = match.start()
        if at + HEADER_BYTES <= len(window):
            header = read_header(window, at)
            if is_possible(header, stretch.end - start - at) and _may_follow(header, stretch):
                found = batch_at(read, start + at, stretch.end)
                if found is not None and _is_confirmed(read, start + at, header, stretch):
                    return start + at, header
        match = pattern.search(window, at + 1)
    return None


def _may_follow(header: BatchHeader, stretch: Stretch) -> bool:
    base, last = header.base_sequence_number, header.next_sequence_number - 1
    return stretch.first_sequence <= base <= last <= stretch.last_sequence


def _is_confirmed(read: Read, position: int, header: BatchHeader, stretch: Stretch) -> bool:
    after = position + header.size_bytes
    if stretch.end - after < HEADER_BYTES:
        return True  # the end, or an interrupted write
    head = read(after, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return False
    following = read_header(head)
    gap = following.base_sequence_number - header.next_sequence_number
    return following.magic == MAGIC and (gap == 0 or (gap > 0 and stretch.has_gaps))
