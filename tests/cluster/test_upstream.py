"""Connections of a gateway to the brokers of its cluster."""

import asyncio

import pytest

from hubmere.cluster.upstream.connection import Access, BrokerConnection
from hubmere.cluster.upstream.failures import BrokerUnreachable
from hubmere.cluster.upstream.upstream import Upstream


class Opened:
    """A connection that is open."""

    is_open = True


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
