"""Deadlines of waiting fetches: those of the same time share a timer, and a failing one does not affect others."""

import logging
from collections.abc import Callable
from typing import cast

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.endpoints.kafka.fetch.deadlines import TICK_S, SharedDeadlines
from hubmere.endpoints.kafka.session import KafkaSession


class Wire:
    peer = "here"


class Session:
    """The part of a session that the deadlines use."""

    wire = Wire()

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def disconnect(self, why: str) -> None:
        self.reasons.append(why)


class Loop:
    """Timers and turns that the test runs."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []
        self.deadlines = SharedDeadlines(lambda when, call: self.timers.append((when, call)), self.soon.append)

    def add(self, when: float, on_due: Callable[[], None], session: Session | None = None) -> "object":
        return self.deadlines.add(cast("KafkaSession", session or Session()), when, on_due)


def test_fetches_that_are_due_within_one_tick_share_a_timer() -> None:
    """A thousand idle consumers must not wake the node a thousand times; no fetch is answered early."""
    loop, called = Loop(), list[int]()

    for number in range(20):
        loop.add(1.001 + number * 0.0004, lambda number=number: called.append(number))  # type: ignore[misc]
    loop.add(1.5, lambda: called.append(99))

    assert [round(when, 6) for when, _ in loop.timers] == [1.01, 1.5]
    assert loop.timers[0][0] - 1.001 <= TICK_S
    loop.timers[0][1]()
    assert called == list(range(20))


def test_a_cancelled_deadline_is_not_called() -> None:
    """This also holds if another one of the same time cancels it."""
    loop, called = Loop(), list[str]()

    loop.add(1.0, lambda: second.cancel())  # type: ignore[attr-defined]
    second = loop.add(1.0, lambda: called.append("second"))
    loop.add(1.0, lambda: called.append("third"))
    loop.timers[0][1]()

    assert called == ["third"]


def test_many_fetches_of_the_same_time_are_answered_in_several_turns() -> None:
    """Other clients are served between them."""
    loop, called = Loop(), list[int]()
    for number in range(200):
        loop.add(1.0, lambda number=number: called.append(number))  # type: ignore[misc]

    loop.timers[0][1]()
    assert 0 < len(called) < 200
    while loop.soon:
        loop.soon.pop()()

    assert called == list(range(200))


def test_failing_deadline_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The other fetches are answered."""
    loop, called, broken = Loop(), list[str](), Session()

    loop.add(1.0, lambda: called.append(str(1 // 0)), broken)
    loop.add(1.0, lambda: called.append("fine"))
    with caplog.at_level(logging.CRITICAL, "hubmere.kafka"):
        loop.timers[0][1]()

    assert called == ["fine"]
    assert broken.reasons == ["the deadline of a fetch failed"]


@pytest.mark.usefixtures("either_loop")
def test_idle_consumers_are_answered_at_their_deadline_and_get_what_comes_later(node: KafkaNode) -> None:
    """The same request is repeated, first without events and then with one."""
    with RawClient(node) as writer, RawClient(node) as reader:
        writer.sign_in()
        reader.sign_in()
        for wait_ms in (20, 150, 150, 150):
            answer = only(reader.call(a_fetch(max_wait_ms=wait_ms), 11))
            assert (answer.error_code, answer.high_watermark, bytes(answer.records or b"")) == (0, 0, b"")
        reader.send(a_fetch(max_wait_ms=200_000), 11)
        writer.call(a_produce(a_batch(b"late")), 9)
        answer = only(reader.answer())

    assert answer.high_watermark == 1
    assert b"late" in bytes(answer.records)
