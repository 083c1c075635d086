"""Runtime information of hubs and partitions for AMQP management and Atom, within the tier's rate of requests."""

from dataclasses import dataclass
from typing import Final

from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.views import HubView
from hubmere.broker.quotas.byte_rates import ByteRate
from hubmere.broker.quotas.throughput import FairBucket
from hubmere.model.errors import ServerBusy

# The service's sub-code for too many requests for runtime information.
_TOO_MANY_REQUESTS: Final = 50008


@dataclass(frozen=True, slots=True, kw_only=True)
class HubInfo:
    """Runtime information of a hub."""

    name: str
    created_ms: int
    partition_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """Runtime information of a partition; an empty one has -1, as in the service."""

    hub: str
    partition: int
    begin_sequence: int
    last_sequence: int
    last_offset: int
    last_enqueued_ms: int
    is_empty: bool
    size_bytes: int
    rate: ByteRate


class RuntimeInformation:
    """Describes hubs and partitions, for callers whose right was checked. Thread rule: the owner's thread only."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        # The requests that each namespace may still send, by its name.
        self._buckets: dict[str, FairBucket] = {}

    def hub_info(self, hub: HubView, now: float) -> HubInfo:
        """Name, age and partitions of a hub."""
        self._admit(hub._live, now)
        entity = hub.entity
        return HubInfo(name=entity.name, created_ms=entity.created_ms, partition_ids=entity.partition_ids)

    def partition_info(self, hub: HubView, partition: str, now: float) -> PartitionInfo:
        """Where a partition begins and ends."""
        view = hub.partition_of(partition)
        # Get the log first: a request that waits for it runs again, and must not be counted twice.
        number, state = view.number, view.current_state
        self._admit(hub._live, now)
        return PartitionInfo(
            hub=hub.name,
            partition=number,
            begin_sequence=state.log_start,
            last_sequence=state.committed - 1,
            last_offset=state.last_offset,
            last_enqueued_ms=state.last_enqueued_ms,
            is_empty=state.log_start == state.committed,
            size_bytes=state.size_bytes,
            rate=hub.rate(number),
        )

    def _admit(self, hub: LiveHub, now: float) -> None:
        limit = hub.namespace.limits.runtime_information_per_second
        if limit is None:
            return
        bucket = self._buckets.setdefault(hub.namespace.entity.name, FairBucket(limit, now))
        if bucket.missing(hub.entity.uid, 1, now):
            hub.counters.throttled_requests += 1
            raise ServerBusy(1.0, code=_TOO_MANY_REQUESTS, limits=("runtime_information_per_second",))
        bucket.spend(hub.entity.uid, 1, now)
