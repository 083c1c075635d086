"""Appends that wait for the group commit: acknowledges them, and moves `committed`, when their bytes are durable.

A round of the group commit takes everything that is written, in these steps:

1. `begin_round` notes the end of the log and hands out the files to flush.
2. The group commit flushes the files.
3. `mark_round` stores the new committed end for the next start (see committed_file).
4. `end_round` moves `committed`, completes the receipts in order, and wakes the watchers.

If the flush fails, `end_round` reports the failure and moves nothing.
Thread rule: the owner's thread only.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.store.engine import Watcher
from hubmere.store.files import Handle
from hubmere.store.log.commit import GroupCommit
from hubmere.store.log.committed_file import Boundary, CommittedSlot
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.reader import LogReader
from hubmere.store.log.segments.log_segments import LogSegments
from hubmere.store.recovery.checkpoint import Checkpoint
from hubmere.store.recovery.checkpointer import Checkpointer

_LOGGER = logging.getLogger(__name__)


class Watchers:
    """Callbacks that run whenever a log's committed end or start moves."""

    __slots__ = ("_log", "_watchers")

    def __init__(self, log: str) -> None:
        self._log = log
        self._watchers: dict[Watcher, None] = {}

    def add(self, watcher: Watcher) -> None:
        """Call `watcher` on each move until it is removed."""
        self._watchers[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""
        self._watchers.pop(watcher, None)

    def notify(self) -> None:
        """Call every watcher."""
        for watcher in tuple(self._watchers):
            try:
                watcher()
            except Exception:  # one watcher's error must not affect the others
                _LOGGER.exception("log %s: a watcher failed", self._log)


class _Round(NamedTuple):
    """What one round of the group commit makes durable."""

    end: Boundary
    last_offset: int
    last_enqueued_ms: int
    receipts: int
    checkpoint: Checkpoint | None


class PendingAppends:
    """The receipts of one log that are not committed yet; the log's part in the group commit."""

    __slots__ = (
        "_checkpointer", "_commit", "_is_queued", "_is_stopped", "_log", "_on_failure", "_producers", "_reader",
        "_receipts", "_round", "_segments", "_slot", "_watchers",
    )  # fmt: skip

    def __init__(
        self,
        commit: GroupCommit,
        segments: LogSegments,
        producers: ProducerTable,
        reader: LogReader,
        checkpointer: Checkpointer,
        watchers: Watchers,
        slot: CommittedSlot | None,
        on_failure: Callable[[OSError], None],
    ) -> None:
        """`on_failure` is called when a flush has failed; the log must not write to these files again."""
        self._commit = commit
        self._segments = segments
        self._producers = producers
        self._reader = reader
        self._checkpointer = checkpointer
        self._watchers = watchers
        self._slot = slot
        self._on_failure = on_failure
        self._log = segments.directory.name
        self._receipts: deque[Receipt] = deque()
        self._round: _Round | None = None
        self._is_queued = False  # whether the group commit will call `begin_round`
        self._is_stopped = False

    @property
    def is_idle(self) -> bool:
        """Whether everything written is committed."""
        return not self._is_queued and self._round is None

    def add(self, receipt: Receipt) -> None:
        """Acknowledge an append when everything written so far is committed."""
        self._receipts.append(receipt)
        if not self._is_queued:
            self._is_queued = True
            self._commit.add(self)

    def begin_round(self) -> Sequence[Handle]:
        """Take everything written so far into a round; returns the files to flush."""
        self._is_queued = False
        if self._is_stopped:
            return ()
        segments = self._segments
        self._round = _Round(
            segments.end,
            segments.last_offset,
            segments.last_enqueued_ms,
            len(self._receipts),
            self._checkpointer.plan_if_due(),
        )
        return segments.take_unsynced()

    def mark_round(self) -> None:
        """Store the committed end that `end_round` is about to acknowledge."""
        if self._slot is not None and self._round is not None:
            self._slot.write(*self._round.end)

    def end_round(self, error: OSError | None) -> int:
        """Move `committed` to the end of the round, or report a failed flush; returns the acknowledged appends."""
        round_, self._round = self._round, None
        if round_ is None:
            return 0
        if error is not None:
            self._on_failure(error)
            return 0
        last_stable = self._producers.last_stable(round_.end.sequence)
        self._reader.advance(round_.end, last_stable, round_.last_offset, round_.last_enqueued_ms)
        self._complete(round_.receipts, None)
        self._watchers.notify()
        if round_.checkpoint is not None:
            self._checkpointer.start(round_.checkpoint)
        return round_.receipts

    def refuse_all(self, refusal: Refusal) -> None:
        """Fail every waiting append, and take no part in further rounds."""
        self._is_stopped = True
        self._round = None
        self._complete(len(self._receipts), refusal)

    def stop(self) -> None:
        """Take no part in further rounds; nothing may be waiting."""
        self._is_stopped = True

    def _complete(self, count: int, refusal: Refusal | None) -> None:
        receipts = self._receipts
        while count:
            count -= 1
            receipt = receipts.popleft()
            try:
                receipt.complete(refusal)
            except Exception:  # one writer's error must not affect the others
                _LOGGER.exception("log %s: the callback of an append failed", self._log)
