"""Names what is wrong with the links of a namespace: one check per ailment, each a pure look at what was observed.

An `Observer` keeps, while somebody looks, what can only be seen over time: where each reader stood, who owned each
partition, and who took one from whom. `findings` asks every check of the table in turn. A finding says what is wrong,
where, on which connection as far as whoever looks may know it, and what helps.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from hubmere.broker.conditions import Condition, ConditionSeverity
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.broker.management.connections import ConnectionView, LinkView, Role
from hubmere.broker.read import Steal, Subscription
from hubmere.model.errors import Refusal
from hubmere.model.names import fold
from hubmere.portal.sampler import FLOWS, Rates

# A reader with something to read that has not moved for this long has stopped asking.
STALLED_SECONDS = 10.0
# Within this time, this many owners of one partition are a quarrel and not a hand-over.
DUEL_SECONDS = 60.0
DUEL_CHANGES = 3
# A clock further ahead than this is wrong, whatever network and batching do.
SKEW_MS = 60_000
# Partitions that one look asks, at some 2 µs each; a namespace with more is gone through in several.
EXAMINED_PARTITIONS = 1000
# Steals that are remembered; a quarrel over more partitions is seen from these.
MAX_STEALS = 100
# Publishers that a finding names.
SHOWN_PUBLISHERS = 3
# Damaged ranges of one hub that are shown; /ready and the metrics count all.
SHOWN_RANGES = 20
# Readers that are followed; a namespace with more shows the first.
MAX_FOLLOWED = 10_000
_PRESSED_SECONDS = 10.0

Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Held:
    """A reader's link, and the connection that it is on."""

    connection: ConnectionView
    link: LinkView


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


class Trouble(NamedTuple):
    """What is wrong with a partition: why it is offline, or how far its last event is in the future."""

    partition: int
    refusal: str = ""
    ahead_ms: int = 0


def _troubles(hub: LiveHub, now_ms: int) -> Iterator[Trouble]:
    for partition in range(hub.entity.partition_count):
        try:
            ahead_ms = hub.log(partition).state.last_enqueued_ms - now_ms
        except Refusal as refusal:
            yield Trouble(partition, refusal=refusal.text())
        else:
            if ahead_ms > SKEW_MS:
                yield Trouble(partition, ahead_ms=ahead_ms)


class _SeenSteal(NamedTuple):
    """A steal, and when it was first seen."""

    at: float
    hub: str
    steal: Steal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the checks look at."""

    namespace: LiveNamespace
    hubs: Sequence[LiveHub]
    observer: "Observer"
    rates: Callable[[LiveHub], Rates]
    now: float
    now_ms: int
    # The connections that whoever looks may know of, and the readers on them.
    connections: Sequence[ConnectionView] = ()
    held: Mapping[Subscription, Held] = field(default_factory=dict)
    # What is wrong with the machine.
    conditions: Sequence[Condition] = ()

    def named(self, reader: Subscription | None) -> str:
        """How a sentence names a reader: with its connection where that may be known."""
        if reader is None:
            return "a reader that has gone"
        held = self.held.get(reader)
        return f"'{reader.name}'" if held is None else f"'{reader.name}' on {held.connection.label}"

    def publishers(self, hub: LiveHub) -> str:
        """A sentence that names connections which publish to a hub; empty where none may be known."""
        labels = [
            connection.label
            for connection in self.connections
            if any(link.role is Role.PUBLISHES and fold(link.hub) == fold(hub.name) for link in connection.links)
        ]
        more = f" and {len(labels) - SHOWN_PUBLISHERS} more" if len(labels) > SHOWN_PUBLISHERS else ""
        return f" Publishing there: {', '.join(labels[:SHOWN_PUBLISHERS])}{more}." if labels else ""


def held_by(connections: Iterable[ConnectionView]) -> dict[Subscription, Held]:
    """Readers by themselves, with their links and connections."""
    return {
        link.reader: Held(connection, link)
        for connection in connections
        for link in connection.links
        if link.reader is not None
    }


class Observer:
    """Where readers stood and who owned what, while somebody looks. Thread rule: the owner's thread only."""

    def __init__(self) -> None:
        self._tracks: dict[Place, _Track] = {}
        self._steal_counts: dict[str, int] | None = None
        self._steals: deque[_SeenSteal] = deque(maxlen=MAX_STEALS)
        self._troubles: dict[str, tuple[Trouble, ...]] = {}
        self._turn = 0

    def observe(self, hubs: Sequence[LiveHub], now: float, now_ms: int) -> None:
        """Look at every reader, and at the next partitions in turn; call it about every second."""
        self._note_steals(hubs, now)
        self._examine(hubs, now_ms)
        seen: dict[Place, list[Subscription]] = {}
        for hub in hubs:
            for reader in hub.readers.all():
                seen.setdefault((hub.entity.uid, reader.group, reader.partition), []).append(reader)
        for place, readers in seen.items():
            if place in self._tracks or len(self._tracks) < MAX_FOLLOWED:
                self._tracks.setdefault(place, _Track()).take(readers, now)
        for place in [place for place in self._tracks if place not in seen and not self._is_recent(place, now)]:
            del self._tracks[place]

    def _examine(self, hubs: Sequence[LiveHub], now_ms: int) -> None:
        """Ask the next hubs in turn about their partitions: in a large namespace, all at once would be felt.

        Only hubs in use are asked: a look must not open the logs of a thousand idle hubs.
        """
        asked = 0
        for step in range(len(hubs)):
            hub = hubs[(self._turn + step) % len(hubs)]
            self._troubles.pop(hub.entity.uid, None)
            if hub.open_logs():
                asked += hub.entity.partition_count
                if troubles := tuple(_troubles(hub, now_ms)):
                    self._troubles[hub.entity.uid] = troubles
            if asked >= EXAMINED_PARTITIONS:
                self._turn = (self._turn + step + 1) % len(hubs)
                return

    def troubles(self, hub: LiveHub) -> Sequence[Trouble]:
        """What was wrong with the partitions of a hub when they were last asked."""
        return self._troubles.get(hub.entity.uid, ())

    def _note_steals(self, hubs: Sequence[LiveHub], now: float) -> None:
        """Take the steals since the last look; those before the first have no time, and are passed over."""
        before, counts = self._steal_counts, {hub.entity.uid: hub.readers.steal_count for hub in hubs}
        self._steal_counts = counts
        if before is None:
            return
        for hub in hubs:
            fresh = hub.readers.steal_count - before.get(hub.entity.uid, 0)
            if fresh > 0:
                self._steals.extend(_SeenSteal(now, hub.entity.uid, steal) for steal in hub.readers.steals[-fresh:])

    def steals(self, now: float) -> Iterator[tuple[str, Steal]]:
        """Partitions that somebody has lately taken from somebody else, with the hub's uid."""
        for seen in self._steals:
            if now - seen.at <= DUEL_SECONDS:
                yield seen.hub, seen.steal

    def owner(self, place: Place) -> Subscription | None:
        """Who owned a partition last."""
        track = self._tracks.get(place)
        return None if track is None else track.owner

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
        for trouble in scene.observer.troubles(hub):
            if trouble.refusal:
                yield Finding(
                    severity=Severity.WRONG,
                    ailment="Partition offline",
                    where=f"{hub.name}/{trouble.partition}",
                    what=trouble.refusal,
                    remedy="The node tries again every second; look at the disk and at the node's log.",
                )


def _damaged(scene: Scene) -> Iterator[Finding]:
    for hub in scene.hubs:
        for partition, found in hub.damaged_ranges()[:SHOWN_RANGES]:
            yield Finding(
                severity=Severity.WRONG,
                ailment="Damaged events",
                where=f"{hub.name}/{partition}",
                what=f"{_effect(found.event_count)}: {found}.",
                remedy="Stop the node and run 'hubmere doctor'; restore the file from a copy if there is one.",
            )


def _effect(event_count: int) -> str:
    return f"Readers are passed over {event_count:,} events" if event_count else "Nobody can read or write it"


def _machine(scene: Scene) -> Iterator[Finding]:
    for condition in scene.conditions:
        is_critical = condition.severity is ConditionSeverity.CRITICAL
        yield Finding(
            severity=Severity.WRONG if is_critical else Severity.DOUBTFUL,
            ailment=condition.name.capitalize(),
            where="this node",
            what=condition.text,
            remedy=condition.remedy,
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
            if reader.waiting_events > 0 and still_s >= STALLED_SECONDS:
                yield _stalled_reader(scene, hub, reader, still_s)


def _stalled_reader(scene: Scene, hub: LiveHub, reader: Subscription, still_s: float) -> Finding:
    held = scene.held.get(reader)
    has_no_credit = held is not None and held.link.credit == 0
    if held is None:
        why = "it gives no credit, or its socket is full"
    elif has_no_credit:
        why = "it gives no credit"
    else:
        why = f"it has given credit for {held.link.credit} events, so its socket is full or it is held back"
    return Finding(
        severity=Severity.WRONG,
        ailment="No credit" if has_no_credit else "Stalled reader",
        where=f"{hub.name}/{reader.partition} as {reader.group}",
        what=f"{scene.named(reader)} has taken nothing for {still_s:.0f} s with {reader.waiting_events:,} events "
        f"before it: {why}.",
        remedy="Look at the consumer: its handler is slow or stuck, or it waits for something else.",
    )


def _duelling(scene: Scene) -> Iterator[Finding]:
    names = {hub.entity.uid: hub.name for hub in scene.hubs}
    for uid, group, partition in scene.observer.duels(scene.now):
        last = scene.observer.owner((uid, group, partition))
        if uid in names:
            yield Finding(
                severity=Severity.WRONG,
                ailment="Duelling owners",
                where=f"{names[uid]}/{partition} as {group}",
                what=f"The partition changed hands {DUEL_CHANGES} times within {DUEL_SECONDS:.0f} s: readers with an "
                f"epoch take it from each other. The last was {scene.named(last)}.",
                remedy="Let the consumers share one checkpoint store, or give them different consumer groups.",
            )


def _stolen(scene: Scene) -> Iterator[Finding]:
    names = {hub.entity.uid: hub.name for hub in scene.hubs}
    duels = set(scene.observer.duels(scene.now))
    for uid, steal in scene.observer.steals(scene.now):
        winner = steal.winner
        # A client that opens its own reader anew is no thief, and a duel is told as one.
        if uid not in names or steal.loser == winner.name or (uid, steal.group, steal.partition) in duels:
            continue
        yield Finding(
            severity=Severity.DOUBTFUL,
            ailment="Epoch steal",
            where=f"{names[uid]}/{steal.partition} as {steal.group}",
            what=f"{scene.named(winner)} took the partition from '{steal.loser}' with epoch {winner.epoch}.",
            remedy="Once, during a deployment, this is as it should be; else two consumers believe that it is theirs.",
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
                what=f"{refused:,.1f} requests a second are throttled.{scene.publishers(hub)}",
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
        for trouble in scene.observer.troubles(hub):
            if trouble.ahead_ms > SKEW_MS:
                yield Finding(
                    severity=Severity.WRONG,
                    ailment="Clock skew",
                    where=f"{hub.name}/{trouble.partition}",
                    what=f"Its last event is {trouble.ahead_ms / 1000:,.0f} s in the future.{scene.publishers(hub)}",
                    remedy="Set the clock of the producer or of this machine; look-ups by time are wrong until then.",
                )


CHECKS: Sequence[Callable[[Scene], Iterator[Finding]]] = (
    _offline,
    _damaged,
    _machine,
    _disabled,
    _stalled,
    _duelling,
    _stolen,
    _crowded,
    _throttled,
    _pressed,
    _failing,
    _skewed,
)
