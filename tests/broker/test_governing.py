"""Application groups: their clients, their limits, and that other clients are not affected."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.revocation import Judge
from hubmere.broker.management.connections import ConnectionView
from hubmere.broker.publish import OverLimit, Publisher, RunPart
from hubmere.broker.quotas.application_groups import ClientKind, names_client
from hubmere.broker.read import Reader
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
    """A Premium namespace with application groups, and clients by the names of their rules."""

    def __init__(self) -> None:
        self.broker_harness = BrokerHarness(profile=Profile.PREMIUM)

    def write(self, group: ApplicationGroup) -> None:
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.manager.write_application_group(group, broker_harness.actor(), done)
        )

    def delete(self, group: ApplicationGroup) -> None:
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.manager.delete_application_group(group, broker_harness.actor(), done)
        )

    def publisher(self, principal: Principal | None) -> Publisher:
        return self.broker_harness.broker.open_publisher(self.broker_harness.hub, partition="0", principal=principal)

    def reader(self, principal: Principal | None) -> Reader:
        return self.broker_harness.broker.subscribe(
            self.broker_harness.hub, group="$Default", partition="0", position=Position.first(), epoch=None, name=None,
            wake=lambda: None, evict=lambda _: None, principal=principal,
        )  # fmt: skip

    def send(self, publisher: Publisher, events: int = 1, size_bytes: int = 1) -> Refusal | None:
        try:
            publisher.publish(
                a_batch(events),
                count=events,
                size_bytes=size_bytes,
                key=None,
                now=self.broker_harness.now,
                now_ms=NOW_MS,
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
                now=self.broker_harness.now,
                now_ms=NOW_MS,
                over_limit=OverLimit.DELAY,
            )
        except Refusal as refusal:
            return refusal
        return None

    def accepted_events(self, publisher: Publisher, tries: int = 50) -> int:
        """The number of single events that are accepted now."""
        return sum(self.send(publisher) is None for _ in range(tries))


@pytest.fixture
def harness() -> Iterator[ApplicationGroupHarness]:
    made = ApplicationGroupHarness()
    yield made
    made.broker_harness.close()


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
    """Rules of hubs have separate names; the oldest form of the identifier matches both kinds."""
    assert names_client(client_id, "slow", kind) is is_meant


def test_only_the_rule_of_a_limited_group_is_throttled(harness: ApplicationGroupHarness) -> None:
    """49: one rule has ten messages a second, the other has no limit."""
    harness.write(a_group(a_policy(rate=10)))
    slow, other = harness.publisher(a_client("slow")), harness.publisher(a_client("other"))

    at_first = harness.accepted_events(slow), harness.accepted_events(other)
    harness.broker_harness.now += 0.5
    later = harness.accepted_events(slow), harness.accepted_events(other)

    assert at_first == (10, 50)
    assert later == (5, 50)
    assert harness.broker_harness.hub.counters.throttled_requests == 85


def test_a_refusal_names_group_and_policy(harness: ApplicationGroupHarness) -> None:
    """The error has the service's code and sub-code, so that an operator can find the limit."""
    harness.write(a_group(a_policy(rate=1, name="few"), name="night-jobs"))
    publisher = harness.publisher(a_client())
    harness.send(publisher)

    refusal = harness.send(publisher)

    assert isinstance(refusal, ApplicationGroupThrottled)
    assert (refusal.group, refusal.policy, refusal.code) == ("night-jobs", "few", 50004)
    assert "SubCode:50013" in refusal.text()


@pytest.mark.parametrize("charged", [False, True], ids=["AMQP and HTTPS", "Kafka"])
def test_all_clients_of_a_group_share_its_rates(harness: ApplicationGroupHarness, charged: bool) -> None:
    """Two processes with the same credential have one quota."""
    harness.write(a_group(a_policy(rate=10)))
    first, second = harness.publisher(a_client()), harness.publisher(a_client())
    send = harness.send_charged if charged else harness.send

    outcomes = [send(first, 6), send(second, 6), send(second, 4)]

    assert [type(outcome) for outcome in outcomes] == [type(None), ApplicationGroupThrottled, type(None)]


def test_bytes_and_messages_are_limited_independently(harness: ApplicationGroupHarness) -> None:
    """The limit that is reached first refuses the publication."""
    harness.write(a_group(a_policy(IN_BYTES, 1000), a_policy(IN_EVENTS, 100)))
    publisher = harness.publisher(a_client())

    outcomes = [harness.send(publisher, 1, 900), harness.send(publisher, 1, 200), harness.send(publisher, 99, 100)]
    last = harness.send(publisher, 1, 0)

    assert isinstance(outcomes[1], ApplicationGroupThrottled)
    assert outcomes[1].policy == "IncomingBytes"
    assert (outcomes[0], outcomes[2]) == (None, None)
    assert isinstance(last, ApplicationGroupThrottled)
    assert last.policy == "IncomingMessages"


def test_publication_that_the_disk_refuses_is_not_counted(
    harness: ApplicationGroupHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused publication must not use up the quota."""
    harness.write(a_group(a_policy(rate=10)))
    publisher = harness.publisher(a_client())
    log = type(harness.broker_harness.hub.log(0))
    with monkeypatch.context() as broken:
        broken.setattr(log, "append", _refusing)
        failed = harness.send(publisher, 10)

    assert isinstance(failed, PartitionOffline)
    assert harness.send(publisher, 10) is None


def _refusing(*_: object, **__: object) -> None:
    raise PartitionOffline("gone")


def test_run_of_kafka_batches_is_accepted_only_within_the_rates(harness: ApplicationGroupHarness) -> None:
    """A run is accepted as a whole or not at all; otherwise its batches are checked one by one."""
    harness.write(a_group(a_policy(rate=10)))
    publisher = harness.publisher(a_client())

    fits = publisher.check_runs([a_run(10)], NOW_MS, harness.broker_harness.now)
    harness.send(publisher, 8)

    assert fits
    assert publisher.check_runs([a_run(10)], NOW_MS, harness.broker_harness.now) is None
    assert publisher.check_runs([a_run(2)], NOW_MS, harness.broker_harness.now)


def a_run(events: int) -> RunPart:
    """Batches of one event each for partition 0."""
    batches = [a_batch() for _ in range(events)]
    return RunPart(0, bytearray(b"".join(batches)), [len(batch) for batch in batches])


@pytest.mark.parametrize(("metric", "amounts"), [(OUT_EVENTS, (20, 1)), (OUT_BYTES, (1, 2000))])
def test_readers_of_a_group_are_delayed_and_never_refused(
    harness: ApplicationGroupHarness, metric: ThrottlingMetric, amounts: tuple[int, int]
) -> None:
    """Readers cannot be refused with such an error, so their events are delayed."""
    rate = 10 if metric is OUT_EVENTS else 1000
    harness.write(a_group(a_policy(metric, rate)))
    harness.send(harness.publisher(None), 20)
    slow, other = harness.reader(a_client("slow")), harness.reader(a_client("other"))
    events, size_bytes = amounts

    for reader in (slow, other):
        reader.advance(20, events, size_bytes, harness.broker_harness.now)

    assert slow.delay(harness.broker_harness.now) == pytest.approx(1.0, abs=0.1)
    assert slow.delay(harness.broker_harness.now + 1.1) == 0.0
    assert other.delay(harness.broker_harness.now) == 0.0


def test_fetches_of_a_group_are_delayed(harness: ApplicationGroupHarness) -> None:
    """The response contains the delay, as for throughput units."""
    harness.write(a_group(a_policy(OUT_EVENTS, 10)))
    harness.send(harness.publisher(None), 20)
    harness.broker_harness.turn.run()
    broker, hub = harness.broker_harness.broker, harness.broker_harness.hub
    readers = [broker.follow(hub, 0, lambda: None, principal=a_client(rule)) for rule in ("slow", "other")]

    chunks = [reader.read(0, max_bytes=10_000, space_bytes=10_000).chunk for reader in readers]
    delays = [
        reader.charge(chunk, 0, harness.broker_harness.now)
        for reader, chunk in zip(readers, chunks, strict=True)
        if chunk
    ]

    assert delays[0] == pytest.approx(1.0, abs=0.1)
    assert delays[1] == 0.0


def test_group_changes_apply_to_connected_clients(harness: ApplicationGroupHarness) -> None:
    """The group is created, changed and deleted while a link is open; the link stays open."""
    publisher, group = harness.publisher(a_client()), a_group(a_policy(rate=10))

    before = harness.accepted_events(publisher)
    harness.write(group)
    made = harness.accepted_events(publisher)
    harness.write(replace(group, policies=(a_policy(rate=20),)))
    harness.broker_harness.now += 1.0
    changed = harness.accepted_events(publisher)
    harness.delete(group)
    deleted = harness.accepted_events(publisher)

    assert (before, made, changed, deleted) == (50, 10, 20, 50)


def test_groups_apply_after_a_restart(harness: ApplicationGroupHarness) -> None:
    """They are loaded from the catalog."""
    harness.write(a_group(a_policy(rate=10)))
    broker_harness = harness.broker_harness

    broker_harness.broker._namespaces.clear()
    broker_harness.broker.open(broker_harness.now)

    assert harness.accepted_events(harness.publisher(a_client())) == 10


def test_rules_of_hubs_belong_to_separate_groups(harness: ApplicationGroupHarness) -> None:
    """A rule of the same name on the namespace is a different client."""
    harness.write(a_group(a_policy(rate=10), client="EntitySASKeyName=slow"))

    counts = [harness.accepted_events(harness.publisher(a_client("slow", hub=hub))) for hub in ("orders", "")]

    assert counts == [10, 50]


def test_the_administrator_and_the_portal_belong_to_no_group(harness: ApplicationGroupHarness) -> None:
    """An administrator who repairs a limit must not be throttled by it."""
    harness.write(a_group(a_policy(rate=1), client="NamespaceSASKeyName=(admin)"))

    counts = [harness.accepted_events(harness.publisher(who)) for who in (Principal.admin(), None)]

    assert counts == [50, 50]


def test_credential_belongs_to_at_most_one_group(harness: ApplicationGroupHarness) -> None:
    """With two groups for one credential it would be unclear which rates apply."""
    harness.write(a_group(name="first"))

    with pytest.raises(Conflict, match="first"):
        harness.write(a_group(name="second", client="namespacesaskeyname=SLOW"))

    harness.write(a_group(a_policy(), name="First"))


@pytest.mark.parametrize(("metric", "rate"), [(IN_BYTES, 999), (OUT_BYTES, 1), (IN_EVENTS, 0), (OUT_EVENTS, -1)])
def test_rates_have_the_minimum_values_of_the_service(
    harness: ApplicationGroupHarness, metric: ThrottlingMetric, rate: int
) -> None:
    """The minimum is 1 KB and one message."""
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
        raise AssertionError("a view of the connection was not expected")


def test_disabling_a_group_closes_the_connections_of_its_clients(harness: ApplicationGroupHarness) -> None:
    """Connections of another rule, of another namespace, and without authentication stay open."""
    principals = (a_client("slow"), a_client("other"), replace(a_client("slow"), namespace="elsewhere"))
    connections = [_Connection(principal) for principal in principals] + [_Connection()]
    for number, connection in enumerate(connections):
        harness.broker_harness.broker.connections.add(connection, number)

    harness.write(a_group())
    untouched = [list(connection.cuts) for connection in connections]
    harness.write(replace(a_group(), is_enabled=False))

    assert untouched == [[], [], [], []]
    assert ["disabled" in "".join(connection.cuts) for connection in connections] == [True, False, False, False]


def test_events_share_a_batch_only_with_those_of_the_same_group(harness: ApplicationGroupHarness) -> None:
    """The batch of a group is charged to it, and nothing else is."""
    harness.write(a_group(a_policy(rate=10)))
    slow, also_slow, other = (harness.publisher(a_client(rule)) for rule in ("slow", "slow", "other"))

    assert slow.coalescing_target == also_slow.coalescing_target
    assert slow.coalescing_target != other.coalescing_target


def test_events_of_a_group_that_exceed_its_rate_together_are_checked_one_by_one(
    harness: ApplicationGroupHarness,
) -> None:
    """A full bucket admits one publication of any size, but not the small ones of many clients together."""
    harness.write(a_group(a_policy(rate=10)))
    slow = harness.publisher(a_client("slow"))

    assert slow.has_ingress(1, 10, 0.0)
    assert not slow.has_ingress(1, 50, 0.0)
    assert harness.send(slow, events=50) is None
