"""Administration of event processors that keep their checkpoints on this node: positions, problems, and resets.

A reset writes checkpoints, as `GroupAdministration` writes committed offsets for a Kafka group:

1. `plan_reset` computes the next event of every chosen partition and changes nothing: this is the preview.
2. `reset` computes the same, refuses while a processor owns or reads a partition (it would write its own checkpoint
   over it), and writes all checkpoints in one change of the catalog.

A checkpoint names the last event that was processed. One before the first event has the offset -1, which every SDK
reads as the start of the partition. Rights are checked by the caller of this module. Thread rule: the owner's thread
only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hubmere.broker.blobs.accounts import BlobAccounts
from hubmere.broker.blobs.processors import ProcessorPartition
from hubmere.broker.coordinator.administration import PlannedOffset, Reset, ResetKind, reset_target
from hubmere.broker.coordinator.refusals import GroupNotEmpty, GroupUnknown
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.management.auditing import Actor, OnDone
from hubmere.model.errors import AliasElsewhere, InvalidArgument, PartitionNotFound, PartitionOpening, Refusal
from hubmere.model.names import fold
from hubmere.store.audit import AuditLog

# SDKs renew ownership every 10 to 30 s, and give it up after at most three minutes without renewal.
OWNED_MS: Final = 180_000
_BEFORE_FIRST: Final = -1
# How long the states of all hubs are kept for questions about single hubs: every blob is read for them.
CACHED_MS: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorGroup:
    """The processors of one consumer group; `container` is needed if several containers have some."""

    hub: str
    group: str
    container: str | None = None


class ProcessorState(NamedTuple):
    """One partition of a processor: what it has stored, how far it is behind, and what is wrong."""

    hub: str
    partition: int
    stored: ProcessorPartition
    lag: int | None
    owner_moves: int
    lost_events: int

    @property
    def problems(self) -> tuple[str, ...]:
        """What an operator should look at."""
        found = []
        if self.owner_moves > 1:
            found.append(f"the owner moved {self.owner_moves} times in a minute")
        if self.lost_events:
            found.append(f"the checkpoint is older than retention: {self.lost_events:,} events were deleted unread")
        return tuple(found)


class ProcessorPosition(NamedTuple):
    """A partition of an event processor. `lag` counts the events after its checkpoint, None without a checkpoint."""

    namespace: str
    hub: str
    partition: int
    lag: int | None
    stored: ProcessorPartition


class Processors:
    """The event processors of all namespaces of a node."""

    def __init__(self, accounts: BlobAccounts, namespace_of: Callable[[str], LiveNamespace], audit: AuditLog) -> None:
        """`namespace_of` finds the namespace that a host name means."""
        self._accounts = accounts
        self._namespace_of = namespace_of
        self._audit = audit
        # The states of all hubs by uid, and until when they are used: a page asks for one hub after the other.
        self._by_hub: dict[str, list[ProcessorState]] = {}
        self._cached_until_ms = 0

    def states(self, namespace: str, now_ms: int) -> list[ProcessorState]:
        """Every partition with a checkpoint or an owner in a namespace, by hub, group and partition."""
        found = [self._state(hub, stored, now_ms) for hub, stored in self._stored_partitions(namespace)]
        return sorted(found, key=lambda state: (state.hub, state.stored.group, state.stored.container, state.partition))

    def of_hub(self, hub_uid: str, now_ms: int) -> Sequence[ProcessorState]:
        """The partitions with a checkpoint or an owner in one hub, at most five seconds old."""
        if not self._cached_until_ms - CACHED_MS <= now_ms < self._cached_until_ms:
            self._by_hub = {}
            for hub, stored in self._stored_partitions():
                self._by_hub.setdefault(hub.entity.uid, []).append(self._state(hub, stored, now_ms))
            self._cached_until_ms = now_ms + CACHED_MS
        return self._by_hub.get(hub_uid, ())

    def positions(self) -> list[ProcessorPosition]:
        """Every partition with a checkpoint or an owner in any namespace, with its lag."""
        return [
            ProcessorPosition(hub.namespace.entity.name, hub.name, int(stored.partition), _lag(hub, stored), stored)
            for hub, stored in self._stored_partitions()
        ]

    def _stored_partitions(self, namespace: str | None = None) -> list[tuple[LiveHub, ProcessorPartition]]:
        """What is stored for hubs that exist, in all namespaces or in one."""
        found = []
        for stored in self._accounts.processor_partitions():
            try:
                live = self._namespace_of(stored.host)
            except AliasElsewhere:
                continue
            is_wanted = namespace is None or fold(live.entity.name) == fold(namespace)
            hub = live.hubs.get(fold(stored.hub)) if is_wanted else None
            if hub is not None and int(stored.partition) < hub.entity.partition_count:
                found.append((hub, stored))
        return found

    def _state(self, hub: LiveHub, stored: ProcessorPartition, now_ms: int) -> ProcessorState:
        number, sequence = int(stored.partition), stored.sequence
        moves = self._accounts.owner_moves.count(stored.account, stored.container, stored.ownership_name, now_ms)
        return ProcessorState(hub.name, number, stored, _lag(hub, stored), moves, _lost_events(hub, number, sequence))

    # --- resets ---

    def plan_reset(self, namespace: str, group: ProcessorGroup, reset: Reset) -> list[PlannedOffset]:
        """The next events that `reset` would store, by partition."""
        hub, known = self._find(namespace, group)
        count = hub.entity.partition_count
        numbers = range(count) if reset.partitions is None else reset.partitions
        planned = []
        for number in numbers:
            if not 0 <= number < count:
                raise PartitionNotFound(hub.name, str(number), count)
            sequence = known[number].sequence if number in known else None
            current = None if sequence is None else sequence + 1
            if reset.kind is ResetKind.SHIFT and current is None:
                continue
            state = hub.log(number).state
            wanted = reset_target(hub, number, current, state, reset)
            target = min(max(wanted, state.log_start), state.committed)
            planned.append(PlannedOffset(hub.name, number, current, target, state.log_start, state.committed))
        if not planned:
            raise InvalidArgument("reset", reset.kind, "a shift needs partitions with a checkpoint")
        return planned

    def reset(
        self, namespace: str, group: ProcessorGroup, reset: Reset, actor: Actor, on_done: OnDone
    ) -> list[PlannedOffset]:
        """Store the planned checkpoints; refused while a processor owns or reads one of the partitions."""

        def on_complete(refusal: Refusal | None) -> None:
            line = actor.line("reset processor", f"{namespace}/{group.hub}/{group.group}", refusal)
            self._audit.write(line, lambda: on_done(refusal))

        try:
            planned = self.plan_reset(namespace, group, reset)
            hub, known = self._find(namespace, group)
            self._require_idle(hub, group, known, [each.partition for each in planned], actor.now_ms)
            first = next(iter(known.values()))
            entries = {
                first.checkpoint_name(each.partition): _checkpoint(hub, each.partition, each.target) for each in planned
            }
            account = self._accounts.account(first.account)
            account.write_checkpoints(first.container, entries, actor.now_ms, on_complete)
        except PartitionOpening:
            # Not refused: the caller tries again when the log is open.
            raise
        except Refusal as refusal:
            self._audit.write(actor.line("reset processor", f"{namespace}/{group.hub}/{group.group}", refusal))
            raise
        return planned

    def _find(self, namespace: str, group: ProcessorGroup) -> tuple[LiveHub, Mapping[int, ProcessorPartition]]:
        """The hub of a processor group, and what is stored for its partitions."""
        wanted = (fold(group.hub), fold(group.group))
        found = [
            (hub, stored)
            for hub, stored in self._stored_partitions(namespace)
            if (fold(hub.name), fold(stored.group)) == wanted and group.container in (None, stored.container)
        ]
        if not found:
            raise GroupUnknown(f"{group.hub}/{group.group}")
        containers = sorted({stored.container for _, stored in found})
        if len(containers) > 1:
            raise InvalidArgument("container", "(none)", f"one of {', '.join(containers)}")
        return found[0][0], {int(stored.partition): stored for _, stored in found}

    def _require_idle(
        self,
        hub: LiveHub,
        group: ProcessorGroup,
        known: Mapping[int, ProcessorPartition],
        partitions: Sequence[int],
        now_ms: int,
    ) -> None:
        for number in partitions:
            stored = known.get(number)
            is_owned = stored is not None and bool(stored.owner) and now_ms - (stored.owned_ms or 0) < OWNED_MS
            is_read = any(
                reader.group == fold(group.group) and str(reader.partition) == str(number)
                for reader in hub.view.readers()
            )
            if is_owned or is_read:
                raise GroupNotEmpty(f"{group.hub}/{group.group}")


def _lag(hub: LiveHub, stored: ProcessorPartition) -> int | None:
    """How many events are after the checkpoint; None without one."""
    return None if stored.sequence is None else hub.behind(int(stored.partition), stored.sequence + 1)


def _lost_events(hub: LiveHub, number: int, sequence: int | None) -> int:
    """Events after a checkpoint that retention has deleted; a checkpoint before the first event has lost none."""
    log = None if sequence is None or sequence == _BEFORE_FIRST else hub.find_log(number)
    if log is None or sequence is None:
        return 0
    return max(log.state.log_start - (sequence + 1), 0)


def _checkpoint(hub: LiveHub, number: int, target: int) -> Mapping[str, str]:
    """The metadata of a checkpoint after which `target` is the next event."""
    log = hub.log(number)
    last = target - 1
    if last < log.state.log_start:
        return {"offset": str(_BEFORE_FIRST), "sequencenumber": str(_BEFORE_FIRST)}
    if last < hub.stored_log(number).state.log_start:
        # Its offset is in a captured file: raises LogOpening until that is loaded.
        hub.read_now(log, number, last, 1)
    offset = last if log.offsets_are_sequences else log.offset_of(last)
    return {"offset": str(offset), "sequencenumber": str(last)}
