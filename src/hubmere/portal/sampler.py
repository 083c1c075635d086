"""What flows, second by second: counters become rates and a short history that all pages share.

There is no task: whoever looks calls `look` about once a second, and the first to come takes the sample, so that a node
nobody looks at pays nothing. A sample is one walk over the hubs of one namespace (1,000 hubs: about a millisecond).
History is bounded and begins anew after a pause, because a rate over a long gap would be no rate.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from hubmere.broker.broker import Broker
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.portal.standings import lag_by_group

# The counters of which rates are made, in this order in every tuple of rates.
FLOWS = (
    "incoming_messages",
    "outgoing_messages",
    "incoming_bytes",
    "outgoing_bytes",
    "incoming_requests",
    "successful_requests",
    "throttled_requests",
    "server_errors",
    "user_errors",
)
# Five minutes at one sample a second: what a chart shows, and about 60 KB per namespace that is looked at.
HISTORY_SAMPLES = 300
# Several pages look at slightly different moments; who comes within this time after a sample gets that one.
_SAMPLE_SECONDS = 0.9
# After a pause this long nobody was looking, and the history begins anew.
_PAUSE_SECONDS = 5.0
# Namespaces and hubs with a history; the least recently looked at gives way.
MAX_TRACKS = 64
# Groups whose lag is kept; a chart with more lines is no chart.
MAX_LAG_LINES = 12

Totals = tuple[int, ...]
Rates = tuple[float, ...]

_totals = attrgetter(*FLOWS)
_NOTHING: Totals = (0,) * len(FLOWS)
NO_RATES: Rates = (0.0,) * len(FLOWS)


@dataclass(frozen=True, slots=True)
class Sample:
    """One second: rates per second in the order of FLOWS, and how many connections were open."""

    at_ms: int
    rates: Rates
    connections: int

    def rate(self, flow: str) -> float:
        """One of the rates by its counter's name."""
        return self.rates[FLOWS.index(flow)]


@dataclass(slots=True)
class HubTrack:
    """A hub that somebody looks at: its own history, events per second and partition, and the lag of its groups."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    partition_rates: tuple[float, ...] = ()
    lags: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    _ends: tuple[int, ...] = ()

    def take(self, hub: LiveHub, sample: Sample, lags: Mapping[str, int], elapsed_s: float | None) -> None:
        """Keep a sample."""
        ends = tuple(_end_of(hub, partition) for partition in range(hub.entity.partition_count))
        if elapsed_s is not None and len(ends) == len(self._ends):
            pairs = zip(ends, self._ends, strict=True)
            self.partition_rates = tuple(max(end - before, 0) / elapsed_s for end, before in pairs)
        else:
            self.partition_rates = (0.0,) * len(ends)
        self._ends = ends
        self.samples.append(sample)
        for group, lag in sorted(lags.items())[:MAX_LAG_LINES]:
            self.lags.setdefault(group, deque(maxlen=HISTORY_SAMPLES)).append((sample.at_ms, lag))
        for group in self.lags.keys() - lags.keys():
            del self.lags[group]


@dataclass(slots=True)
class NamespaceTrack:
    """A namespace that somebody looks at."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    rates: dict[str, Rates] = field(default_factory=dict)
    hubs: dict[str, HubTrack] = field(default_factory=dict)
    totals: dict[str, Totals] = field(default_factory=dict)
    taken_at: float | None = None


class Sampler:
    """The rates of a node. Thread rule: the owner's thread only."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._tracks: dict[str, NamespaceTrack] = {}

    def look(self, namespace: LiveNamespace, hub: LiveHub | None = None) -> NamespaceTrack:
        """Somebody looks at a namespace, or at one of its hubs; a sample is taken if one is due."""
        track = self._track(namespace)
        if hub is not None and hub.entity.uid not in track.hubs:
            while len(track.hubs) >= MAX_TRACKS:
                track.hubs.pop(next(iter(track.hubs)))
            track.hubs[hub.entity.uid] = HubTrack()
        now = self._clock.monotonic()
        if track.taken_at is None or now - track.taken_at >= _SAMPLE_SECONDS:
            self._sample(namespace, track, now)
        return track

    def rates(self, hub: LiveHub) -> Rates:
        """What flows through a hub, as of the last sample."""
        track = self._tracks.get(hub.namespace.entity.name)
        return NO_RATES if track is None else track.rates.get(hub.entity.uid, NO_RATES)

    def history(self, namespace: LiveNamespace, hub: LiveHub | None = None) -> Sequence[Sample]:
        """What flowed through a namespace or a hub while somebody looked, oldest first."""
        track = self._track(namespace)
        if hub is None:
            return track.samples
        found = track.hubs.get(hub.entity.uid)
        return () if found is None else found.samples

    def _track(self, namespace: LiveNamespace) -> NamespaceTrack:
        name = namespace.entity.name
        track = self._tracks.pop(name, None) or NamespaceTrack()
        while len(self._tracks) >= MAX_TRACKS:
            self._tracks.pop(next(iter(self._tracks)))
        self._tracks[name] = track
        return track

    def _sample(self, namespace: LiveNamespace, track: NamespaceTrack, now: float) -> None:
        elapsed_s = None if track.taken_at is None else now - track.taken_at
        if elapsed_s is not None and elapsed_s > _PAUSE_SECONDS:
            track.samples.clear()
            track.hubs = {uid: HubTrack() for uid in track.hubs}
            elapsed_s = None
        track.taken_at = now
        totals = {hub.entity.uid: _totals(hub.counters) for hub in namespace.hubs.values()}
        # What no hub was named for, refused requests above all, is counted by the namespace.
        totals[""] = _totals(namespace.counters)
        before, track.totals = track.totals, totals
        # Idle hubs are most of a thousand: they have no entry, and cost one comparison.
        track.rates = {}
        if elapsed_s is not None:
            for uid, total in totals.items():
                if total != before.get(uid, _NOTHING):
                    track.rates[uid] = _rates(total, before.get(uid, _NOTHING), elapsed_s)
        self._keep(namespace, track, elapsed_s)

    def _keep(self, namespace: LiveNamespace, track: NamespaceTrack, elapsed_s: float | None) -> None:
        at_ms = self._clock.now_ms()
        connections = self._broker.counters.active_connections
        if elapsed_s is not None:
            summed = tuple(map(sum, zip(NO_RATES, *track.rates.values(), strict=True)))
            track.samples.append(Sample(at_ms, summed, connections))
        by_uid = {hub.entity.uid: hub for hub in namespace.hubs.values()}
        for uid, hub_track in list(track.hubs.items()):
            hub = by_uid.get(uid)
            if hub is None:
                del track.hubs[uid]
            else:
                sample = Sample(at_ms, track.rates.get(uid, NO_RATES), connections)
                hub_track.take(hub, sample, lag_by_group(self._broker, hub), elapsed_s)


def _rates(now: Totals, before: Totals, elapsed_s: float) -> Rates:
    return tuple((new - old) / elapsed_s for new, old in zip(now, before, strict=True))


def _end_of(hub: LiveHub, partition: int) -> int:
    """Where a partition ends; one that is offline stands still."""
    try:
        return hub.log(partition).state.committed
    except Refusal:
        return 0
