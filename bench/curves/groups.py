"""Kafka groups: many groups of one member, and one group of many members."""

import itertools
from collections.abc import Sequence
from typing import Any

from bench.curves.common import Curve, Tools, a_node
from bench.load.kafka_crowd import KafkaCrowd, connected, read_answer
from bench.load.library import BenchFailed

from hubmere.wire.kafka.messages.groups import (
    JoinGroupProtocol,
    JoinGroupRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
)

HUB = "grown"
GROUPS = (10, 100, 300, 600)
MEMBERS = (10, 100, 300, 600)
_JOIN_VERSION, _SYNC_VERSION = 5, 3
_MEMBER_ID_REQUIRED = 79
_SESSION_MS = 60_000
_numbers = itertools.count()


def groups(tools: Tools) -> list[Curve]:
    """CPU time per member when all members join, and when one more member joins."""
    curve = Curve(
        slug="groups",
        title="Kafka groups: joining and synchronizing",
        x_title="members in all",
        y_title="processor time of the node per member, ms",
    )
    with a_node(tools, {HUB: 4}) as subject:
        for count in GROUPS:
            with connected(subject.kafka_address, subject.password, count) as crowd:
                names = [f"single-{next(_numbers)}" for _ in crowd.members]
                cpu_s, _, _ = subject.cost_of(GroupRound(crowd, names).join)
            curve.add("groups of one", count, cpu_s / count * 1000)
        for count in MEMBERS:
            with connected(subject.kafka_address, subject.password, count) as crowd:
                joined = GroupRound(crowd, [f"large-{next(_numbers)}"] * count)
                cpu_s, _, _ = subject.cost_of(joined.join)
                curve.add("one group", count, cpu_s / count * 1000)
                cpu_s, _, _ = subject.cost_of(joined.join)
                curve.add("one group, rebalance", count, cpu_s / count * 1000)
    return [curve]


class GroupRound:
    """Joins of Kafka groups: in each round every connection joins the group of its name."""

    def __init__(self, crowd: KafkaCrowd, names: Sequence[str]) -> None:
        self._crowd = crowd
        self._names = names
        self._ids = [""] * len(names)

    def join(self) -> None:
        """Every member joins and synchronizes; the leader of each group sends empty assignments."""
        answers = self._ask([self._join(number) for number in range(len(self._names))], _JOIN_VERSION)
        if any(answer.error_code == _MEMBER_ID_REQUIRED for answer in answers):
            self._ids = [answer.member_id for answer in answers]
            answers = self._ask([self._join(number) for number in range(len(self._names))], _JOIN_VERSION)
        self._ids = [answer.member_id for answer in answers]
        for answer in answers:
            if answer.error_code:
                raise BenchFailed(f"JoinGroup was refused with code {answer.error_code}")
        self._ask([_sync(name, answer) for name, answer in zip(self._names, answers, strict=True)], _SYNC_VERSION)

    def _join(self, number: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._names[number],
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self._ids[number],
            protocol_type="consumer",
            # The metadata differs in each round, so that the join of a leader causes a rebalance.
            protocols=(JoinGroupProtocol(name="range", metadata=bytes(40) + next(_numbers).to_bytes(4, "big")),),
        )

    def _ask(self, requests: Sequence[Any], version: int) -> list[Any]:
        frames = []
        for member, request in zip(self._crowd.members, requests, strict=True):
            member.engine.request(request, version)
            frames.append(b"".join(member.engine.data_to_send()))
        answers = self._crowd.ask_all(frames)
        return [read_answer(member, answer) for member, answer in zip(self._crowd.members, answers, strict=True)]


def _sync(name: str, joined: Any) -> SyncGroupRequest:
    everybody = [SyncGroupAssignment(member_id=each.member_id, assignment=bytes(40)) for each in joined.members]
    return SyncGroupRequest(
        group_id=name, generation_id=joined.generation_id, member_id=joined.member_id, assignments=tuple(everybody)
    )
