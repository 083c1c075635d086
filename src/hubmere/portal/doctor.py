"""Names what is wrong with the links of a namespace: one check per ailment, each a pure look at what was observed.

An `Observer` keeps, while somebody looks, what can only be seen over time: where each reader stood and who owned each
partition. `findings` asks every check of the table in turn. A finding says what is wrong, where, and what helps.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hubmere.broker.consume import Subscription
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.model.errors import Refusal
from hubmere.portal.sampler import FLOWS, Rates

# A reader with something to read that has not moved for this long has stopped asking.
STALLED_SECONDS = 10.0
# Within this time, this many owners of one partition are a quarrel and not a hand-over.
DUEL_SECONDS = 60.0
DUEL_CHANGES = 3
# A clock further ahead than this is wrong, whatever network and batching do.
SKEW_MS = 60_000
# Readers that are followed; a namespace with more shows the first.
MAX_FOLLOWED = 10_000
_PRESSED_SECONDS = 10.0

Place = tuple[str, str, int]


class Severity(StrEnum):
    """How bad."""

    WRONG = "wrong"
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    severity: Severity
    ailment: str
    where: str
    what: str
    remedy: str


@dataclass(slots=True)
class _Track:
    """What was seen of one partition in one group: who owned it, and since when each reader stands where it stands."""

    owner: Subscription | None = None
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=DUEL_CHANGES))
    stands: dict[Subscription, tuple[int, float]] = field(default_factory=dict)

    def take(self, readers: Sequence[Subscription], now: float) -> None:
        """Note where the readers are now; those who have gone are forgotten."""
        owner = next((reader for reader in readers if reader.epoch is not None), None)
        if owner is not None and owner is not self.owner:
            self.changes.append(now)
            self.owner = owner
        before, self.stands = self.stands, {}
        for reader in readers:
            known = before.get(reader)
            has_moved = known is None or known[0] != reader.next_sequence or reader.lag <= 0
            self.stands[reader] = (reader.next_sequence, now) if known is None or has_moved else known


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the checks look at."""

    namespace: LiveNamespace
    hubs: Sequence[LiveHub]
    observer: "Observer"
    rates: Callable[[LiveHub], Rates]
    now: float
    now_ms: int


class Observer:
    """Where readers stood and who owned what, while somebody looks. Thread rule: the owner's thread only."""

    def __init__(self) -> None:
        self._tracks: dict[Place, _Track] = {}

    def observe(self, hubs: Iterable[LiveHub], now: float) -> None:
        """Look at every reader once; call it about every second."""
        seen: dict[Place, list[Subscription]] = {}
        for hub in hubs:
            for reader in hub.readers.all():
                seen.setdefault((hub.entity.uid, reader.group, reader.partition), []).append(reader)
        for place, readers in seen.items():
            if place in self._tracks or len(self._tracks) < MAX_FOLLOWED:
                self._tracks.setdefault(place, _Track()).take(readers, now)
        for place in [place for place in self._tracks if place not in seen and not self._is_recent(place, now)]:
            del self._tracks[place]

    def _is_recent(self, place: Place, now: float) -> bool:
        changes = self._tracks[place].changes
        return bool(changes) and now - changes[-1] <= DUEL_SECONDS

    def stalled_for(self, hub: LiveHub, reader: Subscription, now: float) -> float:
        """How long a reader has stood still with events before it."""
        track = self._tracks.get((hub.entity.uid, reader.group, reader.partition))
        known = None if track is None else track.stands.get(reader)
        return 0.0 if known is None else now - known[1]

    def duels(self, now: float) -> Iterator[Place]:
        """Partitions that changed hands again and again."""
        for place, track in self._tracks.items():
            if len(track.changes) == DUEL_CHANGES and now - track.changes[0] <= DUEL_SECONDS:
                yield place


def findings(scene: Scene) -> list[Finding]:
    """Everything that is wrong, the worst first."""
    found = [finding for check in CHECKS for finding in check(scene)]
    return sorted(found, key=lambda finding: (finding.severity is not Severity.WRONG, finding.ailment, finding.where))


# --- the checks ------------------------------------------------------------------------------------------------------


def _offline(scene: Scene) -> Iterator[Finding]:
    for hub in scene.hubs:
        for log_number in _opened(hub):
            try:
                hub.log(log_number).state  # noqa: B018  asking is the check
            except Refusal as refusal:
                yield Finding(
                    severity=Severity.WRONG,
                    ailment="Partition offline",
                    where=f"{hub.name}/{log_number}",
                    what=refusal.text(),
                    remedy="The node tries again every second; look at the disk and at the node's log.",
                )


def _disabled(scene: Scene) -> Iterator[Finding]:
    for hub in scene.hubs:
        status = hub.entity.status
        if not (status.may_send and status.may_receive):
            yield Finding(
                severity=Severity.DOUBTFUL,
                ailment="Hub disabled",
                where=hub.name,
                what=f"Its status is {status}: clients are refused.",
                remedy="Set it to Active on the hub's page when clients should come back.",
            )


def _stalled(scene: Scene) -> Iterator[Finding]:
    for hub in scene.hubs:
        for reader in hub.readers.all():
            still_s = scene.observer.stalled_for(hub, reader, scene.now)
            if reader.lag > 0 and still_s >= STALLED_SECONDS:
                yield Finding(
                    severity=Severity.WRONG,
                    ailment="Stalled reader",
                    where=f"{hub.name}/{reader.partition} as {reader.group}",
                    what=f"'{reader.name}' has taken nothing for {still_s:.0f} s with {reader.lag:,} events before it: "
                    "it gives no credit, or its socket is full.",
                    remedy="Look at the consumer: its handler is slow or stuck, or it waits for something else.",
                )


def _duelling(scene: Scene) -> Iterator[Finding]:
    names = {hub.entity.uid: hub.name for hub in scene.hubs}
    for uid, group, partition in scene.observer.duels(scene.now):
        if uid in names:
            yield Finding(
                severity=Severity.WRONG,
                ailment="Duelling owners",
                where=f"{names[uid]}/{partition} as {group}",
                what=f"The partition changed hands {DUEL_CHANGES} times within {DUEL_SECONDS:.0f} s: readers with an "
                "epoch take it from each other.",
                remedy="Let the consumers share one checkpoint store, or give them different consumer groups.",
            )


def _crowded(scene: Scene) -> Iterator[Finding]:
    for hub in scene.hubs:
        crowds: dict[tuple[str, int], int] = {}
        for reader in hub.readers.all():
            if reader.epoch is None:
                crowds[reader.group, reader.partition] = crowds.get((reader.group, reader.partition), 0) + 1
        for (group, partition), count in crowds.items():
            if count > 1:
                yield Finding(
                    severity=Severity.DOUBTFUL,
                    ailment="Shared partition",
                    where=f"{hub.name}/{partition} as {group}",
                    what=f"{count} readers without an epoch read it: each gets every event.",
                    remedy="Give each its own consumer group, or an owner level so that one of them owns it.",
                )


def _throttled(scene: Scene) -> Iterator[Finding]:
    place = FLOWS.index("throttled_requests")
    for hub in scene.hubs:
        refused = scene.rates(hub)[place]
        if refused > 0:
            yield Finding(
                severity=Severity.WRONG,
                ailment="Throttled",
                where=hub.name,
                what=f"{refused:,.1f} requests a second are throttled.",
                remedy="Add throughput units on the Scale page, switch auto-inflate on, or send larger batches.",
            )


def _pressed(scene: Scene) -> Iterator[Finding]:
    throughput = scene.namespace.throughput
    if throughput is not None and scene.now - throughput.last_pressed_at < _PRESSED_SECONDS:
        yield Finding(
            severity=Severity.DOUBTFUL,
            ailment="At its limit",
            where=scene.namespace.entity.name,
            what="The namespace has used up its throughput units within the last seconds.",
            remedy="Add throughput units on the Scale page.",
        )


def _failing(scene: Scene) -> Iterator[Finding]:
    server, user = FLOWS.index("server_errors"), FLOWS.index("user_errors")
    for hub in scene.hubs:
        rates = scene.rates(hub)
        if rates[server] > 0:
            yield Finding(
                severity=Severity.WRONG,
                ailment="Server errors",
                where=hub.name,
                what=f"{rates[server]:,.1f} requests a second fail inside the node.",
                remedy="The node's log says why; a full disk is the usual reason.",
            )
        if rates[user] > 0:
            yield Finding(
                severity=Severity.DOUBTFUL,
                ailment="Refused requests",
                where=hub.name,
                what=f"{rates[user]:,.1f} requests a second are refused: wrong key, size, partition or name.",
                remedy="The client's own error message has the reason and a tracking id, which is in the node's log.",
            )


def _skewed(scene: Scene) -> Iterator[Finding]:
    for hub in scene.hubs:
        for partition in _opened(hub):
            ahead_ms = _last_enqueued_ms(hub, partition) - scene.now_ms
            if ahead_ms > SKEW_MS:
                yield Finding(
                    severity=Severity.WRONG,
                    ailment="Clock skew",
                    where=f"{hub.name}/{partition}",
                    what=f"Its last event is {ahead_ms / 1000:,.0f} s in the future.",
                    remedy="Set the clock of the producer or of this machine; look-ups by time are wrong until then.",
                )


def _opened(hub: LiveHub) -> range:
    """The partitions of a hub that is in use: a check must not open the logs of a thousand idle hubs."""
    return range(hub.entity.partition_count) if hub.open_logs() else range(0)


def _last_enqueued_ms(hub: LiveHub, partition: int) -> int:
    try:
        return hub.log(partition).state.last_enqueued_ms
    except Refusal:
        return -1


CHECKS: Sequence[Callable[[Scene], Iterator[Finding]]] = (
    _offline,
    _disabled,
    _stalled,
    _duelling,
    _crowded,
    _throttled,
    _pressed,
    _failing,
    _skewed,
)
