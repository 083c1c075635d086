"""Layout of captured Avro files: the header, where the blocks are, and the values in a block.

Files of this node and of the service have the same schema; a file with another one is refused. A file may be damaged or
foreign, so every length is checked before it is used. Format: Avro 1.11, object container files.
"""

import json
import zlib
from collections.abc import Callable
from struct import Struct
from typing import BinaryIO, Final, NamedTuple, TypeVar

from hubmere.model.capture.files import Scalar
from hubmere.pipeline.capture.files.schema import MAGIC, SCHEMA, SYNC_BYTES

# The header of a captured file is under 2 KiB; a longer one is not of a captured file.
_MAX_HEADER_BYTES: Final = 64 * 1024
# A block ends with the first batch of the log that fills 256 KiB, and a batch has a few MB at most.
_MAX_BLOCK_BYTES: Final = 64 * 1024 * 1024
# A file of 500 MB, the largest, has about 2,000 blocks.
_MAX_BLOCKS: Final = 100_000
_MAX_VARINT_BYTES: Final = 10
_DOUBLE: Final = Struct("<d")
# What a damaged file raises besides `Damaged`, from numbers and texts that make no sense.
DAMAGE: Final = (ValueError, IndexError, zlib.error, OverflowError)

T = TypeVar("T")


class Damaged(ValueError):
    """What the file holds is not what its format says."""


class AvroBlock(NamedTuple):
    """A block: the number of its first event in the file, how many it has, and where its content is."""

    first: int
    events: int
    at: int
    size_bytes: int


class AvroLayout:
    """The header of a file and, after `find_blocks`, its blocks. Raises `DAMAGE` if it is not a captured file."""

    def __init__(self, file: BinaryIO) -> None:
        head = Cursor(file.read(_MAX_HEADER_BYTES))
        if head.take(len(MAGIC)) != MAGIC:
            raise Damaged("it is not an Avro file")
        self.about = head.map(lambda: head.take(head.size()))
        if json.loads(self.about.get("avro.schema", b"null")) != SCHEMA:
            raise Damaged("its schema is not that of captured events")
        codec = self.about.get("avro.codec", b"null")
        if codec not in (b"null", b"deflate"):
            raise Damaged(f"its codec {codec.decode()!r} is not null or deflate")
        self._deflates = codec == b"deflate"
        self._sync = head.take(SYNC_BYTES)
        self._begin = head.at
        self.blocks: list[AvroBlock] = []
        self.total = 0

    def find_blocks(self, file: BinaryIO) -> None:
        """Find the blocks, from their sizes."""
        at, end = self._begin, file.seek(0, 2)
        while at < end:
            if len(self.blocks) >= _MAX_BLOCKS:
                raise Damaged("it has too many blocks")
            file.seek(at)
            head = Cursor(file.read(2 * _MAX_VARINT_BYTES))
            count, size_bytes = head.long(), head.long()
            begin = at + head.at
            at = begin + size_bytes + SYNC_BYTES
            if count < 0 or not 0 <= size_bytes <= _MAX_BLOCK_BYTES or at > end:
                raise Damaged("a block is cut off")
            self.blocks.append(AvroBlock(self.total, count, begin, size_bytes))
            self.total += count

    def content(self, file: BinaryIO, block: AvroBlock) -> bytes:
        """The records of a block."""
        file.seek(block.at)
        data = file.read(block.size_bytes)
        if len(data) < block.size_bytes or file.read(SYNC_BYTES) != self._sync:
            raise Damaged("a block does not end with the marker of its file")
        return self._inflate(data, _MAX_BLOCK_BYTES, is_whole=True) if self._deflates else data

    def beginning(self, file: BinaryIO, block: AvroBlock, max_bytes: int) -> bytes:
        """The first bytes of the records of a block, at most `max_bytes`."""
        file.seek(block.at)
        data = file.read(min(block.size_bytes, max_bytes))
        return self._inflate(data, max_bytes, is_whole=False) if self._deflates else data

    @staticmethod
    def _inflate(data: bytes, max_bytes: int, *, is_whole: bool) -> bytes:
        unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        found = unpacker.decompress(data, max_bytes)
        if is_whole and unpacker.unconsumed_tail:
            raise Damaged("a block is larger than 64 MiB")
        return found


class Cursor:
    """Reads values of the Avro binary encoding from bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self._data):
            raise Damaged("a value is cut off")
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
        raise Damaged("a number is too long")

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
        raise Damaged("a property has an unknown type")
