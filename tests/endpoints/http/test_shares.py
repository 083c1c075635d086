"""Single events of one turn share a batch, each with its own answer."""

import asyncio
from dataclasses import replace

import pytest

from endpoints.http.harness import HttpNode
from hubmere.endpoints.http.errors import NotDurableInTime
from hubmere.endpoints.http.publish.shares import MAX_SHARED_BYTES, Coalescer
from hubmere.model.entity import Status
from hubmere.model.errors import EntityDisabled
from hubmere.model.tier import Profile
from hubmere.translate import HttpEvent, message_from_http


def _message(body: bytes) -> bytes:
    return message_from_http(HttpEvent(body=body))


async def _published(node: HttpNode, *bodies: bytes, size_bytes: int = 1, partition: str | None = None) -> list[object]:
    """Add events in one turn and wait for all answers: None, or what refused them."""
    shares = Coalescer(node.clock)
    publisher = node.broker.open_publisher(node.hub("orders"), partition=partition)
    loop = asyncio.get_running_loop()
    waiting = [loop.create_future() for _ in bodies]
    for body, future in zip(bodies, waiting, strict=True):
        shares.add(publisher, _message(body), size_bytes, future.set_result, 60.0)
    return list(await asyncio.gather(*waiting))


def test_events_of_one_turn_lie_together(node: HttpNode) -> None:
    """One partition, contiguous, in the order in which they came; counted as so many requests."""
    answers = node.run(_published(node, b"a", b"b", b"c"))

    counters = node.hub("orders").counters
    assert answers == [None, None, None]
    assert [(event.sequence, event.body) for event in node.stored("orders", 0)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (counters.incoming_requests, counters.successful_requests, counters.incoming_messages) == (3, 3, 3)


def test_a_share_is_bounded(node: HttpNode) -> None:
    """What does not fit goes into the next one, and to the next partition in turn."""
    node.run(_published(node, b"a", b"b", b"c", size_bytes=MAX_SHARED_BYTES // 2))

    assert [[event.body for event in node.stored("orders", partition)] for partition in range(3)] == [
        [b"a", b"b"],
        [b"c"],
        [],
    ]


def test_events_for_a_partition_share_there(node: HttpNode) -> None:
    """A named partition is kept to."""
    node.run(_published(node, b"a", b"b", partition="3"))

    assert [event.body for event in node.stored("orders", 3)] == [b"a", b"b"]


def test_a_refusal_is_told_to_everyone_in_the_share(node: HttpNode) -> None:
    """Nobody waits for ever, and nothing is stored: the hub is shut between the request and the end of the turn."""

    async def published() -> list[object]:
        shares, loop = Coalescer(node.clock), asyncio.get_running_loop()
        hub = node.hub("orders")
        publisher = node.broker.open_publisher(hub)
        waiting = [loop.create_future() for _ in range(2)]
        for future in waiting:
            shares.add(publisher, _message(b"a"), 1, future.set_result, 60.0)
        hub.update(replace(hub.entity, status=Status.SEND_DISABLED))
        return list(await asyncio.gather(*waiting))

    answers = node.run(published())

    assert [type(answer) for answer in answers] == [EntityDisabled, EntityDisabled]
    assert node.stored("orders") == []
    assert node.hub("orders").counters.user_errors == 2


def test_a_share_that_is_not_durable_in_time_is_given_up(node: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody in it gave the node the same time."""

    async def published() -> list[object]:
        publisher = node.broker.open_publisher(node.hub("orders"), partition="0")
        monkeypatch.setattr(type(node.hub("orders").log(0)), "append", lambda *_, **__: None)
        shares, loop = Coalescer(node.clock), asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in range(2)]
        for future in waiting:
            shares.add(publisher, _message(b"a"), 1, future.set_result, 0.01)
        return list(await asyncio.gather(*waiting))

    assert [type(answer) for answer in node.run(published())] == [NotDurableInTime, NotDurableInTime]


@pytest.mark.parametrize("profile", [Profile.DEVELOPER, Profile.STANDARD])
def test_many_clients_at_once_lose_nothing(profile: Profile) -> None:
    """Shared or not, every event that was answered with 201 is there once."""
    overrides: dict[str, int | bool | str | None] = {"ingress_events_per_unit": 100_000}
    with HttpNode(profile=profile, overrides=overrides) as node:
        node.add_hub("orders")
        token = node.sas()

        async def posted(client: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            for number in range(20):
                body = f"{client}-{number}".encode()
                head = f"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
                writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 201")
            writer.close()
            await writer.wait_closed()

        async def all_posted() -> None:
            await asyncio.gather(*map(posted, range(20)))

        asyncio.run(all_posted())
        stored = sorted(event.body or b"" for event in node.stored("orders"))

    assert stored == sorted(f"{client}-{number}".encode() for client in range(20) for number in range(20))
