"""Joins batches: one batch with the records of all, in order.

Records are copied as they are; only their distances from the first record of the batch change. Where a C compiler was
available, `_join.join_plain` copies each record once. `join_interpreted` joins what it leaves, refuses damaged records,
and gives the same bytes for all others.
"""

from collections.abc import Callable, Sequence

from hubmere.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    UNSEALED,
    BatchHeader,
    Buffer,
    read_header,
    write_header,
)
from hubmere.records.kernels import renumber_records

_JoinPlain = Callable[[list[Buffer]], bytearray | None]


def _find_compiled() -> _JoinPlain | None:
    try:
        from hubmere.records import _join  # type: ignore[attr-defined]
    except ImportError:
        return None
    join_plain: _JoinPlain = _join.join_plain
    return join_plain


join_plain: _JoinPlain | None = _find_compiled()


def join_batches(batches: Sequence[Buffer]) -> tuple[bytearray, BatchHeader]:
    """One unsealed batch with the records of all, and its header: that of the first, with other counts and times."""
    joined = None if join_plain is None else join_plain(list(batches))
    if joined is None:
        joined = join_interpreted(batches)
    return joined, read_header(joined)


def join_interpreted(batches: Sequence[Buffer]) -> bytearray:
    """As `join_batches`; raises Malformed for records that are cut off."""
    first = read_header(batches[0])
    out = bytearray(batches[0][:HEADER_BYTES])
    count, newest_ms = 0, first.max_time_ms
    for batch in batches:
        header = read_header(batch)
        out += renumber_records(bytes(batch), HEADER_BYTES, count, header.base_time_ms - first.base_time_ms)
        count += header.record_count
        newest_ms = max(newest_ms, header.max_time_ms)
    joined = first._replace(
        length=len(out) - LENGTH_PREFIX_BYTES,
        crc=UNSEALED,
        last_delta=count - 1,
        max_time_ms=newest_ms,
        record_count=count,
    )
    write_header(out, joined)
    return out
