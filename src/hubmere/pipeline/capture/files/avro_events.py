"""Reads events of captured Avro files, for display. `avro_layout` has the format."""

from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import BinaryIO, Final, TypeVar

from hubmere.model.capture.files import CapturedEvent
from hubmere.model.errors import InvalidArgument
from hubmere.pipeline.capture.files.avro_layout import DAMAGE, AvroLayout, Cursor

_TIME: Final = "%m/%d/%Y %I:%M:%S %p"

T = TypeVar("T")


class AvroEvents:
    """The events of an open file (`model.capture.files.CapturedEvents`)."""

    def __init__(self, file: BinaryIO, name: str, first: int) -> None:
        """Reads header and block sizes. InvalidArgument if it is not a captured file; the caller then closes it."""
        self._file = file
        self._name = name
        self._open_block: tuple[int, Cursor] | None = None
        self.position = first
        self._layout = self._run(lambda: AvroLayout(file))
        self._run(lambda: self._layout.find_blocks(file))

    @property
    def total(self) -> int:
        """How many events the file has."""
        return self._layout.total

    def read(self, limit: int) -> list[CapturedEvent]:
        """The next events, at most `limit`; those of one block at a time, so that a call is short."""
        return self._run(lambda: self._read(limit))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except DAMAGE as error:
            raise InvalidArgument("captured file", self._name, f"it cannot be read ({error})") from error

    def _read(self, limit: int) -> list[CapturedEvent]:
        if self.position >= self.total:
            return []
        blocks = self._layout.blocks
        number = bisect_right(blocks, self.position, key=lambda block: block.first) - 1
        block = blocks[number]
        if self._open_block is None or self._open_block[0] != number:
            cursor = Cursor(self._layout.content(self._file, block))
            for _ in range(self.position - block.first):
                _event(cursor)
            self._open_block = (number, cursor)
        cursor = self._open_block[1]
        found = [_event(cursor) for _ in range(min(limit, block.first + block.events - self.position))]
        self.position += len(found)
        return found


def _event(cursor: Cursor) -> CapturedEvent:
    sequence, offset, time = cursor.long(), cursor.text(), cursor.text()
    system = {name: value for name, value in cursor.map(cursor.scalar).items() if value is not None}
    properties = cursor.map(cursor.scalar)
    body = cursor.take(cursor.long()) if cursor.long() else None
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
