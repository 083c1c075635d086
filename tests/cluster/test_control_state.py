"""The state machine of the control log: conditional changes, exclusive readers, silent gateways, snapshots."""

import pytest

from hubmere.cluster.control.entries import (
    Beat,
    Change,
    Claim,
    Condition,
    Entry,
    Gone,
    Leave,
    Release,
    Role,
    Session,
    UnreadableEntry,
    Write,
    decode_entry,
    encode_entry,
)
from hubmere.cluster.control.places import Verdict
from hubmere.cluster.control.state import FORGOTTEN_BEATS, MISSED_BEATS, ControlState, Outcome


class Log:
    """A state and the log that it follows."""

    def __init__(self, *sessions: str) -> None:
        self.state = ControlState()
        self.entries: list[Entry] = []
        for session in sessions:
            self.add(Session(session=session))

    def add(self, entry: Entry) -> Outcome:
        self.entries.append(entry)
        return self.state.apply(len(self.entries) - 1, decode_entry(encode_entry(entry)))

    def beat(self, session: str, times: int = 1) -> None:
        for number in range(times):
            self.add(Beat(session=session, number=number))


def a_change(key: str = "hub/a", value: str | None = "1", version: int = 0) -> Change:
    condition = Condition(key=key, version=version)
    return Change(id="c", session="a", conditions=(condition,), writes=(Write(key=key, value=value),))


def a_claim(claim_id: str, epoch: int | None = None, *, session: str = "a", limit: int | None = None) -> Claim:
    return Claim(id=claim_id, session=session, place="p", epoch=epoch, name=claim_id, limit=limit)


def test_second_of_two_changes_of_one_row_has_no_effect() -> None:
    """Two concurrent managers give one history: the order of the log decides."""
    log = Log("a")

    first, second = log.add(a_change(value="1")), log.add(a_change(value="2"))

    assert first.verdict is Verdict.ACCEPTED
    assert second.verdict is Verdict.REFUSED
    assert log.state.rows["hub/a"] == (2, "1")


def test_change_with_the_current_version_is_accepted() -> None:
    """The version of a row is that of its last change; a removed row has none."""
    log = Log("a")
    log.add(a_change())

    log.add(a_change(value="2", version=log.state.version_of("hub/a")))
    removal = log.add(a_change(value=None, version=log.state.version_of("hub/a")))

    assert removal.verdict is Verdict.ACCEPTED
    assert log.state.version_of("hub/a") == 0


@pytest.mark.parametrize(
    ("held", "asked", "verdict"),
    [
        (None, None, Verdict.ACCEPTED),
        (None, 0, Verdict.ACCEPTED),
        (1, None, Verdict.REFUSED),
        (1, 0, Verdict.REFUSED),
        (1, 1, Verdict.ACCEPTED),
        (1, 2, Verdict.ACCEPTED),
    ],
)
def test_owner_is_displaced_only_by_an_equal_or_higher_epoch(
    held: int | None, asked: int | None, verdict: Verdict
) -> None:
    """The epoch rules of one node apply to all gateways."""
    log = Log("a", "b")
    log.add(a_claim("held", held))

    outcome = log.add(a_claim("asked", asked, session="b"))

    assert outcome.verdict is verdict
    assert outcome.claim is not None
    assert outcome.claim.waits_for == (("held",) if asked is not None and verdict is Verdict.ACCEPTED else ())


def test_readers_without_an_epoch_are_limited() -> None:
    """The tier's limit of readers applies to the whole cluster."""
    log = Log("a")
    for number in range(5):
        log.add(a_claim(f"r{number}", limit=5))

    refused = log.add(a_claim("r5", limit=5))

    assert refused.verdict is Verdict.REFUSED
    assert refused.claim is not None
    assert len(refused.claim.holders) == 5


def test_claim_waits_for_every_displaced_claim() -> None:
    """A claim that was displaced earlier may still deliver when the one after it has been released."""
    log = Log("a", "b", "c")
    log.add(a_claim("one", 1))
    log.add(a_claim("two", 2, session="b"))
    log.add(Release(id="two"))

    outcome = log.add(a_claim("three", 1, session="c"))

    assert outcome.claim is not None
    assert outcome.claim.waits_for == ("one",)


def test_silent_gateway_is_declared_dead_by_the_heartbeats_of_another() -> None:
    """The order of the log is used as the clock, so that skewed clocks have no effect."""
    log = Log("a", "b")
    log.add(a_claim("mine", 5, session="b"))
    log.beat("a", MISSED_BEATS - 1)
    too_early = log.add(Gone(session="b"))
    log.beat("a")

    gone = log.add(Gone(session="b"))

    assert (too_early.verdict, gone.verdict) == (Verdict.REFUSED, Verdict.ACCEPTED)
    assert [member.session for member in log.state.alive()] == ["a"]
    outcome = log.add(a_claim("other", 0))
    assert outcome.claim is not None
    assert (outcome.verdict, outcome.claim.waits_for) == (Verdict.ACCEPTED, ("mine",))


def test_claims_of_a_dead_gateway_are_refused() -> None:
    """A gateway that continues after a freeze learns from the log that it must begin a new session."""
    log = Log("a", "b")
    log.beat("a", MISSED_BEATS)
    log.add(Gone(session="b"))

    assert log.add(a_claim("late", 9, session="b")).verdict is Verdict.REFUSED
    assert log.add(Beat(session="b", number=1)).verdict is Verdict.REFUSED


def test_dead_gateway_is_removed_when_its_lease_has_certainly_ended() -> None:
    """Other gateways do not wait for ever for its release."""
    log = Log("a", "b")
    log.add(a_claim("mine", 5, session="b"))
    log.beat("a", MISSED_BEATS)
    log.add(Gone(session="b"))

    log.beat("a", FORGOTTEN_BEATS)

    assert list(log.state.members) == ["a"]
    assert log.state.places == {}


def test_role_has_one_holder_until_it_leaves() -> None:
    """Capture runs once in a cluster."""
    log = Log("a", "b")

    first = log.add(Role(id="1", session="a", place="role/capture"))
    second = log.add(Role(id="2", session="b", place="role/capture"))
    log.add(Leave(session="a"))
    third = log.add(Role(id="3", session="b", place="role/capture"))

    assert [first.verdict, second.verdict, third.verdict] == [Verdict.ACCEPTED, Verdict.REFUSED, Verdict.ACCEPTED]


def test_state_from_a_snapshot_equals_the_state_from_the_log() -> None:
    """A gateway that starts from a snapshot decides like the others: its digest is equal after the same entries."""
    log = Log("a", "b")
    log.add(a_change())
    log.add(a_claim("one", 1))
    log.add(a_claim("two", 2, session="b"))
    log.beat("a", 3)

    other = ControlState.decode(log.state.encode())
    for entry in (Release(id="one"), a_change(value="2", version=log.state.version_of("hub/a")), Leave(session="b")):
        log.add(entry)
        other.apply(len(log.entries) - 1, entry)

    assert other.digest == log.state.digest
    assert other.places == log.state.places == {}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"kind":"vote"}', b'{"kind":"beat"}', b"\xff"])
def test_unreadable_entry_is_never_skipped(data: bytes) -> None:
    """A gateway that skipped an entry would decide on another state than its peers."""
    with pytest.raises(UnreadableEntry):
        decode_entry(data)


def test_newer_release_may_add_fields_to_an_entry() -> None:
    """Gateways of two releases run at the same time during an upgrade."""
    assert decode_entry(b'{"kind":"release","id":"x","reason":"closed"}') == Release(id="x")
