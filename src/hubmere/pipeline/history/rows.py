"""Events of captured files as rows of the Spark source: the same nine columns that the log gives for them.

Avro files are read with fastavro, block by block; blocks before the wanted events are not decoded. Parquet files are
read column by column. What Avro's schema cannot say is in two system properties (`capture.files.originals`).
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hubmere.model.extras import install_command
from hubmere.pipeline.capture.destinations import DestinationFailed
from hubmere.pipeline.capture.files.content import PARQUET_COLUMNS
from hubmere.pipeline.capture.files.originals import TIME, key_and_headers
from hubmere.pipeline.capture.files.schema import time_of_text
from hubmere.pipeline.decode import SCHEMA, Columns, microseconds
from hubmere.translate.columns import PARTITION_KEY, PUBLISHER, row_of

# Rows of one Arrow batch, and their bytes: see `decode.MAX_OPENED_BYTES`.
_ROWS: Final = 8192
_MAX_BYTES: Final = 32 * 1024 * 1024
_FROM_SYSTEM: Final = {"partitionKey": PARTITION_KEY, "publisher": PUBLISHER}
# What fastavro and pyarrow raise for bytes that are not those of a file.
_DAMAGE: Final = (ValueError, EOFError, LookupError, TypeError, OverflowError, OSError, struct.error, zlib.error)
_CAPTURED: Final = {ours: captured for captured, ours in PARQUET_COLUMNS.items()}


def read_rows(
    name: str, file: BinaryIO, partition: int, start: int, end: int, schema: pa.Schema = SCHEMA
) -> Iterator[pa.RecordBatch]:
    """The events of a file from `start` up to, not including, `end`; DestinationFailed if it is damaged."""
    read = _parquet_rows if name.endswith(".parquet") else _avro_rows
    try:
        yield from read(file, partition, start, end, schema)
    except _DAMAGE as error:
        # The system's own failures have a number; those of a codec have none.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = f"{name} is damaged ({type(error).__name__}: {error}); restore the file, or move it away"
        raise DestinationFailed(why) from error


# --- Avro ------------------------------------------------------------------------------------------------------------


def _avro_rows(file: BinaryIO, partition: int, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns, opened_bytes = Columns(str(partition), schema.names), 0
    for block in _blocks_from(file, start):
        times = _Times()
        for record in block:
            time_us = microseconds(times.time_ms(record))
            sequence = record["SequenceNumber"]
            if sequence >= end:
                break
            if sequence >= start:
                _add(columns, record, time_us)
                opened_bytes += len(record["Body"] or b"")
            if len(columns) >= _ROWS or opened_bytes >= _MAX_BYTES:
                yield columns.build(schema)
                columns, opened_bytes = Columns(str(partition), schema.names), 0
        if sequence >= end:
            break
    if len(columns):
        yield columns.build(schema)


def _blocks_from(file: BinaryIO, start: int) -> Iterator[Iterator[dict[str, Any]]]:
    """The blocks from the one with an event on; of those before, only the first record is decoded."""
    held: tuple[dict[str, Any], Iterator[dict[str, Any]]] | None = None
    for block in _block_reader(file):
        records = iter(block)
        first = next(records, None)
        if first is None:
            continue
        if held is not None and first["SequenceNumber"] > start:
            yield chain([held[0]], held[1])
        held = (first, records)
    if held is not None:
        yield chain([held[0]], held[1])


def _block_reader(file: BinaryIO) -> Any:
    try:
        import fastavro
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"captured Avro files need fastavro, which is not installed; install with: {install_command('capture')}"
        ) from None
    return fastavro.block_reader(file)


class _Times:
    """Full-precision times of the events of one block."""

    def __init__(self) -> None:
        self._text = ""
        self._time_ms = 0

    def time_ms(self, record: dict[str, Any]) -> int:
        """The time of the next event."""
        text, told = record["EnqueuedTimeUtc"], record["SystemProperties"].get(TIME)
        if told is not None:
            self._time_ms = told
        elif text != self._text:
            self._time_ms = time_of_text(text) * 1000
        self._text = text
        return self._time_ms


def _add(columns: Columns, record: dict[str, Any], time_us: int) -> None:
    body = record["Body"]
    key, headers = key_and_headers(record["SystemProperties"], record["Properties"])
    columns.add_event(body, record["SequenceNumber"], record["Offset"], time_us, row_of(key, body, headers))


# --- Parquet ---------------------------------------------------------------------------------------------------------


def _parquet_rows(file: BinaryIO, partition: int, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    opened = pq.ParquetFile(file)
    needed = {_CAPTURED.get(name, "SystemProperties") for name in schema.names if name != "partition"}
    wanted = [name for name in opened.schema_arrow.names if name in needed | {"SequenceNumber"}]
    groups = [group for group in range(opened.num_row_groups) if _may_have(opened, group, start, end)]
    for rows in opened.iter_batches(batch_size=_ROWS, row_groups=groups, columns=wanted):
        sequences = rows.column("SequenceNumber")
        kept = rows.filter(pc.and_(pc.greater_equal(sequences, start), pc.less(sequences, end)))
        if kept.num_rows:
            arrays = [_column(kept, name, partition) for name in schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _may_have(opened: pq.ParquetFile, group: int, start: int, end: int) -> bool:
    """Whether a row group can have events of the range, by its statistics."""
    found = opened.metadata.row_group(group)
    for index in range(found.num_columns):
        column = found.column(index)
        if (
            column.path_in_schema == "SequenceNumber"
            and column.statistics is not None
            and column.statistics.has_min_max
        ):
            return bool(column.statistics.min < end and column.statistics.max >= start)
    return True


def _column(rows: pa.RecordBatch, name: str, partition: int) -> pa.Array:
    if name == "partition":
        return pa.repeat(pa.scalar(str(partition), pa.string()), rows.num_rows)
    if name in _FROM_SYSTEM:
        found = pc.map_lookup(rows.column("SystemProperties"), pa.scalar(_FROM_SYSTEM[name]), "first")
        return found.cast(pa.string())
    return rows.column(_CAPTURED[name]).cast(SCHEMA.field(name).type)
