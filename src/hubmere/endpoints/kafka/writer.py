"""Writes responses to the socket, and counts their bytes in memory until the client has read them (limit: `pressure`).

Plain connections get everything at once. A TLS transport accepts all bytes without reporting how many of them are sent,
so large responses go to it in slices: what it has not been given is counted here and can be discarded.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from hubmere.endpoints.stream import Wire
from hubmere.wire.kafka.primitives import Buffer

_TLS_SLICE_BYTES: Final = 256 * 1024


class ResponseWriter:
    """The output of one connection. Thread rule: the loop's thread only."""

    __slots__ = ("_backlog", "_backlog_bytes", "_is_sliced", "_pinned_bytes", "_wire", "unsent_bytes")

    def __init__(self, wire: Wire, *, is_secure: bool) -> None:
        self._wire = wire
        self._is_sliced = is_secure
        # Buffers that the socket was not given yet, in order.
        self._backlog: deque[Buffer] = deque()
        self._backlog_bytes = 0
        # Bytes of responses that the socket was given and has not sent completely.
        self._pinned_bytes = 0
        # Bytes of large responses since the last write.
        self.unsent_bytes = 0

    @property
    def has_backlog(self) -> bool:
        """Whether responses wait for space in the socket."""
        return bool(self._backlog)

    @property
    def is_empty(self) -> bool:
        """Whether the socket has accepted everything."""
        wire = self._wire
        if self._backlog or not wire.is_writable or wire.unsent_bytes:
            return False
        self._pinned_bytes = 0
        return True

    def write(self, data: Sequence[Buffer]) -> None:
        """Write responses, or queue them behind those that wait."""
        if self._backlog or (self._is_sliced and self.unsent_bytes > _TLS_SLICE_BYTES):
            self._backlog += data
            self._backlog_bytes += sum(map(len, data))
            self.write_backlog()
        else:
            self._wire.write(*data)
            self._pinned_bytes += self.unsent_bytes
        self.unsent_bytes = 0

    def write_backlog(self) -> None:
        """Write slice after slice while the socket has space."""
        wire, backlog = self._wire, self._backlog
        while backlog and wire.is_writable:
            parts: list[Buffer] = []
            space = _TLS_SLICE_BYTES
            while backlog and space:
                part = backlog.popleft()
                if len(part) > space:
                    view = memoryview(part)
                    backlog.appendleft(view[space:])
                    part = view[:space]
                self._pinned_bytes += len(part)
                self._backlog_bytes -= len(part)
                parts.append(part)
                space -= len(part)
            wire.write(*parts)

    def write_all(self) -> None:
        """Write everything that is left, before the connection is closed."""
        self._wire.write(*self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0

    def discard(self) -> None:
        """Drop what was not written."""
        self._backlog.clear()
        self._backlog_bytes = self._pinned_bytes = 0

    def held_bytes(self) -> int:
        """Bytes in memory that the client has not read."""
        unsent_bytes = self._wire.unsent_bytes
        if self._pinned_bytes and not unsent_bytes:
            self._pinned_bytes = _sent_bytes(self._backlog[0]) if self._backlog else 0
        return self._backlog_bytes + max(unsent_bytes, self._pinned_bytes)


def _sent_bytes(rest: Buffer) -> int:
    """What was sent of a response of which this is the rest."""
    return memoryview(rest.obj).nbytes - len(rest) if isinstance(rest, memoryview) else 0
