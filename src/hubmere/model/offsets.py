"""Offsets of single events: the bytes of a stored batch, shared out over its events.

Event Hubs numbers events by byte offset. A batch is stored as one unit, so each of its events gets an offset computed
from the batch's position and size.
"""


def spread_offset(batch_offset: int, size_bytes: int, count: int, index: int) -> int:
    """The offset of the event at `index` of a batch.

    A batch has more bytes than events, so offsets are unique and increasing and stay inside the batch.
    """
    return batch_offset + index * size_bytes // count


def index_at_offset(batch_offset: int, size_bytes: int, count: int, offset: int) -> int:
    """The index of the first event of a batch whose offset is at or after `offset`; `count` if there is none."""
    if offset <= batch_offset:
        return 0
    # The smallest i with i * size // count >= d is the ceiling of d * count / size.
    return min(count, -(-(offset - batch_offset) * count // size_bytes))
