"""Reads a segment file batch by batch, for recovery and compaction."""

from collections.abc import Iterator

from hubmere.records.header import HEADER_BYTES, MAGIC, BatchHeader, read_header
from hubmere.store.files import Files

# Read size; a larger batch is read with one call.
_READ_BYTES = 1024 * 1024


def read_batches(files: Files, fd: int, position: int, end: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Whole batches of a file in order, without verifying checksums; ends where no whole batch follows."""
    window, start = memoryview(b""), position
    while end - position >= HEADER_BYTES:
        at = position - start
        if len(window) - at < HEADER_BYTES:
            window, start, at = _read(files, fd, position, end, HEADER_BYTES), position, 0
            if len(window) < HEADER_BYTES:
                return
        header = read_header(window, at)
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= end - position:
            return
        if len(window) - at < header.size_bytes:
            window, start, at = _read(files, fd, position, end, header.size_bytes), position, 0
            if len(window) < header.size_bytes:
                return
        yield window[at : at + header.size_bytes], header
        position += header.size_bytes


def _read(files: Files, fd: int, position: int, end: int, wanted: int) -> memoryview:
    return memoryview(files.pread(fd, min(max(_READ_BYTES, wanted), end - position), position))
