"""The share of a loop turn that a connection gets: pure numbers, and a transport that does nothing."""

import asyncio

from hubmere.endpoints.fairness import (
    FIRST_PIECE_BYTES,
    MAX_COSTLY_BYTES,
    MAX_PARSED_BYTES,
    MIN_PIECE_BYTES,
    TURN_SECONDS,
    LoopShare,
    SlicedInput,
)

_LARGE = 256 * 1024


class FakeTransport:
    """Notes whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


def test_cheap_input_is_taken_in_ever_larger_pieces() -> None:
    """For an ordinary sender of large batches, pieces are small only in the beginning."""
    share = LoopShare(_LARGE)
    assert share.piece_bytes == FIRST_PIECE_BYTES

    for _ in range(10):
        share.spend(share.piece_bytes, 0.0)

    assert share.piece_bytes == _LARGE


def test_costly_input_is_taken_in_pieces_that_fit_the_budget() -> None:
    """Ten times the budget for a piece: the next has a tenth, but never less than some requests."""
    share = LoopShare(MAX_COSTLY_BYTES)

    assert share.spend(FIRST_PIECE_BYTES, 10 * TURN_SECONDS)
    assert share.piece_bytes == FIRST_PIECE_BYTES // 10
    share.spend(share.piece_bytes, 1000 * TURN_SECONDS)

    assert share.piece_bytes == MIN_PIECE_BYTES


def test_budget_is_for_all_pieces_of_a_turn() -> None:
    """Several pieces share it; the next turn begins with a full one."""
    share = LoopShare(_LARGE)
    third = TURN_SECONDS / 3 + 1e-9

    assert [share.spend(1, third) for _ in range(6)] == [False, False, True] * 2


def test_peer_that_once_sent_costly_input_is_never_trusted_with_large_pieces_again() -> None:
    """Cheap input in between does not buy the right to the next long stall."""
    share = LoopShare(_LARGE)
    share.spend(FIRST_PIECE_BYTES, 100 * TURN_SECONDS)

    share.widen(_LARGE)
    for _ in range(100):
        share.spend(share.piece_bytes, 0.0)

    assert share.piece_bytes == MAX_COSTLY_BYTES


def test_sliced_input_feeds_everything_in_order_and_reads_on_afterwards() -> None:
    """Nothing is lost or repeated between the pieces, with pauses in the middle."""
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


def test_sliced_input_waits_for_every_reason_to_be_gone() -> None:
    """Unread answers and a busy protocol each stop the input."""

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
