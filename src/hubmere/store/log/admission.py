"""Which offered batches the log accepts: the rules of `records.validate`, as refusals.

The writer checks an ordinary batch inline. Any other batch comes here, where it is either accepted (batches of
transactions and for compacted logs) or refused with the rule that it breaks.
"""

from hubmere.model.errors import CorruptBatch, InvalidBatch
from hubmere.records.compression import decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    UNSEALED,
    BatchHeader,
    read_header,
    write_header,
)
from hubmere.records.validate import HeaderFault, check_records, find_broken_rule


def admit(batch: bytearray | memoryview, *, requires_keys: bool) -> BatchHeader:
    """Check a batch and return its header; raises InvalidBatch or CorruptBatch."""
    broken = find_broken_rule(batch, may_be_unsealed=True)
    if broken is not None:
        raise (CorruptBatch if broken.fault is HeaderFault.CHECKSUM else InvalidBatch)(broken.reason)
    header = read_header(batch)
    # A batch without a checksum was made in this node from decoded messages: its records are right.
    if requires_keys or header.crc != UNSEALED:
        try:
            check_records(
                batch, HEADER_BYTES, len(batch), header.codec, header.record_count, keys_required=requires_keys
            )
        except UnreadableRecords as fault:
            raise InvalidBatch(fault.why, fault.index) from None
    return header


def decompress_batch(batch: bytearray | memoryview) -> bytearray:
    """The same batch uncompressed, for one with more events than bytes.

    The offsets of events are shared out over the bytes of their batch, so a batch needs a byte for each event. Only a
    batch of nearly equal events compresses below that, and such a batch is small when it is decompressed.
    """
    header = admit(batch, requires_keys=False)
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:])
    opened = bytearray(HEADER_BYTES) + body
    if header.record_count > len(opened):
        raise InvalidBatch(f"its record count is {header.record_count}, and its records have {len(body)} bytes")
    length = len(opened) - LENGTH_PREFIX_BYTES
    write_header(opened, header._replace(length=length, crc=UNSEALED, attributes=header.attributes & ~CODEC_MASK))
    return opened
