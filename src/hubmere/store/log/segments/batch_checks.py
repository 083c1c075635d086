"""Checks of batches in the bytes of a segment: whether a header is possible, and what is wrong with a batch."""

from hubmere.records.header import HEADER_BYTES, MAGIC, BatchHeader, is_intact, read_header


def read_possible_header(window: bytes, at: int, room_bytes: int) -> BatchHeader | None:
    """The header at `at`, if it can belong to a batch of at most `room_bytes` bytes; else None."""
    if len(window) - at < HEADER_BYTES:
        return None
    header = read_header(window, at)
    is_possible = header.magic == MAGIC and HEADER_BYTES <= header.size_bytes <= room_bytes and header.last_delta >= 0
    return header if is_possible else None


def find_fault(data: memoryview, at: int, expected: int) -> str | None:
    """What is wrong with the batch at `at`, None if it is intact; `expected` is its first sequence number, or -1."""
    if len(data) - at < HEADER_BYTES:
        return "the header is incomplete"
    header = read_header(data, at)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= len(data) - at:
        return f"magic {header.magic} and length {header.length} are not a whole batch"
    if expected not in (-1, header.base_sequence_number):
        return f"it begins with sequence number {header.base_sequence_number} instead of {expected}"
    if not is_intact(data[at : at + header.size_bytes]):
        return "the checksum does not match"
    return None
