"""Groups of readers as a state machine, with time turned by hand (reference: kafka 2.10)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.builders import NOW_MS, Bench
from hubmere.broker.coordinator.classic_group import MAX_MEMBERS, ClassicGroup
from hubmere.broker.coordinator.deadlines import Deadlines
from hubmere.broker.coordinator.groups import Groups
from hubmere.broker.coordinator.membership import (
    GroupState,
    JoinRequest,
    JoinResponse,
    Protocol,
    SyncRequest,
    SyncResponse,
)
from hubmere.broker.coordinator.refusals import (
    CoordinatorUnavailable,
    GroupFull,
    GroupNotEmpty,
    GroupRefused,
    GroupUnknown,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupId,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    SessionTimeoutOutOfRange,
    UnknownMember,
)
from hubmere.model.errors import Refusal, StorageFull

RANGE = Protocol("range", b"r")
STICKY = Protocol("sticky", b"s")


def a_join(member_id: str = "", **more: Any) -> JoinRequest:
    """A valid wish to join."""
    request = JoinRequest(
        member_id=member_id,
        client_id="c",
        client_host="/here",
        session_timeout_s=10.0,
        rebalance_timeout_s=60.0,
        protocol_type="consumer",
        protocols=(RANGE,),
        needs_known_id=False,
    )
    return replace(request, **more)


class Table:
    """One group whose every reply is noted."""

    def __init__(self, *, initial_delay_s: float = 0.0) -> None:
        self.now = 0.0
        self.kept: list[tuple[GroupState, int]] = []
        self.keep_refusal: Refusal | None = None
        self.holds_keeping = False
        self.held_partitions: list[Any] = []
        self.group = ClassicGroup("g", initial_delay_s=initial_delay_s, persist=self._keep)

    def _keep(self, group: ClassicGroup, kept: Any) -> None:
        self.kept.append((group.state, group.generation))
        if self.holds_keeping:
            self.held_partitions.append(kept)
        else:
            kept(self.keep_refusal)

    def join(self, member_id: str = "", **more: Any) -> list[JoinResponse | GroupRefused]:
        """Ask to join; the list that the answer comes into."""
        answers: list[JoinResponse | GroupRefused] = []
        self.group.join(a_join(member_id, **more), self.now, answers.append)
        return answers

    def sync(self, member: JoinResponse, assignments: dict[str, bytes] | None = None, **more: Any) -> list[Any]:
        answers: list[SyncResponse | GroupRefused] = []
        request = SyncRequest(member_id=member.member_id, generation=member.generation, assignments=assignments or {})
        self.group.sync(replace(request, **more), self.now, answers.append)
        return answers

    def beat(self, member: JoinResponse, **more: Any) -> None:
        generation = more.pop("generation", member.generation)
        self.group.heartbeat(member.member_id, more.pop("instance_id", None), generation, self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.group.advance(self.now)

    def a_stable_group(self, count: int = 2, **more: Any) -> list[JoinResponse]:
        """Members that have joined together and know their assignments."""
        joining = [self.join(**more)]
        self.group.advance(self.now)
        joining += [self.join(**more) for _ in range(count - 1)]
        first = joining[0][0]
        assert isinstance(first, JoinResponse)
        # Everybody who came before the last one is asked to come again.
        if count > 1:
            joining[0] = self.join(first.member_id, **more)
        members = [answers[-1] for answers in joining]
        assert all(isinstance(member, JoinResponse) for member in members)
        joined = [member for member in members if isinstance(member, JoinResponse)]
        leader = next(member for member in joined if member.leader == member.member_id)
        followers = [self.sync(member) for member in joined if member is not leader]
        self.sync(leader, {member.member_id: member.member_id.encode() for member in joined})
        assert all(answers for answers in followers)
        assert self.group.state is GroupState.STABLE
        return joined


@pytest.fixture
def table() -> Table:
    return Table()


# --- joining ---------------------------------------------------------------------------------------------------------


def test_first_member_leads_its_own_generation(table: Table) -> None:
    """Only the leader is told who the members are."""
    answer = table.join()[0]

    assert isinstance(answer, JoinResponse)
    assert (answer.generation, answer.protocol, answer.leader) == (1, "range", answer.member_id)
    assert [member.metadata for member in answer.members] == [b"r"]
    assert table.group.state is GroupState.COMPLETING


def test_newcomer_is_told_its_id_first(table: Table) -> None:
    """Reference check 35 (KIP-394): a client that never comes back leaves no member behind."""
    with pytest.raises(MemberIdRequired) as told:
        table.join(needs_known_id=True)

    answer = table.join(told.value.member, needs_known_id=True)[0]

    assert isinstance(answer, JoinResponse)
    assert answer.member_id == told.value.member


def test_id_that_nobody_joined_with_is_forgotten(table: Table) -> None:
    """Reference check 35: it holds up the others no longer than a session."""
    with pytest.raises(MemberIdRequired) as told:
        table.join(needs_known_id=True)
    waiting = table.join()

    table.advance(9.9)
    assert waiting == []
    table.advance(0.2)

    assert isinstance(waiting[0], JoinResponse)
    with pytest.raises(UnknownMember):
        table.join(told.value.member)


def test_first_members_gather_before_the_first_generation() -> None:
    """Reference check 32: three consumers that start together see one rebalance."""
    table = Table(initial_delay_s=3.0)
    answers = [table.join()]
    table.advance(1.0)
    answers += [table.join(), table.join()]
    assert answers == [[], [], []]

    table.advance(2.0)
    assert answers == [[], [], []]
    table.advance(3.0)

    joined = [answer for parked in answers for answer in parked if isinstance(answer, JoinResponse)]
    assert [member.generation for member in joined] == [1, 1, 1]
    assert len({member.leader for member in joined}) == 1
    assert sorted(len(member.members) for member in joined) == [0, 0, 3]


def test_gathering_ends_with_the_rebalance_timeout() -> None:
    """However many keep coming."""
    table = Table(initial_delay_s=3.0)
    first = table.join(rebalance_timeout_s=7.0)

    for _ in range(7):
        assert first == []
        table.join(rebalance_timeout_s=7.0)
        table.advance(1.0)

    assert isinstance(first[0], JoinResponse)


def test_newcomer_makes_everybody_join_again(table: Table) -> None:
    """Reference check 33."""
    members = table.a_stable_group(2)
    newcomer = table.join()

    for member in members:
        with pytest.raises(RebalanceInProgress):
            table.beat(member)
    again = [table.join(member.member_id) for member in members]

    joined = [answers[0] for answers in (*again, newcomer)]
    assert {answer.generation for answer in joined if isinstance(answer, JoinResponse)} == {members[0].generation + 1}


def test_member_that_does_not_join_again_is_dropped_at_the_deadline(table: Table) -> None:
    """The longest rebalance timeout of all members is what they are given."""
    members = table.a_stable_group(2)
    newcomer = table.join()
    table.join(members[0].member_id)

    for _ in range(6):
        table.advance(9.0)
        with pytest.raises(RebalanceInProgress):
            table.beat(members[1])
    assert newcomer == []
    table.advance(6.0)

    assert isinstance(newcomer[0], JoinResponse)
    assert members[1].member_id not in table.group.members


@pytest.mark.parametrize("is_leader", [True, False])
def test_only_a_leader_or_news_disturb_a_stable_group(table: Table, is_leader: bool) -> None:
    """A follower that missed our answer gets it again; a leader that joins has seen new partitions."""
    members = table.a_stable_group(2)
    member = next(member for member in members if (member.leader == member.member_id) is is_leader)

    answers = table.join(member.member_id)

    assert (answers == []) is is_leader
    assert table.group.state is (GroupState.PREPARING if is_leader else GroupState.STABLE)


def test_changed_subscription_starts_a_rebalance(table: Table) -> None:
    """What a member brings along is all that the leader goes by."""
    members = table.a_stable_group(2)
    follower = next(member for member in members if member.leader != member.member_id)

    assert table.join(follower.member_id, protocols=(Protocol("range", b"other"),)) == []
    assert table.group.state is GroupState.PREPARING


def test_member_that_joins_twice_is_answered_twice(table: Table) -> None:
    """Reference pitfall 15: a parked request is never dropped without a word."""
    members = table.a_stable_group(2)
    first = table.join(members[0].member_id, protocols=(Protocol("range", b"new"),))

    second = table.join(members[0].member_id, protocols=(Protocol("range", b"newer"),))

    assert isinstance(first[0], RebalanceInProgress)
    assert second == []


def test_protocol_that_most_members_prefer_is_chosen(table: Table) -> None:
    """Among those that all of them know."""
    first = table.join(protocols=(RANGE, STICKY))[0]
    others = [table.join(protocols=(STICKY, RANGE)), table.join(protocols=(STICKY, RANGE, Protocol("own", b"")))]
    assert isinstance(first, JoinResponse)

    again = table.join(first.member_id, protocols=(RANGE, STICKY))

    assert [answers[0].protocol for answers in (again, *others) if isinstance(answers[0], JoinResponse)] == [
        "sticky"
    ] * 3


@pytest.mark.parametrize(
    "more",
    [
        {"protocol_type": "connect"},
        {"protocols": (STICKY,)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
    ids=["another type", "nothing in common", "no protocol", "no type"],
)
def test_member_without_a_common_protocol_is_refused(table: Table, more: dict[str, Any]) -> None:
    """Reference 2.10: before it can spoil the group for the others."""
    table.a_stable_group(1)

    with pytest.raises(InconsistentProtocol):
        table.join(**more)
    assert table.group.state is GroupState.STABLE


def test_lone_member_may_change_its_protocol(table: Table) -> None:
    """Nobody else is bound to the old one: this is how clients are upgraded one by one."""
    member = table.a_stable_group(1)[0]

    answer = table.join(member.member_id, protocols=(STICKY,))[0]

    assert isinstance(answer, JoinResponse)
    assert answer.protocol == "sticky"


def test_group_has_room_for_so_many(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on what a rebalance hands around."""
    monkeypatch.setattr("hubmere.broker.coordinator.classic_group.MAX_MEMBERS", 1)
    table.a_stable_group(1)

    with pytest.raises(GroupFull):
        table.join()
    assert MAX_MEMBERS == 5_000


# --- assignments -----------------------------------------------------------------------------------------------------


def test_members_get_what_the_leader_gave_them(table: Table) -> None:
    """Whoever asks before the leader waits; whoever was left out gets nothing."""
    first = table.join()[0]
    second = table.join()
    assert isinstance(first, JoinResponse)
    leader = table.join(first.member_id)[0]
    follower = second[0]
    assert isinstance(leader, JoinResponse)
    assert isinstance(follower, JoinResponse)

    waiting = table.sync(follower)
    assert waiting == []
    answered = table.sync(leader, {leader.member_id: b"mine"})

    assert [answers[0].assignment for answers in (answered, waiting)] == [b"mine", b""]
    assert table.sync(follower)[0].assignment == b""


def test_assignment_is_told_once_it_is_durable(table: Table) -> None:
    """A restart in between must not leave members with what nobody remembers."""
    table.holds_keeping = True
    member = table.join()[0]
    assert isinstance(member, JoinResponse)

    answers = table.sync(member, {member.member_id: b"mine"})
    assert (answers, table.group.state) == ([], GroupState.COMPLETING)
    table.held_partitions.pop()(None)

    assert (answers[0].assignment, table.group.state) == (b"mine", GroupState.STABLE)


def test_assignment_that_cannot_be_kept_is_asked_for_again(table: Table) -> None:
    """A full disk passes; the leader sends it once more."""
    member = table.join()[0]
    assert isinstance(member, JoinResponse)
    table.keep_refusal = StorageFull("no room")
    failed = table.sync(member, {member.member_id: b"mine"})

    table.keep_refusal = None
    answers = table.sync(member, {member.member_id: b"mine"})

    assert isinstance(failed[0], CoordinatorUnavailable)
    assert answers[0].assignment == b"mine"


def test_rebalance_while_an_assignment_is_kept_wins(table: Table) -> None:
    """The late word from the disk belongs to a generation that is over."""
    table.holds_keeping = True
    member = table.join()[0]
    assert isinstance(member, JoinResponse)
    old = table.sync(member, {member.member_id: b"old"})
    newcomer = table.join()
    again = table.join(member.member_id)[0]
    assert isinstance(again, JoinResponse)

    fresh = table.sync(again, {again.member_id: b"new"})
    for kept in table.held_partitions:
        kept(None)

    assert isinstance(old[0], RebalanceInProgress)
    assert fresh[0].assignment == b"new"
    assert isinstance(newcomer[0], JoinResponse)


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"member_id": "nobody"}, UnknownMember),
        ({"generation": 7}, IllegalGeneration),
        ({"protocol_type": "connect"}, InconsistentProtocol),
        ({"protocol": "sticky"}, InconsistentProtocol),
    ],
)
def test_sync_of_another_group_is_refused(table: Table, more: dict[str, Any], refusal: type[Refusal]) -> None:
    """Reference 2.10: member, generation, protocol, in this order."""
    member = table.a_stable_group(1)[0]

    with pytest.raises(refusal):
        table.sync(member, **more)


def test_sync_during_a_rebalance_is_refused(table: Table) -> None:
    """The member has to join again."""
    member = table.a_stable_group(1)[0]
    table.join()

    with pytest.raises(RebalanceInProgress):
        table.sync(member)


def test_member_that_never_asks_for_its_assignment_is_put_out(table: Table) -> None:
    """Reference 2.10: the others would read around it for ever."""
    member = table.a_stable_group(1)[0]
    silent = table.join()
    again = table.join(member.member_id)[0]
    assert isinstance(again, JoinResponse)
    table.sync(again, {})
    joined = silent[0]
    assert isinstance(joined, JoinResponse)
    for _ in range(7):
        table.advance(8.0)
        table.beat(again)
        table.beat(joined)

    table.advance(5.0)

    assert joined.member_id not in table.group.members
    assert table.group.state is GroupState.PREPARING


# --- staying and leaving ---------------------------------------------------------------------------------------------


def test_silent_member_is_put_out_when_its_session_ends(table: Table) -> None:
    """Reference check 34: not before."""
    members = table.a_stable_group(2)
    table.advance(5.0)
    table.beat(members[1])

    table.advance(4.9)
    assert members[0].member_id in table.group.members
    table.advance(0.2)

    assert set(table.group.members) == {members[1].member_id}
    assert table.group.state is GroupState.PREPARING


def test_member_that_waits_for_us_is_not_silent(table: Table) -> None:
    """Reference pitfall 13: its timer stands still while its request is parked."""
    members = table.a_stable_group(2, rebalance_timeout_s=600.0)
    waiting = table.join(members[0].member_id, protocols=(Protocol("range", b"new"),), rebalance_timeout_s=600.0)
    for _ in range(10):
        table.advance(9.0)
        with pytest.raises(RebalanceInProgress):
            table.beat(members[1])

    assert waiting == []
    assert members[0].member_id in table.group.members


def test_leaving_leader_makes_room_for_another(table: Table) -> None:
    """The group goes on without waiting for a session to end."""
    members = table.a_stable_group(2)
    leader = next(member for member in members if member.leader == member.member_id)
    follower = next(member for member in members if member is not leader)

    table.group.leave(leader.member_id, None, table.now)
    again = table.join(follower.member_id)[0]

    assert isinstance(again, JoinResponse)
    assert again.leader == follower.member_id


def test_group_without_members_is_empty_and_keeps_its_generation(table: Table) -> None:
    """Reference pitfall 14: a generation is never given twice."""
    member = table.a_stable_group(1)[0]

    table.group.leave(member.member_id, None, table.now)

    assert (table.group.state, table.group.generation) == (GroupState.EMPTY, 2)
    assert table.kept[-1] == (GroupState.EMPTY, 2)
    again = table.join()[0]
    assert isinstance(again, JoinResponse)
    assert again.generation == 3


def test_id_that_was_only_handed_out_can_be_given_back(table: Table) -> None:
    """A consumer that is closed while it joins says so."""
    with pytest.raises(MemberIdRequired) as told:
        table.join(needs_known_id=True)
    waiting = table.join()

    table.group.leave(told.value.member, None, table.now)

    assert isinstance(waiting[0], JoinResponse)


def test_leaving_twice_is_refused(table: Table) -> None:
    """The client hears that it is not a member, which is what it wanted."""
    member = table.a_stable_group(1)[0]
    table.group.leave(member.member_id, None, table.now)

    with pytest.raises(UnknownMember):
        table.group.leave(member.member_id, None, table.now)


@pytest.mark.parametrize(
    ("member", "generation", "refusal"),
    [("known", 0, IllegalGeneration), ("nobody", 1, UnknownMember), ("", -1, UnknownMember)],
)
def test_commit_to_a_group_with_members_needs_one(
    table: Table, member: str, generation: int, refusal: type[Refusal]
) -> None:
    """Reference check 38."""
    known = table.a_stable_group(1)[0]

    with pytest.raises(refusal):
        table.group.require_commit(known.member_id if member == "known" else member, None, generation, table.now)


def test_commit_is_refused_between_join_and_sync(table: Table) -> None:
    """Reference 2.10: the member does not know yet what it reads."""
    member = table.join()[0]
    assert isinstance(member, JoinResponse)

    with pytest.raises(RebalanceInProgress):
        table.group.require_commit(member.member_id, None, member.generation, table.now)


def test_commit_during_the_preparation_is_taken_and_counts_as_a_heartbeat(table: Table) -> None:
    """Members commit what they have read before they join again."""
    members = table.a_stable_group(2)
    table.join()
    table.advance(9.0)

    table.group.require_commit(members[0].member_id, None, members[0].generation, table.now)
    table.advance(9.0)

    assert members[0].member_id in table.group.members
    assert members[1].member_id not in table.group.members


def test_commit_from_outside_needs_an_empty_group(table: Table) -> None:
    """Simple consumers and admin tools; reference 2.11."""
    member = table.a_stable_group(1)[0]
    table.group.leave(member.member_id, None, table.now)

    table.group.require_commit("", None, -1, table.now)


# --- static members --------------------------------------------------------------------------------------------------


def test_static_member_that_restarts_takes_up_its_assignment(table: Table) -> None:
    """Reference check 36 (KIP-345): no rebalance, and the old process is fenced."""
    member = table.a_stable_group(1, instance_id="i")[0]

    back = table.join(instance_id="i")[0]

    assert isinstance(back, JoinResponse)
    assert (back.generation, table.group.state) == (member.generation, GroupState.STABLE)
    assert back.member_id != member.member_id
    assert table.sync(back, instance_id="i")[0].assignment == member.member_id.encode()
    with pytest.raises(MemberFenced):
        table.beat(member, instance_id="i")
    with pytest.raises(MemberFenced):
        table.sync(member, instance_id="i")


def test_returning_leader_is_kept_from_assigning(table: Table) -> None:
    """KIP-814: it is told to skip, and before that it must not recognise itself as the leader."""
    member = table.a_stable_group(1, instance_id="i")[0]

    old = table.join(instance_id="i")[0]
    new = table.join(instance_id="i", may_skip_assignment=True)[0]

    assert isinstance(old, JoinResponse)
    assert isinstance(new, JoinResponse)
    assert (old.leader, old.members) == (member.member_id, ())
    assert (new.leader, new.skip_assignment, len(new.members)) == (new.member_id, True, 1)


def test_static_member_with_another_protocol_starts_a_rebalance(table: Table) -> None:
    """The old assignment was made by other rules."""
    table.a_stable_group(1, instance_id="i")

    back = table.join(instance_id="i", protocols=(STICKY,))[0]

    assert isinstance(back, JoinResponse)
    assert back.generation == 2


def test_static_member_is_not_dropped_when_it_does_not_join_again(table: Table) -> None:
    """It may be restarting: only the end of its session takes its place away."""
    members = table.a_stable_group(2, instance_id=None)
    table.group.leave(members[1].member_id, None, table.now)
    table.join(members[0].member_id)
    static = table.join(instance_id="i", session_timeout_s=300.0)
    again = table.join(members[0].member_id)[0]
    assert isinstance(again, JoinResponse)
    table.join(protocols=(RANGE,))
    table.join(again.member_id)

    for _ in range(7):
        table.advance(9.0)

    held_partitions = static[0]
    assert isinstance(held_partitions, JoinResponse)
    assert held_partitions.member_id in table.group.members


def test_parked_requests_of_a_replaced_member_are_answered(table: Table) -> None:
    """The old process hears that it was fenced."""
    leader = table.a_stable_group(1)[0]
    static = table.join(instance_id="i")
    table.join(leader.member_id)
    member = static[0]
    assert isinstance(member, JoinResponse)
    waiting = table.sync(member, instance_id="i")

    table.join(instance_id="i")

    assert isinstance(waiting[0], MemberFenced)


@pytest.mark.parametrize("by_id", [True, False])
def test_static_member_is_put_out_by_its_instance(table: Table, by_id: bool) -> None:
    """Static members do not leave by themselves; an administrator removes them."""
    member = table.a_stable_group(1, instance_id="i")[0]

    table.group.leave(member.member_id if by_id else "", "i", table.now)

    assert table.group.state is GroupState.EMPTY
    with pytest.raises(UnknownMember):
        table.group.leave("", "i", table.now)


def test_only_static_members_left_that_do_not_come_back_are_waited_for(table: Table) -> None:
    """Nobody is there to lead a new generation until their sessions end."""
    table.a_stable_group(1, instance_id="i", session_timeout_s=200.0)
    newcomer = table.join()
    leaving = next(member for member in table.group.members.values() if not member.is_static)
    table.group.leave(leaving.member_id, None, table.now)
    assert isinstance(newcomer[0], UnknownMember)

    table.advance(61.0)
    assert table.group.members
    table.advance(140.0)

    assert table.group.state is GroupState.EMPTY


# --- everything at once ----------------------------------------------------------------------------------------------


class GroupMachine(RuleBasedStateMachine):
    """Clients that do anything at any time; the group must stay true to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(initial_delay_s=1.0)
        self.parked: list[list[Any]] = []
        self.known: dict[str, JoinResponse] = {}
        self.generation = 0

    def _try(self, work: Any) -> None:
        try:
            answers = work()
        except Refusal:
            return
        if isinstance(answers, list):
            self.parked.append(answers)

    @rule(instance=st.sampled_from([None, None, "i1", "i2"]), metadata=st.sampled_from([b"r", b"q"]))
    def newcomer(self, instance: str | None, metadata: bytes) -> None:
        self._try(lambda: self.table.join(instance_id=instance, protocols=(Protocol("range", metadata),)))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), metadata=st.sampled_from([b"r", b"q"]))
    def again(self, data: st.DataObject, metadata: bytes) -> None:
        member = data.draw(st.sampled_from(list(self.known)))
        instance = self._instance(member)
        self._try(lambda: self.table.join(member, instance_id=instance, protocols=(Protocol("range", metadata),)))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member = self.known[data.draw(st.sampled_from(list(self.known)))]
        given = {name: name.encode() for name in self.table.group.members}
        self._try(lambda: self.table.sync(member, given, instance_id=self._instance(member.member_id)))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        member = self.known[data.draw(st.sampled_from(list(self.known)))]
        self._try(lambda: self.table.beat(member, instance_id=self._instance(member.member_id)))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(list(self.known)))
        self._try(lambda: self.table.group.leave(member, self._instance(member), self.table.now))

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 11.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.table.advance(seconds)

    def _instance(self, member_id: str) -> str | None:
        member = self.table.group.members.get(member_id)
        return None if member is None else member.request.instance_id

    @invariant()
    def replies_come_once(self) -> None:
        assert all(len(answers) <= 1 for answers in self.parked)
        for answers in self.parked:
            if answers and isinstance(answers[0], JoinResponse):
                self.known[answers[0].member_id] = answers[0]

    @invariant()
    def state_and_members_agree(self) -> None:
        group = self.table.group
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        assert group.generation >= self.generation
        self.generation = group.generation
        if group.members and group.state in (GroupState.STABLE, GroupState.COMPLETING):
            assert group.leader in group.members
        if group.state is GroupState.STABLE:
            assert not any(member.is_waiting for member in group.members.values())

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        group = self.table.group
        is_waiting = any(member.is_waiting for member in group.members.values())
        assert not is_waiting or group.next_deadline() is not None

    def teardown(self) -> None:
        """Left alone, every group comes to rest and every request is answered."""
        for _ in range(20):
            self.table.advance(100.0)
        assert self.table.group.state is GroupState.EMPTY
        assert all(len(answers) == 1 for answers in self.parked)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- all groups of a namespace ---------------------------------------------------------------------------------------


def settle(bench: Bench) -> None:
    """Let the catalog's thread and what it calls come to an end; one change may begin another."""
    for _ in range(4):
        bench.catalog.apply()
        bench.turn.run()


def joined_and_synced(bench: Bench, groups: Groups, group_id: str = "g", now: float = 0.0) -> JoinResponse:
    answers: list[Any] = []
    groups.join(group_id, a_join(), now, NOW_MS, answers.append)
    member = answers[0]
    request = SyncRequest(
        member_id=member.member_id, generation=member.generation, assignments={member.member_id: b"mine"}
    )
    groups.sync(group_id, request, now, NOW_MS, answers.append)
    settle(bench)
    assert isinstance(answers[1], SyncResponse)
    assert isinstance(member, JoinResponse)
    return member


@pytest.mark.parametrize("session_ms", [5_999, 300_001])
def test_session_timeout_has_bounds(bench: Bench, session_ms: int) -> None:
    """Reference check 37."""
    groups = Groups("hubmere", bench.catalog, now=0.0)

    with pytest.raises(SessionTimeoutOutOfRange):
        groups.join("g", a_join(session_timeout_s=session_ms / 1000), 0.0, NOW_MS, print)


@pytest.mark.parametrize("group_id", ["", "x" * 257, "a\nb"])
def test_group_id_must_be_a_possible_one(bench: Bench, group_id: str) -> None:
    """Reference 1.4."""
    groups = Groups("hubmere", bench.catalog, now=0.0)

    with pytest.raises(InvalidGroupId):
        groups.join(group_id, a_join(), 0.0, NOW_MS, print)


def test_group_is_taken_up_after_a_restart(bench: Bench) -> None:
    """Reference check 41: same generation, same member, same assignment, with a fresh session."""
    member = joined_and_synced(bench, Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0))

    again = Groups("hubmere", bench.catalog, now=1000.0)

    again.heartbeat("g", member.member_id, None, member.generation, 1009.0)
    view = again.describe("g")
    assert (view.state, view.protocol) == (GroupState.STABLE, "range")
    assert [one.assignment for one in view.members] == [b"mine"]
    assert again.next_deadline() == 1010.0


def test_group_is_woken_when_a_session_ends(bench: Bench) -> None:
    """One deadline for all groups; a heartbeat in between moves it without being noted."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(bench, groups)
    groups.heartbeat("g", member.member_id, None, member.generation, 6.0)

    groups.advance(10.0, NOW_MS)
    assert groups.describe("g").state is GroupState.STABLE
    assert groups.next_deadline() == 16.0
    groups.advance(16.0, NOW_MS)

    assert groups.describe("g").state is GroupState.EMPTY


def test_unknown_group_has_no_members(bench: Bench) -> None:
    """Asking must not make one."""
    groups = Groups("hubmere", bench.catalog, now=0.0)

    with pytest.raises(UnknownMember):
        groups.heartbeat("g", "m", None, 1, 0.0)
    with pytest.raises(UnknownMember):
        groups.join("g", a_join("m"), 0.0, NOW_MS, print)
    assert groups.describe("g").state is GroupState.DEAD
    assert groups.list() == []


def test_only_an_empty_group_can_be_deleted(bench: Bench) -> None:
    """Reference 2.10: its members would go on with what is gone."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(bench, groups)
    with pytest.raises(GroupNotEmpty):
        groups.delete("g", print)
    with pytest.raises(GroupUnknown):
        groups.delete("other", print)
    outcome: list[Refusal | None] = []

    groups.leave("g", member.member_id, None, 1.0, NOW_MS)
    groups.delete("g", outcome.append)
    settle(bench)

    assert outcome == [None]
    assert groups.list() == []
    assert Groups("hubmere", bench.catalog, now=0.0).list() == []


def test_group_that_nobody_uses_is_forgotten(bench: Bench) -> None:
    """Without members and offsets there is nothing to remember."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(bench, groups)
    groups.delete_unused()
    assert [one.group_id for one in groups.list()] == ["g"]

    groups.leave("g", member.member_id, None, 1.0, NOW_MS)
    settle(bench)
    groups.delete_unused()
    settle(bench)

    assert groups.list() == []
    assert Groups("hubmere", bench.catalog, now=0.0).list() == []


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_deadlines_come_up_in_order_and_once() -> None:
    """One timer for many things: what was moved or dropped is passed over."""
    deadlines = Deadlines()
    deadlines.set("a", 5.0)
    deadlines.set("b", 3.0)
    deadlines.set("c", 4.0)
    deadlines.set("a", 1.0)
    deadlines.set_earlier("b", 9.0)
    deadlines.drop("c")

    assert deadlines.next() == 1.0
    assert deadlines.take(3.5) == ["a", "b"]
    assert deadlines.take(99.0) == []
    assert deadlines.next() is None
