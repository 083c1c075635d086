"""The committed mark of every log: up to here events were acknowledged, so recovery may never cut before it.

One small file for all logs of an engine, `log/committed`, with a slot of 64 bytes per log that is overwritten in place
when a round of the group commit has ended, before anything of it is acknowledged. The write goes to the page cache
(about a microsecond) and so survives the end of the process; it is made durable with every recovery point and every
half minute. After a power cut a mark may therefore be older than the last acknowledgement, and is never newer than what
was durable (with durability `os`: than what was written).

Slot 0 names the boot of the machine that wrote the marks: the same boot means that no write was lost since.
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

MARKS = "committed"
SLOT_BYTES = 64
# Slots that are no further apart are written together: a longer write costs less than one more.
_NEIGHBOUR_BYTES = 2048
_BODY = Struct(">16sqq")
_CRC = Struct(">I")
_DIGEST_BYTES = 16
_pack_numbers, _pack_crc = Struct(">qq").pack_into, _CRC.pack_into


class Committed(NamedTuple):
    """The end of what was acknowledged: the next sequence number and the absolute byte position behind the last."""

    sequence: int
    position: int


class Mark:
    """The slot of one log."""

    __slots__ = ("_at", "_checked", "_marks", "_slot", "found")

    def __init__(self, marks: "CommitMarks", digest: bytes, at: int, found: Committed | None) -> None:
        self._marks = marks
        self._at = at
        self._slot = bytearray(SLOT_BYTES)
        self._slot[:_DIGEST_BYTES] = digest
        self._checked = memoryview(self._slot)[: _BODY.size]
        self.found = found  # what the last run of the node left here, None when it left nothing that can be read

    def move(self, sequence: int, position: int) -> None:
        """Everything before will be acknowledged once the marks are flushed. Called for every round of a log."""
        slot = self._slot
        _pack_numbers(slot, _DIGEST_BYTES, sequence, position)
        _pack_crc(slot, _BODY.size, crc32c(self._checked))
        self._marks.put(self._at, slot)


class CommitMarks:
    """The marks of all logs of an engine."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / MARKS
        self._fd = -1
        # The file as it should be, and the slots of it that were changed and not written yet.
        self._image = bytearray(SLOT_BYTES)
        self._changed: list[int] = []
        self._slots: dict[bytes, tuple[int, Committed | None]] = {}
        self._free: list[int] = []
        self._end = SLOT_BYTES
        self._has_failed = False
        self.is_unsynced = False
        self.is_same_boot = False

    def load(self) -> None:
        """Read what the last run left."""
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
                self._slots[slot[0]] = (at, Committed(slot[1], slot[2]))
        self._end = max(SLOT_BYTES, -(-len(data) // SLOT_BYTES) * SLOT_BYTES)
        self._image = bytearray(data.ljust(self._end, b"\0"))

    def open(self) -> None:
        """Load, then take the file over for writing; a file that cannot be written is done without."""
        self.load()
        try:
            self._fd = self._files.open_for_overwriting(self._path)
        except OSError as error:
            self._failed(error)
            return
        Mark(self, self._boot(), 0, None).move(0, 0)
        self.flush()

    def _boot(self) -> bytes:
        return blake2b(self._files.boot_id().encode(), digest_size=_DIGEST_BYTES).digest()

    def found(self, log: str) -> Committed | None:
        """What the last run left for a log."""
        known = self._slots.get(_digest(log))
        return None if known is None else known[1]

    def mark(self, log: str) -> Mark:
        """The slot of a log, a new one when it has none."""
        digest = _digest(log)
        known = self._slots.get(digest)
        if known is not None:
            return Mark(self, digest, *known)
        if self._free:
            at = self._free.pop()
        else:
            at, self._end = self._end, self._end + SLOT_BYTES
            self._image += bytes(SLOT_BYTES)
        self._slots[digest] = (at, None)
        return Mark(self, digest, at, None)

    def drop(self, log: str) -> None:
        """The log is being deleted: whatever gets its name later begins at 0."""
        digest = _digest(log)
        known = self._slots.pop(digest, None)
        if known is not None:
            self.put(known[0], bytes(SLOT_BYTES))
            self.flush()
            self._free.append(known[0])

    def put(self, at: int, slot: bytes | bytearray) -> None:
        """Change a slot; `flush` writes it."""
        self._image[at : at + SLOT_BYTES] = slot
        self._changed.append(at)

    def flush(self) -> None:
        """Write the changed slots to the page cache, neighbours together; a failure is told once and changes nothing.

        One write for the logs of a round instead of one for each: with four busy partitions the writes of single slots
        took 6 % of a small Kafka request.
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
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        # A mark that stays behind is still true; recovery then knows less than it could.
        if not self._has_failed:
            self._has_failed = True
            _LOGGER.warning("the marks of acknowledged events cannot be written (%s)", error)

    def sync(self) -> None:
        """Make the marks durable; may be called from any thread. Raises OSError."""
        if self._fd >= 0:
            self.is_unsynced = False
            self._files.fdatasync(self._fd)

    def close(self) -> None:
        """Make the marks durable and let the file go."""
        if self._fd >= 0:
            try:
                self.sync()
            except OSError as error:
                self._failed(error)
            fd, self._fd = self._fd, -1
            self._files.close(fd)


def _digest(log: str) -> bytes:
    return blake2b(log.encode(), digest_size=_DIGEST_BYTES).digest()


def _unpack(data: bytes, at: int) -> tuple[bytes, int, int] | None:
    """A slot whose checksum holds."""
    if at + _BODY.size + _CRC.size > len(data):
        return None
    if _CRC.unpack_from(data, at + _BODY.size)[0] != crc32c(data[at : at + _BODY.size]):
        return None
    digest, sequence, position = _BODY.unpack_from(data, at)
    return digest, sequence, position
