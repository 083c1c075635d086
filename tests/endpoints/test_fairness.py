"""The share of a loop turn that a connection gets: computed numbers, and a transport without effect."""

import asyncio
import time

import pytest

from hubmere.endpoints.fairness import (
    FIRST_PIECE_BYTES,
    HELD_SECONDS,
    MAX_COSTLY_BYTES,
    MAX_PARSED_BYTES,
    MIN_HELD_READS,
    MIN_PIECE_BYTES,
    PATIENT_READ_SECONDS,
    READ_SECONDS,
    TURN_SECONDS,
    UNMEASURED_READS,
    LoopShare,
    LoopTurn,
    SlicedInput,
)

_LARGE = 256 * 1024


class FakeTransport:
    """Records whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


def test_cheap_input_is_processed_in_growing_pieces() -> None:
    """For a normal sender of large batches, pieces are small only at the beginning."""
    share = LoopShare(_LARGE)
    assert share.piece_bytes == FIRST_PIECE_BYTES

    for _ in range(10):
        share.spend(share.piece_bytes, 0.0)

    assert share.piece_bytes == _LARGE


def test_costly_input_is_processed_in_pieces_that_fit_the_budget() -> None:
    """After a piece with ten times the budget the next one has a tenth of the size, but at least a minimum."""
    share = LoopShare(MAX_COSTLY_BYTES)

    assert share.spend(FIRST_PIECE_BYTES, 10 * TURN_SECONDS)
    assert share.piece_bytes == FIRST_PIECE_BYTES // 10
    share.spend(share.piece_bytes, 1000 * TURN_SECONDS)

    assert share.piece_bytes == MIN_PIECE_BYTES


def test_budget_applies_to_all_pieces_of_a_turn() -> None:
    """Several pieces share it; the next turn starts with the full budget."""
    share = LoopShare(_LARGE)
    third = TURN_SECONDS / 3 + 1e-9

    assert [share.spend(1, third) for _ in range(6)] == [False, False, True] * 2


def test_peer_that_once_sent_costly_input_never_gets_large_pieces_again() -> None:
    """Cheap input between costly pieces must not allow the next long stall."""
    share = LoopShare(_LARGE)
    share.spend(FIRST_PIECE_BYTES, 100 * TURN_SECONDS)

    share.widen(_LARGE)
    for _ in range(100):
        share.spend(share.piece_bytes, 0.0)

    assert share.piece_bytes == MAX_COSTLY_BYTES


def test_sliced_input_is_processed_completely_and_in_order() -> None:
    """Nothing is lost or repeated between the pieces, also with pauses."""
    data = bytes(index % 251 for index in range(5 * MAX_PARSED_BYTES + 7))

    async def run() -> tuple[bytes, bool, bool]:
        fed = bytearray()
        transport = FakeTransport()

        def feed(piece: bytes) -> None:
            fed.extend(piece)
            sliced.pause_reading()

        sliced = SlicedInput(transport, feed)
        sliced.receive(data)
        was_read = transport.is_read
        while sliced.has_rest or not transport.is_read:
            sliced.resume_reading()
            await asyncio.sleep(0)
        return bytes(fed), was_read, transport.is_read

    assert asyncio.run(run()) == (data, False, True)


def test_sliced_input_waits_until_no_reason_to_pause_is_left() -> None:
    """Unread answers and a busy protocol each pause the input."""

    async def run() -> list[int]:
        fed: list[int] = []
        sliced = SlicedInput(FakeTransport(), feed=lambda piece: fed.append(len(piece)))
        sliced.hold("answers")
        sliced.pause_reading()
        sliced.receive(b"x")
        seen = [sum(fed)]
        for release in (sliced.resume_reading, lambda: sliced.release("answers")):
            release()
            await asyncio.sleep(0)
            seen.append(sum(fed))
        return seen

    assert asyncio.run(run()) == [0, 0, 1]


class Clock:
    """A clock that tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Read:
    """A held read that takes a while and notes its name."""

    def __init__(self, name: str, clock: Clock, handled: list[str], *, can_wait: bool = False) -> None:
        self.name = name
        self.can_wait = can_wait
        self._clock = clock
        self._handled = handled

    def handle_held(self) -> None:
        self._clock.now += HELD_SECONDS / 2.5
        self._handled.append(self.name)


def test_turn_without_time_left_reads_nothing_more_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of connections that are ready at once must not make one turn of all their requests."""
    clock = Clock(monkeypatch)

    async def run() -> list[tuple[bool, bool]]:
        turn = LoopTurn()
        urgent, patient = Read("publishes", clock, []), Read("joins", clock, [], can_wait=True)

        def look() -> tuple[bool, bool]:
            return turn.has_time(urgent), turn.has_time(patient)

        seen = [look() for _ in range(UNMEASURED_READS)]
        clock.now += PATIENT_READ_SECONDS
        seen.append(look())
        clock.now += READ_SECONDS
        seen.append(look())
        await asyncio.sleep(0)
        return [*seen, look()]

    assert asyncio.run(run()) == [(True, True)] * UNMEASURED_READS + [(True, False), (False, False), (True, True)]


def test_held_reads_are_handled_in_turns_and_those_that_can_wait_are_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher is not behind five hundred members that join groups, and everybody is served in the end."""
    clock = Clock(monkeypatch)

    async def run() -> list[str]:
        turn, handled, turns = LoopTurn(), list[str](), list[str]()
        for _ in range(MIN_HELD_READS + 1):
            turn.hold(Read("j", clock, handled, can_wait=True))
        for _ in range(MIN_HELD_READS + 1):
            turn.hold(Read("p", clock, handled))
        for _ in range(3):
            await asyncio.sleep(0)
            turns.append("".join(handled))
            handled.clear()
        return turns

    assert asyncio.run(run()) == ["p" * MIN_HELD_READS + "j" * MIN_HELD_READS, "pj", ""]
