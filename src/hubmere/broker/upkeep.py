"""The broker's periodic work: auto-inflate, rates, coordinator cleanup, retention and compaction.

Nothing here waits, reads a clock or logs. The node calls `tick` every second. At its retention interval it calls
`apply_retention` and `compaction` for each partition. It logs what these calls return.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hubmere.broker.coordinator.coordinators import Coordinators
from hubmere.broker.coordinator.hanging_transactions import EndedTransaction
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.views import HubView
from hubmere.broker.management.capture import Captures
from hubmere.broker.management.manager import Actor, Manager
from hubmere.broker.quotas.auto_inflate import QUIET_SECONDS, AutoInflate
from hubmere.broker.quotas.sharing import Sharing
from hubmere.model.errors import Refusal
from hubmere.store.engine import CompactionPass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """What retention did to a partition.

    `held_bytes` are past retention and kept for Capture; `is_newly_held` is True on the first report of that.
    `lost` are sequence numbers that were deleted before they were captured.
    """

    deleted_segments: int
    held_bytes: int = 0
    is_newly_held: bool = False
    lost: range = range(0)


class Upkeep:
    """Periodic work of one broker. Thread rule: the owner's thread only.

    `quiet_s` is how long traffic must have fitted fewer throughput units before one is given back.
    """

    def __init__(
        self,
        namespaces: Mapping[str, LiveNamespace],
        coordinators: Coordinators,
        manager: Manager,
        captures: Captures,
        *,
        quiet_s: float = QUIET_SECONDS,
        sharing: Sharing | None = None,
    ) -> None:
        self._namespaces = namespaces
        self._coordinators = coordinators
        self._manager = manager
        self._captures = captures
        self._auto_inflate = AutoInflate(quiet_s, sharing)

    def tick(self, actor: Actor) -> list[EndedTransaction]:
        """Call every second: clean up coordinators, compute byte rates, scale throughput units.

        Returns the transactions that were ended because their end markers are lost.
        """
        ended = self._coordinators.tick(actor.now, actor.now_ms)
        for namespace in list(self._namespaces.values()):
            for hub in namespace.hubs.values():
                hub.update_rates(actor.now)
            capacity = self._auto_inflate.new_capacity(namespace, actor.now)
            if capacity is not None:
                self._manager.scale(namespace.entity.name, capacity, actor, _retry_next_tick)
        return ended

    def expire_openings(self, now: float) -> None:
        """Call every second: refuse requests that have waited too long for a log, and let failed logs be tried again.

        Raises what a callback of such a request raised; the others have been called.
        """
        failure: Exception | None = None
        for namespace in list(self._namespaces.values()):
            for hub in namespace.hubs.values():
                try:
                    hub.expire_openings(now)
                except Exception as raised:  # noqa: BLE001 - raised again below, where the caller logs it
                    failure = failure or raised
        if failure is not None:
            raise failure

    def partitions(self) -> list[tuple[HubView, int]]:
        """Every partition that was ever used, for a round of retention and compaction."""
        return [
            (hub.view, partition)
            for namespace in self._namespaces.values()
            for hub in namespace.hubs.values()
            for partition in range(hub.entity.partition_count)
            if hub.was_used(partition)
        ]

    def apply_retention(self, view: HubView, partition: int, now_ms: int) -> RetentionReport:
        """Delete the segments of a partition that are past retention, except those that Capture holds back."""
        hub = view._live
        log = hub.stored_log(partition)
        first = log.state.log_start
        deleted_segments = log.apply_retention(now_ms, self._captures.retention_hold(hub.entity, partition))
        deleted = range(first, log.state.log_start)
        held_bytes = log.overdue_bytes(now_ms) if hub.entity.is_captured else 0
        return RetentionReport(
            deleted_segments=deleted_segments,
            held_bytes=held_bytes,
            is_newly_held=self._captures.record_held_bytes(hub.entity, partition, held_bytes),
            lost=self._captures.record_deleted(hub, partition, deleted) if hub.entity.is_captured else range(0),
        )

    def compaction(self, hub: HubView, partition: int, now_ms: int) -> CompactionPass | None:
        """A compaction pass for a compacted hub, if one is due. Its `rewrite` may run on another thread."""
        if not hub.entity.retention.is_compacted:
            return None
        return hub._live.log(partition).compaction_pass(now_ms)


def _retry_next_tick(_: Refusal | None) -> None:
    """Ignore the outcome of scaling: the next tick decides again."""
