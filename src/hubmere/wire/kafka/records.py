"""Record batches, magic 2: the header, the batches of a record set, checksums, records in and out, transaction markers.

The header is read without opening the batch; records are decoded one by one here, correctly and in plain Python, for
looking into a log, for compaction and for compressed batches. Nothing on the produce and fetch path opens a batch.
Layout: Kafka's "Record Batch" and "Record"; what a producer may send: `check_produced`.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from hubmere.records.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.wire.kafka.errors import ErrorCode, RemoteProtocolError
from hubmere.wire.kafka.primitives import Buffer, read_varint, read_varlong, write_varint

HEADER_BYTES: Final = 61
# Bytes that batch_length does not count: base offset and the length itself.
LENGTH_PREFIX_BYTES: Final = 12
CRC_AT: Final = 17
CHECKED_FROM: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1

# length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each at least.
_LEAST_RECORD_BYTES: Final = 7
# key length and value length.
_LEAST_RECORD_HEADER_BYTES: Final = 2

# zstd came with Produce version 7 (KIP-110).
_ZSTD_SINCE_PRODUCE: Final = 7

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH: Final = Struct(">qi")
_CRC: Final = Struct(">I")
_MARKER_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
_ABORT, _COMMIT = 0, 1

assert _HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """How the records are compressed."""
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        """Whether every record has max_timestamp_ms as its time."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether this is a marker and not data."""
        return bool(self.attributes & CONTROL_BIT)


class Record(NamedTuple):
    """One record with its absolute offset and time; null and empty keys and values differ."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


# --- batches, closed -------------------------------------------------------------------------------------------------


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header of the batch at a place."""
    if len(buffer) - at < HEADER_BYTES:
        raise RemoteProtocolError(f"a batch header of {HEADER_BYTES} bytes with {len(buffer) - at} left")
    return BatchHeader(*_HEADER.unpack_from(buffer, at))


def split_batches(records: Buffer, *, drop_partial: bool = False) -> Iterator[memoryview]:
    """The batches of a record set, each as a view.

    `drop_partial` ends silently at a batch that is cut off: a server may cut the last batch of a fetch response short.
    """
    view = memoryview(records)
    at = 0
    while at < len(view):
        size_bytes = _size_at(view, at)
        if size_bytes is None:
            if drop_partial:
                return
            raise RemoteProtocolError(f"a batch is cut off: {len(view) - at} bytes are left")
        yield view[at : at + size_bytes]
        at += size_bytes


def _size_at(view: memoryview, at: int) -> int | None:
    """The size of the batch at a place, None when it is not there as a whole."""
    left = len(view) - at
    if left < LENGTH_PREFIX_BYTES:
        return None
    size_bytes = int(_LENGTH.unpack_from(view, at)[1]) + LENGTH_PREFIX_BYTES
    if size_bytes < HEADER_BYTES:
        raise RemoteProtocolError(f"a batch of {size_bytes} bytes; its header alone has {HEADER_BYTES}")
    return size_bytes if size_bytes <= left else None


def checksum(batch: Buffer) -> int:
    """CRC-32C of the checked part of one whole batch."""
    return int(crc32c(memoryview(batch)[CHECKED_FROM:]))


def is_intact(batch: Buffer) -> bool:
    """Whether one whole batch is what its checksum says."""
    return len(batch) >= HEADER_BYTES and checksum(batch) == _CRC.unpack_from(batch, CRC_AT)[0]


def check_produced(
    records: Buffer | None,
    *,
    produce_version: int,
    max_batch_bytes: int,
    time_bounds_ms: tuple[int, int] | None = None,
) -> ErrorCode:
    """Whether a producer may send this: exactly one batch that is whole, intact and honest about itself.

    Looks at the header and the checksum only. `time_bounds_ms` are the oldest and newest times allowed where records
    keep the producer's time. A time type bit set by the client is no error: the log overwrites it.
    """
    if records is None or len(records) == 0:
        return ErrorCode.INVALID_RECORD
    if len(records) < HEADER_BYTES:
        return ErrorCode.CORRUPT_MESSAGE
    header = BatchHeader(*_HEADER.unpack_from(records))
    if header.magic != MAGIC:
        return ErrorCode.INVALID_RECORD
    if header.size_bytes != len(records):
        return _wrong_size(header, len(records))
    if len(records) > max_batch_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if checksum(records) != header.crc:
        return ErrorCode.CORRUPT_MESSAGE
    return _check_header(header, produce_version, time_bounds_ms)


def _wrong_size(header: BatchHeader, there: int) -> ErrorCode:
    """A length beyond the data is damage; data beyond the length is a second batch."""
    if HEADER_BYTES <= header.size_bytes < there:
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE


def _check_header(header: BatchHeader, produce_version: int, time_bounds_ms: tuple[int, int] | None) -> ErrorCode:
    codec = header.attributes & CODEC_MASK
    if codec > Codec.ZSTD or (codec == Codec.ZSTD and produce_version < _ZSTD_SINCE_PRODUCE):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.attributes & CONTROL_BIT:
        return ErrorCode.INVALID_RECORD
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return ErrorCode.INVALID_RECORD
    if header.producer_id >= 0 and header.base_sequence < 0:
        return ErrorCode.INVALID_RECORD
    if time_bounds_ms is not None and not _is_within(header, time_bounds_ms):
        return ErrorCode.INVALID_TIMESTAMP
    return ErrorCode.NONE


def _is_within(header: BatchHeader, bounds_ms: tuple[int, int]) -> bool:
    oldest, newest = bounds_ms
    first, last = header.base_timestamp_ms, header.max_timestamp_ms
    return (first == NO_TIMESTAMP or oldest <= first <= newest) and (last == NO_TIMESTAMP or last <= newest)


# --- records out of a batch ------------------------------------------------------------------------------------------


def decode_records(batch: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Every record of one whole batch, decompressed if need be."""
    header = read_header(batch)
    if header.magic != MAGIC:
        raise RemoteProtocolError(f"a batch of magic {header.magic}; only {MAGIC} is read")
    if header.size_bytes != len(batch):
        raise RemoteProtocolError(f"a batch of {header.size_bytes} bytes in {len(batch)}")
    try:
        data = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], max_bytes)
    except UnreadableRecords as fault:
        raise RemoteProtocolError(fault.why) from None
    count = header.record_count
    if count < 0 or count * _LEAST_RECORD_BYTES > len(data):
        raise RemoteProtocolError(f"{count} records in {len(data)} bytes")
    try:
        records, at = _read_records(data, header)
    except IndexError:
        raise RemoteProtocolError("the records of a batch are cut off") from None
    if at != len(data):
        raise RemoteProtocolError(f"{len(data) - at} bytes after the last record of a batch")
    return records


def _read_records(data: bytes, header: BatchHeader) -> tuple[list[Record], int]:
    """The loop over records. Varints of one byte, which most are, are read in place: calls would double the time."""
    records: list[Record] = []
    base_offset, base_ms = header.base_offset, header.base_timestamp_ms
    append_ms = header.max_timestamp_ms if header.is_append_time else None
    at = 0
    for _ in range(header.record_count):
        length, at = read_varint(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise RemoteProtocolError(f"a record of length {length} with {len(data) - at} bytes left")
        at += 1  # attributes, unused
        if (raw := data[at]) < 0x80:
            delta_ms, at = (raw >> 1) ^ -(raw & 1), at + 1
        else:
            delta_ms, at = read_varlong(data, at)
        if (raw := data[at]) < 0x80:
            delta, at = (raw >> 1) ^ -(raw & 1), at + 1
        else:
            delta, at = read_varint(data, at)
        key, at = _read_blob(data, at, end)
        value, at = _read_blob(data, at, end)
        headers, at = _read_headers(data, at, end)
        if at != end:
            raise RemoteProtocolError(f"a record ends {end - at} bytes before its length")
        timestamp_ms = base_ms + delta_ms if append_ms is None else append_ms
        records.append(Record(base_offset + delta, timestamp_ms, key, value, headers))
    return records, at


def _read_blob(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    if (raw := data[at]) < 0x80:
        length, at = (raw >> 1) ^ -(raw & 1), at + 1
    else:
        length, at = read_varint(data, at)
    if length < 0:
        return None, at
    if length > end - at:
        raise RemoteProtocolError(f"a key or value of length {length} with {end - at} bytes left in its record")
    return data[at : at + length], at + length


def _read_headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if data[at] == 0:
        return (), at + 1
    count, at = read_varint(data, at)
    if count < 0 or count * _LEAST_RECORD_HEADER_BYTES > end - at:
        raise RemoteProtocolError(f"{count} headers with {end - at} bytes left in their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, at = _read_blob(data, at, end)
        if key is None:
            raise RemoteProtocolError("a header without a key")
        value, at = _read_blob(data, at, end)
        # As Kafka's own readers do: a key that is not UTF-8 does not make the record unreadable.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), at


# --- records into a batch --------------------------------------------------------------------------------------------


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    partition_leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch of records, whose offsets are absolute and not below `base_offset`.

    `last_offset_delta` is given when records were dropped (compaction keeps a batch's range); by default it is that of
    the last record. `attributes` adds bits besides the codec.
    """
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    base_ms = records[0].timestamp_ms if records else NO_TIMESTAMP
    payload = compress(codec, _encode_records(records, base_offset, base_ms))
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload),
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max((record.timestamp_ms for record in records), default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    batch = bytearray(_HEADER.pack(*header))
    batch += payload
    _CRC.pack_into(batch, CRC_AT, checksum(batch))
    return batch


def _encode_records(records: Iterable[Record], base_offset: int, base_ms: int) -> bytearray:
    out = bytearray()
    for record in records:
        body = _encode_record(record, record.offset - base_offset, record.timestamp_ms - base_ms)
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


def encode_marker(marker: Marker, *, timestamp_ms: int, base_offset: int = 0) -> bytearray:
    """A control batch that ends a transaction."""
    key = _MARKER_KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return encode_batch(
        [Record(base_offset, timestamp_ms, key, value)],
        base_offset=base_offset,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def read_marker(batch: Buffer) -> Marker | None:
    """What a control batch says; None for a kind of control record that is not the end of a transaction."""
    header = read_header(batch)
    records = decode_records(batch)
    if not header.is_control or len(records) != 1:
        raise RemoteProtocolError("not a control batch of one record")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _MARKER_KEY.size:
        raise RemoteProtocolError("a control record without a type")
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _MARKER_VALUE.size:
        raise RemoteProtocolError("a transaction marker without a coordinator epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
