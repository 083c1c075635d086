"""Joins waiting batches of a gateway into one: a broker accepts one batch per partition and request.

Only the gateway's own batches are joined: not compressed, without a producer. It has built them itself, or a Kafka
client has sent them without numbers. Records are copied as they are; only their distances from the first record of the
batch change.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from hubmere.records.compression import Codec
from hubmere.records.header import (
    ATTRIBUTES_FIELD,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    NO_PRODUCER,
    TRANSACTIONAL,
    UNSEALED,
    BatchHeader,
    write_header,
)
from hubmere.records.kernels import renumber_records
from hubmere.records.runs import BatchRun, check_run
from hubmere.records.validate import is_readable
from hubmere.store.engine import LogConfig

Batch = bytearray | memoryview

# As large as the largest publication of the service; larger batches are sent alone.
MAX_JOINED_BYTES: Final = 1024 * 1024


def can_join(header: BatchHeader) -> bool:
    """Whether a batch may share a request with others."""
    is_plain = not header.attributes & (CODEC_MASK | CONTROL | TRANSACTIONAL)
    return is_plain and header.producer_id == NO_PRODUCER and header.crc == UNSEALED


def may_number(batch: Batch, header: BatchHeader, config: LogConfig) -> bool:
    """Whether a client's batch may become one of the gateway's own.

    The leader must have no reason to refuse it, since it would refuse all that share the request.
    """
    if header.producer_id != NO_PRODUCER or header.attributes & (CODEC_MASK | CONTROL | TRANSACTIONAL):
        return False
    if config.compact or not config.append_time:
        return False
    return is_readable(batch, HEADER_BYTES, len(batch), Codec.NONE, header.record_count)


def check_own_run(data: bytearray, sizes: Sequence[int], newest_ms: int, config: LogConfig) -> BatchRun | None:
    """The run if all of its batches may become one of the gateway's own; None if each has to be appended by itself."""
    if config.compact or not config.append_time or len(data) > MAX_JOINED_BYTES:
        return None
    run = check_run(data, sizes, newest_ms)
    if run is None or run.first_of_producers or any(fields[ATTRIBUTES_FIELD] & CODEC_MASK for fields in run.headers):
        return None
    return run


def join_run(run: BatchRun) -> tuple[bytearray, BatchHeader]:
    """One unsealed batch with the records of a run, and its header."""
    headers = [BatchHeader._make(fields) for fields in run.headers]
    first = headers[0] = headers[0]._replace(crc=UNSEALED)
    if len(headers) == 1:
        write_header(run.data, first)
        return run.data, first
    view = memoryview(run.data)
    ends = list(accumulate(run.sizes))
    return join_batches([view[end - size : end] for end, size in zip(ends, run.sizes, strict=True)], headers)


def unseal(batch: Batch, header: BatchHeader) -> tuple[Batch, BatchHeader]:
    """A client's batch without its checksum, which has been verified: the gateway numbers and seals it again."""
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    unsealed = header._replace(crc=UNSEALED)
    write_header(batch, unsealed)
    return batch, unsealed


def join_batches(batches: Sequence[Batch], headers: Sequence[BatchHeader]) -> tuple[bytearray, BatchHeader]:
    """One unsealed batch with the records of all, in order, and its header."""
    first = headers[0]
    out = bytearray(batches[0])
    count, newest_ms = first.record_count, first.max_time_ms
    for batch, header in zip(batches[1:], headers[1:], strict=True):
        out += renumber_records(bytes(batch), HEADER_BYTES, count, header.base_time_ms - first.base_time_ms)
        count += header.record_count
        newest_ms = max(newest_ms, header.max_time_ms)
    length = len(out) - LENGTH_PREFIX_BYTES
    joined = first._replace(length=length, last_delta=count - 1, max_time_ms=newest_ms, record_count=count)
    write_header(out, joined)
    return out, joined
