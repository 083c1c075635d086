"""Compression of record batches: the four codecs as clients use them, with a limit on the decompressed size.

Decompressing foreign bytes never takes more memory than the caller allows: the output buffer starts near the size that
the data announces and grows only up to the limit. Snappy comes in two forms, bare blocks (librdkafka) and blocks framed
by xerial's stream format (Java, kafka-python); the magic bytes distinguish them. The library of the codecs is loaded
with the first compressed batch: it takes 1.6 MB, and many nodes never meet one.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct, unpack_from
from typing import Final

from hubmere.records.faults import RecordsTooLarge, UnreadableRecords

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The three low bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LAST_CODEC: Final = int(Codec.ZSTD)

# The largest batch that is decompressed. A batch on the wire has at most a few MiB; this allows a ratio of 16 and more
# for the largest ones and bounds the damage of a compression bomb.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024

# First guess for data that does not announce its size: text compresses 4 to 7 times.
_GUESSED_RATIO: Final = 8
_FIRST_GUESS_BYTES: Final = 64 * 1024
_GROWTH: Final = 4

# Error text of the codecs for an output buffer that is too small, as opposed to broken input.
_BUFFER_FULL: Final = "failed to write whole buffer"

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # what xerial's own writer uses
# The parts of the library that have the other codecs.
_STREAMS: Final[dict[int, str]] = {Codec.GZIP: "gzip", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
_BLOCK_LENGTH: Final = Struct(">i")


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress the records of a batch; snappy in xerial's framing, which every client reads."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    import cramjam

    return bytes(getattr(cramjam, _STREAMS[codec]).compress(bytes(data)))


def decompress(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The records of a batch; raises UnreadableRecords if they are broken, RecordsTooLarge if above `max_bytes`."""
    return bytes(decompress_to_buffer(codec, data, max_bytes))


def decompress_to_buffer(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The same without copying the codec's output, for a caller that only walks over the records."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(bytes(data), max_bytes)
    stream = _STREAMS.get(codec)
    if stream is None:
        raise UnreadableRecords(f"compression {codec} is not known")
    return _decompress_stream(stream, bytes(data), max_bytes)


def _decompress_stream(stream: str, data: bytes, max_bytes: int) -> memoryview:
    import cramjam

    decode_into: Callable[[bytes, bytearray], int] = getattr(cramjam, stream).decompress_into
    capacity = min(max_bytes, max(_FIRST_GUESS_BYTES, len(data) * _GUESSED_RATIO))
    while True:
        out = bytearray(capacity)
        try:
            written = decode_into(data, out)
        except cramjam.DecompressionError as broken:
            if _BUFFER_FULL not in str(broken):
                raise UnreadableRecords(f"records do not decompress within {max_bytes} bytes: {broken}") from None
            if capacity >= max_bytes:
                raise RecordsTooLarge(f"records do not decompress within {max_bytes} bytes: {broken}") from None
            capacity = min(max_bytes, capacity * _GROWTH)
        else:
            return memoryview(out)[:written]


def _decompress_snappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_block(data, max_bytes)
    parts: list[bytes] = []
    left = max_bytes
    at = len(_XERIAL_HEADER)
    while at < len(data):
        block, at = _next_block(data, at)
        parts.append(_decompress_block(block, left))
        left -= len(parts[-1])
    return b"".join(parts)


def _next_block(data: bytes, at: int) -> tuple[bytes, int]:
    if len(data) - at < _BLOCK_LENGTH.size:
        raise UnreadableRecords("a snappy block's length is cut off")
    (length,) = unpack_from(">i", data, at)
    at += _BLOCK_LENGTH.size
    if not 0 <= length <= len(data) - at:
        raise UnreadableRecords(f"a snappy block of length {length} with {len(data) - at} bytes left")
    return data[at : at + length], at + length


def _decompress_block(block: bytes, max_bytes: int) -> bytes:
    import cramjam

    try:
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > max_bytes:
            raise RecordsTooLarge(f"snappy records of {size_bytes} bytes; {max_bytes} is the most")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as broken:
        raise UnreadableRecords(f"snappy records do not decompress: {broken}") from None


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)
