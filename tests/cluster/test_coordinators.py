"""Requests for a coordinator that has moved to another broker of the cluster."""

import asyncio
from typing import Any, cast

import pytest

from hubmere.cluster import forwarding
from hubmere.cluster.forwarding import KafkaCoordination
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.groups import HeartbeatRequest, HeartbeatResponse

REQUEST = HeartbeatRequest(group_id="readers", generation_id=1, member_id="a")


class MovingCoordinator:
    """A cluster whose coordinator is on broker 2; FindCoordinator answers with older brokers first."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        self._known: int | None = None
        self.asked: list[int] = []

    async def coordinator(self, kind: int, key: str) -> int:
        if self._known is None:
            self._known = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return self._known

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._known = None

    async def connection(self, broker: int, client: str) -> "MovingCoordinator":
        self.asked.append(broker)
        return self

    def nearest_version(self, kind: type, version: int) -> int:
        return version

    async def send(self, body: object, version: int) -> Any:
        is_there = self.asked[-1] == 2
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_there else ErrorCode.NOT_COORDINATOR)


def ask(cluster: MovingCoordinator, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(forwarding, "_MOVE_PAUSE_S", 0.0)
    coordination = KafkaCoordination(
        cast("Upstream", cluster),
        "test.",
        provide=lambda uid: asyncio.sleep(0),
        failed=RuntimeError,
        note_transaction=lambda producer, name, epoch: None,
    )
    return asyncio.run(coordination.ask_coordinator("client", "readers", REQUEST, 4))


def test_request_follows_a_coordinator_that_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that commits and waits takes NOT_COORDINATOR for a failure: it knows the gateway alone."""
    cluster = MovingCoordinator(1, 1, 2)

    answer = ask(cluster, monkeypatch)

    assert answer.error_code == ErrorCode.NONE
    assert cluster.asked == [1, 1, 2]


def test_client_learns_of_a_coordinator_that_nobody_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is bounded: clients try again themselves."""
    cluster = MovingCoordinator(1)

    answer = ask(cluster, monkeypatch)

    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert len(cluster.asked) == 1 + forwarding._MOVES
