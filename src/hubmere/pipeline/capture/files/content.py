"""The content of captured files: encodes events of the log, and reads the span of a file.

Encoders take closed batches in the order of the log. The same batches under the same name give the same bytes, whatever
pieces they were fetched in. Avro as the service writes it; Parquet, alone or as the data of a Delta table, with
columns of the same names and properties as texts (reference: service 6).
"""

from typing import BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.files.avro import AvroFile, read_about
from hubmere.pipeline.capture.files.names import EXTENSIONS
from hubmere.pipeline.capture.files.schema import HUB_KEY, SPAN_KEY
from hubmere.pipeline.decode import SCHEMA, ClosedBatch, Columns, add_batch, columns_of_twin

# Captured columns, and the columns of the Spark source with the same content.
PARQUET_COLUMNS: Final = {
    "SequenceNumber": "sequenceNumber",
    "Offset": "offset",
    "EnqueuedTimeUtc": "enqueuedTime",
    "SystemProperties": "systemProperties",
    "Properties": "properties",
    "Body": "body",
}
_READ: Final = pa.schema([SCHEMA.field(name) for name in PARQUET_COLUMNS.values()])
PARQUET_SCHEMA: Final = pa.schema([SCHEMA.field(old).with_name(new) for new, old in PARQUET_COLUMNS.items()])
# Rows of a row group end with the first batch of the log that fills it.
_GROUP_BYTES: Final = 64 * 1024 * 1024
_COMPRESSION: Final = "zstd"


class Content(Protocol):
    """An encoder of one file."""

    events: int
    times_us: tuple[int, int] | None

    def add(self, batch: ClosedBatch, partition: int, start: int, end: int) -> None:
        """The events of a batch that belong to the range."""

    def close(self) -> None:
        """Finish the file."""


def content_of(
    encoding: CaptureEncoding, sink: BinaryIO, name: str, span: str, partition: int, hub_id: str | None = None
) -> Content:
    """The encoder of a file that is written into a sink; `hub_id` is the id of the hub as Kafka's clients see it."""
    if EXTENSIONS[encoding] == "avro":
        return AvroFile(sink, name, span, deflates=encoding is CaptureEncoding.AVRO_DEFLATE, hub_id=hub_id)
    return ParquetFile(sink, span, partition, hub_id)


class ParquetFile:
    """Writes one Parquet file into a sink, row group by row group."""

    def __init__(self, sink: BinaryIO, span: str, partition: int, hub_id: str | None = None) -> None:
        self._partition = partition
        self._columns, self._opened_bytes = self._fresh(), 0
        self._writer = pq.ParquetWriter(
            sink, PARQUET_SCHEMA.with_metadata({SPAN_KEY: span}), compression=_COMPRESSION, store_schema=False
        )
        self._writer.add_key_value_metadata({SPAN_KEY: span} | ({} if hub_id is None else {HUB_KEY: hub_id}))
        self.events = 0
        self.times_us: tuple[int, int] | None = None

    def add(self, batch: ClosedBatch, partition: int, start: int, end: int) -> None:
        """The events of a batch that belong to the range."""
        self._opened_bytes += add_batch(self._columns, batch, partition, start, end)
        if self._opened_bytes >= _GROUP_BYTES:
            self._end_group()

    def close(self) -> None:
        """Write the rest and the footer."""
        self._end_group()
        self._writer.close()

    def _fresh(self) -> Columns:
        return columns_of_twin(str(self._partition), _READ.names, 0)

    def _end_group(self) -> None:
        count = len(self._columns)
        if not count:
            return
        rows = self._columns.build(_READ)
        times = rows.column("enqueuedTime").cast(pa.int64())
        first_us = self.times_us[0] if self.times_us else times[0].as_py()
        self.times_us = (first_us, times[-1].as_py())
        self.events += count
        table = pa.Table.from_arrays(rows.columns, schema=PARQUET_SCHEMA)
        self._writer.write_table(table, row_group_size=count)
        self._columns, self._opened_bytes = self._fresh(), 0


def span_in(name: str, file: BinaryIO) -> str | None:
    """The span that a captured file carries; None for any other file."""
    return about_in(name, file)[0]


def about_in(name: str, file: BinaryIO) -> tuple[str | None, str | None]:
    """The span and the hub's id that a captured file carries; None for what it does not say."""
    if not name.endswith(".parquet"):
        return read_about(file)
    try:
        found = pq.read_metadata(file).metadata or {}
    except pa.ArrowInvalid:
        return None, None
    span, hub_id = (found.get(key.encode()) for key in (SPAN_KEY, HUB_KEY))
    return None if span is None else span.decode(), None if hub_id is None else hub_id.decode()
