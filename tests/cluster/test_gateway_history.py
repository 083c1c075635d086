"""Which gateways have died, from the entries of the control log."""

from hubmere.cluster.control.entries import Beat, Entry, Gone, Leave, Session, decode_entry, encode_entry
from hubmere.cluster.control.history import LOST_SECONDS, MAX_SESSIONS, GatewayHistory
from hubmere.cluster.control.state import FORGOTTEN_BEATS, MISSED_BEATS, ControlState
from hubmere.cluster.pulse.board import PulseBoard
from hubmere.cluster.pulse.gateways import gateway_statuses, with_history
from hubmere.portal.doctor.gateway_checks import gateway_findings

_BEAT_MS = 500


class Log:
    """A control log with its reader: the state, the history, and the time of the last entry."""

    def __init__(self) -> None:
        self.state = ControlState()
        self.history = GatewayHistory()
        self.now_ms = 0

    def append(self, *entries: Entry) -> None:
        for entry in entries:
            self.state.apply(self.state.next_offset, entry)
            self.history.observe(entry, self.now_ms, self.state)

    def beat(self, *sessions: str, count: int = 1) -> None:
        for _ in range(count):
            self.now_ms += _BEAT_MS
            self.append(*(Beat(session=session, number=self.now_ms) for session in sessions))

    def lost(self) -> list[str]:
        return [seen.session for seen in self.history.lost_gateways(self.state, self.now_ms)]


def a_session(session: str, **more: str) -> Session:
    values = {"address": f"{session}:5671", "version": "1.0", "machine": f"m-{session}", "process": f"p-{session}"}
    return Session(session=session, **{**values, **more})


def a_log_with_a_dead_gateway() -> Log:
    """Gateway `two` is killed after one second; `one` goes on, until the state has forgotten it."""
    log = Log()
    log.append(a_session("one"), a_session("two"))
    log.beat("one", "two", count=2)
    log.beat("one", count=MISSED_BEATS)
    log.append(Gone(session="two", address="two:5671", machine="m-two"))
    log.beat("one", count=FORGOTTEN_BEATS)
    return log


def test_gateway_that_was_killed_is_lost_for_some_minutes() -> None:
    """An operator sees it although the others have forgotten it, with the time when it was seen last."""
    log = a_log_with_a_dead_gateway()
    assert "two" not in log.state.members

    (seen,) = log.history.lost_gateways(log.state, log.now_ms)

    assert (seen.session, seen.address, seen.machine, seen.last_seen_ms) == ("two", "two:5671", "m-two", 2 * _BEAT_MS)
    log.now_ms = 2 * _BEAT_MS + int(LOST_SECONDS * 1000)
    assert not log.lost()


def test_gateway_that_is_declared_dead_is_shown_once() -> None:
    """The state still has it, and so does the history."""
    log = Log()
    log.append(a_session("one"), a_session("two"))
    log.beat("one", "two")
    log.beat("one", count=MISSED_BEATS)
    log.append(Gone(session="two"))
    assert "two" in log.state.members

    assert log.lost() == ["two"]


def test_gateway_that_was_stopped_in_order_is_not_lost() -> None:
    """It was stopped on purpose."""
    log = Log()
    log.append(a_session("one"), a_session("two"))
    log.beat("one", "two")
    log.append(Leave(session="two"))
    log.beat("one", count=20)

    assert not log.lost()


def test_gateway_that_runs_again_is_not_lost() -> None:
    """A supervisor has started it again, or it was only frozen."""
    restarted, thawed, elsewhere = (a_log_with_a_dead_gateway() for _ in range(3))

    restarted.append(a_session("three", address="two:5671", machine="m-two"))
    thawed.append(a_session("three", process="p-two"))
    elsewhere.append(a_session("three", address="two:5671", machine="another"))

    assert (restarted.lost(), thawed.lost(), elsewhere.lost()) == ([], [], ["two"])


def test_gateway_that_was_frozen_and_then_ended_is_shown_once_or_not_at_all() -> None:
    """Its earlier session is history, also when the later one has ended: killed, or stopped on purpose."""
    killed, stopped = a_log_with_a_dead_gateway(), a_log_with_a_dead_gateway()
    for log in (killed, stopped):
        log.append(a_session("three", process="p-two"))
        log.beat("one", "three")

    killed.beat("one", count=MISSED_BEATS)
    killed.append(Gone(session="three"))
    stopped.append(Leave(session="three"))

    assert (killed.lost(), stopped.lost()) == (["three"], [])


def test_gateways_on_ports_that_the_system_chooses_are_told_apart() -> None:
    """Three gateways of one machine have the same address without a port: one that starts replaces none of them."""
    log = Log()
    log.append(*(a_session(name, address="localhost", machine="m") for name in ("one", "two")))
    log.beat("one", "two")
    log.beat("one", count=MISSED_BEATS)
    log.append(Gone(session="two"), a_session("three", address="localhost", machine="m"))

    assert log.lost() == ["two"]


def test_gateway_of_an_unread_past_is_named_by_its_declaration() -> None:
    """A gateway that starts reads the last entries only: the session of the dead one may have begun long before."""
    log = Log()
    log.beat("old")
    log.append(Gone(session="old", address="old:5671", machine="m-old"))

    (seen,) = log.history.lost_gateways(log.state, log.now_ms)

    assert (seen.reported_address, seen.machine) == ("old:5671", "m-old")


def test_history_is_bounded() -> None:
    """Each restart of a gateway is another session."""
    log = Log()
    for number in range(MAX_SESSIONS + 5):
        log.append(a_session(f"s{number}"))

    assert log.history.find("s4") is None
    assert log.history.find("s5") is not None


def test_entries_of_an_older_release_are_read() -> None:
    """Gateways are upgraded one after the other: older ones do not say where they run, and newer ones add fields."""
    assert decode_entry(b'{"kind":"session","session":"s","address":"a","version":"v"}') == Session(
        session="s", address="a", version="v"
    )
    assert decode_entry(b'{"kind":"gone","session":"s"}') == Gone(session="s")
    assert decode_entry(encode_entry(a_session("s"))) == a_session("s")


def test_portal_and_status_show_a_gateway_that_is_gone() -> None:
    """It is listed behind the others, and the doctor says since when it has not reported."""
    log = a_log_with_a_dead_gateway()
    alive = gateway_statuses(log.state, PulseBoard(), 0.0, session="one")

    one, two = with_history(alive, log.state, log.history, log.now_ms)

    assert (one.is_gone, one.last_seen_ms, one.machine) == (False, log.now_ms, "m-one")
    assert (two.is_gone, two.address, two.silent_s) == (True, "two:5671", (log.now_ms - 2 * _BEAT_MS) / 1000)
    (finding,) = gateway_findings([one, two])
    assert (finding.problem, finding.location) == ("Gateway is gone", "two:5671 on m-two")
    assert "has not reported since 1970-01-01 00:00:01.000 UTC" in finding.description
