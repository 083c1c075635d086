"""Events that are stored and cannot be read: one registry per engine, shown in log, health, metrics, doctor and portal.

Three kinds of damage end here. BROKEN: bytes on disk do not match their checksum; the log finds this itself, on opening
and on reading. MISSING: a file ends before the last event that was acknowledged; the log finds this on opening.
UNREADABLE: the batch is intact, but its records cannot be decoded; whoever decodes records finds this.

How to report from an endpoint. Call `hub.report_unreadable(partition, first_sequence, next_sequence, reason)` on the
`LiveHub` with the sequence numbers of the whole batch, then pass over the batch. Reporting the same batch again is
cheap and has no effect, so every reader may report what it meets. The registry writes one ERROR line per range; health,
metrics and portal read it when they are asked.

Thread rule: the owner's thread only.
"""

import logging
from collections.abc import Sequence

from hubmere.model.damage import DamagedRange

_LOGGER = logging.getLogger(__name__)

# Ranges that are kept per log, about 300 bytes each; of further ones only the count goes on.
MAX_RANGES_PER_LOG = 1_000


class DamageRegistry:
    """Every damaged range of an engine's logs, by log. See the module for how to report one."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[int, DamagedRange]] = {}
        self.report_count = 0

    def report(self, found: DamagedRange, *, is_known: bool = False) -> bool:
        """Keep and log a range; False when it was reported before. `is_known`: found by an earlier run of the node."""
        ranges = self._ranges.setdefault(found.log, {})
        if found.first_sequence in ranges:
            return False
        self.report_count += 1
        if len(ranges) < MAX_RANGES_PER_LOG:
            ranges[found.first_sequence] = found
            _LOGGER.error("log %s: %s%s", found.log, found, " (known from an earlier start)" if is_known else "")
        elif self.report_count % MAX_RANGES_PER_LOG == 0:
            _LOGGER.error("log %s: %d damaged ranges so far, further ones are not listed", found.log, self.report_count)
        return True

    def ranges(self, log: str) -> Sequence[DamagedRange]:
        """The damaged ranges of one log, in order."""
        ranges = self._ranges.get(log)
        return () if not ranges else [ranges[first] for first in sorted(ranges)]

    @property
    def is_empty(self) -> bool:
        """Whether no damage is known."""
        return not any(self._ranges.values())

    def forget(self, log: str) -> None:
        """The log was deleted."""
        self._ranges.pop(log, None)

    def forget_opening(self, log: str) -> None:
        """The log could be opened: if it could not before, somebody has mended it."""
        found = self._ranges.get(log, {}).get(0)
        if found is not None and not found.event_count:
            del self._ranges[log][0]

    def forget_before(self, log: str, sequence: int) -> None:
        """Retention has removed everything before a sequence number."""
        ranges = self._ranges.get(log)
        for first in [first for first, found in (ranges or {}).items() if found.next_sequence <= sequence]:
            assert ranges is not None
            del ranges[first]
