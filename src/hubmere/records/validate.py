"""Checks an offered batch, as Kafka does before it appends one: first the header, then the records.

`HEADER_RULES` is the only list of rules for headers: the Kafka endpoint takes its error codes from it, the log its
refusals. Two inner loops test the same conditions inline (`store.log.writer` for a batch, `runs.check_run` for a run);
tests prove that they accept what the rules accept.

A batch whose header and checksum are right can still hold records that nobody can decode: compressed data that does not
decompress, a wrong record count, lengths that run past the batch. Such a batch would stop every Kafka consumer of its
partition, so it is refused when it is produced. What passes here can be decoded by every reader of this project.

The walk over the records is compiled if a C compiler was available (`_validate.pyx`); `first_fault_interpreted` is the
same walk in Python, used without a compiler and as the reference in tests. Layout: Kafka's "Record", version 2.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from hubmere.records.compression import LAST_CODEC, Codec, decompress_to_buffer
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    UNSEALED,
    BatchHeader,
    Buffer,
    is_intact,
    read_header,
)
from hubmere.records.kernels import MAX_RECORDS
from hubmere.records.varint import BadVarint, read_varint, read_varlong

# --- headers ---------------------------------------------------------------------------------------------------------


class HeaderFault(IntEnum):
    """What is wrong with a header, in the order in which it is checked."""

    TOO_SHORT = 1
    MAGIC = 2
    CUT_OFF = 3
    SECOND_BATCH = 4
    CHECKSUM = 5
    CODEC = 6
    CONTROL = 7
    COUNT = 8
    LAST_DELTA = 9
    NO_PRODUCER = 10
    NO_SEQUENCE = 11
    NO_EPOCH = 12


class HeaderRule(NamedTuple):
    """One rule: the fault, how it is recognised, and the reason for people; a reason may name fields of the header."""

    fault: HeaderFault
    is_broken: Callable[[BatchHeader, Buffer], bool]
    reason: str


class BrokenRule(NamedTuple):
    """The rule that a header breaks."""

    fault: HeaderFault
    reason: str


HEADER_RULES: Final = (
    HeaderRule(HeaderFault.MAGIC, lambda header, _: header.magic != MAGIC, f"its magic is {{0.magic}}, not {MAGIC}"),
    HeaderRule(
        HeaderFault.CUT_OFF,
        lambda header, batch: not HEADER_BYTES <= header.size_bytes <= len(batch),
        "its length is {0.length}, and {1} bytes follow",
    ),
    HeaderRule(
        HeaderFault.SECOND_BATCH,
        lambda header, batch: header.size_bytes < len(batch),
        "its length is {0.length}, and {1} bytes follow",
    ),
    HeaderRule(HeaderFault.CHECKSUM, lambda _, batch: not is_intact(batch), "its checksum does not match"),
    HeaderRule(
        HeaderFault.CODEC, lambda header, _: header.codec > LAST_CODEC, "its compression {0.codec} is not known"
    ),
    HeaderRule(HeaderFault.CONTROL, lambda header, _: header.is_control, "only the service writes control batches"),
    HeaderRule(HeaderFault.COUNT, lambda header, _: header.record_count < 1, "its record count is {0.record_count}"),
    HeaderRule(
        HeaderFault.LAST_DELTA,
        lambda header, _: header.last_delta != header.record_count - 1,
        "its last offset delta is {0.last_delta}, and its record count {0.record_count}",
    ),
    HeaderRule(
        HeaderFault.NO_PRODUCER,
        lambda header, _: header.is_transactional and header.producer_id < 0,
        "it is part of a transaction without a producer id",
    ),
    HeaderRule(
        HeaderFault.NO_SEQUENCE,
        lambda header, _: header.producer_id >= 0 and header.producer_sequence < 0,
        "it has a producer id without a sequence number",
    ),
    HeaderRule(
        HeaderFault.NO_EPOCH,
        lambda header, _: header.producer_id >= 0 and header.producer_epoch < 0,
        "it has a producer id without an epoch",
    ),
)


def find_broken_rule(batch: Buffer, *, may_be_unsealed: bool = False) -> BrokenRule | None:
    """The first rule that the header of a batch breaks; None if it breaks none.

    `may_be_unsealed` accepts a batch without a checksum, which only code inside the node makes.
    """
    if len(batch) < HEADER_BYTES:
        return BrokenRule(HeaderFault.TOO_SHORT, f"it has {len(batch)} bytes, fewer than its header")
    header = read_header(batch)
    skipped = HeaderFault.CHECKSUM if may_be_unsealed and header.crc == UNSEALED else None
    for fault, is_broken, reason in HEADER_RULES:
        if fault is not skipped and is_broken(header, batch):
            return BrokenRule(fault, reason.format(header, len(batch) - LENGTH_PREFIX_BYTES))
    return None


# --- records ---------------------------------------------------------------------------------------------------------

# The index of the first record that is at fault, and a `RecordFault`.
Fault = tuple[int, int]

# How large produced records may become when they are decompressed: clients limit a batch by its uncompressed size,
# 1 MiB unless configured otherwise, so that 16 MiB leaves ample room; larger batches may grow fourfold. Decompression
# runs on the event loop, so this also bounds how long a compression bomb delays other clients.
_MAX_PRODUCED_BYTES: Final = 16 * 1024 * 1024
_MAX_PRODUCED_RATIO: Final = 4


class RecordFault(IntEnum):
    """What is wrong with a record; `_validate.pyx` uses the same numbers."""

    LENGTH = 1
    VARINT = 2
    DELTA = 3
    NO_KEY = 4
    BLOB = 5
    HEADERS = 6
    END = 7
    TRAILING = 8
    COUNT = 9


_REASONS: Final[dict[int, str]] = {
    RecordFault.LENGTH: "its length runs past the end of the batch",
    RecordFault.VARINT: "it has a number that is cut off or too long",
    RecordFault.DELTA: "its offset delta does not follow that of the record before",
    RecordFault.NO_KEY: "it has no key, and a compacted event hub requires one",
    RecordFault.BLOB: "a key, value or header runs past the end of the record",
    RecordFault.HEADERS: "its header count is negative",
    RecordFault.END: "its fields do not fill its length",
    RecordFault.TRAILING: "bytes follow the last record",
    RecordFault.COUNT: "the record count is not possible",
}


def check_records(data: Buffer, start: int, end: int, codec: int, count: int, *, keys_required: bool = False) -> None:
    """Raise UnreadableRecords unless all records of a batch, between two positions, can be decoded."""
    fault = _fault_of(data, start, end, codec, count, keys_required)
    if fault is None:
        return
    index, reason = fault
    if reason in (RecordFault.TRAILING, RecordFault.COUNT):
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
    """Why the records of a stored batch cannot be decoded; None if they can. Compaction may have removed some."""
    try:
        body = decompress_to_buffer(codec, memoryview(batch)[header_bytes:])
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
    body = decompress_to_buffer(codec, memoryview(data)[start:end], limit)
    return first_fault(body, 0, len(body), count, keys_required)


def first_fault_interpreted(
    data: Buffer, start: int, end: int, count: int, keys_required: bool, is_dense: bool = True
) -> Fault | None:
    """The first fault of `count` uncompressed records between two positions; None if there is none.

    Offset deltas count from 0 without gaps, unless `is_dense` is False: compaction leaves gaps.
    """
    if not 0 < count <= MAX_RECORDS:
        return 0, RecordFault.COUNT
    view, at, delta = bytes(memoryview(data)[start:end]), 0, -1
    for index in range(count):
        try:
            length, at = read_varint(view, at, len(view))
            stop = at + length
            if length < 0 or stop > len(view):
                return index, RecordFault.LENGTH
            delta, at = _walk_record(view, at, stop, delta + 1, is_dense, keys_required)
        except BadVarint:
            return index, RecordFault.VARINT
        except _Fault as fault:
            return index, fault.reason
        if at != stop:
            return index, RecordFault.END
    return None if at == len(view) else (count, RecordFault.TRAILING)


class _Fault(Exception):
    """A record has a fault."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


def _walk_record(
    data: bytes, at: int, stop: int, least_delta: int, is_dense: bool, keys_required: bool
) -> tuple[int, int]:
    """The offset delta of one record, read from its attributes on, and the position behind its fields."""
    _, at = read_varlong(data, at + 1, stop)
    delta, at = read_varint(data, at, stop)
    if delta < least_delta or (is_dense and delta != least_delta):
        raise _Fault(RecordFault.DELTA)
    key_bytes, at = _blob(data, at, stop)
    if key_bytes < 0 and keys_required:
        raise _Fault(RecordFault.NO_KEY)
    _, at = _blob(data, at, stop)
    headers, at = read_varint(data, at, stop)
    if headers < 0:
        raise _Fault(RecordFault.HEADERS)
    for _ in range(headers):
        name_bytes, at = _blob(data, at, stop)
        if name_bytes < 0:
            raise _Fault(RecordFault.BLOB)
        _, at = _blob(data, at, stop)
    return delta, at


def _blob(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """The length of a key, value or header, -1 for null, and the position behind it."""
    length, at = read_varint(data, at, stop)
    if length < -1 or at + max(length, 0) > stop:
        raise _Fault(RecordFault.BLOB)
    return length, at + max(length, 0)


_Walk = Callable[..., Fault | None]


def _find_compiled() -> _Walk | None:
    try:
        from hubmere.records import _validate  # type: ignore[attr-defined]
    except ImportError:
        return None
    walk: _Walk = _validate.first_fault
    return walk


first_fault: _Walk = _find_compiled() or first_fault_interpreted
