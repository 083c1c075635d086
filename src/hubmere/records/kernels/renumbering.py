"""The records of one batch as they must be behind those of another: with other offset deltas and time deltas."""

from .amqp_values import Malformed
from .record_layout import encode_uvarint, length_of, read_uvarint


def renumber_records(data: bytes, at: int, delta: int, delta_ms: int) -> bytes:
    """The records from `at` to the end, with offset deltas from `delta` on and `delta_ms` added to each time delta.

    Everything behind the offset delta of a record is copied as it is.
    """
    parts: list[bytes] = []
    end = len(data)
    while at < end:
        size = data[at]
        if size & 0x81:
            size, at = read_uvarint(data, at, end)
        else:
            at += 1
        stop = at + (size >> 1)
        if size & 1 or size < 6 or stop > end:
            raise Malformed("a record is cut short")
        time_at = at + 1
        if data[time_at] < 0x80:
            at = time_at + 1
        else:
            _, at = read_uvarint(data, time_at, stop)
        if delta_ms:
            raw, _ = read_uvarint(data, time_at, stop)
            time_delta = ((raw >> 1) ^ -(raw & 1)) + delta_ms
            start = data[time_at - 1 : time_at] + encode_uvarint(
                time_delta * 2 if time_delta >= 0 else ~time_delta * 2 + 1
            )
        else:
            start = data[time_at - 1 : at]
        if at < stop and data[at] < 0x80:
            at += 1
        else:
            _, at = read_uvarint(data, at, stop)
        start += length_of(delta)
        parts.append(length_of(len(start) + stop - at))
        parts.append(start)
        parts.append(data[at:stop])
        delta += 1
        at = stop
    return b"".join(parts)
