"""What is known of the gateways of a cluster, and what is wrong with them."""

from dataclasses import replace

from hubmere.cluster.control.entries import Beat, Gone, Role, Session
from hubmere.cluster.control.state import MISSED_BEATS, ControlState
from hubmere.cluster.pulse.board import PulseBoard
from hubmere.cluster.pulse.gateways import ROLE_PREFIX, gateway_statuses
from hubmere.model.monitoring.pulse import Flow, GatewayPulse, GatewayStatus, NamespacePulse
from hubmere.portal.doctor.gateway_checks import BEHIND_ENTRIES, SILENT_SECONDS, gateway_findings

GATEWAY = GatewayStatus(session="s1", address="one:5671", version="1.0", connections=1, lag=0, silent_s=0.1)


def two_gateways() -> ControlState:
    state = ControlState()
    state.apply(0, Session(session="s1", address="one", version="1.0"))
    state.apply(1, Session(session="s2", address="two", version="1.1"))
    state.apply(2, Role(id="r", session="s2", place=f"{ROLE_PREFIX}capture"))
    return state


def test_gateways_of_the_control_log_are_shown_with_their_reports() -> None:
    """The log knows who is there and who has which role; the report says what a gateway does."""
    board = PulseBoard()
    namespace = NamespacePulse(name="n", flow=Flow(1.0, 2.0, 3.0, 4.0))
    pulse = GatewayPulse(
        session="s2",
        number=1,
        address="two:5671",
        version="1.1",
        applied=1,
        connections=7,
        namespaces=(namespace, replace(namespace, name="m")),
    )
    board.record(pulse, 10.0)

    one, two = gateway_statuses(two_gateways(), board, 12.0, session="s1")

    assert one == GatewayStatus(
        session="s1", address="one", version="1.0", roles=("snapshots", "auto-inflate"), is_self=True
    )
    assert two == GatewayStatus(
        session="s2",
        address="two:5671",
        version="1.1",
        roles=("capture",),
        connections=7,
        lag=2,
        silent_s=2.0,
        flow=Flow(2.0, 4.0, 6.0, 8.0),
    )


def test_gateway_that_was_declared_dead_is_not_shown() -> None:
    """Its last report may be seconds old only."""
    state = two_gateways()
    for number in range(MISSED_BEATS):
        state.apply(3 + number, Beat(session="s1", number=number))
    state.apply(20, Gone(session="s2"))

    assert [each.session for each in gateway_statuses(state, PulseBoard(), 0.0)] == ["s1"]


def test_nothing_is_wrong_with_gateways_that_report_and_follow() -> None:
    """A cluster that works has no findings; nor has a single node, which has no gateways."""
    assert list(gateway_findings([GATEWAY, replace(GATEWAY, session="s2")])) == []
    assert list(gateway_findings([])) == []


def test_doctor_finds_silent_slow_and_old_gateways() -> None:
    """Each is named by its address, with what to do."""
    found = list(
        gateway_findings(
            [
                GATEWAY,
                replace(GATEWAY, address="silent", silent_s=SILENT_SECONDS + 1),
                replace(GATEWAY, address="slow", lag=BEHIND_ENTRIES + 1),
                replace(GATEWAY, address="old", version="0.9"),
            ]
        )
    )

    assert [(each.problem, each.location) for each in found] == [
        ("Silent gateway", "silent"),
        ("Gateway is behind", "slow"),
        ("Different releases", "the cluster"),
    ]
