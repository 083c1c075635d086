"""Compression: round trips, both forms of snappy, and bombs that do not go off."""

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
    """Whatever the data and the codec."""
    data = piece * times

    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", _REAL)
def test_data_far_larger_than_the_first_guess_is_opened(codec: Codec) -> None:
    """The output buffer grows as long as the limit allows it."""
    data = bytes(5_000_000)

    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", _REAL)
def test_limit_is_exact(codec: Codec) -> None:
    """One byte over is over."""
    data = b"event " * 50_000
    packed = compress(codec, data)

    assert decompress(codec, packed, max_bytes=len(data)) == data
    with pytest.raises(UnreadableRecords):
        decompress(codec, packed, max_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", _REAL)
def test_bomb_does_not_take_more_memory_than_the_limit(codec: Codec) -> None:
    """A kilobyte that claims to be 200 MiB uses no more than the allowed memory."""
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
    """Whatever the codec complains about is the peer's fault."""
    packed = compress(codec, os.urandom(2000))
    broken = {"cut": packed[:-7], "noise": b"\x01\x02\x03" + packed[3:50], "empty": b""}[damage]

    with pytest.raises(UnreadableRecords):
        decompress(codec, broken)


def test_bare_snappy_block_is_opened() -> None:
    """librdkafka sends blocks without xerial's framing."""
    data = b"bare " * 1000

    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_our_snappy_is_framed_as_xerial_frames_it() -> None:
    """Magic, version 1, compatible with 1, then blocks of at most 32 KiB with their length before them."""
    data = os.urandom(40_000)

    packed = compress(Codec.SNAPPY, data)

    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == data[: 32 * 1024]


@pytest.mark.parametrize("tail", ["00", "7fffffff", "ffffffff", "00000003 ffffff"])
def test_broken_xerial_block_is_refused(tail: str) -> None:
    """A block's length is compared with the remaining bytes."""
    packed = compress(Codec.SNAPPY, b"data") + bytes.fromhex(tail)

    with pytest.raises(UnreadableRecords):
        decompress(Codec.SNAPPY, packed)


def test_foreign_gzip_is_opened() -> None:
    """The standard library's own stream, with its header fields."""
    data = b"gzip " * 1000

    assert decompress(Codec.GZIP, gzip.compress(data)) == data


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    """Three bits hold eight numbers, five of which mean something."""
    with pytest.raises(UnreadableRecords, match=str(codec)):
        decompress(codec, b"data")


def test_default_limit_is_the_named_one() -> None:
    """64 MiB: sixteen times the largest accepted frame."""
    assert MAX_DECOMPRESSED_BYTES == 64 * 1024 * 1024
