"""The doctor names what is wrong, and keeps quiet about what is not."""

from collections.abc import Sequence

import pytest

from hubmere.broker.conditions import DISK, Condition, ConditionSeverity
from hubmere.broker.live import LiveHub
from hubmere.broker.management.connections import ConnectionView, LinkView, Role
from hubmere.broker.read import Subscription
from hubmere.model.entity import Status
from hubmere.model.errors import ServerBusy
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Profile
from hubmere.portal import doctor
from hubmere.portal.doctor import DUEL_CHANGES, STALLED_SECONDS, Finding, Observer, Scene, Severity, findings, held_by
from hubmere.portal.sampler import FLOWS, NO_RATES, Rates
from portal.builders import Desktop


def examined(
    desktop: Desktop,
    observer: Observer | None = None,
    rates: Rates = NO_RATES,
    ahead_ms: int = 0,
    connections: Sequence[ConnectionView] = (),
) -> list[Finding]:
    """What the doctor says now."""
    namespace = desktop.broker.namespace("hubmere")
    hubs: list[LiveHub] = list(namespace.hubs.values())
    if observer is None:
        observer = Observer()
        observer.observe(hubs, desktop.clock.monotonic(), desktop.clock.now_ms() - ahead_ms)
    return findings(
        Scene(
            namespace=namespace,
            hubs=hubs,
            observer=observer,
            rates=lambda _: rates,
            now=desktop.clock.monotonic(),
            now_ms=desktop.clock.now_ms() - ahead_ms,
            connections=connections,
            held=held_by(connections),
            conditions=desktop.broker.conditions.all(),
        )
    )


def a_connection(*links: LinkView) -> ConnectionView:
    """A connection that does something."""
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


def a_link(reader: Subscription, credit: int) -> LinkView:
    """The link of a reader."""
    return LinkView(role=Role.READS, address="orders", hub="orders", credit=credit, reader=reader)


def a_rate(flow: str) -> Rates:
    """One of a kind each second, and nothing else."""
    return tuple(1.0 if name == flow else 0.0 for name in FLOWS)


def watched(desktop: Desktop, observer: Observer, seconds: float) -> None:
    """Let time pass under the observer's eyes."""
    desktop.clock.advance(seconds)
    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())


def test_healthy_namespace_has_no_findings(desktop: Desktop) -> None:
    """A doctor who always finds something is not asked again."""
    observer = Observer()
    desktop.publish(b"x")
    reader = desktop.a_reader(epoch=1)
    observer.observe([desktop.hub], 0.0, desktop.clock.now_ms())

    reader.delivered(1, 1, 1, 0.0)
    watched(desktop, observer, 3600)

    assert examined(desktop, observer) == []


def test_events_that_cannot_be_read_are_a_finding(desktop: Desktop) -> None:
    """Whoever looks at the links sees why readers miss events."""
    desktop.hub.log(0)
    desktop.hub.report_unreadable(0, 7, 9, "its records do not decompress")

    (finding,) = examined(desktop)

    assert (finding.ailment, finding.where) == ("Damaged events", "orders/0")
    assert "sequence numbers 7 to 8" in finding.what
    assert "hubmere doctor" in finding.remedy


@pytest.mark.parametrize(
    ("severity", "shown"),
    [(ConditionSeverity.WARNING, Severity.DOUBTFUL), (ConditionSeverity.CRITICAL, Severity.WRONG)],
)
def test_what_is_wrong_with_the_machine_is_a_finding(
    desktop: Desktop, severity: ConditionSeverity, shown: Severity
) -> None:
    """A disk that is full explains what clients are refused."""
    desktop.broker.conditions.set(Condition(name=DISK, severity=severity, text="It is full.", remedy="Make room."))

    (finding,) = examined(desktop)

    assert (finding.severity, finding.ailment, finding.what) == (shown, "Disk", "It is full.")


def test_reader_that_takes_nothing_is_stalled(desktop: Desktop) -> None:
    """It has events before it and does not ask for them."""
    observer = Observer()
    desktop.publish(b"x")
    desktop.a_reader(name="slow")
    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())

    watched(desktop, observer, STALLED_SECONDS)

    [finding] = examined(desktop, observer)
    assert (finding.ailment, finding.severity) == ("Stalled reader", Severity.WRONG)
    assert finding.where == "orders/0 as $default"
    assert "'slow'" in finding.what


@pytest.mark.parametrize(("credit", "ailment"), [(0, "No credit"), (300, "Stalled reader")])
def test_stalled_reader_is_named_with_its_connection_and_credit(desktop: Desktop, credit: int, ailment: str) -> None:
    """Whoever gives no credit has stopped asking; whoever gives some has a full socket."""
    observer = Observer()
    desktop.publish(b"x")
    reader = desktop.a_reader(name="slow")
    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())

    watched(desktop, observer, STALLED_SECONDS)

    [finding] = examined(desktop, observer, connections=[a_connection(a_link(reader, credit))])
    assert finding.ailment == ailment
    assert "'slow' on connection 7 (till from 10.0.0.7)" in finding.what


def test_partition_that_is_taken_by_another_is_a_steal(desktop: Desktop) -> None:
    """Once may be a deployment, so it is doubtful; who took it from whom is told."""
    observer = Observer()
    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())
    desktop.a_reader(epoch=1, name="old")

    reader = desktop.a_reader(epoch=2, name="new")
    watched(desktop, observer, 1)

    [finding] = examined(desktop, observer, connections=[a_connection(a_link(reader, 1))])
    assert (finding.ailment, finding.severity) == ("Epoch steal", Severity.DOUBTFUL)
    assert finding.what == "'new' on connection 7 (till from 10.0.0.7) took the partition from 'old' with epoch 2."


def test_steals_before_the_first_look_have_no_time_and_are_not_told(desktop: Desktop) -> None:
    """A page that is opened tells what happens, not what happened last week."""
    observer = Observer()
    desktop.a_reader(epoch=1, name="old")
    desktop.a_reader(epoch=2, name="new")

    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())

    assert examined(desktop, observer) == []


def test_throttled_hub_is_named_with_who_publishes_there(desktop: Desktop) -> None:
    """A few of them: the list of all is on the same page."""
    link = LinkView(role=Role.PUBLISHES, address="orders", hub="Orders")

    [finding] = examined(desktop, rates=a_rate("throttled_requests"), connections=[a_connection(link)] * 5)

    assert finding.ailment == "Throttled"
    assert finding.what.endswith("connection 7 (till from 10.0.0.7) and 2 more.")


def test_reader_that_moves_is_not_stalled(desktop: Desktop) -> None:
    """Being behind is no illness while it gets on."""
    observer = Observer()
    desktop.publish(b"x", b"y")
    reader = desktop.a_reader()
    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())

    desktop.clock.advance(STALLED_SECONDS - 1)
    reader.delivered(1, 1, 1, 0.0)
    observer.observe([desktop.hub], desktop.clock.monotonic(), desktop.clock.now_ms())
    watched(desktop, observer, STALLED_SECONDS - 1)

    assert examined(desktop, observer) == []


def test_owners_that_take_a_partition_from_each_other_are_duelling(desktop: Desktop) -> None:
    """Two processors without a common store do this for ever."""
    observer = Observer()

    for epoch in range(DUEL_CHANGES):
        desktop.a_reader(epoch=epoch, name=f"processor-{epoch % 2}")
        watched(desktop, observer, 1)

    assert [finding.ailment for finding in examined(desktop, observer)] == ["Duelling owners"]


def test_one_hand_over_is_no_duel(desktop: Desktop) -> None:
    """A deployment replaces each owner once."""
    observer = Observer()

    for epoch in range(DUEL_CHANGES - 1):
        desktop.a_reader(epoch=epoch)
        watched(desktop, observer, 1)

    assert examined(desktop, observer) == []


def test_old_quarrel_is_forgotten(desktop: Desktop) -> None:
    """What is over is not wrong any more."""
    observer = Observer()
    for epoch in range(DUEL_CHANGES):
        desktop.a_reader(epoch=epoch)
        watched(desktop, observer, 1)

    watched(desktop, observer, 120)

    assert examined(desktop, observer) == []


def test_readers_who_share_a_partition_are_told(desktop: Desktop) -> None:
    """Each of them gets every event, which few people want."""
    for name in ("a", "b"):
        desktop.a_reader(name=name)

    [finding] = examined(desktop)

    assert (finding.ailment, finding.severity) == ("Shared partition", Severity.DOUBTFUL)


@pytest.mark.parametrize(
    ("flow", "ailment"),
    [
        ("throttled_requests", "Throttled"),
        ("server_errors", "Server errors"),
        ("user_errors", "Refused requests"),
    ],
)
def test_refusals_are_named_by_their_kind(desktop: Desktop, flow: str, ailment: str) -> None:
    """The three have different remedies."""
    found = examined(desktop, rates=a_rate(flow))

    assert [finding.ailment for finding in found] == [ailment]


def test_namespace_at_its_limit_is_told_for_some_seconds() -> None:
    """Auto-inflate looks every second and forgets; the doctor goes by when it happened."""
    desktop = Desktop(profile=Profile.STANDARD)
    throughput = desktop.broker.namespace("hubmere").throughput
    assert throughput is not None
    healthy = examined(desktop)
    throughput.admit("orders", 1 << 20, 1, desktop.clock.monotonic())
    with pytest.raises(ServerBusy):
        throughput.admit("orders", 1 << 20, 1, desktop.clock.monotonic())
    throughput.was_pressed = False

    pressed = examined(desktop)
    desktop.clock.advance(3600)
    later = examined(desktop)

    assert [[finding.ailment for finding in found] for found in (healthy, pressed, later)] == [[], ["At its limit"], []]
    desktop.close()


def test_disabled_hub_is_told(desktop: Desktop) -> None:
    """Clients only see that they are refused."""
    spec = HubSpec(partition_count=4, status=Status.SEND_DISABLED)
    desktop.do(lambda done: desktop.manager.update_hub("hubmere", "orders", spec, desktop.actor(), done))

    [finding] = examined(desktop)

    assert finding.ailment == "Hub disabled"
    assert "SendDisabled" in finding.what


def test_events_of_the_future_are_a_skewed_clock(desktop: Desktop) -> None:
    """Look-ups by time are wrong until it is set."""
    desktop.publish(b"x")

    [finding] = examined(desktop, ahead_ms=120_000)

    assert (finding.ailment, finding.where) == ("Clock skew", "orders/0")


def test_worst_comes_first(desktop: Desktop) -> None:
    """Whoever reads one line reads the right one."""
    rates = tuple(1.0 if name in ("user_errors", "server_errors") else 0.0 for name in FLOWS)

    found = examined(desktop, rates=rates)

    assert [finding.severity for finding in found] == [Severity.WRONG, Severity.DOUBTFUL]


def test_idle_hubs_are_not_opened_by_an_examination(desktop: Desktop) -> None:
    """A thousand idle hubs stay idle while somebody looks."""
    examined(desktop)

    assert desktop.hub.open_logs() == []


def test_partitions_of_a_large_namespace_are_asked_in_turn(desktop: Desktop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look asks a bounded number, the next goes on behind it, and all come round."""
    monkeypatch.setattr(doctor, "EXAMINED_PARTITIONS", 4)
    other = desktop.a_hub("other")
    for hub in (desktop.hub, other):
        desktop.publish(b"x", hub=hub)
    observer, early_ms = Observer(), desktop.clock.now_ms() - 2 * doctor.SKEW_MS

    seen = []
    for _ in range(2):
        observer.observe([desktop.hub, other], 0.0, early_ms)
        seen.append([len(observer.troubles(hub)) for hub in (desktop.hub, other)])

    assert seen == [[1, 0], [1, 1]]
