"""Batches with a correct header and checksum whose records cannot be decoded are refused."""

import struct

import pytest

from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.records.compression import Codec, compress
from hubmere.records.header import CRC_AT, HEADER_BYTES, checksum, split_batches
from hubmere.records.records import decode_records
from hubmere.wire.kafka.errors import ErrorCode

_ATTRIBUTES_AT, _LAST_DELTA_AT, _COUNT_AT = 21, 23, 57


def an_inconsistent_batch(body: bytes, *, codec: Codec = Codec.NONE, count: int = 1) -> bytes:
    """A batch with inconsistent fields; length and checksum are valid."""
    batch = bytearray(a_batch(b"x")[:HEADER_BYTES]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, codec)
    struct.pack_into(">i", batch, _LAST_DELTA_AT, count - 1)
    struct.pack_into(">i", batch, _COUNT_AT, count)
    struct.pack_into(">I", batch, CRC_AT, checksum(batch))
    return bytes(batch)


_RECORD = bytes(a_batch(b"x")[HEADER_BYTES:])
_INCONSISTENT = {
    "garbage marked gzip": an_inconsistent_batch(b"no gzip at all", codec=Codec.GZIP),
    "garbage marked zstd": an_inconsistent_batch(b"no zstd at all", codec=Codec.ZSTD),
    "a count that is too high": an_inconsistent_batch(_RECORD, count=2),
    "a count that is too low": an_inconsistent_batch(_RECORD * 2),
    "a record length past the batch": an_inconsistent_batch(b"\x7e" + _RECORD[1:]),
    "a bomb": an_inconsistent_batch(compress(Codec.ZSTD, bytes(100_000_000)), codec=Codec.ZSTD),
    "more records than bytes": an_inconsistent_batch(compress(Codec.GZIP, _RECORD), codec=Codec.GZIP, count=1_000_000),
}


@pytest.mark.parametrize("lie", _INCONSISTENT.values(), ids=_INCONSISTENT)
def test_undecodable_batch_is_refused_and_other_batches_are_read(client: RawClient, lie: bytes) -> None:
    """An acknowledged batch that cannot be decoded would stop every consumer of the partition for ever."""
    before = only(client.call(a_produce(a_batch(b"before")), 9))
    refused = only(client.call(a_produce(lie), 9))
    after = only(client.call(a_produce(a_batch(b"after")), 9))

    stored = bytes(only(client.call(a_fetch(0), 11)).records)
    values = [record.value for batch in split_batches(stored) for record in decode_records(batch)]

    assert (before.base_offset, after.base_offset) == (0, 1)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message
    assert values == [b"before", b"after"]


def test_undecodable_batch_in_a_run_is_refused_alone(client: RawClient) -> None:
    """Pipelined requests of one record are published together; one bad batch must not affect the others."""
    batches = [a_batch(b"%d" % n) for n in range(6)]
    batches[3] = _INCONSISTENT["a count that is too low"]
    for batch in batches:
        client.send(a_produce(batch), 9)

    codes = [only(client.answer()).error_code for _ in batches]

    good = ErrorCode.NONE
    assert codes == [good, good, good, ErrorCode.INVALID_RECORD, good, good]
