"""Waiting fetches whose partition has moved are read in one call of the loop; a failing one does not affect others."""

import logging
from collections.abc import Callable
from typing import cast

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.endpoints.kafka.fetch.wake_ups import WakeUps
from hubmere.endpoints.kafka.session import KafkaSession


class Wire:
    peer = "here"


class Session:
    """The part of a session that the wake-ups use."""

    wire = Wire()

    def __init__(self, *, is_lost: bool = False) -> None:
        self.is_lost = is_lost
        self.reasons: list[str] = []

    def disconnect(self, why: str) -> None:
        self.reasons.append(why)


class Fetch:
    """A fetch that calls a function when it is read."""

    def __init__(self, call: Callable[[], object], session: Session | None = None) -> None:
        self.session = cast("KafkaSession", session or Session())
        self.read_again = cast("Callable[[], None]", call)


class Loop:
    """Turns that the test runs."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.wake_ups = WakeUps(self.soon.append)

    def run(self) -> None:
        """One turn."""
        calls, self.soon[:] = list(self.soon), []
        for call in calls:
            call()


def test_the_fetches_of_a_turn_share_one_call_in_their_order() -> None:
    """A commit wakes 200 readers; those that are woken while they are read wait for the next call."""
    loop, called = Loop(), list[int]()
    for number in range(200):
        loop.wake_ups.add(Fetch(lambda number=number: called.append(number)))  # type: ignore[misc]
    loop.wake_ups.add(Fetch(lambda: loop.wake_ups.add(Fetch(lambda: called.append(-1)))))

    assert len(loop.soon) == 1
    loop.run()
    assert called == list(range(200))
    loop.run()
    assert called == [*range(200), -1]
    assert not loop.soon


def test_very_many_fetches_are_read_in_several_turns() -> None:
    """Other clients are served between them."""
    loop, called = Loop(), list[int]()
    for number in range(1000):
        loop.wake_ups.add(Fetch(lambda number=number: called.append(number)))  # type: ignore[misc]

    loop.run()
    assert 0 < len(called) < 1000
    while loop.soon:
        assert len(loop.soon) == 1
        loop.run()

    assert called == list(range(1000))


def test_a_failing_fetch_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The other fetches are read, except those of lost connections."""
    loop, called, broken = Loop(), list[str](), Session()
    loop.wake_ups.add(Fetch(lambda: called.append("lost"), Session(is_lost=True)))
    loop.wake_ups.add(Fetch(lambda: 1 // 0, broken))
    loop.wake_ups.add(Fetch(lambda: called.append("fine")))

    with caplog.at_level(logging.CRITICAL, "hubmere.kafka"):
        loop.run()

    assert called == ["fine"]
    assert broken.reasons == ["a fetch failed"]


@pytest.mark.usefixtures("either_loop")
def test_every_reader_of_a_tail_gets_the_event_also_if_one_has_left(node: KafkaNode) -> None:
    """One of the readers has closed its connection while its fetch waited."""
    readers = [RawClient(node) for _ in range(5)]
    with RawClient(node) as writer:
        writer.sign_in()
        for reader in readers:
            reader.__enter__()
            reader.sign_in()
            reader.send(a_fetch(max_wait_ms=200_000), 11)
        readers.pop(2).__exit__(None, None, None)
        writer.call(a_produce(a_batch(b"news")), 9)
        answers = [only(reader.answer()) for reader in readers]
    for reader in readers:
        reader.__exit__(None, None, None)

    assert [b"news" in bytes(answer.records) for answer in answers] == [True] * 4
