"""The list of a log's segments on disk: a change counts at once, and becomes durable on another thread.

A log rolls or is trimmed in the middle of requests, and a durable list waits for the disk twice. Therefore:

1. `write` puts the new list beside the durable one, into the page cache. If the process ends now, the next opening
   takes this list. After a power cut it may be torn; then its checksum does not match, and the durable list counts.
2. `sync`, on any thread, replaces the durable list. Until it has returned, no event of a new segment is acknowledged
   (durability `fsync`), no recovery point is written, and no file of a deleted segment is removed.
3. `settle` removes the list of step 1.

The list beside the durable one is never the older of the two, because every change is written there first.
Thread rule: the owner's thread only, except `sync`.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from hubmere.store.files import Files
from hubmere.store.log.commit import GroupCommit
from hubmere.store.recovery.manifest import Manifest, remove_next_manifest, write_manifest, write_next_manifest

_LOGGER = logging.getLogger(__name__)


class SegmentList:
    """The list of segments of one log."""

    __slots__ = ("_directory", "_durable", "_files", "_lock", "_wanted")

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        # The list to make durable and its number, in one object: a thread that syncs reads both at once.
        self._wanted: tuple[int, Manifest | None] = (0, None)
        self._durable = 0
        self._lock = threading.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether the durable list is the one in force."""
        return self._durable == self._wanted[0]

    def write(self, manifest: Manifest) -> None:
        """Write a list that the next opening after a crash of this process takes; raises OSError."""
        write_next_manifest(self._files, self._directory, manifest)

    def require(self, manifest: Manifest) -> None:
        """The list that was written is in force: its new segment exists. The next `sync` makes it durable."""
        self._wanted = (self._wanted[0] + 1, manifest)

    def sync(self) -> None:
        """Make the list in force durable, unless it is; may run on any thread. Raises OSError."""
        with self._lock:
            number, manifest = self._wanted
            if manifest is not None and number != self._durable:
                write_manifest(self._files, self._directory, manifest)
                self._durable = number

    def settle(self) -> None:
        """Remove the list beside the durable one, once that is in force."""
        if self.is_durable:
            remove_next_manifest(self._files, self._directory)

    def save(self, commit: GroupCommit, then: Callable[[], None] | None = None) -> None:
        """Make the list durable off the owner's thread, then run `then` there, which may raise OSError.

        If that fails, the next recovery point tries it again.
        """

        def work() -> None:
            self.sync()
            if then is not None:
                then()

        def on_saved(error: OSError | None) -> None:
            if error is not None:
                _LOGGER.warning("log %s: cannot save its list of segments yet: %s", self._directory.name, error)
            self.settle()

        commit.run_in_background(work, on_saved)
