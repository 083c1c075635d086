"""Read-only views of live hubs and logs: endpoints and portal get views instead of the objects themselves.

A view has queries and changes nothing. It stays valid while its hub exists; `is_current` says when a hub was
deleted or created again under the same name. Views of one hub are the same object, so they can be compared and cached.
Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from hubmere.broker.hubs.counters import Counters, Traffic
from hubmere.broker.quotas.byte_rates import ByteRate
from hubmere.broker.quotas.throughput import Rates
from hubmere.model.entity import Hub, Namespace
from hubmere.model.errors import PartitionNotFound, Refusal
from hubmere.model.monitoring.damage import DamagedRange
from hubmere.model.names import fold, partition_number
from hubmere.model.position import Position
from hubmere.model.tier import Limits
from hubmere.store.engine import Chunk, LogState, PartitionLog, ProducerState

if TYPE_CHECKING:
    from hubmere.broker.hubs.live import LiveHub
    from hubmere.broker.hubs.live_namespace import LiveNamespace
    from hubmere.broker.read import Reader, Steal


class NamespaceView:
    """One namespace: its entity, its limits, its counters and its hubs."""

    __slots__ = ("_live", "name")

    def __init__(self, live: "LiveNamespace") -> None:
        self._live = live
        # As it was given at creation; it never changes.
        self.name: str = live.entity.name

    @property
    def entity(self) -> Namespace:
        """The namespace as it is defined now."""
        return self._live.entity

    @property
    def limits(self) -> Limits:
        """The limits of the namespace's tier."""
        return self._live.limits

    @property
    def is_throttled(self) -> bool:
        """Whether throughput units limit the namespace."""
        return self._live.throughput is not None

    @property
    def counters(self) -> Counters:
        """A copy of the counters of the namespace itself; those of its hubs are separate."""
        return copy(self._live.counters)

    @property
    def rates(self) -> Rates | None:
        """Bytes and events per second that the throughput units allow; None when the tier has no such limit."""
        return self._live.rates

    @property
    def last_limited_at(self) -> float:
        """When throughput units last refused or delayed a client; minus infinity if never."""
        return float("-inf") if self._live.throughput is None else self._live.throughput.last_throttled_at

    def traffic(self) -> Traffic:
        """The counters of requests that named no hub of the namespace."""
        return self._live.counters.traffic

    def traffic_by_hub(self) -> dict[str, Traffic]:
        """The counters of every hub, by its uid; about a microsecond per hub."""
        return {live.entity.uid: live.counters.traffic for live in self._live.hubs.values()}

    def hubs(self) -> list["HubView"]:
        """Every hub, sorted by folded name."""
        return [live.view for _, live in sorted(self._live.hubs.items())]

    def has_hub(self, name: str) -> bool:
        """Whether a hub has this name, in any case."""
        return fold(name) in self._live.hubs

    def resource(self, *path: str) -> str:
        """How the service names something below this namespace in its texts."""
        return self._live.resource(*path)


class HubView:
    """One event hub."""

    __slots__ = ("_live", "name", "namespace", "uid")

    def __init__(self, live: "LiveHub") -> None:
        self._live = live
        # These never change; pages over a thousand hubs ask for them all the time.
        self.name: str = live.entity.name
        # The id that no other hub ever has, also not one of the same name.
        self.uid: str = live.entity.uid
        self.namespace: NamespaceView = live.namespace.view

    @property
    def entity(self) -> Hub:
        """The hub as it is defined now."""
        return self._live.entity

    @property
    def partition_count(self) -> int:
        """How many partitions the hub has."""
        return self._live.entity.partition_count

    @property
    def is_current(self) -> bool:
        """Whether the hub still exists."""
        return self._live.is_current

    @property
    def counters(self) -> Counters:
        """A copy of the hub's counters."""
        return copy(self._live.counters)

    def rate(self, partition: int) -> ByteRate:
        """Bytes per second into and out of a partition."""
        return self._live.rates.of(partition)

    @property
    def open_partition_count(self) -> int:
        """How many partitions have an open log; logs are opened on first use."""
        return len(self._live.open_logs())

    @property
    def is_fully_open(self) -> bool:
        """Whether the logs of all partitions are open, so that `size_bytes` is the size of the hub."""
        return self.open_partition_count == self.partition_count

    @property
    def size_bytes(self) -> int:
        """Total size of the open logs, without partitions that are offline."""
        total = 0
        for log in self._live.open_logs():
            try:
                total += log.state.size_bytes
            except Refusal:
                continue
        return total

    def open_partitions(self, limit: int) -> int:
        """Begin to open at most `limit` logs that are not open yet; returns how many."""
        closed = self.unopened_partitions(range(self.partition_count))[:limit]
        for number in closed:
            self._live.open_ahead(number)
        return len(closed)

    def unopened_partitions(self, partitions: Iterable[int]) -> list[int]:
        """Those of the partitions that exist and whose logs are not open."""
        find_log, count = self._live.find_log, self.partition_count
        return [number for number in partitions if find_log(number) is None and 0 <= number < count]

    def open_ahead(self, partition: int) -> None:
        """Begin to open the log of a partition that exists, for a request that needs several of them.

        The request then waits for them one after the other (`PartitionView.require_open`).
        """
        self._live.open_ahead(partition)

    @property
    def opening_partitions(self) -> list[int]:
        """The partitions whose logs are being opened: created, or recovered after a crash."""
        return self._live.opening_partitions

    @property
    def recovering_partitions(self) -> list[int]:
        """The partitions whose logs a crash has left to recover, and that are not open yet; their clients wait."""
        return self._live.recovering_partitions

    def publisher_names(self) -> list[str | None]:
        """One entry for each open publishing link: the publisher's folded name, None for links without one."""
        return list(self._live.publishers.values())

    @property
    def revoked_publisher_count(self) -> int:
        """How many publishers are revoked."""
        return len(self._live.revoked)

    def partition(self, number: int) -> "PartitionView":
        """One partition, which must exist."""
        return PartitionView(self._live, number)

    def require_partition(self, number: int) -> "PartitionView":
        """One partition by its number; refused when there is none."""
        if not 0 <= number < self.partition_count:
            raise PartitionNotFound(self.name, str(number), self.partition_count)
        return PartitionView(self._live, number)

    def partition_of(self, name: str) -> "PartitionView":
        """One partition by its id as clients write it; refused when there is none."""
        return PartitionView(self._live, partition_number(name, hub=self.name, count=self.partition_count))

    def readers(self) -> "Sequence[Reader]":
        """The AMQP readers that are open now."""
        return self._live.readers.all()

    @property
    def steal_count(self) -> int:
        """How often a reader took a partition from another by its epoch, since the node started."""
        return self._live.readers.steal_count

    @property
    def steals(self) -> "Sequence[Steal]":
        """The latest of these, oldest first."""
        return self._live.readers.steals

    def lag(self, partition: int, position: int) -> int:
        """How many events a reader at this sequence number still has to read; 0 when the partition is unavailable."""
        return self._live.behind(partition, position)

    def offline_partitions(self) -> list[int]:
        """Partitions that accept nothing until their logs are verified."""
        return self._live.offline_partitions()

    def damaged_ranges(self) -> list[tuple[int, DamagedRange]]:
        """Stored events that cannot be read, each with its partition."""
        return self._live.damaged_ranges()

    def cold_gaps(self) -> list[tuple[int, range]]:
        """Events that hide older captured files from readers, because no file holds them; each with its partition."""
        if self._live.history is None:
            return []
        gaps = ((number, self._live.cold_range(number)[1]) for number in range(self.partition_count))
        return [(number, gap) for number, gap in gaps if gap is not None]

    def report_unreadable(
        self, partition: int, first_sequence: int, next_sequence: int, reason: str = "its records cannot be decoded"
    ) -> None:
        """Report an intact batch whose records cannot be decoded; repeats have no effect."""
        self._live.report_unreadable(partition, first_sequence, next_sequence, reason)


class PartitionView:
    """One partition of a hub, read only.

    Opens the partition's log on first use; until the log is open, everything here raises LogOpening (see `opening`).
    """

    __slots__ = ("_live", "_stored_only", "number")

    def __init__(self, live: "LiveHub", number: int, *, stored_only: bool = False) -> None:
        """With `stored_only` the view shows the log alone, without captured files."""
        self._live = live
        self._stored_only = stored_only
        self.number = number

    @property
    def log_only(self) -> "PartitionView":
        """The partition without captured files below its log."""
        return PartitionView(self._live, self.number, stored_only=True)

    @property
    def _log(self) -> PartitionLog:
        live = self._live
        return live.stored_log(self.number) if self._stored_only else live.log(self.number)

    @property
    def state(self) -> LogState:
        """First, last and stable sequence number, last offset and time, size; all of it is committed."""
        return self._log.state

    @property
    def current_state(self) -> LogState:
        """Like `state`, but not older than this request; raises LogOpening while the cluster is queried."""
        return self._live.current_log(self.number).state

    def require_open(self) -> None:
        """Raise LogOpening while the partition's log is being opened, or why it cannot be opened."""
        self._live.log(self.number)

    def require_found(self, position: Position) -> None:
        """Raise LogOpening while a position is looked up before the log; then `find` and `state` have the answer."""
        if not self._stored_only and self._live.history is not None:
            self._live.current_log(self.number, position)

    def require_loaded(self, sequence: int) -> None:
        """Raise LogOpening while an event is loaded that is not in the log; then `read` has it."""
        if not self._stored_only and self._live.history is not None:
            self._live.read_now(self._log, self.number, sequence, 1)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of new batches (KIP-101)."""
        return self._log.leader_epoch

    @property
    def known_leader_epoch(self) -> int:
        """As `leader_epoch`; -1 while the log is not open."""
        log = self._live.find_log(self.number)
        return -1 if log is None else log.leader_epoch

    def find(self, position: Position) -> int:
        """The sequence number at which a reader of this position starts."""
        return self._log.find(position)

    @property
    def offsets_are_sequences(self) -> bool:
        """Whether the offset of an event is its sequence number."""
        return self._log.offsets_are_sequences

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Whole committed batches from the one that holds `sequence`; None when there is none yet."""
        return self._log.read(sequence, max_bytes, stable_only=stable_only)

    def producers(self) -> Sequence[ProducerState]:
        """The state of idempotent producers."""
        return self._log.producers()

    def watch(self, on_moved: Callable[[], None]) -> None:
        """Call `on_moved` whenever the committed end, the stable end or the start moves."""
        self._log.watch(on_moved)

    def unwatch(self, on_moved: Callable[[], None]) -> None:
        """Stop the calls; an unknown callback is ignored."""
        self._log.unwatch(on_moved)
