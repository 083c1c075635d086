"""Producer state of one partition: detects duplicates, gaps and fenced epochs, and tracks open transactions.

Follows Kafka's rules for idempotent producers (the last five batches of each producer id, epochs fence) and its
snapshot format, with one extension that Kafka's reader tolerates: up to five entries per producer, oldest first, so
that duplicates are still detected after a restart. AMQP producers have a looser rule: every batch that is not newer is
a duplicate. This module never touches the disk. Thread rule: the owner's thread only.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from hubmere.model.errors import ProducerFenced, SequenceGap, TransactionRefused
from hubmere.records.header import PRODUCER_SEQUENCE_MASK
from hubmere.store.engine import ProducerState
from hubmere.store.log.segments.index import AbortedEntry

# Kafka: a client has at most five requests in flight, so a duplicate is one of the last five batches.
REMEMBERED_BATCHES = 5
# Kafka's producer.id.expiration.ms.
EXPIRY_MS = 24 * 3600 * 1000
# Producers of one partition; beyond that the longest idle ones are removed. A removed one counts as new.
MAX_PRODUCERS = 10_000


# Half of the range of sequences: a larger distance means an older batch, not a newer one.
_HALF = 0x40000000

_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_COUNT = Struct(">i")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class RememberedBatch(NamedTuple):
    """One of a producer's last batches: its producer sequence numbers and its sequence number in the log."""

    first: int
    last: int
    last_sequence: int
    delta: int
    time_ms: int

    @property
    def base_sequence(self) -> int:
        """The log's sequence number of the batch's first event."""
        return self.last_sequence - self.delta


class Producer:
    """State of one producer id."""

    __slots__ = ("batches", "epoch", "may_jump", "transaction_first")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.may_jump = False  # its next batch may skip numbers: batches that it wrote may be damaged on disk
        self.batches: deque[RememberedBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self.transaction_first = -1

    @property
    def last(self) -> int:
        """The producer's last sequence number, -1 if there is none."""
        return self.batches[-1].last if self.batches else -1

    @property
    def last_time_ms(self) -> int:
        """Time of its last batch, -1 if there is none."""
        return self.batches[-1].time_ms if self.batches else -1


# A duplicate whose position in the log is not known any more.
UNKNOWN_POSITION = RememberedBatch(-1, -1, -1, 0, -1)


class ProducerTable:
    """All producers of one partition, as of everything written (committed or not)."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # First sequence numbers of open transactions, oldest transaction first, so the first value is the smallest.
        self._open: dict[int, int] = {}
        # Ended transactions whose marker is not committed yet: (sequence number of the marker, first sequence number).
        self._ending: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer_id: int) -> Producer | None:
        """State of a producer; None if it is unknown."""
        return self._producers.get(producer_id)

    def allow_jumps(self) -> None:
        """Accept gaps in the next batch of every producer: its last batches may be among damaged ones."""
        for known in self._producers.values():
            known.may_jump = True

    def states(self) -> list[ProducerState]:
        """State of all producers."""
        return [self._state(producer_id, known) for producer_id, known in self._producers.items()]

    def _state(self, producer_id: int, known: Producer) -> ProducerState:
        return ProducerState(producer_id, known.epoch, known.last, known.last_time_ms, known.transaction_first)

    def open_transactions(self) -> list[ProducerState]:
        """The producers that have an open transaction."""
        return [self._state(producer_id, self._producers[producer_id]) for producer_id in self._open]

    def check(
        self, producer_id: int, epoch: int, first: int, delta: int, *, transactional: bool, lenient: bool
    ) -> RememberedBatch | None:
        """None if a batch is the producer's next; the earlier batch if it is a duplicate; raises ProducerRefused."""
        known = self._producers.get(producer_id)
        if known is None:
            return None
        if epoch < known.epoch:
            raise ProducerFenced(producer_id, epoch, known.epoch)
        if epoch > known.epoch:
            if first != 0 and not lenient:
                raise SequenceGap(producer_id, first, -1)
            return None
        earlier = _find_duplicate(known, first, (first + delta) & PRODUCER_SEQUENCE_MASK, lenient=lenient)
        if earlier is None and first != (known.last + 1) & PRODUCER_SEQUENCE_MASK and not _is_jump(known, first):
            raise SequenceGap(producer_id, first, known.last)
        if earlier is None and known.transaction_first >= 0 and not transactional:
            raise TransactionRefused(f"Producer {producer_id} has an open transaction on this partition.")
        return earlier

    def record(
        self,
        producer_id: int,
        epoch: int,
        first: int,
        delta: int,
        last_sequence: int,
        time_ms: int,
        *,
        transactional: bool,
    ) -> None:
        """Record a batch that was written."""
        known = self._producers.get(producer_id)
        if known is None:
            if len(self._producers) >= MAX_PRODUCERS:
                self._remove_longest_idle()
            known = self._producers[producer_id] = Producer(epoch)
        if epoch != known.epoch:
            known.epoch = epoch
            known.batches.clear()
        known.may_jump = False
        known.batches.append(
            RememberedBatch(first, (first + delta) & PRODUCER_SEQUENCE_MASK, last_sequence, delta, time_ms)
        )
        if transactional and known.transaction_first < 0:
            known.transaction_first = self._open[producer_id] = last_sequence - delta

    # --- transactions ---

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """Raises ProducerFenced if the epoch of a marker is older than the producer's."""
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise ProducerFenced(producer_id, epoch, known.epoch)

    def end_transaction(
        self, producer_id: int, epoch: int, marker_sequence: int, *, commit: bool
    ) -> AbortedEntry | None:
        """End a transaction whose marker was written; returns the aborted range if it aborts any events."""
        known = self._producers.get(producer_id)
        if known is None:
            return None
        if epoch != known.epoch:
            known.epoch = epoch
            known.batches.clear()
        first, known.transaction_first = known.transaction_first, -1
        self._open.pop(producer_id, None)
        if first < 0:
            return None
        self._ending.append((marker_sequence, first))
        if commit:
            return None
        last_stable = next(iter(self._open.values()), marker_sequence + 1)
        return AbortedEntry(producer_id, first, marker_sequence, last_stable)

    def last_stable(self, committed: int) -> int:
        """The first sequence number of the oldest transaction that is open as of `committed`; else `committed`."""
        ending = self._ending
        while ending and ending[0][0] < committed:
            ending.popleft()
        oldest = next(iter(self._open.values()), committed)
        return min(oldest, committed, *(first for _, first in ending)) if ending else min(oldest, committed)

    # --- bounds ---

    def expire(self, now_ms: int) -> None:
        """Remove producers that were idle for a day and have no open transaction."""
        expired = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.last_time_ms < now_ms - EXPIRY_MS and known.transaction_first < 0
        ]
        for producer_id in expired:
            del self._producers[producer_id]

    def _remove_longest_idle(self) -> None:
        # A tenth at a time, so that one sort serves many new producers.
        idle = [pair for pair in self._producers.items() if pair[1].transaction_first < 0]
        idle.sort(key=lambda pair: pair[1].last_time_ms)
        for producer_id, _ in idle[: MAX_PRODUCERS // 10]:
            del self._producers[producer_id]

    # --- snapshots ---

    def to_snapshot(self) -> bytes:
        """Encode the table in Kafka's snapshot format."""
        entries = [_SNAPSHOT_ENTRY.pack(*row) for row in self._rows()]
        body = _SNAPSHOT_COUNT.pack(len(entries)) + b"".join(entries)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    def _rows(self) -> Iterator[tuple[int, ...]]:
        for producer_id, known in self._producers.items():
            for batch in known.batches or (UNKNOWN_POSITION,):
                columns = (batch.last, batch.last_sequence, batch.delta, batch.time_ms)
                yield (producer_id, known.epoch, *columns, -1, known.transaction_first)

    @classmethod
    def from_snapshot(cls, data: bytes) -> "ProducerTable | None":
        """Decode a snapshot; None if it is not intact."""
        body = data[_SNAPSHOT_HEAD.size :]
        if len(body) < _SNAPSHOT_COUNT.size or (len(body) - _SNAPSHOT_COUNT.size) % _SNAPSHOT_ENTRY.size:
            return None
        if _SNAPSHOT_HEAD.unpack_from(data) != (_SNAPSHOT_VERSION, crc32c(body)):
            return None
        table = cls()
        for row in _SNAPSHOT_ENTRY.iter_unpack(body[_SNAPSHOT_COUNT.size :]):
            table._restore(*row)
        table._open = dict(sorted(table._open.items(), key=lambda pair: pair[1]))
        return table

    def _restore(
        self,
        producer_id: int,
        epoch: int,
        last: int,
        last_sequence: int,
        delta: int,
        time_ms: int,
        _: int,
        first_open: int,
    ) -> None:
        known = self._producers.setdefault(producer_id, Producer(epoch))
        known.epoch = epoch
        if last >= 0:
            known.batches.append(
                RememberedBatch((last - delta) & PRODUCER_SEQUENCE_MASK, last, last_sequence, delta, time_ms)
            )
        known.transaction_first = first_open
        if first_open >= 0:
            self._open[producer_id] = first_open


def _is_jump(known: Producer, first: int) -> bool:
    """Whether a batch may skip numbers: it is newer than the last known one, and some may be damaged."""
    return known.may_jump and (first - known.last - 1) & PRODUCER_SEQUENCE_MASK < _HALF


def _find_duplicate(known: Producer, first: int, last: int, *, lenient: bool) -> RememberedBatch | None:
    for batch in known.batches:
        if batch.first == first and batch.last == last:
            return batch
    if lenient and known.batches and (last - known.last - 1) & PRODUCER_SEQUENCE_MASK >= _HALF:
        return UNKNOWN_POSITION
    return None
