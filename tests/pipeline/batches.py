"""Stored batches of every origin for tests of the decoder, and the decoded rows."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from hubmere.client.consumer import UNKNOWN_POSITION, Fetched
from hubmere.pipeline.decode import SCHEMA, Columns, decode
from hubmere.records.compression import Codec
from hubmere.records.header import read_header
from hubmere.records.records import Marker, Record, encode_batch, encode_marker
from pipeline.twin import compiled_columns
from records.builders import number_batch, stamp_append_time

NOW_MS = 1_700_000_000_123


def stored(batch: bytearray, base: int, now_ms: int = NOW_MS) -> bytes:
    """A batch as the log stores it."""
    number_batch(batch, base)
    stamp_append_time(batch, now_ms)
    return bytes(batch)


def kafka_batch(records: Sequence[Record], base: int = 0, codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    """A batch of a Kafka producer."""
    return stored(encode_batch(records, codec=codec, **fields), base)


def plain(count: int, name: str = "event") -> list[Record]:
    """Records without keys and headers."""
    return [Record(index, NOW_MS, None, f"{name} {index}".encode()) for index in range(count)]


def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
    """The marker at the end of a transaction."""
    batch = encode_marker(Marker(producer_id, 0, commit, 0), time_ms=NOW_MS)
    number_batch(batch, base)
    return bytes(batch)


def fetched(*batches: bytes, position: int = UNKNOWN_POSITION, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    """Batches as a client returns them."""
    data = memoryview(b"".join(batches))
    last = read_header(batches[-1]) if batches else None
    return Fetched(data, position, last.next_sequence_number if last else 0, aborted)


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of record batches, with maps as dicts."""
    return [
        {name: dict(value) if isinstance(value, list) else value for name, value in row.items()}
        for batch in batches
        for row in batch.to_pylist()
    ]


def decoded(
    *batches: bytes,
    start: int = 0,
    end: int = 1 << 40,
    schema: pa.Schema = SCHEMA,
    position: int = UNKNOWN_POSITION,
    aborted: tuple[tuple[int, int], ...] = (),
) -> list[dict[str, Any]]:
    """The rows of batches; the interpreted and the compiled decoder must give the same arrays."""
    answer = fetched(*batches, position=position, aborted=aborted)
    interpreted = list(decode(answer, 3, start, end, schema, columns_of=Columns))
    compiled = list(decode(answer, 3, start, end, schema, columns_of=compiled_columns()))
    for each in compiled:
        each.validate(full=True)
    assert compiled == interpreted
    return rows(interpreted)
