"""The committed end of every log, on disk: recovery never truncates a log before it.

One small file for all logs of an engine, `log/committed`, with a slot of 64 bytes per log. A round of the group commit
overwrites the slots of its logs before it acknowledges anything. The write goes to the page cache (about a
microsecond), so it survives the end of the process; every recovery point, and the node every half minute, makes it
durable. After a power cut a slot may therefore be older than the last acknowledgement. It is never newer than the
durable data (with durability `os`: than the written data).

Slot 0 identifies the boot of the machine that wrote the file: in the same boot no write can have been lost.
Slot: 16 bytes digest of the log's id, i64 sequence number, i64 absolute byte position, u32 CRC-32C of these, zeros.
Thread rule: the owner's thread only, except `sync`.
"""

import logging
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from hubmere.store.files import Files

_LOGGER = logging.getLogger(__name__)

COMMITTED = "committed"
SLOT_BYTES = 64
# Changed slots at most this far apart are written with one call: a longer write costs less than a second one.
_NEIGHBOUR_BYTES = 2048
_BODY = Struct(">16sqq")
_CRC = Struct(">I")
_DIGEST_BYTES = 16
_pack_numbers, _pack_crc = Struct(">qq").pack_into, _CRC.pack_into


class Boundary(NamedTuple):
    """A batch boundary in a log: the next sequence number and the absolute byte position."""

    sequence: int
    position: int


class CommittedSlot:
    """The slot of one log."""

    __slots__ = ("_at", "_checked", "_file", "_slot", "previous")

    def __init__(self, file: "CommittedFile", digest: bytes, at: int, previous: Boundary | None) -> None:
        self._file = file
        self._at = at
        self._slot = bytearray(SLOT_BYTES)
        self._slot[:_DIGEST_BYTES] = digest
        self._checked = memoryview(self._slot)[: _BODY.size]
        self.previous = previous  # the committed end that the last run of the node left; None if it left none

    def write(self, sequence: int, position: int) -> None:
        """Set the committed end of the log; `CommittedFile.flush` writes it. Called in every round of a log."""
        slot = self._slot
        _pack_numbers(slot, _DIGEST_BYTES, sequence, position)
        _pack_crc(slot, _BODY.size, crc32c(self._checked))
        self._file.overwrite(self._at, slot)


class CommittedFile:
    """The slots of all logs of an engine."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / COMMITTED
        self._fd = -1
        # The content of the file, and the positions of slots that were changed and not written yet.
        self._image = bytearray(SLOT_BYTES)
        self._changed: list[int] = []
        self._slots: dict[bytes, tuple[int, Boundary | None]] = {}
        self._free: list[int] = []
        self._end = SLOT_BYTES
        self._has_failed = False
        self.is_unsynced = False
        self.is_same_boot = False

    def load(self) -> None:
        """Read the file that the last run left."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            data = b""
        head = _unpack(data, 0)
        self.is_same_boot = head is not None and head[0] == self._boot() and bool(self._files.boot_id())
        for at in range(SLOT_BYTES, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
            slot = _unpack(data, at)
            if slot is None:
                self._free.append(at)
            else:
                self._slots[slot[0]] = (at, Boundary(slot[1], slot[2]))
        self._end = max(SLOT_BYTES, -(-len(data) // SLOT_BYTES) * SLOT_BYTES)
        self._image = bytearray(data.ljust(self._end, b"\0"))

    def open(self) -> None:
        """Load the file and open it for writing; if that fails, the node runs without it."""
        self.load()
        try:
            self._fd = self._files.open_for_overwriting(self._path)
        except OSError as error:
            self._log_failure(error)
            return
        CommittedSlot(self, self._boot(), 0, None).write(0, 0)
        self.flush()

    def _boot(self) -> bytes:
        return blake2b(self._files.boot_id().encode(), digest_size=_DIGEST_BYTES).digest()

    def previous(self, log: str) -> Boundary | None:
        """The committed end of a log that the last run left."""
        known = self._slots.get(_digest(log))
        return None if known is None else known[1]

    def slot(self, log: str) -> CommittedSlot:
        """The slot of a log; a new one if it has none."""
        digest = _digest(log)
        known = self._slots.get(digest)
        if known is not None:
            return CommittedSlot(self, digest, *known)
        if self._free:
            at = self._free.pop()
        else:
            at, self._end = self._end, self._end + SLOT_BYTES
            self._image += bytes(SLOT_BYTES)
        self._slots[digest] = (at, None)
        return CommittedSlot(self, digest, at, None)

    def remove(self, log: str) -> None:
        """Clear the slot of a deleted log: a new log of the same name begins at 0."""
        digest = _digest(log)
        known = self._slots.pop(digest, None)
        if known is not None:
            self.overwrite(known[0], bytes(SLOT_BYTES))
            self.flush()
            self._free.append(known[0])

    def overwrite(self, at: int, slot: bytes | bytearray) -> None:
        """Change a slot in memory; `flush` writes it."""
        self._image[at : at + SLOT_BYTES] = slot
        self._changed.append(at)

    def flush(self) -> None:
        """Write the changed slots to the page cache, neighbours with one call. A failure is logged once.

        One write for the logs of a round instead of one for each: with four busy partitions, writing single slots took
        6 % of a small Kafka request.
        """
        changed, self._changed = self._changed, []
        if self._fd < 0 or not changed:
            return
        self.is_unsynced = True
        changed.sort()
        start = end = changed[0]
        try:
            for at in changed:
                if at > end + _NEIGHBOUR_BYTES:
                    self._files.pwrite(self._fd, self._image[start:end], start)
                    start = at
                end = at + SLOT_BYTES
            self._files.pwrite(self._fd, self._image[start:end], start)
        except OSError as error:
            self._log_failure(error)

    def _log_failure(self, error: OSError) -> None:
        # An old slot is still correct: recovery only knows less than it could.
        if not self._has_failed:
            self._has_failed = True
            _LOGGER.warning("cannot write the committed positions of the logs: %s", error)

    def sync(self) -> None:
        """Make the slots durable; may be called from any thread. Raises OSError."""
        if self._fd >= 0:
            self.is_unsynced = False
            self._files.fdatasync(self._fd)

    def close(self) -> None:
        """Make the slots durable and close the file."""
        if self._fd >= 0:
            try:
                self.sync()
            except OSError as error:
                self._log_failure(error)
            fd, self._fd = self._fd, -1
            self._files.close(fd)


def _digest(log: str) -> bytes:
    return blake2b(log.encode(), digest_size=_DIGEST_BYTES).digest()


def _unpack(data: bytes, at: int) -> tuple[bytes, int, int] | None:
    """The fields of a slot; None if its checksum does not match."""
    if at + _BODY.size + _CRC.size > len(data):
        return None
    if _CRC.unpack_from(data, at + _BODY.size)[0] != crc32c(data[at : at + _BODY.size]):
        return None
    digest, sequence, position = _BODY.unpack_from(data, at)
    return digest, sequence, position
