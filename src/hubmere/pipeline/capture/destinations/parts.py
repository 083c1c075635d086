"""Splits bytes into parts of equal size, as object stores require."""

from collections.abc import Callable


class Parts:
    """Buffers bytes and passes them on in parts; all but the last have the same size. Thread rule: one owner."""

    def __init__(self, part_bytes: int, send: Callable[[bytes], None]) -> None:
        self._part_bytes = part_bytes
        self._send = send
        self._gathered = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes; returns their number."""
        self._gathered += data
        while len(self._gathered) >= self._part_bytes:
            self._send(bytes(self._gathered[: self._part_bytes]))
            del self._gathered[: self._part_bytes]
        return len(data)

    def close(self) -> None:
        """Pass on the rest."""
        if self._gathered:
            self._send(bytes(self._gathered))
            self._gathered = bytearray()
