"""A classic group for tests: valid requests, and a harness that records every answer."""

from dataclasses import replace
from typing import Any

from broker.builders import NOW_MS, BrokerHarness
from hubmere.broker.coordinator.classic_group import ClassicGroup
from hubmere.broker.coordinator.groups import Groups
from hubmere.broker.coordinator.membership import (
    GroupProtocol,
    GroupState,
    JoinRequest,
    JoinResponse,
    SyncRequest,
    SyncResponse,
)
from hubmere.broker.coordinator.refusals import (
    GroupRefused,
)
from hubmere.model.errors import Refusal

RANGE = GroupProtocol("range", b"r")
STICKY = GroupProtocol("sticky", b"s")


def a_join(member_id: str = "", **more: Any) -> JoinRequest:
    """A valid join request."""
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


class GroupHarness:
    """One classic group; replies and persisted states are recorded."""

    def __init__(self, *, initial_delay_s: float = 0.0) -> None:
        self.now = 0.0
        self.persisted: list[tuple[GroupState, int]] = []
        self.persist_refusal: Refusal | None = None
        self.delays_persisting = False
        self.pending_callbacks: list[Any] = []
        self.group = ClassicGroup("g", initial_delay_s=initial_delay_s, persist=self._persist)

    def _persist(self, group: ClassicGroup, on_persisted: Any) -> None:
        self.persisted.append((group.state, group.generation))
        if self.delays_persisting:
            self.pending_callbacks.append(on_persisted)
        else:
            on_persisted(self.persist_refusal)

    def join(self, member_id: str = "", **more: Any) -> list[JoinResponse | GroupRefused]:
        """Send a join request; returns the list that receives the answer."""
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
        """A stable group: all members have joined and have their assignments."""
        joining = [self.join(**more)]
        self.group.advance(self.now)
        joining += [self.join(**more) for _ in range(count - 1)]
        first = joining[0][0]
        assert isinstance(first, JoinResponse)
        # All members but the last one have to join again.
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


def settle(broker_harness: BrokerHarness) -> None:
    """Wait until the catalog has no pending changes; a callback may submit another."""
    for _ in range(4):
        broker_harness.catalog.apply()
        broker_harness.turn.run()


def joined_and_synced(
    broker_harness: BrokerHarness, groups: Groups, group_id: str = "g", now: float = 0.0
) -> JoinResponse:
    answers: list[Any] = []
    groups.join(group_id, a_join(), now, NOW_MS, answers.append)
    member = answers[0]
    request = SyncRequest(
        member_id=member.member_id, generation=member.generation, assignments={member.member_id: b"mine"}
    )
    groups.sync(group_id, request, now, NOW_MS, answers.append)
    settle(broker_harness)
    assert isinstance(answers[1], SyncResponse)
    assert isinstance(member, JoinResponse)
    return member
