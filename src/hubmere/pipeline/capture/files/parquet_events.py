"""Reads events of captured Parquet files, for display; a Delta table has the same files."""

from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hubmere.model.capture.files import CapturedEvent
from hubmere.model.errors import InvalidArgument
from hubmere.pipeline.capture.files.content import PARQUET_COLUMNS

_BATCH_ROWS: Final = 256


class ParquetEvents:
    """The events of an open file (`model.capture.files.CapturedEvents`)."""

    def __init__(self, file: BinaryIO, name: str, first: int) -> None:
        """Reads the footer. InvalidArgument if it is not a captured file; the caller then closes it."""
        self._file = file
        self._name = name
        try:
            self._parquet = pq.ParquetFile(file)
        except pa.ArrowException as error:
            raise self._unreadable(str(error)) from error
        if set(self._parquet.schema_arrow.names) != set(PARQUET_COLUMNS):
            raise self._unreadable("its columns are not those of captured events")
        self.total: int = self._parquet.metadata.num_rows
        self.position = first
        self._rows = self._iterate(first)

    def read(self, limit: int) -> list[CapturedEvent]:
        """The next events, at most `limit`."""
        found: list[CapturedEvent] = []
        try:
            while len(found) < limit and (row := next(self._rows, None)) is not None:
                found.append(row)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(str(error)) from error
        self.position += len(found)
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _unreadable(self, why: str) -> InvalidArgument:
        return InvalidArgument("captured file", self._name, f"it cannot be read ({why})")

    def _iterate(self, first: int) -> Iterator[CapturedEvent]:
        """The events from a number on; row groups before it are not read."""
        begin = 0
        for group in range(self._parquet.num_row_groups):
            count = self._parquet.metadata.row_group(group).num_rows
            skipped = min(max(first - begin, 0), count)
            begin += count
            if skipped == count:
                continue
            for batch in self._parquet.iter_batches(_BATCH_ROWS, row_groups=[group]):
                if skipped >= batch.num_rows:
                    skipped -= batch.num_rows
                    continue
                yield from _events(batch.slice(skipped))
                skipped = 0


def _events(batch: pa.RecordBatch) -> Iterator[CapturedEvent]:
    columns = {name: batch.column(name) for name in PARQUET_COLUMNS}
    times_us = columns["EnqueuedTimeUtc"].cast(pa.int64()).to_pylist()
    rows = zip(
        columns["SequenceNumber"].to_pylist(),
        columns["Offset"].to_pylist(),
        times_us,
        columns["SystemProperties"].to_pylist(),
        columns["Properties"].to_pylist(),
        columns["Body"].to_pylist(),
        strict=True,
    )
    for sequence, offset, time_us, system, properties, body in rows:
        yield CapturedEvent(
            sequence=sequence,
            offset=str(offset),
            enqueued_ms=time_us // 1000,
            system=dict(system or ()),
            properties=dict(properties or ()),
            body=body,
        )
