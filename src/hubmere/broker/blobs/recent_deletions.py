"""Containers that were just deleted: the service accepts their deletion again while it removes them.

The service needs about 30 seconds for that and gives the same answer until it is done (issue 12503 of the Azure SDK for
.NET). Here a container is gone at once and may be created again, but clients that delete it in their clean-up, too, get
the answer that they know.
"""

from collections.abc import Callable
from typing import Final

from hubmere.model.errors import Refusal

_REMOVAL_MS: Final = 30_000
# Deletions that are remembered: tests delete their containers one after another; each entry is under 200 bytes.
MAX_DELETIONS: Final = 1024


class RecentDeletions:
    """When containers were deleted. Thread rule: the owner's thread only."""

    __slots__ = ("_deleted_ms",)

    def __init__(self) -> None:
        self._deleted_ms: dict[str, int] = {}

    def noting(
        self, name: str, now_ms: int, on_done: Callable[[Refusal | None], None]
    ) -> Callable[[Refusal | None], None]:
        """A callback that remembers a deletion when it is durable, and then calls `on_done`."""

        def on_deleted(result: Refusal | None) -> None:
            if result is None:
                self._note(name, now_ms)
            on_done(result)

        return on_deleted

    def _note(self, name: str, now_ms: int) -> None:
        """Beyond the limit the oldest deletion is forgotten."""
        self._deleted_ms.pop(name, None)
        self._deleted_ms[name] = now_ms
        if len(self._deleted_ms) > MAX_DELETIONS:
            del self._deleted_ms[next(iter(self._deleted_ms))]

    def has_just_deleted(self, name: str, now_ms: int) -> bool:
        """Whether the service would still be removing the container."""
        deleted_ms = self._deleted_ms.get(name)
        return deleted_ms is not None and now_ms - deleted_ms <= _REMOVAL_MS
