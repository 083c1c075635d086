"""Which offered batches the log takes: the rules of the format, with the reason for each refusal.

`LocalLog.append` looks at an ordinary batch in one expression of its own; whatever that does not pass comes here, where
it is either an ordinary batch of a special kind or is refused with its reason (Kafka's checks on produce). The records
of a batch that a client made are checked too: one that nobody can decode would stop every consumer of its partition.
"""

from hubmere.model.errors import CorruptBatch, InvalidBatch, Refusal
from hubmere.records.compression import decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    UNSEALED,
    BatchHeader,
    is_intact,
    read_header,
    write_header,
)
from hubmere.records.validate import check_records


def admit(batch: bytearray | memoryview, *, requires_keys: bool) -> BatchHeader:
    """The header of a batch that keeps the rules; raises InvalidBatch or CorruptBatch."""
    refusal = _why_refused(batch)
    if refusal is not None:
        raise refusal
    header = read_header(batch)
    # A batch without a checksum was made in this node from messages that were decoded: its records are right.
    if requires_keys or header.crc != UNSEALED:
        try:
            check_records(
                batch, HEADER_BYTES, len(batch), header.codec, header.record_count, keys_required=requires_keys
            )
        except UnreadableRecords as fault:
            raise InvalidBatch(fault.why, fault.index) from None
    return header


def loosened(batch: bytearray | memoryview) -> bytearray:
    """The same batch uncompressed, for one that packs more events than it has bytes.

    Byte numbers are shared out over a batch's bytes, so each event needs one of its own; only a batch of nearly equal
    events compresses so far, and such a batch is small when opened.
    """
    header = admit(batch, requires_keys=False)
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:])
    loose = bytearray(HEADER_BYTES) + body
    if header.record_count > len(loose):
        raise InvalidBatch(f"it says that it has {header.record_count} records in {len(body)} bytes")
    length = len(loose) - LENGTH_PREFIX_BYTES
    write_header(loose, header._replace(length=length, crc=UNSEALED, attributes=header.attributes & ~CODEC_MASK))
    return loose


def _why_refused(batch: bytearray | memoryview) -> Refusal | None:
    """What is wrong with an offered batch, if anything is."""
    if len(batch) < HEADER_BYTES:
        return InvalidBatch(f"{len(batch)} bytes are fewer than a header")
    header = read_header(batch)
    for is_broken, why in _broken_rules(header, len(batch)):
        if is_broken:
            return InvalidBatch(why)
    is_sound = header.crc == UNSEALED or is_intact(batch)
    return None if is_sound else CorruptBatch("the checksum does not match")


def _broken_rules(header: BatchHeader, size_bytes: int) -> tuple[tuple[bool, str], ...]:
    is_producer = header.producer_id >= 0
    return (
        (
            header.size_bytes != size_bytes,
            f"its length says {header.length} of {size_bytes - LENGTH_PREFIX_BYTES} bytes",
        ),
        (header.magic != MAGIC, f"magic {header.magic} is not {MAGIC}"),
        (header.record_count < 1, f"it says that it has {header.record_count} records"),
        (
            header.record_count != header.last_delta + 1,
            f"its last delta is {header.last_delta}, not its count less one",
        ),
        (header.is_control, "only the service writes control batches"),
        (header.is_transactional and not is_producer, "it is part of a transaction without a producer id"),
        (is_producer and header.producer_sequence < 0, "it has a producer id without a sequence number"),
        (is_producer and header.producer_epoch < 0, "it has a producer id without an epoch"),
    )
