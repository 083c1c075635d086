"""Counts how often the owner of a partition changed, from the ownership blobs that event processors write.

Two groups of processors that do not share a checkpoint store, or processors that cannot renew their ownership in time,
take partitions from each other again and again. Each claim replaces the metadata of a blob, so every move is seen.
"""

from collections import deque
from typing import Final

from hubmere.broker.blobs.records import decode_metadata
from hubmere.store.catalog.blob_records import BlobRecord

# Moves within this time are counted.
MOVES_MS: Final = 60_000
# Moves that are remembered for a blob, and blobs that are watched; about 100 bytes for each move.
MAX_MOVES: Final = 1000
MAX_BLOBS: Final = 10_000
_MARK: Final = "/ownership/"
_OWNER: Final = "ownerid"

_Key = tuple[str, str, str]


class OwnerMoves:
    """The recent moves of each ownership blob. Thread rule: the owner's thread only."""

    def __init__(self) -> None:
        self._moves: dict[_Key, deque[int]] = {}

    def record(self, before: BlobRecord | None, after: BlobRecord, now_ms: int) -> None:
        """A blob is written: count a move if it names another owner than before."""
        if _MARK not in after.name or before is None or before.metadata == after.metadata:
            return
        old, new = _owner(before), _owner(after)
        if not old or not new or old == new:
            return
        key = (after.account, after.container, after.name)
        if key not in self._moves and len(self._moves) >= MAX_BLOBS:
            self._moves.pop(next(iter(self._moves)))
        self._moves.setdefault(key, deque(maxlen=MAX_MOVES)).append(now_ms)

    def count(self, account: str, container: str, name: str, now_ms: int) -> int:
        """How often the owner changed within the last minute."""
        moves = self._moves.get((account, container, name), ())
        return sum(1 for at_ms in moves if now_ms - at_ms <= MOVES_MS)


def _owner(blob: BlobRecord) -> str:
    return next((value for name, value in decode_metadata(blob).items() if name.lower() == _OWNER), "")
