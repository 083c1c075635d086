"""Classic groups under random operations: invariants hold and every request is answered."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.classic_groups import GroupHarness
from hubmere.broker.coordinator.membership import (
    GroupProtocol,
    GroupState,
    JoinResponse,
)
from hubmere.model.errors import Refusal


class GroupMachine(RuleBasedStateMachine):
    """Clients send any request at any time; the invariants of the group must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = GroupHarness(initial_delay_s=1.0)
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
        self._try(lambda: self.harness.join(instance_id=instance, protocols=(GroupProtocol("range", metadata),)))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), metadata=st.sampled_from([b"r", b"q"]))
    def again(self, data: st.DataObject, metadata: bytes) -> None:
        member = data.draw(st.sampled_from(list(self.known)))
        instance = self._instance(member)
        self._try(
            lambda: self.harness.join(member, instance_id=instance, protocols=(GroupProtocol("range", metadata),))
        )

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member = self.known[data.draw(st.sampled_from(list(self.known)))]
        given = {name: name.encode() for name in self.harness.group.members}
        self._try(lambda: self.harness.sync(member, given, instance_id=self._instance(member.member_id)))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        member = self.known[data.draw(st.sampled_from(list(self.known)))]
        self._try(lambda: self.harness.beat(member, instance_id=self._instance(member.member_id)))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(list(self.known)))
        self._try(lambda: self.harness.group.leave(member, self._instance(member), self.harness.now))

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 11.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.harness.advance(seconds)

    def _instance(self, member_id: str) -> str | None:
        member = self.harness.group.members.get(member_id)
        return None if member is None else member.request.instance_id

    @invariant()
    def replies_come_once(self) -> None:
        assert all(len(answers) <= 1 for answers in self.parked)
        for answers in self.parked:
            if answers and isinstance(answers[0], JoinResponse):
                self.known[answers[0].member_id] = answers[0]

    @invariant()
    def state_and_members_agree(self) -> None:
        group = self.harness.group
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        assert group.generation >= self.generation
        self.generation = group.generation
        if group.members and group.state in (GroupState.STABLE, GroupState.COMPLETING):
            assert group.leader in group.members
        if group.state is GroupState.STABLE:
            assert not any(member.is_waiting for member in group.members.values())

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        group = self.harness.group
        is_waiting = any(member.is_waiting for member in group.members.values())
        assert not is_waiting or group.next_deadline() is not None

    def teardown(self) -> None:
        """Without further requests, every group becomes stable or empty, and every request is answered."""
        for _ in range(20):
            self.harness.advance(100.0)
        assert self.harness.group.state is GroupState.EMPTY
        assert all(len(answers) == 1 for answers in self.parked)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
