"""Protocol headers and frames: how a byte stream is split, and which frames are valid.

Decides where a frame ends and which sizes are refused (AMQP 1.0, 2.2 and 2.3); never looks into a frame body. Whole
frames are views of the input, only its torn rest is copied.
"""

from __future__ import annotations

import struct
from typing import Any

from hubmere.wire.amqp.codec.composites import write_described
from hubmere.wire.amqp.codec.types import Buffer
from hubmere.wire.amqp.errors import Condition, RemoteProtocolError

HEADER_AMQP = b"AMQP\x00\x01\x00\x00"
HEADER_SASL = b"AMQP\x03\x01\x00\x00"
HEADER_BYTES = 8

FRAME_HEADER_BYTES = 8
FRAME_TYPE_AMQP = 0
FRAME_TYPE_SASL = 1
EMPTY_FRAME = bytes.fromhex("0000000802000000")

# AMQP 1.0, 2.8.19 MIN-MAX-FRAME-SIZE: every peer accepts frames of this size.
MIN_MAX_FRAME_BYTES = 512
# The service announces 65536; clients with large batches gain from more. Above 1 MiB one frame would block a link.
MAX_FRAME_BYTES = 1 << 20
# Until its open has been read, a peer is not authenticated. SASL init and open of all SDKs are below 1 KiB.
MAX_UNOPENED_FRAME_BYTES = 8192
# Frames without payload are decoded into objects of up to 64 times their size. An attach of an SDK stays below 2 KiB.
MAX_PERFORMATIVE_BYTES = 65536

# An error text is shortened to this length if it does not fit a frame of the peer; this always fits.
SHORT_DESCRIPTION_BYTES = 200

FRAME_HEADER = struct.Struct(">IBBH")
_SIZE = struct.Struct(">I")


def framing_error(text: str) -> RemoteProtocolError:
    """The error for bytes that are not a valid frame."""
    return RemoteProtocolError(Condition.CONNECTION_FRAMING_ERROR, text)


def shorten(description: str) -> str:
    """An error text, shortened to fit a frame of any peer."""
    return description.encode()[:SHORT_DESCRIPTION_BYTES].decode(errors="ignore")


def frame_of(body: bytes, channel: int = 0, frame_type: int = FRAME_TYPE_AMQP) -> bytes:
    """A complete frame with an encoded body."""
    return FRAME_HEADER.pack(FRAME_HEADER_BYTES + len(body), 2, frame_type, channel) + body


def frame(performative: Any, channel: int = 0, frame_type: int = FRAME_TYPE_AMQP) -> bytes:
    """A complete frame with a performative."""
    return frame_of(write_described(performative), channel, frame_type)


class FrameBuffer:
    """Splits the input into protocol headers and frames.

    `data`, `position` and `end` are open to the run reader, which takes whole frames out of `data` by itself. A frame
    is a view of bytes that nobody overwrites. Owned by one connection; not thread-safe.
    """

    __slots__ = ("_torn", "_view", "data", "end", "position")

    def __init__(self) -> None:
        self._torn: bytearray | None = None
        self.data = b""
        self._view = _NOTHING
        self.position = 0
        self.end = 0

    def feed(self, data: Buffer) -> None:
        """Set `data` as the input of the `take_…` methods; earlier input has been taken or copied by `keep_rest`."""
        self.data = data if type(data) is bytes else bytes(data)
        self._view = memoryview(self.data)
        self.position = 0
        self.end = len(self.data)

    @property
    def is_torn(self) -> bool:
        """Whether the beginning of the next header or frame came with an earlier input."""
        return self._torn is not None

    @property
    def torn_bytes(self) -> int:
        """Size of the incomplete header or frame that is kept."""
        return 0 if self._torn is None else len(self._torn)

    def take_header(self) -> memoryview | None:
        """The next 8 bytes; None until they have arrived."""
        return self._take(HEADER_BYTES)

    def take_frame(self, limit_bytes: int) -> memoryview | None:
        """The next complete frame; None until it has arrived. Its announced size is checked before anything is kept."""
        if self._torn is None and self.end - self.position >= FRAME_HEADER_BYTES:
            size: int = _SIZE.unpack_from(self.data, self.position)[0]
            _check_size(size, limit_bytes)
            return self._take(size)
        start = self._torn
        if start is None or len(start) < FRAME_HEADER_BYTES:
            if not self._fill(FRAME_HEADER_BYTES):
                return None
            start = self._torn
        assert start is not None
        size = _SIZE.unpack_from(start)[0]
        _check_size(size, limit_bytes)
        return self._take(size)

    def complete_torn(self, head: bytes, size: int, data: memoryview) -> memoryview | None:
        """The incomplete frame with its rest from the beginning of `data`, which is copied; None, and nothing has
        changed, if the frame does not begin with `head` or stays incomplete. It has `size` bytes if it begins so."""
        torn = self._torn
        if torn is None or not torn.startswith(head) or len(torn) + len(data) < size:
            return None
        torn += data[: size - len(torn)]
        self._torn = None
        return memoryview(torn)

    def keep_rest(self) -> int:
        """Copy the input that was not taken; returns the size of what is kept."""
        if self.position < self.end:
            self._fill(len(self._torn or b"") + self.end - self.position)
        self.release()
        return len(self._torn or b"")

    def reclaim(self) -> None:
        """Make the bytes that `keep_rest` copied the input again."""
        kept, self._torn = self._torn, None
        self.feed(bytes(kept or b""))

    def release(self) -> None:
        """Release the input."""
        self.data = b""
        self._view = _NOTHING
        self.position = self.end = 0

    def _take(self, size: int) -> memoryview | None:
        start = self.position
        if self._torn is None and self.end - start >= size:
            self.position = start + size
            return self._view[start : start + size]
        if not self._fill(size):
            return None
        whole, self._torn = self._torn, None
        assert whole is not None
        return memoryview(whole)

    def _fill(self, size: int) -> bool:
        """Move input into the incomplete unit until it has `size` bytes; returns whether it has."""
        if self._torn is None:
            if self.position == self.end:
                return False
            self._torn = bytearray()
        stop = min(self.end, self.position + size - len(self._torn))
        self._torn += self._view[self.position : stop]
        self.position = stop
        return len(self._torn) >= size


_NOTHING = memoryview(b"")


def _check_size(size: int, limit_bytes: int) -> None:
    if size < FRAME_HEADER_BYTES:
        raise framing_error(f"a frame announces {size} bytes, less than its own header")
    if size > limit_bytes:
        raise framing_error(f"a frame of {size} bytes exceeds the limit of {limit_bytes} bytes")


def split_frame(unit: memoryview, frame_type: int) -> tuple[int, int]:
    """Channel and start of the body of a complete frame; raises if it has another type."""
    size, data_offset, actual_type, channel = FRAME_HEADER.unpack_from(unit)
    start = data_offset * 4
    if start < FRAME_HEADER_BYTES or start > size:
        raise framing_error("the data offset of a frame lies outside of it")
    if actual_type != frame_type:
        raise framing_error(f"a frame has type {actual_type} where type {frame_type} is expected")
    return channel, start
