"""Hanging transactions: open in a partition, but not in the coordinator. They are ended here.

A partition takes events of a transaction only after the coordinator has durably enlisted it (`require_enlisted`). So an
open transaction that the coordinator does not know has lost its marker, by damage on disk, or its entry in the catalog.
Readers of committed events would wait before it for ever. The rule, for each open transaction of a partition:

1. The coordinator has an ongoing or decided transaction of that producer with this partition: left alone. Its own end
   writes the marker.
2. The last transaction of that producer that has ended had this partition, and a damaged range follows its first event:
   the marker was in that range. It is written again, with the outcome that the catalog has kept.
3. Otherwise nothing proves a commit: it is aborted.

This is checked every few seconds, and before a producer adds the partition to its next transaction. Nothing here
waits. Thread rule: the owner's thread only.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubmere.broker.coordinator.refusals import ConcurrentTransaction
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.opening import LogOpening
from hubmere.model.errors import ProducerRefused, Refusal, StorageRefusal
from hubmere.store.engine import PartitionLog, ProducerState

if TYPE_CHECKING:
    from hubmere.broker.coordinator.transaction import HubPartition, Transaction
    from hubmere.broker.coordinator.transactions import Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """A transaction that was ended because its marker is lost."""

    hub: str
    partition: int
    producer_id: int
    first_sequence: int
    is_commit: bool

    def __str__(self) -> str:
        outcome = "committed again" if self.is_commit else "aborted"
        return (
            f"hub {self.hub}, partition {self.partition}: the transaction of producer {self.producer_id} that begins "
            f"at sequence number {self.first_sequence} has lost its end marker and was {outcome}"
        )


def end_hanging(namespace: LiveNamespace, transactions: "Transactions", now_ms: int) -> list[EndedTransaction]:
    """End the transactions of open logs that the coordinator does not know; returns them.

    A partition that cannot take a marker now is tried again by the next call.
    """
    found = [
        (hub, partition, log, state)
        for hub in namespace.hubs.values()
        for partition, log in hub.open_partitions()
        if not log.is_offline
        for state in log.open_transactions()
    ]
    known = transactions.of_producers({state.producer_id for _, _, _, state in found}) if found else {}
    ended: list[EndedTransaction] = []
    for hub, partition, log, state in found:
        mine = known.get(state.producer_id)
        if mine is None or not _is_in_hand(transactions, mine, hub, partition):
            one = _end(hub, partition, log, state, mine, now_ms)
            ended += [one] if one is not None else []
    return ended


def end_before_enlisting(
    namespace: LiveNamespace, known: "Transaction", partitions: Iterable["HubPartition"], now_ms: int
) -> list[EndedTransaction]:
    """End open transactions of a producer in partitions that it is about to add; returns them.

    Otherwise the marker of the new transaction would also end the old one. Raises ConcurrentTransaction, which
    clients retry, when a partition cannot take the marker now.
    """
    hubs = {hub.entity.uid: hub for hub in namespace.hubs.values()}
    ended: list[EndedTransaction] = []
    for uid, partition in partitions:
        hub = hubs.get(uid)
        try:
            log = None if hub is None else _log_of(hub, partition)
        except LogOpening:
            raise ConcurrentTransaction(known.transactional_id) from None
        if hub is None or log is None:
            continue
        for state in log.open_transactions():
            if state.producer_id == known.producer_id:
                one = _end(hub, partition, log, state, known, now_ms)
                if one is None:
                    raise ConcurrentTransaction(known.transactional_id)
                ended.append(one)
    return ended


def _log_of(hub: LiveHub, partition: int) -> PartitionLog | None:
    """The log of a partition; None when it cannot be opened. Its writers get the error themselves.

    Raises LogOpening while it is being opened: nobody knows yet whether a transaction is open in it.
    """
    try:
        return hub.log(partition)
    except LogOpening:
        raise
    except Refusal:
        return None


def _is_in_hand(transactions: "Transactions", known: "Transaction", hub: LiveHub, partition: int) -> bool:
    return (hub.entity.uid, partition) in known.partitions or transactions.is_changing(known.transactional_id)


def _end(
    hub: LiveHub,
    partition: int,
    log: PartitionLog,
    state: ProducerState,
    known: "Transaction | None",
    now_ms: int,
) -> EndedTransaction | None:
    """Write the missing marker; None if the partition cannot accept it now."""
    is_commit = known is not None and _has_committed(known, hub, partition, state)
    try:
        log.append_marker(state.producer_id, state.epoch, now_ms, commit=is_commit)
    except (ProducerRefused, StorageRefusal):
        return None
    return EndedTransaction(
        hub=hub.name,
        partition=partition,
        producer_id=state.producer_id,
        first_sequence=state.transaction_first,
        is_commit=is_commit,
    )


def _has_committed(known: "Transaction", hub: LiveHub, partition: int, state: ProducerState) -> bool:
    is_last = (hub.entity.uid, partition) in known.ended_partitions
    return is_last and known.has_committed and hub.is_damaged_after(partition, state.transaction_first)
