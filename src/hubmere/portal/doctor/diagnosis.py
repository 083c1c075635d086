"""Diagnoses problems of a namespace: one check per problem, each a pure function of a `Snapshot`.

An `Observer` keeps what can only be seen over time, while a page is open: the position of each reader, the owner of
each partition, and which reader took over a partition from another. `findings` runs every check in `CHECKS`. A finding
says what is wrong, where, on which connection if the person may know it, and how to fix it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hubmere.broker import (
    Condition,
    ConditionSeverity,
    ConnectionView,
    HubView,
    LinkRole,
    LinkView,
    NamespaceView,
    ProcessorState,
    Reader,
    Steal,
)
from hubmere.model.errors import PartitionOpening, Refusal
from hubmere.model.monitoring.pulse import GatewayStatus
from hubmere.model.names import fold
from hubmere.portal.doctor.finding import Finding, Severity
from hubmere.portal.doctor.gateway_checks import gateway_findings
from hubmere.portal.doctor.processor_checks import processor_findings
from hubmere.portal.history.reader_names import quoted_name
from hubmere.portal.history.sampler import COUNTERS, Rates

# A reader that has events to read but has not advanced for this long is stalled.
STALLED_SECONDS = 10.0
# This many changes of owner within this time mean that consumers compete for the partition.
CONTEST_SECONDS = 60.0
CONTEST_CHANGES = 3
# Timestamps further ahead than this cannot be explained by network or batching: a clock is wrong.
SKEW_MS = 60_000
# Maximum partitions examined per refresh, about 2 µs each; a larger namespace takes several refreshes.
MAX_EXAMINED_PARTITIONS = 1000
# Maximum number of takeovers that are remembered.
MAX_STEALS = 100
# Maximum number of publishers that a finding names.
MAX_NAMED_PUBLISHERS = 3
# Maximum number of damaged ranges shown per hub; /ready and the metrics count all.
MAX_DISPLAYED_RANGES = 20
# Maximum number of partitions whose readers are observed.
MAX_OBSERVED = 10_000
_RECENT_LIMIT_SECONDS = 10.0

# uid of the hub, consumer group, partition.
OwnershipKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class ReaderLink:
    """The link of a reader, and its connection."""

    connection: ConnectionView
    link: LinkView


@dataclass(slots=True)
class _PartitionHistory:
    """Observations of one partition in one group: the last owner, changes of owner, and when each reader advanced."""

    owner: Reader | None = None
    owner_changes: deque[float] = field(default_factory=lambda: deque(maxlen=CONTEST_CHANGES))
    # Position of each reader, and since when it has this position.
    positions: dict[Reader, tuple[int, float]] = field(default_factory=dict)

    def update(self, readers: Sequence[Reader], now: float) -> None:
        """Record the current positions; readers that have closed are removed."""
        owner = next((reader for reader in readers if reader.epoch is not None), None)
        if owner is not None and owner is not self.owner:
            self.owner_changes.append(now)
            self.owner = owner
        before, self.positions = self.positions, {}
        for reader in readers:
            known = before.get(reader)
            has_advanced = known is None or known[0] != reader.next_sequence or reader.lag <= 0
            self.positions[reader] = (reader.next_sequence, now) if known is None or has_advanced else known


class PartitionProblem(NamedTuple):
    """A problem of a partition: the reason why it is offline, or how far its last event is in the future."""

    partition: int
    refusal: str = ""
    ahead_ms: int = 0


def _partition_problems(hub: HubView, now_ms: int) -> Iterator[PartitionProblem]:
    for partition in range(hub.partition_count):
        try:
            ahead_ms = hub.partition(partition).state.last_enqueued_ms - now_ms
        except PartitionOpening:
            continue
        except Refusal as refusal:
            yield PartitionProblem(partition, refusal=refusal.text())
        else:
            if ahead_ms > SKEW_MS:
                yield PartitionProblem(partition, ahead_ms=ahead_ms)


class _ObservedSteal(NamedTuple):
    """A takeover of a partition, and when it was observed."""

    at: float
    hub_uid: str
    steal: Steal


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The input of the checks."""

    namespace: NamespaceView
    hubs: Sequence[HubView]
    observer: "Observer"
    rates: Callable[[HubView], Rates]
    now: float
    now_ms: int
    # The connections that the person may know of, and the readers on them.
    connections: Sequence[ConnectionView] = ()
    reader_links: Mapping[Reader, ReaderLink] = field(default_factory=dict)
    # Conditions of the machine, such as a full disk.
    conditions: Sequence[Condition] = ()
    processors: Sequence[ProcessorState] = ()
    # All gateways, if the node is one of a cluster.
    gateways: Sequence[GatewayStatus] = ()

    def reader_label(self, reader: Reader | None) -> str:
        """The name of a reader in a sentence, with its connection if the person may know it."""
        if reader is None:
            return "a reader that has closed"
        link = self.reader_links.get(reader)
        name = quoted_name(reader.name)
        return name if link is None else f"{name} on {link.connection.label}"

    def publishers(self, hub: HubView) -> str:
        """A sentence that names connections which publish to a hub; empty if the person may know none."""
        labels = [
            connection.label
            for connection in self.connections
            if any(link.role is LinkRole.PUBLISHES and fold(link.hub) == fold(hub.name) for link in connection.links)
        ]
        more = f" and {len(labels) - MAX_NAMED_PUBLISHERS} more" if len(labels) > MAX_NAMED_PUBLISHERS else ""
        return f" Publishers: {', '.join(labels[:MAX_NAMED_PUBLISHERS])}{more}." if labels else ""


def links_by_reader(connections: Iterable[ConnectionView]) -> dict[Reader, ReaderLink]:
    """Map each reader to its link and connection."""
    return {
        link.reader: ReaderLink(connection, link)
        for connection in connections
        for link in connection.links
        if link.reader is not None
    }


class Observer:
    """Positions of readers and owners of partitions over time. Thread rule: the owner's thread only."""

    def __init__(self) -> None:
        self._partitions: dict[OwnershipKey, _PartitionHistory] = {}
        self._steal_counts: dict[str, int] | None = None
        self._steals: deque[_ObservedSteal] = deque(maxlen=MAX_STEALS)
        self._problems: dict[str, tuple[PartitionProblem, ...]] = {}
        self._next_hub = 0
        self._readers: list[tuple[HubView, Sequence[Reader]]] = []

    def observe(self, hubs: Sequence[HubView], now: float, now_ms: int) -> None:
        """Record the state of every reader and examine the next partitions. Call it about every second."""
        self._record_steals(hubs, now)
        self._examine(hubs, now_ms)
        self._readers = [(hub, readers) for hub in hubs if (readers := hub.readers())]
        seen: dict[OwnershipKey, list[Reader]] = {}
        for hub, found in self._readers:
            for reader in found:
                seen.setdefault((hub.uid, reader.group, reader.partition), []).append(reader)
        for key, readers in seen.items():
            if key in self._partitions or len(self._partitions) < MAX_OBSERVED:
                self._partitions.setdefault(key, _PartitionHistory()).update(readers, now)
        for key in [key for key in self._partitions if key not in seen and not self._is_recent(key, now)]:
            del self._partitions[key]

    def _examine(self, hubs: Sequence[HubView], now_ms: int) -> None:
        """Examine the partitions of the next hubs; a large namespace is examined in several refreshes.

        Only hubs with open logs are examined: the page must not open the logs of a thousand idle hubs.
        """
        examined = 0
        for step in range(len(hubs)):
            hub = hubs[(self._next_hub + step) % len(hubs)]
            self._problems.pop(hub.uid, None)
            if hub.open_partition_count:
                examined += hub.partition_count
                if problems := tuple(_partition_problems(hub, now_ms)):
                    self._problems[hub.uid] = problems
            if examined >= MAX_EXAMINED_PARTITIONS:
                self._next_hub = (self._next_hub + step + 1) % len(hubs)
                return

    def readers(self) -> Sequence[tuple[HubView, Sequence[Reader]]]:
        """The hubs that had readers at the last call of `observe`, with their readers."""
        return self._readers

    def partition_problems(self, hub: HubView) -> Sequence[PartitionProblem]:
        """The problems of the partitions of a hub when they were last examined."""
        return self._problems.get(hub.uid, ())

    def _record_steals(self, hubs: Sequence[HubView], now: float) -> None:
        """Record the takeovers since the last call. Those before the first call are ignored: their time is unknown."""
        before, counts = self._steal_counts, {hub.uid: hub.steal_count for hub in hubs}
        self._steal_counts = counts
        if before is None:
            return
        for hub in hubs:
            new = hub.steal_count - before.get(hub.uid, 0)
            if new > 0:
                self._steals.extend(_ObservedSteal(now, hub.uid, steal) for steal in hub.steals[-new:])

    def steals(self, now: float) -> Iterator[tuple[str, Steal]]:
        """Recent takeovers of partitions, each with the uid of the hub."""
        for seen in self._steals:
            if now - seen.at <= CONTEST_SECONDS:
                yield seen.hub_uid, seen.steal

    def owner(self, key: OwnershipKey) -> Reader | None:
        """The last owner of a partition."""
        history = self._partitions.get(key)
        return None if history is None else history.owner

    def _is_recent(self, key: OwnershipKey, now: float) -> bool:
        changes = self._partitions[key].owner_changes
        return bool(changes) and now - changes[-1] <= CONTEST_SECONDS

    def stalled_for(self, hub: HubView, reader: Reader, now: float) -> float:
        """Seconds since a reader with events to read last advanced."""
        history = self._partitions.get((hub.uid, reader.group, reader.partition))
        known = None if history is None else history.positions.get(reader)
        return 0.0 if known is None else now - known[1]

    def contested_partitions(self, now: float) -> Iterator[OwnershipKey]:
        """Partitions whose owner changed several times within a short time."""
        for key, history in self._partitions.items():
            if len(history.owner_changes) == CONTEST_CHANGES and now - history.owner_changes[0] <= CONTEST_SECONDS:
                yield key


def findings(snapshot: Snapshot) -> list[Finding]:
    """All findings, errors first."""
    found = [finding for check in CHECKS for finding in check(snapshot)]
    return sorted(
        found, key=lambda finding: (finding.severity is not Severity.ERROR, finding.problem, finding.location)
    )


# --- the checks ------------------------------------------------------------------------------------------------------


def _offline(snapshot: Snapshot) -> Iterator[Finding]:
    for hub in snapshot.hubs:
        for found in snapshot.observer.partition_problems(hub):
            if found.refusal:
                yield Finding(
                    severity=Severity.ERROR,
                    problem="Partition offline",
                    location=f"{hub.name}/{found.partition}",
                    description=found.refusal,
                    remedy="The node tries to open it again every second. Check the disk and the log of the node.",
                )


def _find_damaged(snapshot: Snapshot) -> Iterator[Finding]:
    for hub in snapshot.hubs:
        for partition, found in hub.damaged_ranges()[:MAX_DISPLAYED_RANGES]:
            yield Finding(
                severity=Severity.ERROR,
                problem="Damaged events",
                location=f"{hub.name}/{partition}",
                description=f"{_effect(found.event_count)}: {found}.",
                remedy="Stop the node and run 'hubmere doctor'. Restore the file from a backup if you have one.",
            )


def _cold_gaps(snapshot: Snapshot) -> Iterator[Finding]:
    for hub in snapshot.hubs:
        for partition, gap in hub.cold_gaps()[:MAX_DISPLAYED_RANGES]:
            yield Finding(
                severity=Severity.WARNING,
                problem="Gap in captured files",
                location=f"{hub.name}/{partition}",
                description=f"No file holds the events {gap.start:,} to {gap.stop - 1:,}: no reader gets older ones.",
                remedy="Put the missing file back, if there is one. Events that were never captured are lost.",
            )


def _effect(event_count: int) -> str:
    return f"Readers skip {event_count:,} events" if event_count else "The partition cannot be read or written"


def _machine_conditions(snapshot: Snapshot) -> Iterator[Finding]:
    for condition in snapshot.conditions:
        is_critical = condition.severity is ConditionSeverity.CRITICAL
        yield Finding(
            severity=Severity.ERROR if is_critical else Severity.WARNING,
            problem=condition.name.capitalize(),
            location="this node",
            description=condition.text,
            remedy=condition.remedy,
        )


def _gateways(snapshot: Snapshot) -> Iterator[Finding]:
    return gateway_findings(snapshot.gateways)


def _find_disabled(snapshot: Snapshot) -> Iterator[Finding]:
    for hub in snapshot.hubs:
        status = hub.entity.status
        if not (status.may_send and status.may_receive):
            yield Finding(
                severity=Severity.WARNING,
                problem="Hub disabled",
                location=hub.name,
                description=f"Its status is {status}, so clients are refused.",
                remedy="To enable it, set its status to Active on the page of the hub.",
            )


def _find_stalled(snapshot: Snapshot) -> Iterator[Finding]:
    for hub, readers in snapshot.observer.readers():
        for reader in readers:
            idle_s = snapshot.observer.stalled_for(hub, reader, snapshot.now)
            if reader.waiting_events > 0 and idle_s >= STALLED_SECONDS:
                yield _stalled_reader(snapshot, hub, reader, idle_s)


def _stalled_reader(snapshot: Snapshot, hub: HubView, reader: Reader, idle_s: float) -> Finding:
    found = snapshot.reader_links.get(reader)
    has_no_credit = found is not None and found.link.credit == 0
    if found is None:
        why = "it has granted no credit, or its socket is full"
    elif has_no_credit:
        why = "it has granted no credit"
    else:
        why = f"it has granted credit for {found.link.credit} events, so its socket is full or it is throttled"
    return Finding(
        severity=Severity.ERROR,
        problem="No credit" if has_no_credit else "Stalled reader",
        location=f"{hub.name}/{reader.partition} as {reader.group}",
        description=f"{snapshot.reader_label(reader)} has read nothing for {idle_s:.0f} s although "
        f"{reader.waiting_events:,} events are available: {why}.",
        remedy="Check the consumer: its event handler is slow, blocked, or waiting for another system.",
    )


def _find_contested(snapshot: Snapshot) -> Iterator[Finding]:
    names = {hub.uid: hub.name for hub in snapshot.hubs}
    for uid, group, partition in snapshot.observer.contested_partitions(snapshot.now):
        last = snapshot.observer.owner((uid, group, partition))
        if uid in names:
            yield Finding(
                severity=Severity.ERROR,
                problem="Competing owners",
                location=f"{names[uid]}/{partition} as {group}",
                description=f"The owner changed {CONTEST_CHANGES} times within {CONTEST_SECONDS:.0f} s: readers with "
                f"an epoch take the partition from each other. The last owner was {snapshot.reader_label(last)}.",
                remedy="Use one checkpoint store for all consumers, or a different consumer group for each.",
            )


def _stolen(snapshot: Snapshot) -> Iterator[Finding]:
    names = {hub.uid: hub.name for hub in snapshot.hubs}
    contested = set(snapshot.observer.contested_partitions(snapshot.now))
    for uid, steal in snapshot.observer.steals(snapshot.now):
        winner = steal.winner
        # A client that reopens its own reader is no problem, and competing owners are reported as such.
        if uid not in names or steal.loser == winner.name or (uid, steal.group, steal.partition) in contested:
            continue
        yield Finding(
            severity=Severity.WARNING,
            problem="Partition takeover",
            location=f"{names[uid]}/{steal.partition} as {steal.group}",
            description=f"{snapshot.reader_label(winner)} took over from {quoted_name(steal.loser)} with "
            f"epoch {winner.epoch}.",
            remedy="This is normal once during a deployment. Otherwise two consumers both try to own the partition.",
        )


def _find_shared(snapshot: Snapshot) -> Iterator[Finding]:
    for hub, readers in snapshot.observer.readers():
        counts: dict[tuple[str, int], int] = {}
        for reader in readers:
            if reader.epoch is None:
                counts[reader.group, reader.partition] = counts.get((reader.group, reader.partition), 0) + 1
        for (group, partition), count in counts.items():
            if count > 1:
                yield Finding(
                    severity=Severity.WARNING,
                    problem="Shared partition",
                    location=f"{hub.name}/{partition} as {group}",
                    description=f"{count} readers without an epoch read it, so each of them gets every event.",
                    remedy="Use a consumer group for each reader, or an owner level so that one of them owns it.",
                )


def _find_throttled(snapshot: Snapshot) -> Iterator[Finding]:
    index = COUNTERS.index("throttled_requests")
    for hub in snapshot.hubs:
        refused = snapshot.rates(hub)[index]
        if refused > 0:
            yield Finding(
                severity=Severity.ERROR,
                problem="Throttled",
                location=hub.name,
                description=f"{refused:,.1f} requests per second are throttled.{snapshot.publishers(hub)}",
                remedy="Add throughput units on the Scale page, turn on auto-inflate, or send larger batches.",
            )


def _at_limit(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.now - snapshot.namespace.last_limited_at < _RECENT_LIMIT_SECONDS:
        yield Finding(
            severity=Severity.WARNING,
            problem="At the throughput limit",
            location=snapshot.namespace.name,
            description="The namespace used all of its throughput units during the last seconds.",
            remedy="Add throughput units on the Scale page.",
        )


def _failing(snapshot: Snapshot) -> Iterator[Finding]:
    server, user = COUNTERS.index("server_errors"), COUNTERS.index("user_errors")
    for hub in snapshot.hubs:
        rates = snapshot.rates(hub)
        if rates[server] > 0:
            yield Finding(
                severity=Severity.ERROR,
                problem="Server errors",
                location=hub.name,
                description=f"{rates[server]:,.1f} requests per second fail inside the node.",
                remedy="The log of the node has the reason. The most common one is a full disk.",
            )
        if rates[user] > 0:
            yield Finding(
                severity=Severity.WARNING,
                problem="Refused requests",
                location=hub.name,
                description=f"{rates[user]:,.1f} requests per second are refused: wrong key, size, partition or name.",
                remedy="The client's error message has the reason and a tracking ID, which is also in the node's log.",
            )


def _processors(snapshot: Snapshot) -> Iterator[Finding]:
    names = {hub.name for hub in snapshot.hubs}
    yield from processor_findings(state for state in snapshot.processors if state.hub in names)


def _find_skewed(snapshot: Snapshot) -> Iterator[Finding]:
    for hub in snapshot.hubs:
        for found in snapshot.observer.partition_problems(hub):
            if found.ahead_ms > SKEW_MS:
                yield Finding(
                    severity=Severity.ERROR,
                    problem="Clock skew",
                    location=f"{hub.name}/{found.partition}",
                    description=f"Its last event is {found.ahead_ms / 1000:,.0f} s in the future."
                    f"{snapshot.publishers(hub)}",
                    remedy="Correct the clock of the producer or of this machine. Until then, reads by time are wrong.",
                )


CHECKS: Sequence[Callable[[Snapshot], Iterator[Finding]]] = (
    _offline,
    _find_damaged,
    _cold_gaps,
    _machine_conditions,
    _gateways,
    _find_disabled,
    _find_stalled,
    _find_contested,
    _stolen,
    _find_shared,
    _find_throttled,
    _at_limit,
    _failing,
    _find_skewed,
    _processors,
)
