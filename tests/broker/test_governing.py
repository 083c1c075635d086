"""Application groups: their clients, their limits, and that other clients are not affected."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker.builders import NOW_MS, Bench, a_batch
from hubmere.broker.access import Principal
from hubmere.broker.management.connections import ConnectionView
from hubmere.broker.publish import OverLimit, Publisher, RunPart
from hubmere.broker.quotas.application_groups import ClientKind, names_client
from hubmere.broker.read import Reader
from hubmere.broker.revocation import Judge
from hubmere.model.entity import ApplicationGroup, Rights, ThrottlingMetric, ThrottlingPolicy
from hubmere.model.errors import ApplicationGroupThrottled, Conflict, InvalidArgument, PartitionOffline, Refusal
from hubmere.model.names import application_group_name, namespace_name
from hubmere.model.position import Position
from hubmere.model.tier import Profile

IN_EVENTS = ThrottlingMetric.INCOMING_MESSAGES
IN_BYTES = ThrottlingMetric.INCOMING_BYTES
OUT_EVENTS = ThrottlingMetric.OUTGOING_MESSAGES
OUT_BYTES = ThrottlingMetric.OUTGOING_BYTES


def a_policy(metric: ThrottlingMetric = IN_EVENTS, rate: int = 10, name: str = "") -> ThrottlingPolicy:
    return ThrottlingPolicy(name=name or metric.value, metric=metric, rate_per_s=rate)


def a_group(*policies: ThrottlingPolicy, client: str = "NamespaceSASKeyName=slow", name: str = "g") -> ApplicationGroup:
    return ApplicationGroup(
        namespace=namespace_name("hubmere"),
        name=application_group_name(name),
        client_id=client,
        policies=policies,
    )


def a_client(rule: str = "slow", *, hub: str = "") -> Principal:
    return Principal(namespace="hubmere", rule=rule, rights=Rights.ALL, hub=hub)


class ApplicationGroupHarness:
    """A Premium namespace, its groups, and clients by the names of their rules."""

    def __init__(self) -> None:
        self.bench = Bench(profile=Profile.PREMIUM)

    def write(self, group: ApplicationGroup) -> None:
        bench = self.bench
        bench.do(lambda done: bench.manager.write_application_group(group, bench.actor(), done))

    def delete(self, group: ApplicationGroup) -> None:
        bench = self.bench
        bench.do(lambda done: bench.manager.delete_application_group(group, bench.actor(), done))

    def publisher(self, principal: Principal | None) -> Publisher:
        return self.bench.broker.open_publisher(self.bench.hub, partition="0", principal=principal)

    def reader(self, principal: Principal | None) -> Reader:
        return self.bench.broker.subscribe(
            self.bench.hub, group="$Default", partition="0", position=Position.first(), epoch=None, name=None,
            wake=lambda: None, evict=lambda _: None, principal=principal,
        )  # fmt: skip

    def send(self, publisher: Publisher, events: int = 1, size_bytes: int = 1) -> Refusal | None:
        try:
            publisher.publish(
                a_batch(events), count=events, size_bytes=size_bytes, key=None, now=self.bench.now, now_ms=NOW_MS
            )
        except Refusal as refusal:
            return refusal
        return None

    def send_charged(self, publisher: Publisher, events: int = 1) -> Refusal | None:
        try:
            batch = a_batch(events)
            publisher.publish(
                batch,
                count=events,
                size_bytes=len(batch),
                partition=0,
                now=self.bench.now,
                now_ms=NOW_MS,
                over_limit=OverLimit.DELAY,
            )
        except Refusal as refusal:
            return refusal
        return None

    def taken(self, publisher: Publisher, tries: int = 50) -> int:
        """How many single events go in at this moment."""
        return sum(self.send(publisher) is None for _ in range(tries))


@pytest.fixture
def harness() -> Iterator[ApplicationGroupHarness]:
    made = ApplicationGroupHarness()
    yield made
    made.bench.close()


@pytest.mark.parametrize(
    ("client_id", "kind", "is_meant"),
    [
        ("NamespaceSASKeyName=slow", ClientKind.NAMESPACE_RULE, True),
        ("NamespaceSASKeyName=slow", ClientKind.HUB_RULE, False),
        ("EntitySASKeyName=slow", ClientKind.HUB_RULE, True),
        ("EntitySASKeyName=slow", ClientKind.NAMESPACE_RULE, False),
        ("SASKeyName=slow", ClientKind.NAMESPACE_RULE, True),
        ("SASKeyName=slow", ClientKind.HUB_RULE, True),
        ("namespacesaskeyname=SLOW", ClientKind.NAMESPACE_RULE, True),
        ("NamespaceSASKeyName=other", ClientKind.NAMESPACE_RULE, False),
        ("AADAppID=slow", ClientKind.NAMESPACE_RULE, False),
        ("AADAppID=slow", ClientKind.APPLICATION, True),
        ("SASKeyName=slow", ClientKind.APPLICATION, False),
        ("slow", ClientKind.NAMESPACE_RULE, False),
    ],
)
def test_an_identifier_means_rules_of_the_namespace_or_of_hubs_or_applications(
    client_id: str, kind: ClientKind, is_meant: bool
) -> None:
    """Rules of hubs have names of their own; the oldest form of an identifier does not distinguish them."""
    assert names_client(client_id, "slow", kind) is is_meant


def test_only_the_rule_of_a_limited_group_is_slowed(harness: ApplicationGroupHarness) -> None:
    """49: ten messages a second for one rule, and no limit for the other."""
    harness.write(a_group(a_policy(rate=10)))
    slow, other = harness.publisher(a_client("slow")), harness.publisher(a_client("other"))

    at_first = harness.taken(slow), harness.taken(other)
    harness.bench.now += 0.5
    later = harness.taken(slow), harness.taken(other)

    assert at_first == (10, 50)
    assert later == (5, 50)
    assert harness.bench.hub.counters.throttled_requests == 85


def test_a_refusal_names_group_and_policy(harness: ApplicationGroupHarness) -> None:
    """The service's error code and sub-code, so that the limit can be found."""
    harness.write(a_group(a_policy(rate=1, name="few"), name="night-jobs"))
    publisher = harness.publisher(a_client())
    harness.send(publisher)

    refusal = harness.send(publisher)

    assert isinstance(refusal, ApplicationGroupThrottled)
    assert (refusal.group, refusal.policy, refusal.code) == ("night-jobs", "few", 50004)
    assert "SubCode:50013" in refusal.text()


@pytest.mark.parametrize("charged", [False, True], ids=["AMQP and HTTPS", "Kafka"])
def test_a_group_has_one_account_for_all_its_clients(harness: ApplicationGroupHarness, charged: bool) -> None:
    """Two processes with the same credential share its rates."""
    harness.write(a_group(a_policy(rate=10)))
    first, second = harness.publisher(a_client()), harness.publisher(a_client())
    send = harness.send_charged if charged else harness.send

    outcomes = [send(first, 6), send(second, 6), send(second, 4)]

    assert [type(outcome) for outcome in outcomes] == [type(None), ApplicationGroupThrottled, type(None)]


def test_bytes_and_messages_are_counted_each_for_itself(harness: ApplicationGroupHarness) -> None:
    """Whichever is used up first refuses."""
    harness.write(a_group(a_policy(IN_BYTES, 1000), a_policy(IN_EVENTS, 100)))
    publisher = harness.publisher(a_client())

    outcomes = [harness.send(publisher, 1, 900), harness.send(publisher, 1, 200), harness.send(publisher, 99, 100)]
    last = harness.send(publisher, 1, 0)

    assert isinstance(outcomes[1], ApplicationGroupThrottled)
    assert outcomes[1].policy == "IncomingBytes"
    assert (outcomes[0], outcomes[2]) == (None, None)
    assert isinstance(last, ApplicationGroupThrottled)
    assert last.policy == "IncomingMessages"


def test_a_publication_that_the_disk_refuses_is_not_counted(
    harness: ApplicationGroupHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused publication leaves no trace, here either."""
    harness.write(a_group(a_policy(rate=10)))
    publisher = harness.publisher(a_client())
    log = type(harness.bench.hub.log(0))
    with monkeypatch.context() as broken:
        broken.setattr(log, "append", _refusing)
        failed = harness.send(publisher, 10)

    assert isinstance(failed, PartitionOffline)
    assert harness.send(publisher, 10) is None


def _refusing(*_: object, **__: object) -> None:
    raise PartitionOffline("gone")


def test_runs_of_kafka_have_room_within_the_rates_only(harness: ApplicationGroupHarness) -> None:
    """A run is accepted as a whole or not at all; otherwise its batches are checked one by one."""
    harness.write(a_group(a_policy(rate=10)))
    publisher = harness.publisher(a_client())

    fits = publisher.check_runs([a_run(10)], NOW_MS, harness.bench.now)
    harness.send(publisher, 8)

    assert fits
    assert publisher.check_runs([a_run(10)], NOW_MS, harness.bench.now) is None
    assert publisher.check_runs([a_run(2)], NOW_MS, harness.bench.now)


def a_run(events: int) -> RunPart:
    """Batches of one event each for partition 0."""
    batches = [a_batch() for _ in range(events)]
    return RunPart(0, bytearray(b"".join(batches)), [len(batch) for batch in batches])


@pytest.mark.parametrize(("metric", "amounts"), [(OUT_EVENTS, (20, 1)), (OUT_BYTES, (1, 2000))])
def test_readers_of_a_group_are_delayed_and_never_refused(
    harness: ApplicationGroupHarness, metric: ThrottlingMetric, amounts: tuple[int, int]
) -> None:
    """Reading has no place for such an error: events come later."""
    rate = 10 if metric is OUT_EVENTS else 1000
    harness.write(a_group(a_policy(metric, rate)))
    harness.send(harness.publisher(None), 20)
    slow, other = harness.reader(a_client("slow")), harness.reader(a_client("other"))
    events, size_bytes = amounts

    for reader in (slow, other):
        reader.advance(20, events, size_bytes, harness.bench.now)

    assert slow.delay(harness.bench.now) == pytest.approx(1.0, abs=0.1)
    assert slow.delay(harness.bench.now + 1.1) == 0.0
    assert other.delay(harness.bench.now) == 0.0


def test_fetches_of_a_group_are_delayed(harness: ApplicationGroupHarness) -> None:
    """The response contains the delay, as for throughput units."""
    harness.write(a_group(a_policy(OUT_EVENTS, 10)))
    harness.send(harness.publisher(None), 20)
    harness.bench.turn.run()
    broker, hub = harness.bench.broker, harness.bench.hub
    readers = [broker.follow(hub, 0, lambda: None, principal=a_client(rule)) for rule in ("slow", "other")]

    chunks = [reader.read(0, max_bytes=10_000, space_bytes=10_000).chunk for reader in readers]
    delays = [
        reader.charge(chunk, 0, harness.bench.now) for reader, chunk in zip(readers, chunks, strict=True) if chunk
    ]

    assert delays[0] == pytest.approx(1.0, abs=0.1)
    assert delays[1] == 0.0


def test_groups_follow_changes_while_clients_are_connected(harness: ApplicationGroupHarness) -> None:
    """Made, changed and deleted under an open link, which never has to be opened again."""
    publisher, group = harness.publisher(a_client()), a_group(a_policy(rate=10))

    before = harness.taken(publisher)
    harness.write(group)
    made = harness.taken(publisher)
    harness.write(replace(group, policies=(a_policy(rate=20),)))
    harness.bench.now += 1.0
    changed = harness.taken(publisher)
    harness.delete(group)
    deleted = harness.taken(publisher)

    assert (before, made, changed, deleted) == (50, 10, 20, 50)


def test_groups_are_in_force_after_a_restart(harness: ApplicationGroupHarness) -> None:
    """They come from the catalog, not from having been made."""
    harness.write(a_group(a_policy(rate=10)))
    bench = harness.bench

    bench.broker._namespaces.clear()
    bench.broker.open(bench.now)

    assert harness.taken(harness.publisher(a_client())) == 10


def test_rules_of_hubs_have_groups_of_their_own(harness: ApplicationGroupHarness) -> None:
    """A rule of the same name on the namespace is another client."""
    harness.write(a_group(a_policy(rate=10), client="EntitySASKeyName=slow"))

    taken = [harness.taken(harness.publisher(a_client("slow", hub=hub))) for hub in ("orders", "")]

    assert taken == [10, 50]


def test_the_administrator_and_the_portal_belong_to_no_group(harness: ApplicationGroupHarness) -> None:
    """Whoever repairs a limit must not be held by it."""
    harness.write(a_group(a_policy(rate=1), client="NamespaceSASKeyName=(admin)"))

    taken = [harness.taken(harness.publisher(who)) for who in (Principal.admin(), None)]

    assert taken == [50, 50]


def test_a_client_is_of_one_group(harness: ApplicationGroupHarness) -> None:
    """Two groups of one credential would leave it open which rates hold."""
    harness.write(a_group(name="first"))

    with pytest.raises(Conflict, match="first"):
        harness.write(a_group(name="second", client="namespacesaskeyname=SLOW"))

    harness.write(a_group(a_policy(), name="First"))


@pytest.mark.parametrize(("metric", "rate"), [(IN_BYTES, 999), (OUT_BYTES, 1), (IN_EVENTS, 0), (OUT_EVENTS, -1)])
def test_rates_have_the_services_least_values(
    harness: ApplicationGroupHarness, metric: ThrottlingMetric, rate: int
) -> None:
    """1 KB and one message."""
    with pytest.raises(InvalidArgument):
        harness.write(a_group(a_policy(metric, rate)))


class _Connection:
    """An open connection of some principals."""

    def __init__(self, *principals: Principal) -> None:
        self._principals = principals
        self.cuts: list[str] = []

    def callers(self) -> tuple[Principal, ...]:
        return self._principals

    def disconnect(self, why: str) -> None:
        self.cuts.append(why)

    def review(self, judge: Judge) -> None:
        raise AssertionError("no rule has changed")

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        raise AssertionError("nobody looks")


def test_disabling_a_group_closes_the_connections_of_its_clients(harness: ApplicationGroupHarness) -> None:
    """And no others: another rule, another namespace, or unauthenticated connections."""
    principals = (a_client("slow"), a_client("other"), replace(a_client("slow"), namespace="elsewhere"))
    connections = [_Connection(principal) for principal in principals] + [_Connection()]
    for number, connection in enumerate(connections):
        harness.bench.broker.connections.add(connection, number)

    harness.write(a_group())
    untouched = [list(connection.cuts) for connection in connections]
    harness.write(replace(a_group(), is_enabled=False))

    assert untouched == [[], [], [], []]
    assert ["disabled" in "".join(connection.cuts) for connection in connections] == [True, False, False, False]
