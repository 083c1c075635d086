"""Stored events that cannot be read: one registry per engine, shown in the log, health, metrics, doctor and portal.

There are three kinds of damage:

- BROKEN: bytes on disk do not match their checksum. The log finds this when it opens or reads.
- MISSING: a file ends before the last acknowledged event. The log finds this when it opens.
- UNREADABLE: the batch is intact, but its records cannot be decoded. The code that decodes records reports it: call
  `hub.report_unreadable(partition, first_sequence, next_sequence, reason)` on the `LiveHub` with the sequence numbers
  of the whole batch, then skip the batch. Reporting a batch again is cheap and has no effect.

The registry writes one ERROR line per range; health, metrics and portal read it on demand.

Thread rule: any thread; logs are opened on worker threads.
"""

import logging
import threading
from collections.abc import Sequence

from hubmere.model.monitoring.damage import DamagedRange

_LOGGER = logging.getLogger(__name__)

# Ranges listed per log, about 300 bytes each; further ones are only counted.
MAX_RANGES_PER_LOG = 1_000


class DamageRegistry:
    """All damaged ranges of an engine, by log. The module docstring says how to report one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: dict[str, dict[int, DamagedRange]] = {}
        self.report_count = 0

    def report(self, found: DamagedRange, *, is_known: bool = False) -> bool:
        """Register and log a range; False if it was reported before. `is_known`: an earlier run found it."""
        with self._lock:
            ranges = self._ranges.setdefault(found.log, {})
            if found.first_sequence in ranges:
                return False
            self.report_count += 1
            is_listed = len(ranges) < MAX_RANGES_PER_LOG
            if is_listed:
                ranges[found.first_sequence] = found
        if is_listed:
            _LOGGER.error("log %s: %s%s", found.log, found, " (known from an earlier run)" if is_known else "")
        elif self.report_count % MAX_RANGES_PER_LOG == 0:
            _LOGGER.error("log %s: %d damaged ranges so far; further ones are not listed", found.log, self.report_count)
        return True

    def ranges(self, log: str) -> Sequence[DamagedRange]:
        """The damaged ranges of one log, by sequence number."""
        with self._lock:
            ranges = self._ranges.get(log)
            return () if not ranges else [ranges[first] for first in sorted(ranges)]

    @property
    def is_empty(self) -> bool:
        """Whether no damage is known."""
        with self._lock:
            return not any(self._ranges.values())

    def forget(self, log: str) -> None:
        """Drop all ranges of a deleted log."""
        with self._lock:
            self._ranges.pop(log, None)

    def forget_failed_open(self, log: str) -> None:
        """Drop the report that the log could not be opened: now it could."""
        with self._lock:
            found = self._ranges.get(log, {}).get(0)
            if found is not None and not found.event_count:
                del self._ranges[log][0]

    def forget_before(self, log: str, sequence: int) -> None:
        """Drop the ranges before a sequence number, whose events were deleted."""
        with self._lock:
            ranges = self._ranges.get(log, {})
            for first in [first for first, found in ranges.items() if found.next_sequence <= sequence]:
                del ranges[first]
