"""Requests for a coordinator that has moved to another broker of the cluster."""

import asyncio
from typing import Any

import pytest

from cluster.coordination import CLIENT, a_coordination
from hubmere.cluster import forwarding
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

    def name_lane(self, lane: str, client_id: str) -> None:
        """Lanes have no names here."""

    async def send(self, body: object, version: int) -> Any:
        is_there = self.asked[-1] == 2
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_there else ErrorCode.NOT_COORDINATOR)


def ask(cluster: MovingCoordinator, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(forwarding, "_MOVE_PAUSE_S", 0.0)
    coordination = a_coordination(cluster)
    return asyncio.run(coordination.ask_coordinator(CLIENT, "readers", REQUEST, 4))


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


class SlowBrokers(MovingCoordinator):
    """A cluster that takes its time for one step, and keeps a connection until its lane is closed."""

    def __init__(self, slow_step: str) -> None:
        super().__init__(2)
        self._slow_step = slow_step
        self.is_waiting = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.open_lanes: set[str] = set()

    async def coordinator(self, kind: int, key: str) -> int:
        await self._pass("look up")
        return await super().coordinator(kind, key)

    async def connection(self, broker: int, client: str) -> MovingCoordinator:
        await self._pass("open")
        self.open_lanes.add(client)
        return await super().connection(broker, client)

    async def _pass(self, step: str) -> None:
        if step == self._slow_step:
            self.is_waiting.set()
            await self.goes_on.wait()

    def close_lane(self, lane: str) -> None:
        self.open_lanes.discard(lane)


@pytest.mark.parametrize("slow_step", ["look up", "open"])
def test_connection_for_a_client_that_has_gone_is_closed(slow_step: str) -> None:
    """Each client that leaves at the wrong moment would leave a connection to a broker behind, for ever."""

    async def leave() -> set[str]:
        brokers = SlowBrokers(slow_step)
        coordination = a_coordination(brokers)
        asking = asyncio.create_task(coordination.ask_coordinator(CLIENT, "readers", REQUEST, 4))
        await brokers.is_waiting.wait()
        coordination.end_client(CLIENT)
        brokers.goes_on.set()
        with pytest.raises(RuntimeError):
            await asking
        return brokers.open_lanes

    assert asyncio.run(leave()) == set()
