"""Connections of a gateway to the brokers of its cluster."""

import asyncio
from typing import cast

import pytest

from hubmere.cluster.upstream.connection import Access, BrokerConnection
from hubmere.cluster.upstream.failures import BrokerUnreachable
from hubmere.cluster.upstream.upstream import QUESTIONS, Upstream


class Opened:
    """A connection that is open."""

    is_open = True

    def __init__(self, in_flight: int = 0) -> None:
        self.in_flight = in_flight


def test_concurrent_questions_share_the_first_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a broker has died, many ask at the same time: a connection for each would stay open, forgotten."""
    attempts: list[int] = []

    async def open_connection(host: str, port: int, access: Access, *, client_id: str) -> Opened:
        attempts.append(port)
        await asyncio.sleep(0)
        if len(attempts) == 1:
            raise BrokerUnreachable(f"{host}:{port}", "it has died")
        return Opened()

    async def ask() -> set[int]:
        upstream = Upstream([("b", 1), ("b", 2)], Access(), client_id="test")
        return {id(found) for found in await asyncio.gather(*(upstream._any_connection() for _ in range(10)))}

    monkeypatch.setattr(BrokerConnection, "open", open_connection)

    assert len(asyncio.run(ask())) == 1
    assert sorted(attempts) == [1, 2]


def test_questions_reach_every_idle_broker() -> None:
    """A broker that is cut off from the others still answers: asked alone, it names leaders of the past for ever."""
    idle, other, busy = Opened(), Opened(), Opened(in_flight=1)
    upstream = Upstream([("b", 1)], Access(), client_id="test")
    for broker, connection in enumerate((idle, other, busy)):
        upstream._connections[broker, QUESTIONS] = cast("BrokerConnection", connection)

    async def ask() -> set[int]:
        return {id(await upstream._any_connection()) for _ in range(200)}

    assert asyncio.run(ask()) == {id(idle), id(other)}
