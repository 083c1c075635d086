"""Compression: round trips, both forms of snappy, and limits for compression bombs."""

import gzip
import os
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from hubmere.records.faults import UnreadableRecords

_REAL = [codec for codec in Codec if codec is not Codec.NONE]


@settings(deadline=None)
@given(st.binary(max_size=3000), st.integers(1, 40), st.sampled_from(Codec))
def test_data_survives_a_round_trip(piece: bytes, times: int, codec: Codec) -> None:
    """This holds for any data and every codec."""
    data = piece * times

    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", _REAL)
def test_data_far_larger_than_the_first_buffer_is_decompressed(codec: Codec) -> None:
    """The output buffer grows up to the limit."""
    data = bytes(5_000_000)

    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", _REAL)
def test_limit_is_exact(codec: Codec) -> None:
    """One byte more than the limit is refused."""
    data = b"event " * 50_000
    packed = compress(codec, data)

    assert decompress(codec, packed, max_bytes=len(data)) == data
    with pytest.raises(UnreadableRecords):
        decompress(codec, packed, max_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", _REAL)
def test_bomb_does_not_take_more_memory_than_the_limit(codec: Codec) -> None:
    """A kilobyte that decompresses to 200 MiB uses no more memory than the limit."""
    bomb = compress(codec, bytes(200 * 1024 * 1024))
    limit = 1024 * 1024
    tracemalloc.start()

    with pytest.raises(UnreadableRecords):
        decompress(codec, bomb, max_bytes=limit)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * limit + 2 * len(bomb)


@pytest.mark.parametrize("codec", _REAL)
@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_broken_data_is_refused(codec: Codec, damage: str) -> None:
    """Every error of a codec is reported as an error of the peer."""
    packed = compress(codec, os.urandom(2000))
    broken = {"cut": packed[:-7], "noise": b"\x01\x02\x03" + packed[3:50], "empty": b""}[damage]

    with pytest.raises(UnreadableRecords):
        decompress(codec, broken)


def test_bare_snappy_block_is_decompressed() -> None:
    """librdkafka sends blocks without the framing of xerial."""
    data = b"bare " * 1000

    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_our_snappy_has_the_framing_of_xerial() -> None:
    """The framing is magic, version 1, compatible version 1, then blocks of at most 32 KiB, each after its length."""
    data = os.urandom(40_000)

    packed = compress(Codec.SNAPPY, data)

    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == data[: 32 * 1024]


@pytest.mark.parametrize("tail", ["00", "7fffffff", "ffffffff", "00000003 ffffff"])
def test_broken_xerial_block_is_refused(tail: str) -> None:
    """The length of a block is compared with the remaining bytes."""
    packed = compress(Codec.SNAPPY, b"data") + bytes.fromhex(tail)

    with pytest.raises(UnreadableRecords):
        decompress(Codec.SNAPPY, packed)


def test_gzip_of_the_standard_library_is_decompressed() -> None:
    """Its stream has header fields that ours does not have."""
    data = b"gzip " * 1000

    assert decompress(Codec.GZIP, gzip.compress(data)) == data


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    """Three bits hold eight numbers, and five of them are codecs."""
    with pytest.raises(UnreadableRecords, match=str(codec)):
        decompress(codec, b"data")


def test_default_limit_is_the_constant() -> None:
    """The limit is 64 MiB, sixteen times the largest accepted frame."""
    assert MAX_DECOMPRESSED_BYTES == 64 * 1024 * 1024
