"""Checks the records of a produced batch, as Kafka does before it appends one.

A batch whose header and checksum are right can still hold records that nobody can decode: compressed data that does not
decompress, a wrong record count, lengths that run past the batch. Such a batch would stop every Kafka consumer of its
partition, so it is refused when it is produced. What passes here can be decoded by every reader of this project.

The walk over the records is compiled where a C compiler was there (`_validate.pyx`); `first_fault_interpreted` is the
same walk in Python, used without a compiler and as the reference in tests. Layout: Kafka's "Record", version 2.
"""

from collections.abc import Callable
from typing import Final

from hubmere.records.compression import Codec, decompressed
from hubmere.records.faults import UnreadableRecords
from hubmere.records.varint import BadVarint, read_varint, read_varlong

Buffer = bytes | bytearray | memoryview
# The index of the first record that is at fault and a key of `_REASONS`.
Fault = tuple[int, int]

# A batch of more records is refused: decoding it would take gigabytes. The kernels have the same limit.
MAX_RECORDS: Final = 16_777_216
# How large produced records may become when they are decompressed: clients limit a batch by its uncompressed size,
# 1 MiB unless configured otherwise, so that 16 MiB leaves ample room; larger batches may grow fourfold. Decompression
# runs on the event loop, so this also bounds how long a compression bomb holds up other clients.
_MAX_PRODUCED_BYTES: Final = 16 * 1024 * 1024
_MAX_PRODUCED_RATIO: Final = 4

LENGTH, VARINT, DELTA, NO_KEY, BLOB, HEADERS, END, TRAILING, COUNT = range(1, 10)
_REASONS: Final = {
    LENGTH: "its length runs past the end of the batch",
    VARINT: "it has a number that is cut off or too long",
    DELTA: "its offset delta does not follow that of the record before",
    NO_KEY: "it has no key, and a compacted event hub requires one",
    BLOB: "a key, value or header runs past the end of the record",
    HEADERS: "its header count is negative",
    END: "its fields do not fill its length",
    TRAILING: "bytes follow the last record",
    COUNT: "the record count is not possible",
}


def check_records(data: Buffer, start: int, end: int, codec: int, count: int, *, keys_required: bool = False) -> None:
    """Raise UnreadableRecords unless the records of a batch, which lie between two positions, can all be decoded."""
    fault = _fault_of(data, start, end, codec, count, keys_required)
    if fault is None:
        return
    index, reason = fault
    if reason in (TRAILING, COUNT):
        raise UnreadableRecords(_REASONS[reason])
    raise UnreadableRecords(f"record {index}: {_REASONS[reason]}", index)


def is_readable(data: Buffer, start: int, end: int, codec: int, count: int) -> bool:
    """Whether every record of a batch can be decoded."""
    if codec == Codec.NONE:
        return first_fault(data, start, end, count, False) is None
    try:
        return _fault_of(data, start, end, codec, count, False) is None
    except UnreadableRecords:
        return False


def why_unreadable(batch: Buffer, header_bytes: int, codec: int, count: int) -> str | None:
    """Why the records of a stored batch cannot be decoded; None when they can. Compaction may have removed some."""
    try:
        body = decompressed(codec, memoryview(batch)[header_bytes:])
    except UnreadableRecords as fault:
        return fault.why
    if count == 0:
        return None
    found = first_fault(body, 0, len(body), count, False, False)
    return None if found is None else f"record {found[0]}: {_REASONS[found[1]]}"


def _fault_of(data: Buffer, start: int, end: int, codec: int, count: int, keys_required: bool) -> Fault | None:
    if codec == Codec.NONE:
        return first_fault(data, start, end, count, keys_required)
    limit = max(_MAX_PRODUCED_BYTES, _MAX_PRODUCED_RATIO * (end - start))
    body = decompressed(codec, memoryview(data)[start:end], limit)
    return first_fault(body, 0, len(body), count, keys_required)


def first_fault_interpreted(
    data: Buffer, start: int, end: int, count: int, keys_required: bool, is_dense: bool = True
) -> Fault | None:
    """The first fault of `count` uncompressed records between two positions; None when there is none.

    Offset deltas count from 0 without gaps, unless `is_dense` is False: compaction leaves gaps.
    """
    if not 0 < count <= MAX_RECORDS:
        return 0, COUNT
    view, at, delta = bytes(memoryview(data)[start:end]), 0, -1
    for index in range(count):
        try:
            length, at = read_varint(view, at, len(view))
            stop = at + length
            if length < 0 or stop > len(view):
                return index, LENGTH
            delta, at = _walk_record(view, at, stop, delta + 1, is_dense, keys_required)
        except BadVarint:
            return index, VARINT
        except _Fault as fault:
            return index, fault.reason
        if at != stop:
            return index, END
    return None if at == len(view) else (count, TRAILING)


class _Fault(Exception):
    """One rule is broken."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


def _walk_record(
    data: bytes, at: int, stop: int, least_delta: int, is_dense: bool, keys_required: bool
) -> tuple[int, int]:
    """The offset delta of one record, which begins at its attributes, and the position behind its fields."""
    _, at = read_varlong(data, at + 1, stop)
    delta, at = read_varint(data, at, stop)
    if delta < least_delta or (is_dense and delta != least_delta):
        raise _Fault(DELTA)
    key_bytes, at = _blob(data, at, stop)
    if key_bytes < 0 and keys_required:
        raise _Fault(NO_KEY)
    _, at = _blob(data, at, stop)
    headers, at = read_varint(data, at, stop)
    if headers < 0:
        raise _Fault(HEADERS)
    for _ in range(headers):
        name_bytes, at = _blob(data, at, stop)
        if name_bytes < 0:
            raise _Fault(BLOB)
        _, at = _blob(data, at, stop)
    return delta, at


def _blob(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """The length of a key, value or header, -1 for null, and the position behind it."""
    length, at = read_varint(data, at, stop)
    if length < -1 or at + max(length, 0) > stop:
        raise _Fault(BLOB)
    return length, at + max(length, 0)


_Walk = Callable[..., Fault | None]


def _compiled() -> _Walk | None:
    try:
        from hubmere.records import _validate  # type: ignore[attr-defined]
    except ImportError:
        return None
    walk: _Walk = _validate.first_fault
    return walk


first_fault: _Walk = _compiled() or first_fault_interpreted
