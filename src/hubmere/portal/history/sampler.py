"""Samples counters into rates per second and keeps a short history that all pages share.

The recorder and open pages call `sample` about once a second, and the first call in each second takes the sample. A
sample visits the hubs of one namespace once (1,000 hubs: about a millisecond). The history is bounded and restarts
after a pause, because a rate over a long gap is misleading.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hubmere.broker import HubView, NamespaceView, Traffic
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal

# The sampled counters; every tuple of rates has this order.
COUNTERS = Traffic._fields
# Five minutes at one sample per second, the range of a chart: about 60 KB per namespace.
HISTORY_SAMPLES = 300
# Pages refresh at slightly different times; within this time after a sample they share it.
_SAMPLE_SECONDS = 0.9
# After a pause this long no page was open, and the history restarts.
_PAUSE_SECONDS = 5.0
# Maximum number of namespaces, and of hubs per namespace, with a history; the least recently sampled is dropped.
MAX_HISTORIES = 64

Rates = tuple[float, ...]

_NO_TRAFFIC = Traffic()
NO_RATES: Rates = (0.0,) * len(COUNTERS)


@dataclass(frozen=True, slots=True)
class Sample:
    """The rates at one moment, in the order of COUNTERS, and the open connections of the namespace."""

    rates: Rates
    connections: int

    def rate(self, counter: str) -> float:
        """The rate of one counter, by name."""
        return self.rates[COUNTERS.index(counter)]


@dataclass(slots=True)
class HubHistory:
    """History of a hub with an open page: samples, and events per second of each partition."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    partition_rates: tuple[float, ...] = ()
    _ends: tuple[int, ...] = ()

    def add(self, hub: HubView, sample: Sample, elapsed_s: float | None) -> None:
        """Add a sample."""
        ends = tuple(_end_of(hub, partition) for partition in range(hub.partition_count))
        if elapsed_s is not None and len(ends) == len(self._ends):
            pairs = zip(ends, self._ends, strict=True)
            self.partition_rates = tuple(
                max(end - before, 0) / elapsed_s if before >= 0 else 0.0 for end, before in pairs
            )
        else:
            self.partition_rates = (0.0,) * len(ends)
        self._ends = ends
        self.samples.append(sample)


@dataclass(slots=True)
class NamespaceHistory:
    """History of a namespace with an open page."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    rates: dict[str, Rates] = field(default_factory=dict)
    hubs: dict[str, HubHistory] = field(default_factory=dict)
    totals: dict[str, Traffic] = field(default_factory=dict)
    sampled_at: float | None = None


class Sampler:
    """The rates of all namespaces with open pages. Thread rule: the owner's thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._histories: dict[str, NamespaceHistory] = {}

    def sample(self, namespace: NamespaceView, hub: HubView | None = None) -> NamespaceHistory:
        """The history of a namespace, after taking a sample if one is due. `hub` gets a history of its own."""
        history = self._history(namespace)
        if hub is not None and hub.uid not in history.hubs:
            while len(history.hubs) >= MAX_HISTORIES:
                history.hubs.pop(next(iter(history.hubs)))
            history.hubs[hub.uid] = HubHistory()
        now = self._clock.monotonic()
        if history.sampled_at is None or now - history.sampled_at >= _SAMPLE_SECONDS:
            self._take_sample(namespace, history, now)
        return history

    def rates(self, hub: HubView) -> Rates:
        """The rates of a hub at the last sample."""
        history = self._histories.get(hub.namespace.name)
        return NO_RATES if history is None else history.rates.get(hub.uid, NO_RATES)

    def history(self, namespace: NamespaceView, hub: HubView | None = None) -> Sequence[Sample]:
        """The samples of a namespace or of one of its hubs, oldest first."""
        history = self._history(namespace)
        if hub is None:
            return history.samples
        found = history.hubs.get(hub.uid)
        return () if found is None else found.samples

    def _history(self, namespace: NamespaceView) -> NamespaceHistory:
        name = namespace.name
        history = self._histories.pop(name, None) or NamespaceHistory()
        while len(self._histories) >= MAX_HISTORIES:
            self._histories.pop(next(iter(self._histories)))
        self._histories[name] = history
        return history

    def _take_sample(self, namespace: NamespaceView, history: NamespaceHistory, now: float) -> None:
        elapsed_s = None if history.sampled_at is None else now - history.sampled_at
        if elapsed_s is not None and elapsed_s > _PAUSE_SECONDS:
            history.samples.clear()
            history.hubs = {uid: HubHistory() for uid in history.hubs}
            elapsed_s = None
        history.sampled_at = now
        totals = namespace.traffic_by_hub()
        # Requests without a valid hub, mostly refused ones, are counted by the namespace.
        totals[""] = namespace.traffic()
        before, history.totals = history.totals, totals
        # Most of a thousand hubs are idle: they get no entry and cost one comparison.
        history.rates = {}
        if elapsed_s is not None:
            for uid, total in totals.items():
                if total != before.get(uid, _NO_TRAFFIC):
                    history.rates[uid] = _rates(total, before.get(uid, _NO_TRAFFIC), elapsed_s)
        self._add_sample(namespace, history, elapsed_s)

    def _add_sample(self, namespace: NamespaceView, history: NamespaceHistory, elapsed_s: float | None) -> None:
        # AMQP and Kafka clients of this namespace; browsers of this portal are not among them.
        connections = namespace.counters.active_connections
        if elapsed_s is not None:
            summed = tuple(map(sum, zip(NO_RATES, *history.rates.values(), strict=True)))
            history.samples.append(Sample(summed, connections))
        by_uid = {hub.uid: hub for hub in namespace.hubs()} if history.hubs else {}
        for uid, hub_history in list(history.hubs.items()):
            hub = by_uid.get(uid)
            if hub is None:
                del history.hubs[uid]
            else:
                sample = Sample(history.rates.get(uid, NO_RATES), connections)
                hub_history.add(hub, sample, elapsed_s)


def _rates(now: Traffic, before: Traffic, elapsed_s: float) -> Rates:
    return tuple((new - old) / elapsed_s for new, old in zip(now, before, strict=True))


def _end_of(hub: HubView, partition: int) -> int:
    """The end sequence number of a partition; -1 while it is offline or being opened."""
    try:
        return hub.partition(partition).state.committed
    except Refusal:
        return -1
