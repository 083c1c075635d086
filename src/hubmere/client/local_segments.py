"""Reads batches from the segment files of a node on the same machine, without the network between them.

The node names the files and the positions of committed batches (`HubReader.find_files`), and counts their events as
delivered. A file is used only if it is the one that the node has open: the same boot of the same machine, the same
device and inode. Batches are checked as those of a response are: checksum, and no sequence number is missing. Whatever
is not as the node described it (a file that retention has deleted or that cannot be opened, a damaged batch, one larger
than the buffer) ends the reading of files; the rest of the range is fetched, and the node reports what is lost.
"""

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from hubmere.client.consumer import FETCH_BYTES, Fetched, HubReader
from hubmere.records.header import HEADER_BYTES, is_intact, read_header
from hubmere.wire.kafka.messages.fetch import StoredFile

log = logging.getLogger("hubmere.client")

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# The request for the files costs as much as fetching so many events of 1 KB.
_LEAST_EVENTS: Final = 500


class LocalSegmentsReader(HubReader):
    """Reads ranges from the node's files as far as possible, and fetches the rest. Thread rule: one owner."""

    def read_range(self, partition: int, start: int, end: int, max_bytes: int = FETCH_BYTES) -> Generator[Fetched]:
        """See `HubReader`. The memory of a result is used again for the next one."""
        while end - start >= _LEAST_EVENTS and (files := self.find_files(partition, start, end, boot_id())):
            for fetched in read_files(files, start, max_bytes):
                yield fetched
                start = fetched.next_sequence
            if start != files[-1].end_offset:
                log.info("partition %d: events from %d on are fetched, not read from files", partition, start)
                break
        yield from super().read_range(partition, start, end, max_bytes)


@cache
def boot_id() -> str:
    """Identifier of this machine's current boot, the same in all of its containers; empty if unknown."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def read_files(files: tuple[StoredFile, ...], start: int, max_bytes: int = FETCH_BYTES) -> Iterator[Fetched]:
    """The batches of the files, in order; ends at the first that is not as described."""
    for file in files:
        if file.first_offset > start:
            return
        with _open_file(file) as fd:
            if fd is None:
                return
            for fetched in _read_file(fd, file, max_bytes):
                start = fetched.next_sequence
                yield fetched
        if start != file.end_offset:
            return


@contextmanager
def _open_file(file: StoredFile) -> Iterator[int | None]:
    """The descriptor of a file; None if it cannot be opened or is another one."""
    try:
        # The path is the server's word: opening a pipe must not wait.
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    try:
        found = os.fstat(fd)
        yield fd if f"{found.st_dev}:{found.st_ino}" == file.file_id else None
    finally:
        os.close(fd)


def _read_file(fd: int, file: StoredFile, max_bytes: int) -> Iterator[Fetched]:
    # One buffer that stays in the processor's cache: decoding copies what it needs.
    buffer = memoryview(bytearray(min(max_bytes, file.end_position - file.position)))
    at, sequence = file.position, file.first_offset
    while at < file.end_position:
        try:
            count = os.preadv(fd, [buffer[: file.end_position - at]], at)
        except OSError:
            return
        size_bytes, sequence = _intact_batches(buffer[:count], sequence)
        if not size_bytes:
            return
        yield Fetched(buffer[:size_bytes], file.log_position + at - file.position, sequence, ())
        at += size_bytes


def _intact_batches(data: memoryview, sequence: int) -> tuple[int, int]:
    """The size of the whole batches that follow each other from a sequence number on, and the next sequence number."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        header = read_header(data, at)
        stop = at + header.size_bytes
        is_whole = header.size_bytes >= HEADER_BYTES and stop <= len(data)
        is_next = header.base_sequence_number == sequence and header.record_count > 0
        if not is_whole or not is_next or not is_intact(data[at:stop]):
            break
        sequence, at = header.next_sequence_number, stop
    return at, sequence
