"""Records of a captured Avro block become record batches again, with the offset of each event beside them.

The key, the headers, the body and the time of each record are those of the original record; the batches are not: they
have no producer, no transaction and no compression. A batch has consecutive sequence numbers. Where the log stamps its
own time (`LogAppend`), a batch ends with its millisecond, so that clients see the same kind of timestamp as in the log;
otherwise each record has its own time.

`records_to_batches` is the inner loop; `_rebuild.pyx` has a compiled version that produces the same bytes and does not
hold the interpreter's lock. `seal` adds the checksums, which both leave out.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from hubmere.model.capture.cold import ColdBlock
from hubmere.pipeline.capture.files.avro_layout import Cursor, Damaged
from hubmere.pipeline.capture.files.originals import TIME, key_and_headers
from hubmere.pipeline.capture.files.schema import time_of_text
from hubmere.records.header import APPEND_TIME, CHECKED_FROM, CRC_AT, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from hubmere.records.varint import write_varint

# A batch ends with the record that fills it, so that a small read does not have to take a whole block.
BATCH_BYTES: Final = 128 * 1024
_NONE: Final = -1


class Rebuilt(NamedTuple):
    """Batches without checksums; of each its position, its base and next sequence number, and its record count."""

    data: bytearray
    batches: Sequence[tuple[int, int, int, int]]
    offsets: Sequence[int]


class _Open(NamedTuple):
    """The batch that is being written."""

    at: int
    base: int
    time_ms: int


def records_to_batches(content: bytes, count: int, is_append_time: bool) -> Rebuilt:
    """Rebuild the batches of a block of `count` records. Damaged if it does not hold exactly these."""
    writer = _Writer(is_append_time)
    cursor = Cursor(content)
    before: tuple[str, int] | None = None
    for _ in range(count):
        sequence, offset, text = cursor.long(), cursor.text(), cursor.text()
        system, properties = cursor.map(cursor.scalar), cursor.map(cursor.scalar)
        body = cursor.take(cursor.long()) if cursor.long() else None
        told = system.get(TIME)
        if isinstance(told, int):
            time_ms = told
        elif before is not None and before[0] == text:
            time_ms = before[1]
        else:
            time_ms = time_of_text(text) * 1000
        before = (text, time_ms)
        key, headers = key_and_headers({name: held for name, held in system.items() if held is not None}, properties)
        writer.add(sequence, int(offset), time_ms, (key, body, headers))
    if cursor.at != len(content):
        raise Damaged("a block holds more than its records")
    return writer.finish()


class _Writer:
    """Writes records into batches, one after the other."""

    def __init__(self, is_append_time: bool) -> None:
        self._is_append_time = is_append_time
        self._data = bytearray()
        self._batches: list[tuple[int, int, int, int]] = []
        self._offsets = array("q")
        self._open: _Open | None = None
        self._records = 0
        self._last = _NONE
        self._newest_ms = _NONE

    def add(
        self,
        sequence: int,
        offset: int,
        time_ms: int,
        record: tuple[bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]],
    ) -> None:
        if sequence <= self._last:
            raise Damaged("sequence numbers do not increase")
        if self._is_full(time_ms) or sequence != self._last + 1:
            self._close()
        if self._open is None:
            self._open = _Open(len(self._data), sequence, time_ms)
            self._newest_ms = time_ms
            self._data += bytes(HEADER_BYTES)
        time_delta = 0 if self._is_append_time else time_ms - self._open.time_ms
        encoded = _record(time_delta, sequence - self._open.base, *record)
        write_varint(self._data, len(encoded))
        self._data += encoded
        self._records += 1
        self._last = sequence
        self._newest_ms = max(self._newest_ms, time_ms)
        self._offsets.append(offset)

    def _is_full(self, time_ms: int) -> bool:
        if self._open is None:
            return False
        if len(self._data) - self._open.at >= BATCH_BYTES:
            return True
        return self._is_append_time and time_ms != self._open.time_ms

    def _close(self) -> None:
        opened = self._open
        if opened is None:
            return
        header = (
            opened.base, len(self._data) - opened.at - LENGTH_PREFIX_BYTES, _NONE, MAGIC, 0,
            APPEND_TIME if self._is_append_time else 0, self._last - opened.base, opened.time_ms, self._newest_ms,
            _NONE, _NONE, _NONE, self._records,
        )  # fmt: skip
        HEADER.pack_into(self._data, opened.at, *header)
        self._batches.append((opened.at, opened.base, self._last + 1, self._records))
        self._open, self._records = None, 0

    def finish(self) -> Rebuilt:
        self._close()
        return Rebuilt(self._data, self._batches, self._offsets)


def _record(
    time_delta: int,
    delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> bytearray:
    out = bytearray(b"\x00")
    write_varint(out, time_delta)
    write_varint(out, delta)
    _write_sized(out, key)
    _write_sized(out, value)
    write_varint(out, len(headers))
    for name, content in headers:
        _write_sized(out, name)
        _write_sized(out, content)
    return out


def _write_sized(out: bytearray, data: bytes | None) -> None:
    write_varint(out, _NONE if data is None else len(data))
    out += data or b""


def _load_compiled() -> Any:
    try:
        from hubmere.capture.cold import _rebuild  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _rebuild.records_to_batches


TO_BATCHES: Final[Callable[[bytes, int, bool], tuple[bytearray, Any, Any]]] = _load_compiled() or records_to_batches


def seal(parts: Sequence[tuple[bytearray, Any, Any]], first: int, end: int) -> ColdBlock:
    """The batches of consecutive blocks with their checksums, as a block with the events from `first` to `end`."""
    data = bytearray()
    starts: list[int] = []
    bases: list[int] = []
    ends: list[int] = []
    offsets: dict[int, Sequence[int]] = {}
    for part, batches, numbers in parts:
        view = memoryview(part)
        stops = [batch[0] for batch in batches[1:]] + [len(part)]
        index = 0
        for (at, base, following, count), stop in zip(batches, stops, strict=True):
            part[at + CRC_AT : at + CHECKED_FROM] = int(crc32c(view[at + CHECKED_FROM : stop])).to_bytes(4, "big")
            starts.append(len(data) + at)
            bases.append(base)
            ends.append(following)
            offsets[base] = numbers[index : index + count]
            index += count
        view.release()
        data += part
    return ColdBlock(first=first, end=end, data=bytes(data), starts=starts, bases=bases, ends=ends, offsets=offsets)
