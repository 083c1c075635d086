"""Answers of large groups: each turn of the loop sends a limited number, and none is lost."""

import asyncio
import logging
from itertools import pairwise
from typing import Any, cast

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient
from endpoints.kafka.test_groups import a_join, a_sync
from hubmere.endpoints.kafka.groups.replies import REPLIES_PER_TURN, GroupReplies
from hubmere.endpoints.kafka.session import KafkaSession

MEMBERS = 3 * REPLIES_PER_TURN + 1


class Wire:
    peer = "here"


class Session:
    """The part of a session that the queue uses."""

    wire = Wire()

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def disconnect(self, why: str) -> None:
        self.reasons.append(why)


def test_other_work_of_the_loop_runs_between_the_answers_of_a_large_group() -> None:
    """A rebalance of thousands of members must not delay other clients until its last answer."""
    session = cast("KafkaSession", Session())

    async def scenario() -> list[int]:
        replies, sent, seen = GroupReplies(asyncio.get_running_loop().call_soon), list[int](), list[int]()

        def other_work() -> None:
            seen.append(len(sent))
            if len(sent) < MEMBERS:
                asyncio.get_running_loop().call_soon(other_work)

        for number in range(MEMBERS):
            replies.send(session, lambda number=number: sent.append(number))  # type: ignore[misc]
        assert len(sent) == REPLIES_PER_TURN
        other_work()
        while len(sent) < MEMBERS:
            await asyncio.sleep(0)
        assert sent == list(range(MEMBERS))
        return seen

    seen = asyncio.run(scenario())

    assert max(after - before for before, after in pairwise(seen)) == REPLIES_PER_TURN


def test_failing_answer_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The other members are answered."""
    broken, fine = Session(), cast("KafkaSession", Session())

    async def scenario() -> int:
        replies, sent = GroupReplies(asyncio.get_running_loop().call_soon), list[int]()
        for number in range(REPLIES_PER_TURN):
            replies.send(fine, lambda number=number: sent.append(number))  # type: ignore[misc]
        replies.send(cast("KafkaSession", broken), lambda: 1 // 0)  # type: ignore[arg-type]
        replies.send(fine, lambda: sent.append(-1))
        while sent[-1] >= 0:
            await asyncio.sleep(0)
        return len(sent)

    with caplog.at_level(logging.CRITICAL, "hubmere.kafka"):
        assert asyncio.run(scenario()) == REPLIES_PER_TURN + 1
    assert broken.reasons == ["an answer of a group failed"]


@pytest.mark.usefixtures("either_loop")
def test_every_member_of_a_large_group_is_answered() -> None:
    """Joins and syncs of more members than are answered in one turn, all waiting on one connection."""
    with KafkaNode(initial_delay_s=0.5) as node, RawClient(node) as client:
        client.sign_in()
        # All joins arrive before the delay of the first one begins.
        with node.held():
            for _ in range(MEMBERS):
                client.send(a_join(), 3)
        joined = [client.answer() for _ in range(MEMBERS)]
        leader = next(member for member in joined if member.members)
        everybody: list[tuple[str, bytes]] = [(member.member_id, member.member_id.encode()) for member in joined]
        for member in joined:
            assignments: list[Any] = everybody if member is leader else []
            client.send(a_sync(member, *assignments), 3)
        synced = [client.answer() for _ in range(MEMBERS)]

    assert {member.error_code for member in joined} == {0}
    assert len(leader.members) == MEMBERS
    assert [answer.assignment for answer in synced] == [data for _, data in everybody]
