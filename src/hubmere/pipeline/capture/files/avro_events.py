"""Reads events of captured Avro files, for display: the container format, and records of the one schema of capture.

Files of this node and of the service have the same schema; a file with another one is refused. A file may be damaged or
foreign, so every length is checked before it is used. Format: Avro 1.11, object container files.
"""

import json
import zlib
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import BinaryIO, Final, NamedTuple, TypeVar

from hubmere.model.captured_files import CapturedEvent, Scalar
from hubmere.model.errors import InvalidArgument
from hubmere.pipeline.capture.files.schema import MAGIC, SCHEMA, SYNC_BYTES

# The header of a captured file is under 2 KiB; a longer one is not of a captured file.
_MAX_HEADER_BYTES: Final = 64 * 1024
# A block ends with the first batch of the log that fills 256 KiB, and a batch has a few MB at most.
_MAX_BLOCK_BYTES: Final = 64 * 1024 * 1024
# A file of 500 MB, the largest, has about 2,000 blocks.
_MAX_BLOCKS: Final = 100_000
_MAX_VARINT_BYTES: Final = 10
_DOUBLE: Final = Struct("<d")
_TIME: Final = "%m/%d/%Y %I:%M:%S %p"

T = TypeVar("T")


class _Damaged(ValueError):
    """What the file holds is not what its format says."""


class _Block(NamedTuple):
    first: int
    events: int
    at: int
    size_bytes: int


class AvroEvents:
    """The events of an open file (`model.captured_files.CapturedEvents`)."""

    def __init__(self, file: BinaryIO, name: str, first: int) -> None:
        """Reads header and block sizes. InvalidArgument if it is not a captured file; the caller then closes it."""
        self._file = file
        self._name = name
        self._deflates = False
        self._blocks: list[_Block] = []
        self._open_block: tuple[int, _Cursor] | None = None
        self.total = 0
        self.position = first
        self._run(self._read_layout)

    def read(self, limit: int) -> list[CapturedEvent]:
        """The next events, at most `limit`; those of one block at a time, so that a call is short."""
        return self._run(lambda: self._read(limit))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (_Damaged, ValueError, IndexError, zlib.error, UnicodeDecodeError, OverflowError) as error:
            raise InvalidArgument("captured file", self._name, f"it cannot be read ({error})") from error

    def _read_layout(self) -> None:
        head = _Cursor(self._file.read(_MAX_HEADER_BYTES))
        if head.take(len(MAGIC)) != MAGIC:
            raise _Damaged("it is not an Avro file")
        about = head.map(lambda: head.take(head.size()))
        if json.loads(about.get("avro.schema", b"null")) != SCHEMA:
            raise _Damaged("its schema is not that of captured events")
        codec = about.get("avro.codec", b"null")
        if codec not in (b"null", b"deflate"):
            raise _Damaged(f"its codec {codec.decode()!r} is not null or deflate")
        self._deflates = codec == b"deflate"
        head.take(SYNC_BYTES)
        self._find_blocks(head.at)

    def _find_blocks(self, at: int) -> None:
        end = self._file.seek(0, 2)
        while at < end:
            if len(self._blocks) >= _MAX_BLOCKS:
                raise _Damaged("it has too many blocks")
            self._file.seek(at)
            head = _Cursor(self._file.read(2 * _MAX_VARINT_BYTES))
            count, size_bytes = head.long(), head.long()
            begin = at + head.at
            at = begin + size_bytes + SYNC_BYTES
            if count < 0 or not 0 <= size_bytes <= _MAX_BLOCK_BYTES or at > end:
                raise _Damaged("a block is cut off")
            self._blocks.append(_Block(self.total, count, begin, size_bytes))
            self.total += count

    def _read(self, limit: int) -> list[CapturedEvent]:
        if self.position >= self.total:
            return []
        number = bisect_right(self._blocks, self.position, key=lambda block: block.first) - 1
        block = self._blocks[number]
        if self._open_block is None or self._open_block[0] != number:
            cursor = _Cursor(self._content(block))
            for _ in range(self.position - block.first):
                cursor.event()
            self._open_block = (number, cursor)
        cursor = self._open_block[1]
        found = [cursor.event() for _ in range(min(limit, block.first + block.events - self.position))]
        self.position += len(found)
        return found

    def _content(self, block: _Block) -> bytes:
        self._file.seek(block.at)
        data = self._file.read(block.size_bytes)
        if not self._deflates:
            return data
        unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        data = unpacker.decompress(data, _MAX_BLOCK_BYTES)
        if unpacker.unconsumed_tail:
            raise _Damaged("a block is larger than 64 MiB")
        return data


class _Cursor:
    """Reads values of the Avro binary encoding from bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self._data):
            raise _Damaged("a value is cut off")
        taken, self.at = self._data[self.at : end], end
        return taken

    def long(self) -> int:
        bits = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = self._data[self.at]
            self.at += 1
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (bits >> 1) ^ -(bits & 1)
            shift += 7
        raise _Damaged("a number is too long")

    def size(self) -> int:
        return self.long()

    def text(self) -> str:
        return self.take(self.long()).decode()

    def map(self, value: Callable[[], T]) -> dict[str, T]:
        found: dict[str, T] = {}
        while count := self.long():
            if count < 0:
                # Avro 1.11: a negative count is followed by the size of the block.
                self.long()
            for _ in range(abs(count)):
                name = self.text()
                found[name] = value()
        return found

    def scalar(self) -> Scalar | None:
        branch = self.long()
        if branch == 0:
            return self.long()
        if branch == 1:
            number: float = _DOUBLE.unpack(self.take(_DOUBLE.size))[0]
            return number
        if branch == 2:
            return self.text()
        if branch == 3:
            return self.take(self.long())
        if branch == 4:
            return None
        raise _Damaged("a property has an unknown type")

    def event(self) -> CapturedEvent:
        sequence, offset, time = self.long(), self.text(), self.text()
        system = {name: value for name, value in self.map(self.scalar).items() if value is not None}
        properties = self.map(self.scalar)
        body = self.take(self.long()) if self.long() else None
        return CapturedEvent(
            sequence=sequence,
            offset=offset,
            enqueued_ms=_time_ms(time),
            system=system,
            properties=properties,
            body=body,
        )


@lru_cache(maxsize=1024)
def _time_ms(text: str) -> int:
    """Milliseconds of a time as the service writes it: `M/d/yyyy h:mm:ss AM`, in whole seconds, UTC."""
    return int(datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()) * 1000
