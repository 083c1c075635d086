"""Bytes in pieces of one size, as object stores want them."""

from collections.abc import Callable


class Parts:
    """Gathers bytes and hands them on in parts; all but the last are of one size. Thread rule: one owner."""

    def __init__(self, part_bytes: int, send: Callable[[bytes], None]) -> None:
        self._part_bytes = part_bytes
        self._send = send
        self._gathered = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes; gives how many."""
        self._gathered += data
        while len(self._gathered) >= self._part_bytes:
            self._send(bytes(self._gathered[: self._part_bytes]))
            del self._gathered[: self._part_bytes]
        return len(data)

    def close(self) -> None:
        """Hand on what is left."""
        if self._gathered:
            self._send(bytes(self._gathered))
            self._gathered = bytearray()
