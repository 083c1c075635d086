"""Which batches of a gateway are joined into one: a broker accepts one batch per partition and request.

Only the gateway's own batches are joined: not compressed, without a producer. It has built them itself, or a Kafka
client has sent them without numbers.
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
    NO_PRODUCER,
    TRANSACTIONAL,
    UNSEALED,
    BatchHeader,
    write_header,
)
from hubmere.records.join import join_batches
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
    if len(run.headers) == 1:
        header = BatchHeader._make(run.headers[0])._replace(crc=UNSEALED)
        write_header(run.data, header)
        return run.data, header
    view = memoryview(run.data)
    ends = accumulate(run.sizes)
    return join_batches([view[end - size : end] for end, size in zip(ends, run.sizes, strict=True)])


def unseal(batch: Batch, header: BatchHeader) -> tuple[Batch, BatchHeader]:
    """A client's batch without its checksum, which has been verified: the gateway numbers and seals it again."""
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    unsealed = header._replace(crc=UNSEALED)
    write_header(batch, unsealed)
    return batch, unsealed
