"""Transactions: the current producer of each transactional id, and how its transactions end.

A transaction is a set of partitions and of offsets that become visible together. Every step is durable in the catalog
before it is acknowledged: a decided transaction (PrepareCommit, PrepareAbort) is completed after a crash, until its
markers are in every partition. A newer producer fences an older one by its epoch, and so does the timeout of a
transaction. Follows Kafka's coordinator (KIP-98, KIP-360, KIP-447; reference: kafka 2.13) without its internal topic.
Nothing here waits or reads a clock. Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any, Final

from hubmere.broker.coordinator.deadlines import Deadlines
from hubmere.broker.coordinator.hanging_transactions import EndedTransaction, end_before_enlisting, end_hanging
from hubmere.broker.coordinator.producer_ids import ProducerIds
from hubmere.broker.coordinator.refusals import (
    ConcurrentTransaction,
    InvalidTransactionState,
    ProducerMismatch,
    TransactionalProducerFenced,
    TransactionTimeoutTooLong,
)
from hubmere.broker.coordinator.transaction import (
    HubPartition,
    PendingOffset,
    Phase,
    Transaction,
    decode_transaction,
    encode_transaction,
)
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.opening import LogOpening
from hubmere.model.errors import LimitReached, NotFound, ProducerFenced, ProducerRefused, Refusal, StorageRefusal
from hubmere.model.receipt import Receipt
from hubmere.store.catalog.runtime_state import GroupOffset, TransactionState
from hubmere.store.catalog.view import Drop, Put
from hubmere.store.engine import Catalog

# Kafka's transaction.max.timeout.ms, and the service's (reference: kafka 1.3).
LONGEST_TRANSACTION_MS = 900_000
# Kafka's transactional.id.expiration.ms: a transactional id that is unused for this long is deleted.
ID_EXPIRY_MS = 7 * 24 * 3_600_000
# Transactional ids of one namespace: each is some hundred bytes in memory and in the catalog.
MAX_TRANSACTIONAL_IDS = 100_000
# Partitions and offsets of one transaction: bounds what is written at its end.
MAX_PARTITIONS = 10_000
# The last epoch is reserved for fencing; after it, the producer gets another id (Kafka: Short.MaxValue - 1).
_LAST_EPOCH = 32_766
# Retry interval for a partition that cannot accept a marker now.
_RETRY_S = 1.0

_DECIDED: Final = frozenset({Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT})
_PREPARE: Final = {True: Phase.PREPARE_COMMIT, False: Phase.PREPARE_ABORT}
_COMPLETE: Final = {Phase.PREPARE_COMMIT: Phase.COMPLETE_COMMIT, Phase.PREPARE_ABORT: Phase.COMPLETE_ABORT}
# Repeating the same end is no error: the client missed our answer.
_REPEATS: Final = frozenset({(Phase.COMPLETE_COMMIT, True), (Phase.COMPLETE_ABORT, False)})


OnDone = Callable[[Refusal | None], None]
# Producer id and epoch, or the refusal.
OnInitialized = Callable[[tuple[int, int] | Refusal], None]


class Transactions:
    """The transactional producers of one namespace."""

    def __init__(
        self, namespace: LiveNamespace, catalog: Catalog, producer_ids: ProducerIds, *, now: float, now_ms: int
    ) -> None:
        self._namespace = namespace
        self._catalog = catalog
        self._producer_ids = producer_ids
        self._known: dict[str, Transaction] = {}
        # Ids with a change that is being persisted, or with markers that are being written.
        self._busy: set[str] = set()
        # Hanging transactions that were ended since the last report.
        self._ended: list[EndedTransaction] = []
        self._deadlines = Deadlines()
        for record in catalog.view.transactions(self._key):
            self._load(decode_transaction(record), now, now_ms)

    @property
    def _key(self) -> str:
        return self._namespace.entity.key[0]

    # --- producers ---

    def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        now: float,
        now_ms: int,
        on_done: OnInitialized,
    ) -> None:
        """Make the caller the current producer of a transactional id; an open transaction of the last one is aborted.

        `expected` is the producer id and epoch of a producer that comes back after an error (KIP-360).
        """
        if not 0 < timeout_ms <= LONGEST_TRANSACTION_MS:
            raise TransactionTimeoutTooLong(transactional_id, LONGEST_TRANSACTION_MS)
        self._require_idle(transactional_id)
        known = self._known.get(transactional_id)
        if known is None:
            self._register(transactional_id, timeout_ms, now_ms, on_done)
            return
        self._require_expected(known, expected)
        if expected is not None and expected[1] != known.epoch:
            # The producer missed our answer and repeats the request (KIP-360).
            on_done((known.producer_id, known.epoch))
            return
        known = replace(known, timeout_ms=timeout_ms, last_epoch=-1 if expected is None else known.epoch)
        if known.phase is Phase.ONGOING:
            fencing = replace(known, epoch=known.epoch + 1)
            self._end(fencing, now, now_ms, _then(on_done, fencing), commit=False)
        elif known.epoch >= _LAST_EPOCH:
            self._renumber(known, now_ms, on_done)
        else:
            fresh = replace(known, epoch=known.epoch + 1, phase=Phase.EMPTY, started_ms=-1, updated_ms=now_ms)
            self._change(fresh, _then(on_done, fresh))

    def _require_expected(self, known: Transaction, expected: tuple[int, int] | None) -> None:
        if expected is None or expected == (known.producer_id, known.epoch):
            return
        is_repeat = known.last_epoch >= 0 and expected == (known.producer_id, known.last_epoch)
        if not (is_repeat and known.phase is Phase.EMPTY):
            raise TransactionalProducerFenced(known.transactional_id)

    def _register(self, transactional_id: str, timeout_ms: int, now_ms: int, on_done: OnInitialized) -> None:
        if len(self._known) >= MAX_TRANSACTIONAL_IDS:
            raise LimitReached("transactional ids", MAX_TRANSACTIONAL_IDS)
        blank = Transaction(
            transactional_id=transactional_id, producer_id=-1, epoch=-1, timeout_ms=timeout_ms, updated_ms=now_ms
        )
        self._renumber(blank, now_ms, on_done)

    def _renumber(self, known: Transaction, now_ms: int, on_done: OnInitialized) -> None:
        """Give a transactional id a new producer id; its epochs start at 0."""
        self._busy.add(known.transactional_id)

        def on_numbered(number: int, refusal: Refusal | None) -> None:
            self._busy.discard(known.transactional_id)
            if refusal is not None:
                on_done(refusal)
                return
            fresh = replace(known, producer_id=number, epoch=0, phase=Phase.EMPTY, started_ms=-1, updated_ms=now_ms)
            fresh = replace(fresh, ended_partitions=frozenset(), has_committed=False)
            self._change(fresh, _then(on_done, fresh))

        self._producer_ids.take(on_numbered)

    # --- partitions and offsets of a transaction ---

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Iterable[HubPartition],
        now: float,
        now_ms: int,
        on_done: OnDone,
    ) -> None:
        """Add partitions that the producer is about to write to; the first ones start the transaction."""
        known = self._current(transactional_id, producer)
        added = frozenset(partitions) - known.partitions
        self._ended += end_before_enlisting(self._namespace, known, added, now_ms)
        self._grow(known, self._extend(known, now_ms, partitions=known.partitions | added), now, on_done)

    def add_group(
        self, transactional_id: str, producer: tuple[int, int], group_id: str, now: float, now_ms: int, on_done: OnDone
    ) -> None:
        """Add a group whose offsets the producer is about to commit."""
        known = self._current(transactional_id, producer)
        groups = known.groups if _is_open(known) else frozenset[str]()
        self._grow(known, self._extend(known, now_ms, groups=groups | {group_id}), now, on_done)

    def commit_offsets(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        group_id: str,
        offsets: Iterable[PendingOffset],
        now: float,
        now_ms: int,
        on_done: OnDone,
    ) -> None:
        """Add offsets that become committed offsets of the group when the transaction commits."""
        known = self._current(transactional_id, producer)
        if not _is_open(known) or group_id not in known.groups:
            raise InvalidTransactionState(transactional_id)
        pending = {**known.offsets, **{offset.key: offset for offset in offsets}}
        self._grow(known, self._extend(known, now_ms, offsets=MappingProxyType(pending)), now, on_done)

    def require_enlisted(self, transactional_id: str, producer_id: int, epoch: int, partition: HubPartition) -> None:
        """Refuse a batch whose producer has not added the partition to an open transaction (KIP-890, first part)."""
        known = self._known.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise ProducerMismatch(transactional_id)
        if known.epoch != epoch:
            raise ProducerFenced(producer_id, epoch, known.epoch)
        if not _is_open(known) or partition not in known.partitions or transactional_id in self._busy:
            raise InvalidTransactionState(transactional_id)

    def has_pending(self, group_id: str, hub_uid: str, partition: int) -> bool:
        """Whether an open transaction has a newer offset of a group."""
        key = (group_id, hub_uid, partition)
        return any(key in known.offsets for known in self._known.values())

    def _extend(self, known: Transaction, now_ms: int, **covers: Any) -> Transaction:
        if _is_open(known):
            return replace(known, updated_ms=now_ms, **covers)
        blank: Mapping[str, Any] = {"partitions": frozenset(), "groups": frozenset(), "offsets": MappingProxyType({})}
        begun = {**blank, **covers}
        return replace(known, phase=Phase.ONGOING, started_ms=now_ms, updated_ms=now_ms, **begun)

    def _grow(self, known: Transaction, grown: Transaction, now: float, on_done: OnDone) -> None:
        if len(grown.partitions) + len(grown.offsets) > MAX_PARTITIONS:
            raise LimitReached("partitions and offsets of a transaction", MAX_PARTITIONS)
        if replace(grown, updated_ms=known.updated_ms) == known:
            on_done(None)
            return
        if not _is_open(known):
            self._deadlines.set(known.transactional_id, now + known.timeout_ms / 1000)
        self._change(grown, on_done)

    # --- ending ---

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        now: float,
        now_ms: int,
        on_done: OnDone,
        *,
        commit: bool,
    ) -> None:
        """Commit or abort; done when every partition has its marker and every offset is durable."""
        known = self._current(transactional_id, producer)
        if (known.phase, commit) in _REPEATS:
            on_done(None)
        elif not _is_open(known):
            raise InvalidTransactionState(transactional_id)
        else:
            self._end(known, now, now_ms, on_done, commit=commit)

    def _end(self, known: Transaction, now: float, now_ms: int, on_done: OnDone, *, commit: bool) -> None:
        decided = replace(known, phase=_PREPARE[commit], updated_ms=now_ms)

        def on_persisted(refusal: Refusal | None) -> None:
            if refusal is not None:
                on_done(refusal)
            else:
                self._carry_out(decided, now, now_ms, on_done)

        self._change(decided, on_persisted)

    def _carry_out(self, decided: Transaction, now: float, now_ms: int, on_done: OnDone) -> None:
        """Write the markers; a partition that cannot accept one is retried until it can."""
        self._busy.add(decided.transactional_id)
        self._deadlines.drop(decided.transactional_id)
        hubs = {hub.entity.uid: hub for hub in self._namespace.hubs.values()}
        # Partitions of deleted hubs need no marker.
        targets = [(hubs[uid], partition) for uid, partition in sorted(decided.partitions) if uid in hubs]
        outcome = _Markers(
            len(targets), lambda is_whole: self._on_marked(decided, now, now_ms, on_done, is_whole=is_whole)
        )
        for hub, partition in targets:
            _mark(hub, partition, decided, now_ms, outcome.one)

    def _on_marked(self, decided: Transaction, now: float, now_ms: int, on_done: OnDone, *, is_whole: bool) -> None:
        self._busy.discard(decided.transactional_id)
        if not is_whole:
            self._deadlines.set(decided.transactional_id, now + _RETRY_S)
            on_done(ConcurrentTransaction(decided.transactional_id))
            return
        complete = replace(
            decided,
            phase=_COMPLETE[decided.phase],
            partitions=frozenset(),
            groups=frozenset(),
            offsets=MappingProxyType({}),
            started_ms=-1,
            ended_partitions=decided.partitions,
            has_committed=decided.phase is Phase.PREPARE_COMMIT,
        )
        self._change(complete, on_done, self._committed_offsets(decided, now_ms))

    def _committed_offsets(self, decided: Transaction, now_ms: int) -> list[GroupOffset]:
        if decided.phase is not Phase.PREPARE_COMMIT:
            return []
        live = {hub.entity.uid for hub in self._namespace.hubs.values()}
        return [
            GroupOffset(
                namespace=self._key,
                group_id=offset.group_id,
                hub_uid=offset.hub_uid,
                partition=offset.partition,
                sequence=offset.sequence,
                leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                committed_ms=now_ms,
            )
            for offset in decided.offsets.values()
            if offset.hub_uid in live
        ]

    # --- checks and changes ---

    def _require_idle(self, transactional_id: str) -> None:
        known = self._known.get(transactional_id)
        if transactional_id in self._busy or (known is not None and known.phase in _DECIDED):
            raise ConcurrentTransaction(transactional_id)

    def _current(self, transactional_id: str, producer: tuple[int, int]) -> Transaction:
        """The state of a transactional id; refused unless the caller is its current producer."""
        known = self._known.get(transactional_id)
        if known is None or known.producer_id != producer[0]:
            raise ProducerMismatch(transactional_id)
        if known.epoch != producer[1]:
            raise TransactionalProducerFenced(transactional_id)
        self._require_idle(transactional_id)
        return known

    def _change(self, fresh: Transaction, on_done: OnDone, offsets: Sequence[GroupOffset] = ()) -> None:
        """Persist a new state, then apply it and call back; if that fails, the old state stays."""
        transactional_id = fresh.transactional_id
        record = TransactionState(
            namespace=self._key,
            transactional_id=transactional_id,
            state=encode_transaction(fresh),
            modified_ms=fresh.updated_ms,
        )

        def on_persisted(refusal: Refusal | None) -> None:
            self._busy.discard(transactional_id)
            if refusal is None:
                self._known[transactional_id] = fresh
            on_done(refusal)

        self._busy.add(transactional_id)
        try:
            self._catalog.submit(Put(record), *map(Put, offsets), callback=on_persisted)
        except Refusal as refusal:
            on_persisted(refusal)

    # --- queries ---

    def find(self, transactional_id: str) -> Transaction | None:
        """The state of a transactional id; None if it is unknown."""
        return self._known.get(transactional_id)

    def list(self) -> list[Transaction]:
        """Every transactional id."""
        return [self._known[key] for key in sorted(self._known)]

    def of_producers(self, producer_ids: Collection[int]) -> dict[int, Transaction]:
        """The transactional ids of these producers, by producer id."""
        return {known.producer_id: known for known in self._known.values() if known.producer_id in producer_ids}

    def is_changing(self, transactional_id: str) -> bool:
        """Whether a change of a transactional id, or a marker of its transaction, is being persisted."""
        return transactional_id in self._busy

    def end_hanging(self, now_ms: int) -> Sequence[EndedTransaction]:
        """End hanging transactions; returns them and those ended since the last call."""
        ended, self._ended = self._ended, []
        return [*ended, *end_hanging(self._namespace, self, now_ms)]

    # --- time ---

    def next_deadline(self) -> float | None:
        """When the next transaction times out or has to be retried."""
        return self._deadlines.next()

    def advance(self, now: float, now_ms: int) -> None:
        """Abort transactions that timed out, and retry decided ones."""
        for transactional_id in self._deadlines.take(now):
            known = self._known.get(transactional_id)
            if known is None:
                continue
            if transactional_id in self._busy:
                self._deadlines.set(transactional_id, now + _RETRY_S)
            elif known.phase in _DECIDED:
                self._carry_out(known, now, now_ms, _ignore_result)
            elif _is_open(known):
                # The new epoch fences the silent producer if it returns.
                self._end(replace(known, epoch=known.epoch + 1), now, now_ms, _ignore_result, commit=False)

    def delete_unused(self, now_ms: int) -> None:
        """Delete transactional ids that have not been used for a long time."""
        for known in list(self._known.values()):
            is_over = known.phase not in _DECIDED and not _is_open(known) and known.updated_ms < now_ms - ID_EXPIRY_MS
            if is_over and known.transactional_id not in self._busy:
                del self._known[known.transactional_id]
                state = TransactionState(namespace=self._key, transactional_id=known.transactional_id, state="")
                self._catalog.submit(Drop(state))

    def _load(self, known: Transaction, now: float, now_ms: int) -> None:
        self._known[known.transactional_id] = known
        if known.phase in _DECIDED:
            self._deadlines.set(known.transactional_id, now)
        elif _is_open(known):
            left_ms = max(known.started_ms + known.timeout_ms - now_ms, 0)
            self._deadlines.set(known.transactional_id, now + left_ms / 1000)


class _Markers:
    """Counts the markers of one transaction: done when each is durable or has failed for now."""

    def __init__(self, count: int, on_done: Callable[[bool], None]) -> None:
        self._missing = count
        self._is_whole = True
        self._on_done = on_done
        if not count:
            on_done(True)

    def one(self, is_durable: bool) -> None:
        """One marker is durable, or has failed for now."""
        self._is_whole = self._is_whole and is_durable
        self._missing -= 1
        if not self._missing:
            self._on_done(self._is_whole)


def _mark(hub: LiveHub, partition: int, decided: Transaction, now_ms: int, one: Callable[[bool], None]) -> None:
    def on_committed(receipt: Receipt) -> None:
        one(receipt.error is None)

    try:
        hub.log(partition).append_marker(
            decided.producer_id,
            decided.epoch,
            now_ms,
            commit=decided.phase is Phase.PREPARE_COMMIT,
            callback=on_committed,
        )
    except (ProducerRefused, NotFound):
        # The partition has seen a newer epoch, so this transaction has already ended there; or the hub is deleted.
        one(True)
    except LogOpening as opening:
        _mark_later(opening, hub, partition, decided, now_ms, one)
    except StorageRefusal:
        one(False)


def _mark_later(
    opening: LogOpening, hub: LiveHub, partition: int, decided: Transaction, now_ms: int, one: Callable[[bool], None]
) -> None:
    """Write the marker when the log of the partition is open; until then the transaction has not ended."""
    try:
        opening.wait(lambda: _mark(hub, partition, decided, now_ms, one), 0.0, max_wait_s=inf)
    except LogOpening:
        one(False)


def _is_open(known: Transaction) -> bool:
    return known.phase is Phase.ONGOING


def _then(on_done: OnInitialized, fresh: Transaction) -> OnDone:
    return lambda refusal: on_done((fresh.producer_id, fresh.epoch) if refusal is None else refusal)


def _ignore_result(_: Refusal | None) -> None:
    """No caller waits for the result; a failure is retried."""
