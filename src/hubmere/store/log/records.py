"""Records of stored batches: one that cannot be decoded is corrupt, because it was checked when it was appended."""

from collections.abc import Iterator

from hubmere.model.errors import CorruptBatch
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import BatchHeader
from hubmere.records.records import RecordSlice, read_marker, slice_records


def stored_records(batch: memoryview, header: BatchHeader) -> Iterator[RecordSlice]:
    """Each record of a stored batch, in order; raises CorruptBatch."""
    try:
        yield from slice_records(batch, header)
    except UnreadableRecords as fault:
        raise CorruptBatch(fault.why) from None


def is_commit_marker(batch: memoryview) -> bool:
    """Whether a stored control batch commits a transaction; raises CorruptBatch."""
    try:
        marker = read_marker(batch)
    except UnreadableRecords as fault:
        raise CorruptBatch(fault.why) from None
    return marker is not None and marker.is_commit
