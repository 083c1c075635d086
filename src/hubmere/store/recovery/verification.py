"""Opens the files of a log again whose flush failed, and checks that everything committed is there.

Runs on another thread with resources of its own, like the opening of a log; `LocalLog.heal` says what comes before and
after.
"""

import logging
from contextlib import suppress
from pathlib import Path

from hubmere.model.errors import CorruptBatch
from hubmere.store.engine import LogConfig
from hubmere.store.log.resources import LogResources
from hubmere.store.recovery.recovery import RecoveredLog, recover

_LOGGER = logging.getLogger(__name__)


class Verification:
    """One attempt to reopen a log."""

    __slots__ = ("_committed", "_config", "_directory", "_resources", "failure", "recovered")

    def __init__(self, resources: LogResources, directory: Path, config: LogConfig, *, committed: int) -> None:
        """`committed` is the sequence number before which everything must be found, and after which nothing stays."""
        self._resources = resources.for_opening()
        self._directory = directory
        self._config = config
        self._committed = committed
        self.recovered: RecoveredLog | None = None
        self.failure: Exception | None = None

    def work(self) -> None:
        """Truncate what was never committed and verify the rest; sets `recovered` or `failure`."""
        try:
            self.recovered = self._recover()
        except (OSError, CorruptBatch) as error:
            self.failure = error
        except Exception as error:  # the top of a job: the log must stay offline, and its thread must go on
            _LOGGER.exception("log %s: cannot be verified", self._directory.name)
            self.failure = error
        with suppress(OSError):  # nothing was written through these descriptors that is not flushed
            self._resources.pool.close_all()

    def _recover(self) -> RecoveredLog:
        recovered = recover(self._resources, self._directory, compact=self._config.compact, keep_before=self._committed)
        found = recovered.segments.end.sequence
        if found != self._committed:
            raise CorruptBatch(f"only {found} of {self._committed} committed sequence numbers are on disk")
        return recovered
