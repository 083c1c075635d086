"""The records of a batch: decode them, encode them, and the markers that end transactions.

Plain Python, for code off the path of ordinary events: inspecting a log, compaction, transaction markers. Produce and
fetch leave a batch closed; the kernels decode the records for AMQP consumers. Layout: Kafka's "Record".
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from hubmere.records.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    UNSEALED,
    BatchHeader,
    Buffer,
    read_header,
    seal,
)
from hubmere.records.varint import read_varint, read_varlong, write_varint

# Length, attributes, time delta, sequence delta, key length, value length and header count: at least one byte each.
_LEAST_RECORD_BYTES: Final = 7
# Key length and value length.
_LEAST_RECORD_HEADER_BYTES: Final = 2

_MARKER_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
_ABORT, _COMMIT = 0, 1


class Record(NamedTuple):
    """One record with its sequence number (Kafka's offset) and time; null and empty keys and values differ."""

    sequence_number: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordSlice(NamedTuple):
    """One record as its bytes, length included, and the fields that the log needs without decoding the rest."""

    data: memoryview
    time_delta: int
    sequence_delta: int
    key: bytes | None
    has_value: bool


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int = 0


# --- records out of a batch ------------------------------------------------------------------------------------------


def decode_records(batch: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Every record of one whole batch, decompressed if necessary; raises UnreadableRecords."""
    if len(batch) < HEADER_BYTES:
        raise UnreadableRecords(f"a batch of {len(batch)} bytes; its header alone has {HEADER_BYTES}")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise UnreadableRecords(f"a batch has magic {header.magic}, not {MAGIC}")
    if header.size_bytes != len(batch):
        raise UnreadableRecords(f"a batch of {header.size_bytes} bytes in {len(batch)}")
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], max_bytes)
    count = header.record_count
    if count < 0 or count * _LEAST_RECORD_BYTES > len(data):
        raise UnreadableRecords(f"{count} records in {len(data)} bytes")
    try:
        records, at = _read_records(data, header)
    except IndexError:
        raise UnreadableRecords("the records of a batch are cut off") from None
    if at != len(data):
        raise UnreadableRecords(f"{len(data) - at} bytes after the last record of a batch")
    return records


def _read_records(data: bytes, header: BatchHeader) -> tuple[list[Record], int]:
    """The loop over records. Varints of one byte, as most are, are read inline: calls would double the time."""
    records: list[Record] = []
    base_sequence_number, base_ms = header.base_sequence_number, header.base_time_ms
    append_ms = header.max_time_ms if header.is_append_time else None
    at, size = 0, len(data)
    for _ in range(header.record_count):
        length, at = read_varint(data, at, size)
        end = at + length
        if length < 0 or end > size:
            raise UnreadableRecords(f"a record of length {length} with {size - at} bytes left")
        at += 1  # attributes, unused
        if (raw := data[at]) < 0x80:
            delta_ms, at = (raw >> 1) ^ -(raw & 1), at + 1
        else:
            delta_ms, at = read_varlong(data, at, end)
        if (raw := data[at]) < 0x80:
            delta, at = (raw >> 1) ^ -(raw & 1), at + 1
        else:
            delta, at = read_varint(data, at, end)
        key, at = _read_blob(data, at, end)
        value, at = _read_blob(data, at, end)
        headers, at = _read_headers(data, at, end)
        if at != end:
            raise UnreadableRecords(f"a record ends {end - at} bytes before its length")
        time_ms = base_ms + delta_ms if append_ms is None else append_ms
        records.append(Record(base_sequence_number + delta, time_ms, key, value, headers))
    return records, at


def _read_blob(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    if (raw := data[at]) < 0x80:
        length, at = (raw >> 1) ^ -(raw & 1), at + 1
    else:
        length, at = read_varint(data, at, end)
    if length < 0:
        return None, at
    if length > end - at:
        raise UnreadableRecords(f"a key or value of length {length} with {end - at} bytes left in its record")
    return data[at : at + length], at + length


def _read_headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if data[at] == 0:
        return (), at + 1
    count, at = read_varint(data, at, end)
    if count < 0 or count * _LEAST_RECORD_HEADER_BYTES > end - at:
        raise UnreadableRecords(f"{count} headers with {end - at} bytes left in their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, at = _read_blob(data, at, end)
        if key is None:
            raise UnreadableRecords("a header without a key")
        value, at = _read_blob(data, at, end)
        # As in Kafka's own readers, a key that is not UTF-8 does not make the record unreadable.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), at


def slice_records(batch: Buffer, header: BatchHeader) -> Iterator[RecordSlice]:
    """The records of one whole batch as slices, in order; raises UnreadableRecords if they do not fill it exactly."""
    body = memoryview(decompress(header.codec, memoryview(batch)[HEADER_BYTES:]))
    at, size = 0, len(body)
    for _ in range(header.record_count):
        length, begin = read_varint(body, at, size)
        end = begin + length
        if length < 0 or end > size:
            raise UnreadableRecords(f"a record of length {length} with {size - begin} bytes left")
        yield _slice_record(body[at:end], begin - at)
        at = end
    if at != size:
        raise UnreadableRecords(f"{size - at} bytes after the last record of a batch")


def _slice_record(data: memoryview, at: int) -> RecordSlice:
    end = len(data)
    time_delta, at = read_varlong(data, at + 1, end)  # behind the attributes, which are unused
    sequence_delta, at = read_varint(data, at, end)
    key_bytes, at = read_varint(data, at, end)
    key = None if key_bytes < 0 else bytes(data[at : at + key_bytes])
    value_bytes, _ = read_varint(data, at + max(key_bytes, 0), end)
    return RecordSlice(data, time_delta, sequence_delta, key, value_bytes >= 0)


# --- records into a batch --------------------------------------------------------------------------------------------


def encode_batch(
    records: Sequence[Record],
    *,
    base_sequence_number: int = 0,
    last_delta: int | None = None,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    producer_sequence: int = -1,
) -> bytearray:
    """One sealed batch of records, none of which has a number below `base_sequence_number`.

    `last_delta` is given when records were dropped (compaction keeps a batch's range); by default it is that of
    the last record. `attributes` adds bits besides the codec.
    """
    if last_delta is None:
        last_delta = records[-1].sequence_number - base_sequence_number if records else 0
    base_ms = records[0].time_ms if records else NO_TIMESTAMP
    payload = compress(codec, _encode_records(records, base_sequence_number, base_ms))
    header = BatchHeader(
        base_sequence_number=base_sequence_number,
        length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=UNSEALED,
        attributes=attributes | codec,
        last_delta=last_delta,
        base_time_ms=base_ms,
        max_time_ms=max((record.time_ms for record in records), default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        producer_sequence=producer_sequence,
        record_count=len(records),
    )
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    seal(batch)
    return batch


def _encode_records(records: Iterable[Record], base_sequence_number: int, base_ms: int) -> bytearray:
    out = bytearray()
    for record in records:
        body = _encode_record(record, record.sequence_number - base_sequence_number, record.time_ms - base_ms)
        write_varint(out, len(body))
        out += body
    return out


def _encode_record(record: Record, delta: int, delta_ms: int) -> bytearray:
    body = bytearray(1)  # attributes, unused
    write_varint(body, delta_ms)
    write_varint(body, delta)
    _write_blob(body, record.key)
    _write_blob(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_blob(body, key.encode())
        _write_blob(body, value)
    return body


def _write_blob(out: bytearray, blob: bytes | None) -> None:
    if blob is None:
        write_varint(out, -1)
        return
    write_varint(out, len(blob))
    out += blob


# --- transaction markers ---------------------------------------------------------------------------------------------


def encode_marker(marker: Marker, *, time_ms: int, base_sequence_number: int = 0) -> bytearray:
    """A sealed control batch that ends a transaction: one record with key (version, type), value (version, epoch)."""
    key = _MARKER_KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return encode_batch(
        [Record(base_sequence_number, time_ms, key, value)],
        base_sequence_number=base_sequence_number,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def read_marker(batch: Buffer) -> Marker | None:
    """The marker in a control batch; None for a control record that does not end a transaction."""
    records = decode_records(batch)
    header = read_header(batch)
    if not header.is_control or len(records) != 1:
        raise UnreadableRecords("not a control batch of one record")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _MARKER_KEY.size:
        raise UnreadableRecords("a control record without a type")
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _MARKER_VALUE.size:
        raise UnreadableRecords("a transaction marker without a coordinator epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
