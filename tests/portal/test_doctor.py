"""The doctor reports each problem and nothing else."""

from collections.abc import Sequence

import pytest

from hubmere.broker.management.connections import ConnectionView, LinkRole, LinkView
from hubmere.broker.monitoring.conditions import DISK, Condition, ConditionSeverity
from hubmere.broker.read import Reader
from hubmere.model.entity import Status
from hubmere.model.errors import ServerBusy
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Profile
from hubmere.portal.doctor import diagnosis as doctor
from hubmere.portal.doctor.diagnosis import (
    CONTEST_CHANGES,
    STALLED_SECONDS,
    Observer,
    Snapshot,
    findings,
    links_by_reader,
)
from hubmere.portal.doctor.finding import Finding, Severity
from hubmere.portal.history.sampler import COUNTERS, NO_RATES, Rates
from portal.builders import PortalHarness


def diagnose(
    harness: PortalHarness,
    observer: Observer | None = None,
    rates: Rates = NO_RATES,
    ahead_ms: int = 0,
    connections: Sequence[ConnectionView] = (),
) -> list[Finding]:
    """The current findings."""
    namespace = harness.broker._namespace("hubmere").view
    hubs = namespace.hubs()
    if observer is None:
        observer = Observer()
        observer.observe(hubs, harness.clock.monotonic(), harness.clock.now_ms() - ahead_ms)
    return findings(
        Snapshot(
            namespace=namespace,
            hubs=hubs,
            observer=observer,
            rates=lambda _: rates,
            now=harness.clock.monotonic(),
            now_ms=harness.clock.now_ms() - ahead_ms,
            connections=connections,
            reader_links=links_by_reader(connections),
            conditions=harness.broker.conditions.all(),
        )
    )


def a_connection(*links: LinkView) -> ConnectionView:
    """A connection with links."""
    return ConnectionView(
        number=7,
        protocol="AMQP",
        client="till",
        software="",
        rule="root",
        peer="10.0.0.7",
        namespace="hubmere",
        is_secure=False,
        opened_ms=0,
        idle_s=0.0,
        links=links,
    )


def a_link(reader: Reader, credit: int) -> LinkView:
    """The link of a reader."""
    return LinkView(role=LinkRole.READS, address="orders", hub="orders", credit=credit, reader=reader)


def a_rate(counter: str) -> Rates:
    """A rate of one per second for one counter, zero for the others."""
    return tuple(1.0 if name == counter else 0.0 for name in COUNTERS)


def observe_after(harness: PortalHarness, observer: Observer, seconds: float) -> None:
    """Advance the clock and observe once more."""
    harness.clock.advance(seconds)
    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())


def test_healthy_namespace_has_no_findings(harness: PortalHarness) -> None:
    """False alarms would make people ignore the doctor."""
    observer = Observer()
    harness.publish(b"x")
    reader = harness.a_reader(epoch=1)
    observer.observe([harness.hub.view], 0.0, harness.clock.now_ms())

    reader.advance(1, 1, 1, 0.0)
    observe_after(harness, observer, 3600)

    assert diagnose(harness, observer) == []


def test_events_that_cannot_be_read_are_a_finding(harness: PortalHarness) -> None:
    """The page explains why readers miss events."""
    harness.hub.log(0)
    harness.hub.report_unreadable(0, 7, 9, "its records do not decompress")

    (finding,) = diagnose(harness)

    assert (finding.problem, finding.location) == ("Damaged events", "orders/0")
    assert "sequence numbers 7 to 8" in finding.description
    assert "hubmere doctor" in finding.remedy


@pytest.mark.parametrize(
    ("severity", "shown"),
    [(ConditionSeverity.WARNING, Severity.WARNING), (ConditionSeverity.CRITICAL, Severity.ERROR)],
)
def test_condition_of_the_machine_is_a_finding(
    harness: PortalHarness, severity: ConditionSeverity, shown: Severity
) -> None:
    """A full disk explains why clients are refused."""
    harness.broker.conditions.set(Condition(name=DISK, severity=severity, text="It is full.", remedy="Make room."))

    (finding,) = diagnose(harness)

    assert (finding.severity, finding.problem, finding.description) == (shown, "Disk", "It is full.")


def test_reader_that_takes_nothing_is_stalled(harness: PortalHarness) -> None:
    """It has events to read and does not read them."""
    observer = Observer()
    harness.publish(b"x")
    harness.a_reader(name="slow")
    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())

    observe_after(harness, observer, STALLED_SECONDS)

    [finding] = diagnose(harness, observer)
    assert (finding.problem, finding.severity) == ("Stalled reader", Severity.ERROR)
    assert finding.location == "orders/0 as $default"
    assert "'slow'" in finding.description


@pytest.mark.parametrize(("credit", "problem"), [(0, "No credit"), (300, "Stalled reader")])
def test_stalled_reader_is_named_with_its_connection_and_credit(
    harness: PortalHarness, credit: int, problem: str
) -> None:
    """Without credit the client has stopped asking; with credit its socket is full."""
    observer = Observer()
    harness.publish(b"x")
    reader = harness.a_reader(name="slow")
    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())

    observe_after(harness, observer, STALLED_SECONDS)

    [finding] = diagnose(harness, observer, connections=[a_connection(a_link(reader, credit))])
    assert finding.problem == problem
    assert "'slow' on connection 7 (till from 10.0.0.7)" in finding.description


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("old", "new", "'new' on connection 7 (till from 10.0.0.7) took over from 'old' with epoch 2."),
        (
            "nil",
            "new",
            "'new' on connection 7 (till from 10.0.0.7) took over from a reader without a name with epoch 2.",
        ),
    ],
    ids=["named", "unnamed"],
)
def test_takeover_of_a_partition_is_a_warning(harness: PortalHarness, old: str, new: str, sentence: str) -> None:
    """A single takeover may be a deployment; the finding names both readers."""
    observer = Observer()
    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())
    harness.a_reader(epoch=1, name=old)

    reader = harness.a_reader(epoch=2, name=new)
    observe_after(harness, observer, 1)

    [finding] = diagnose(harness, observer, connections=[a_connection(a_link(reader, 1))])
    assert (finding.problem, finding.severity) == ("Partition takeover", Severity.WARNING)
    assert finding.description == sentence


def test_takeovers_before_the_first_observation_are_ignored(harness: PortalHarness) -> None:
    """Their time is unknown; they may be a week old."""
    observer = Observer()
    harness.a_reader(epoch=1, name="old")
    harness.a_reader(epoch=2, name="new")

    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())

    assert diagnose(harness, observer) == []


def test_finding_about_throttling_names_the_publishers(harness: PortalHarness) -> None:
    """It names a few; the page has the full list."""
    link = LinkView(role=LinkRole.PUBLISHES, address="orders", hub="Orders")

    [finding] = diagnose(harness, rates=a_rate("throttled_requests"), connections=[a_connection(link)] * 5)

    assert finding.problem == "Throttled"
    assert finding.description.endswith("connection 7 (till from 10.0.0.7) and 2 more.")


def test_reader_that_advances_is_not_stalled(harness: PortalHarness) -> None:
    """Lag alone is no problem while the reader advances."""
    observer = Observer()
    harness.publish(b"x", b"y")
    reader = harness.a_reader()
    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())

    harness.clock.advance(STALLED_SECONDS - 1)
    reader.advance(1, 1, 1, 0.0)
    observer.observe([harness.hub.view], harness.clock.monotonic(), harness.clock.now_ms())
    observe_after(harness, observer, STALLED_SECONDS - 1)

    assert diagnose(harness, observer) == []


def test_owners_that_take_a_partition_from_each_other_are_reported(harness: PortalHarness) -> None:
    """Two processors without a common checkpoint store do this forever."""
    observer = Observer()

    for epoch in range(CONTEST_CHANGES):
        harness.a_reader(epoch=epoch, name=f"processor-{epoch % 2}")
        observe_after(harness, observer, 1)

    assert [finding.problem for finding in diagnose(harness, observer)] == ["Competing owners"]


def test_single_change_of_owner_is_no_problem(harness: PortalHarness) -> None:
    """A deployment replaces each owner once."""
    observer = Observer()

    for epoch in range(CONTEST_CHANGES - 1):
        harness.a_reader(epoch=epoch)
        observe_after(harness, observer, 1)

    assert diagnose(harness, observer) == []


def test_past_competition_is_forgotten(harness: PortalHarness) -> None:
    """Findings describe the present."""
    observer = Observer()
    for epoch in range(CONTEST_CHANGES):
        harness.a_reader(epoch=epoch)
        observe_after(harness, observer, 1)

    observe_after(harness, observer, 120)

    assert diagnose(harness, observer) == []


def test_readers_that_share_a_partition_are_reported(harness: PortalHarness) -> None:
    """Each of them gets every event, which few people want."""
    for name in ("a", "b"):
        harness.a_reader(name=name)

    [finding] = diagnose(harness)

    assert (finding.problem, finding.severity) == ("Shared partition", Severity.WARNING)


@pytest.mark.parametrize(
    ("counter", "problem"),
    [
        ("throttled_requests", "Throttled"),
        ("server_errors", "Server errors"),
        ("user_errors", "Refused requests"),
    ],
)
def test_refusals_are_named_by_their_kind(harness: PortalHarness, counter: str, problem: str) -> None:
    """The three have different remedies."""
    found = diagnose(harness, rates=a_rate(counter))

    assert [finding.problem for finding in found] == [problem]


def test_namespace_at_its_limit_is_reported_for_some_seconds() -> None:
    """Auto-inflate clears its flag every second, so the doctor uses the time of the event."""
    harness = PortalHarness(profile=Profile.STANDARD)
    throughput = harness.broker._namespace("hubmere").throughput
    assert throughput is not None
    healthy = diagnose(harness)
    throughput.charge_ingress("orders", 1 << 20, 1, harness.clock.monotonic())
    with pytest.raises(ServerBusy):
        throughput.require_ingress("orders", 1 << 20, 1, harness.clock.monotonic())
    throughput.was_throttled = False

    pressed = diagnose(harness)
    harness.clock.advance(3600)
    later = diagnose(harness)

    assert [[finding.problem for finding in found] for found in (healthy, pressed, later)] == [
        [],
        ["At the throughput limit"],
        [],
    ]
    harness.close()


def test_disabled_hub_is_reported(harness: PortalHarness) -> None:
    """Clients only see that they are refused."""
    spec = HubSpec(partition_count=4, status=Status.SEND_DISABLED)
    harness.do(lambda done: harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), done))

    [finding] = diagnose(harness)

    assert finding.problem == "Hub disabled"
    assert "SendDisabled" in finding.description


def test_events_of_the_future_are_a_skewed_clock(harness: PortalHarness) -> None:
    """Reads by time give wrong results until the clock is corrected."""
    harness.publish(b"x")

    [finding] = diagnose(harness, ahead_ms=120_000)

    assert (finding.problem, finding.location) == ("Clock skew", "orders/0")


def test_errors_come_first(harness: PortalHarness) -> None:
    """People read the first line."""
    rates = tuple(1.0 if name in ("user_errors", "server_errors") else 0.0 for name in COUNTERS)

    found = diagnose(harness, rates=rates)

    assert [finding.severity for finding in found] == [Severity.ERROR, Severity.WARNING]


def test_idle_hubs_are_not_opened_by_an_examination(harness: PortalHarness) -> None:
    """An open page must not open the logs of a thousand idle hubs."""
    diagnose(harness)

    assert harness.hub.open_logs() == []


def test_large_namespace_is_examined_in_several_refreshes(
    harness: PortalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refresh examines a bounded number of partitions and continues where the last one stopped."""
    monkeypatch.setattr(doctor, "MAX_EXAMINED_PARTITIONS", 4)
    other = harness.a_hub("other")
    for hub in (harness.hub, other):
        harness.publish(b"x", hub=hub)
    views = [harness.hub.view, other.view]
    observer, early_ms = Observer(), harness.clock.now_ms() - 2 * doctor.SKEW_MS

    seen = []
    for _ in range(2):
        observer.observe(views, 0.0, early_ms)
        seen.append([len(observer.partition_problems(hub)) for hub in views])

    assert seen == [[1, 0], [1, 1]]
