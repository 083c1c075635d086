"""One transactional id: its producer, its open or last transaction, and the durable form of both. Values only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from hubmere.store.catalog.runtime_state import TransactionState

# A partition by its hub's uid and its number.
HubPartition = tuple[str, int]


class Phase(StrEnum):
    """The state of a transactional producer; the names are those of Kafka's tools."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class PendingOffset(NamedTuple):
    """An offset that a group will have committed if the transaction commits."""

    group_id: str
    hub_uid: str
    partition: int
    sequence: int
    leader_epoch: int
    metadata: str

    @property
    def key(self) -> tuple[str, str, int]:
        """The group and the partition."""
        return (self.group_id, self.hub_uid, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id, its current producer, and its open or last transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    last_epoch: int = -1  # the previous epoch, if the same producer requested the current one
    phase: Phase = Phase.EMPTY
    partitions: frozenset[HubPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    offsets: Mapping[tuple[str, str, int], PendingOffset] = field(default_factory=lambda: MappingProxyType({}))
    started_ms: int = -1
    updated_ms: int = 0
    # The partitions and outcome of the last ended transaction: a partition may lose its marker on disk.
    ended_partitions: frozenset[HubPartition] = frozenset()
    has_committed: bool = False


def encode_transaction(known: Transaction) -> str:
    return json.dumps(
        {
            "producer_id": known.producer_id,
            "epoch": known.epoch,
            "timeout_ms": known.timeout_ms,
            "last_epoch": known.last_epoch,
            "phase": known.phase.value,
            "places": sorted(known.partitions),
            "groups": sorted(known.groups),
            "offsets": list(known.offsets.values()),
            "started_ms": known.started_ms,
            "ended_places": sorted(known.ended_partitions),
            "has_committed": known.has_committed,
        },
        separators=(",", ":"),
    )


def decode_transaction(record: TransactionState) -> Transaction:
    state = json.loads(record.state)
    offsets = [PendingOffset(*row) for row in state["offsets"]]
    return Transaction(
        transactional_id=record.transactional_id,
        producer_id=state["producer_id"],
        epoch=state["epoch"],
        timeout_ms=state["timeout_ms"],
        last_epoch=state["last_epoch"],
        phase=Phase(state["phase"]),
        partitions=frozenset((uid, partition) for uid, partition in state["places"]),
        groups=frozenset(state["groups"]),
        offsets=MappingProxyType({offset.key: offset for offset in offsets}),
        started_ms=state["started_ms"],
        updated_ms=record.modified_ms,
        # Earlier versions did not store these two.
        ended_partitions=frozenset((uid, partition) for uid, partition in state.get("ended_places", ())),
        has_committed=state.get("has_committed", False),
    )
