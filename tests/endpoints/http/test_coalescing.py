"""Requests of one turn share a batch, each with its own response and its own timeout."""

import asyncio

import pytest

from endpoints.http.harness import HttpNode
from hubmere.endpoints.http.errors import NotDurableInTime
from hubmere.endpoints.http.publish.timeouts import Timeouts
from hubmere.model.errors import ServerBusy
from hubmere.model.tier import Profile


def test_each_request_is_answered_once_with_its_own_outcome() -> None:
    """What the log reports after that is ignored."""

    async def finished() -> list[tuple[int, Exception | None]]:
        timeouts, seen = Timeouts(), list[tuple[int, Exception | None]]()
        finish = [timeouts.watch(lambda error, n=n: seen.append((n, error)), 60.0) for n in range(2)]  # type: ignore[misc]
        await asyncio.sleep(0)
        for error in (None, ServerBusy(1.0)):
            finish[0](error)
        finish[1](ServerBusy(1.0))
        return seen

    seen = asyncio.run(finished())

    assert [(number, type(error)) for number, error in seen] == [(0, type(None)), (1, ServerBusy)]


def test_requests_that_are_not_durable_in_time_are_given_up() -> None:
    """All requests of a turn with the same timeout share one timer; those with another timeout wait on."""

    async def given_up() -> tuple[list[Exception | None], bool]:
        timeouts, loop = Timeouts(), asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in range(3)]
        for future, timeout_s in zip(waiting, (0.01, 0.01, 60.0), strict=True):
            timeouts.watch(future.set_result, timeout_s)
        return list(await asyncio.gather(*waiting[:2])), waiting[2].done()

    errors, is_patient_done = asyncio.run(given_up())

    assert [type(error) for error in errors] == [NotDurableInTime, NotDurableInTime]
    assert not is_patient_done


@pytest.mark.parametrize("profile", [Profile.DEVELOPER, Profile.STANDARD])
def test_many_clients_at_once_lose_nothing(profile: Profile) -> None:
    """In shared batches or not, every event that was answered with 201 is stored once."""
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
