"""Frames: splits a stream at its 4-byte lengths, and prepares buffers for sending.

A frame that arrives complete in one read is a view of that read. One that arrives in pieces gets a buffer of its own
length, which the limit bounds. Frames are not decoded here. Follows the Kafka protocol guide, "Network".
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.primitives import Buffer

# Neighbouring buffers below this are joined into one before they are sent: one send of 64 KB is cheaper than several.
JOIN_BELOW_BYTES: Final = 64 * 1024

LENGTH: Final = Struct(">i")
# TLS 1.3 (RFC 8446), 5.1: the first bytes of a client are the type handshake(22) and the version 3.
_TLS_HANDSHAKE: Final = 0x1603


class Frames:
    """The frames of one direction. Uses memory only while a frame is incomplete.

    `admits` is called before memory for a partial frame is allocated. If it returns False, the frame waits: input that
    has already arrived is kept, and `resume` continues once the frame is admitted.
    """

    __slots__ = ("_early", "_filled", "_frame", "_prefix", "_waiting_length", "admits", "failure", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.failure: RemoteProtocolError | None = None
        self.admits: Callable[[int], bool] | None = None
        self._waiting_length = 0
        self._early = b""
        self._prefix = b""
        self._frame: bytearray | None = None
        self._filled = 0

    @property
    def rest_bytes(self) -> int | None:
        """How many bytes of a partial frame are missing; 0 between frames, None if its length is not known yet."""
        if self._prefix or self._waiting_length or self.failure is not None:
            return None
        return 0 if self._frame is None else len(self._frame) - self._filled

    def cut(self, data: Buffer) -> list[memoryview]:
        """The frames that are complete now. An invalid length sets `failure`, and no frame follows."""
        view = memoryview(data)
        frames: list[memoryview] = []
        at, end = 0, len(view)
        limit = self.max_frame_bytes
        while at < end and self.failure is None:
            if self._frame is not None:
                at = self._fill(view, at, frames)
                continue
            if self._waiting_length:
                self._early += view[at:]
                break
            if self._prefix or end - at < LENGTH.size:
                at = self._read_prefix(view, at)
                continue
            (length,) = LENGTH.unpack_from(view, at)
            at += LENGTH.size
            if 0 < length <= limit and length <= end - at:
                frames.append(view[at : at + length])
                at += length
            else:
                self._begin(length)
        return frames

    @property
    def held_bytes(self) -> int:
        """Memory used by a partial frame."""
        return len(self._early) if self._frame is None else len(self._frame)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no bytes, and no frame waits to be admitted."""
        return self._frame is None and not self._early and not self._waiting_length

    @property
    def is_waiting(self) -> bool:
        """Whether a frame waits to be admitted."""
        return self._waiting_length > 0

    def discard_partial_frame(self) -> None:
        """Free a partial frame, and drop the `admits` callback."""
        self._frame = None
        self._early = b""
        self._waiting_length = 0
        self.admits = None

    def resume(self) -> list[memoryview]:
        """Ask `admits` again for the waiting frame, and continue if it is admitted."""
        length, self._waiting_length = self._waiting_length, 0
        early, self._early = self._early, b""
        self._begin(length)
        return self.cut(early)

    def missing_part(self) -> memoryview | None:
        """The missing part of a partial frame, to receive directly into; None if there is no partial frame."""
        return None if self._frame is None else memoryview(self._frame)[self._filled :]

    def add_received(self, count: int) -> list[memoryview]:
        """`count` bytes were received directly into `missing_part`; returns the frame if it is complete."""
        assert self._frame is not None
        frames: list[memoryview] = []
        self._filled += count
        self._finish_if_full(frames)
        return frames

    def _read_prefix(self, view: memoryview, at: int) -> int:
        taken = min(LENGTH.size - len(self._prefix), len(view) - at)
        self._prefix += view[at : at + taken]
        if len(self._prefix) == LENGTH.size:
            (length,) = LENGTH.unpack(self._prefix)
            self._prefix = b""
            self._begin(length)
        return at + taken

    def _begin(self, length: int) -> None:
        if not 0 < length <= self.max_frame_bytes:
            why = f"a frame of {length} bytes; 1 to {self.max_frame_bytes} are allowed"
            if length >> 16 == _TLS_HANDSHAKE:
                why = f"a TLS handshake on a port without TLS, read as {why}"
            self.failure = RemoteProtocolError(why)
            return
        if self.admits is not None and not self.admits(length):
            self._waiting_length = length
            return
        self._frame = bytearray(length)
        self._filled = 0

    def _fill(self, view: memoryview, at: int, frames: list[memoryview]) -> int:
        assert self._frame is not None
        taken = min(len(self._frame) - self._filled, len(view) - at)
        self._frame[self._filled : self._filled + taken] = view[at : at + taken]
        self._filled += taken
        self._finish_if_full(frames)
        return at + taken

    def _finish_if_full(self, frames: list[memoryview]) -> None:
        if self._frame is not None and self._filled == len(self._frame):
            frames.append(memoryview(self._frame))
            self._frame = None


def fill_length(parts: list[Buffer]) -> list[Buffer]:
    """Write the length of a frame into the first four bytes of its first buffer."""
    head = parts[0]
    assert isinstance(head, bytearray)
    LENGTH.pack_into(head, 0, sum(map(len, parts)) - LENGTH.size)
    return parts


def join_small(parts: list[Buffer]) -> list[Buffer]:
    """Join adjacent small buffers; large ones are not copied."""
    if len(parts) <= 1:
        return parts
    out: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < JOIN_BELOW_BYTES:
            small.append(part)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(part)
    if small:
        out.append(b"".join(small))
    return out
