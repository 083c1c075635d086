"""What all logs of an engine share: files, handles, the committed file, and the bound on indexes in memory.

Thread rule: the owner's thread only.
"""

from collections import deque
from typing import TYPE_CHECKING

from hubmere.store.files import Files, HandlePool
from hubmere.store.log.committed_file import CommittedFile
from hubmere.store.recovery.damage_registry import DamageRegistry

if TYPE_CHECKING:
    from hubmere.store.log.segments.segment import Segment

# Sealed segments whose indexes are in memory at once: about 0.8 MB each at 256 MB of data.
MAX_LOADED_INDEXES = 64


class LogResources:
    """Shared by all logs of an engine: files, handles, committed file, damage registry, the bound on loaded indexes."""

    def __init__(
        self,
        files: Files,
        pool: HandlePool,
        *,
        damage: DamageRegistry | None = None,
        committed_file: CommittedFile | None = None,
    ) -> None:
        self.files = files
        self.pool = pool
        self.damage = damage
        self.committed_file = committed_file
        self._loaded: deque[Segment] = deque()

    def for_opening(self) -> "LogResources":
        """Resources of its own for one log that is opened on another thread; see `Segment.move_to`."""
        return LogResources(self.files, HandlePool(self.files), damage=self.damage)

    def note_loaded(self, segment: "Segment") -> None:
        """Register a sealed segment's loaded indexes; unload the oldest if too many are in memory."""
        self._loaded.append(segment)
        if len(self._loaded) > MAX_LOADED_INDEXES:
            self._loaded.popleft().forget_indexes()
