"""Events to Avro container files, in the format of the service's own captured files.

`Records` is the inner loop; `_decode.pyx` has a compiled version that produces the same bytes. Only the batches of the
log decide where blocks end, so that the same events under the same name give the same file.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final, Protocol

from hubmere.client.consumer import UNKNOWN_POSITION
from hubmere.pipeline.capture.files.schema import (
    EMPTY_MAP,
    HUB_KEY,
    MAGIC,
    SPAN_KEY,
    encoded_maps,
    file_header,
    implied_time_ms,
    long_of,
    sync_marker,
    time_text,
    with_length,
)
from hubmere.pipeline.decode import ClosedBatch, Opened, Record, add_batch, check_deltas, events_between, microseconds
from hubmere.records import kernels
from hubmere.records.header import APPEND_TIME, BatchHeader

# A block ends with the first batch that fills it: large enough to amortize its header, small enough to be skipped.
BLOCK_BYTES: Final = 256 * 1024
NO_CODEC: Final = "null"
DEFLATE: Final = "deflate"
_BARE_MAPS: Final = EMPTY_MAP * 2
_NULL_BODY, _BODY = b"\x00", b"\x02"
# A header of a captured file is under 2 KiB; a longer one is not of a captured file.
_MAX_HEADER_BYTES: Final = 64 * 1024


class RecordsLike(Protocol):
    """The interface of the interpreted and the compiled class."""

    @property
    def count(self) -> int:
        """Number of events added since the last `take`."""

    @property
    def times_us(self) -> tuple[int, int]:
        """Times of the first and the last of them."""

    def __len__(self) -> int: ...

    def add(self, header: BatchHeader, position: int, opened: Opened, at: int, low: int, high: int) -> None:
        """See `decode.Columns.add`."""

    def take(self) -> Any:
        """Remove and return their bytes."""


class Records:
    """Events as a sequence of Avro records."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.count = 0
        self.times_us = (0, 0)
        # Second and time in ms of the event before in this block.
        self._before: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self._data)

    def add(self, header: BatchHeader, position: int, opened: Opened, at: int, low: int, high: int) -> None:
        """The events of a batch whose deltas lie from `low` up to `high`; all of it or, with Malformed, nothing."""
        records: Sequence[Record] = kernels.read_records(bytes(opened), at, header.record_count)
        check_deltas(records, header.last_delta)
        chosen = events_between(records, low, high)
        if not chosen:
            return
        base, size_bytes, count = header.base_sequence_number, header.size_bytes, header.last_delta + 1
        for time_delta, delta, key, value, headers in chosen:
            offset = base + delta if position == UNKNOWN_POSITION else position + delta * size_bytes // count
            second, time_ms = _time_us(header, time_delta) // 1_000_000, _time_us(header, time_delta) // 1000
            told_ms = None if time_ms == implied_time_ms(second, self._before) else time_ms
            self._before = (second, time_ms)
            is_bare = key is None and not headers and told_ms is None
            maps = _BARE_MAPS if is_bare else encoded_maps(key, value, headers, told_ms)
            self._data += b"".join(
                (
                    long_of(base + delta),
                    with_length(b"%d" % offset),
                    with_length(time_text(second)),
                    maps,
                    _NULL_BODY if value is None else _BODY + with_length(value),
                )
            )
        first = self.times_us[0] if self.count else _time_us(header, chosen[0][0])
        self.times_us = (first, _time_us(header, chosen[-1][0]))
        self.count += len(chosen)

    def take(self) -> bytearray:
        """Remove and return the bytes of all events."""
        taken, self._data = self._data, bytearray()
        self.count, self.times_us, self._before = 0, (0, 0), None
        return taken


def _time_us(header: BatchHeader, delta_ms: int) -> int:
    if header.attributes & APPEND_TIME:
        return microseconds(header.max_time_ms)
    return microseconds(header.base_time_ms + delta_ms)


def _load_compiled() -> Any:
    try:
        from hubmere.pipeline import _decode  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _decode.Records


RECORDS: Final[Callable[[], RecordsLike]] = _load_compiled() or Records


class AvroFile:
    """Writes one container file into a sink, block by block."""

    def __init__(
        self,
        sink: BinaryIO,
        name: str,
        span: str,
        *,
        deflates: bool,
        hub_id: str | None = None,
        records_of: Callable[[], RecordsLike] = RECORDS,
    ) -> None:
        self._sink = sink
        self._deflates = deflates
        self._sync = sync_marker(name, span)
        self._records = records_of()
        self.events = 0
        self.times_us: tuple[int, int] | None = None
        about = {SPAN_KEY: span} | ({} if hub_id is None else {HUB_KEY: hub_id})
        sink.write(file_header(DEFLATE if deflates else NO_CODEC, about, self._sync))

    def add(self, batch: ClosedBatch, partition: int, start: int, end: int) -> None:
        """The events of a batch that belong to the range."""
        add_batch(self._records, batch, partition, start, end)
        if len(self._records) >= BLOCK_BYTES:
            self._end_block()

    def close(self) -> None:
        """Finish the file."""
        self._end_block()

    def _end_block(self) -> None:
        count = self._records.count
        if not count:
            return
        first_us, last_us = self._records.times_us
        self.times_us = (self.times_us[0] if self.times_us else first_us, last_us)
        self.events += count
        data = self._records.take()
        if self._deflates:
            data = _deflate(data)
        view = memoryview(data)
        self._sink.write(long_of(count) + long_of(len(view)))
        self._sink.write(view)
        self._sink.write(self._sync)


def _deflate(data: Any) -> bytes:
    """Raw deflate, as in Avro: no header and no checksum."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


# --- metadata of a file -----------------------------------------------------------------------------------------------


def read_about(file: BinaryIO) -> tuple[str | None, str | None]:
    """The span and the hub's id in the header of a captured file; None for what it does not say."""
    head = file.read(_MAX_HEADER_BYTES)
    if not head.startswith(MAGIC):
        return None, None
    return _metadata(head, SPAN_KEY), _metadata(head, HUB_KEY)


def _metadata(head: bytes, name: str) -> str | None:
    marked = with_length(name.encode())
    at = head.find(marked)
    if at < 0:
        return None
    at += len(marked)
    size, shift = 0, 0
    while head[at] & 0x80:
        size, shift, at = size | (head[at] & 0x7F) << shift, shift + 7, at + 1
    size = (size | head[at] << shift) >> 1
    return head[at + 1 : at + 1 + size].decode()
