"""The memory budget: allocations, waits, refusals, and release."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest

from hubmere.endpoints import memory
from hubmere.endpoints.memory import UNCOUNTED_BYTES, Account, MemoryBudget

KIB = 1024
LIMIT_BYTES = 1000 * KIB


class Holder:
    """A connection that holds a given number of bytes."""

    def __init__(self, budget: MemoryBudget, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.refusals: list[str] = []
        self.account: Account = budget.account(self)
        self.account.set(size_bytes)

    def held_bytes(self) -> int:
        return self.size_bytes

    def refuse_memory(self, why: str) -> None:
        self.size_bytes = 0
        self.refusals.append(why)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait before refusals."""
    monkeypatch.setattr(memory, "PATIENCE_S", 0.0)
    monkeypatch.setattr(memory, "_TRIM_AFTER_S", (0.0,))


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Run a test on its own event loop."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def turns(count: int = 10) -> None:
    """Run the loop for some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


@on_a_loop
async def test_small_amounts_are_not_counted() -> None:
    """Small requests are not accounted for."""
    budget = MemoryBudget(LIMIT_BYTES)
    holder = Holder(budget, UNCOUNTED_BYTES)

    assert (budget.used_bytes, holder.account.held_bytes) == (0, 0)
    assert holder.account.admits(UNCOUNTED_BYTES)


@on_a_loop
async def test_large_allocations_leave_memory_for_small_ones() -> None:
    """A connection without memory may still allocate a little while large requests wait."""
    budget = MemoryBudget(LIMIT_BYTES)
    full = Holder(budget, 790 * KIB)
    newcomer = Holder(budget)

    assert not full.account.admits(64 * KIB)
    assert newcomer.account.admits(64 * KIB)
    assert not newcomer.account.admits(128 * KIB)
    assert newcomer.account.available_bytes(128 * KIB) == 64 * KIB
    assert budget.is_tight


@on_a_loop
async def test_waiting_connections_are_called_in_order_when_memory_is_free() -> None:
    """They are not called before."""
    budget = MemoryBudget(LIMIT_BYTES)
    full = Holder(budget, 900 * KIB)
    called: list[int] = []
    for number in range(3):
        full.account.wait(lambda number=number: called.append(number))  # type: ignore[misc]
    before = list(called)

    full.account.set(0)
    await turns()

    assert (before, called, budget.is_tight) == ([], [0, 1, 2], False)


@on_a_loop
async def test_only_as_many_waiters_are_called_as_fit() -> None:
    """The allocations of the first ones are counted before the next ones are called."""
    budget = MemoryBudget(LIMIT_BYTES)
    full, other = Holder(budget, 900 * KIB), Holder(budget)
    called: list[int] = []

    def take(number: int) -> None:
        called.append(number)
        other.account.set(850 * KIB)

    for number in range(2):
        full.account.wait(lambda number=number: take(number))  # type: ignore[misc]
    full.account.set(0)
    await asyncio.sleep(0)

    assert called == [0]


@on_a_loop
async def test_waiter_is_called_in_the_next_turn_if_memory_is_free() -> None:
    """Memory may become free between the request and the wait."""
    budget = MemoryBudget(LIMIT_BYTES)
    called: list[str] = []
    Holder(budget).account.wait(lambda: called.append("now"))

    await turns()

    assert called == ["now"]


@on_a_loop
async def test_largest_holder_without_progress_is_refused_first() -> None:
    """A peer that makes progress is not refused, and only as many peers as necessary are."""
    refused: list[int] = []
    trimmed: list[int] = []
    budget = MemoryBudget(LIMIT_BYTES, on_refused=lambda: refused.append(1), trim=lambda: trimmed.append(1))
    small, large = Holder(budget, 100 * KIB), Holder(budget, 300 * KIB)
    progressing = Holder(budget, 450 * KIB)
    progressing.size_bytes = 440 * KIB

    await turns()

    assert [len(holder.refusals) for holder in (small, large, progressing)] == [0, 1, 0]
    assert "memory budget of 1024000 bytes" in large.refusals[0]
    assert (len(refused), len(trimmed), budget.is_tight) == (1, 1, False)


@on_a_loop
async def test_sent_bytes_are_no_longer_counted() -> None:
    """No peer is refused because of bytes that were already sent."""
    budget = MemoryBudget(LIMIT_BYTES)
    sent = Holder(budget, 900 * KIB)
    sent.size_bytes = 0

    await turns()

    assert (sent.refusals, budget.used_bytes, budget.is_tight) == ([], 0, False)


@on_a_loop
async def test_closed_account_holds_and_refuses_nothing() -> None:
    """The connection of a closed account may no longer exist."""
    budget = MemoryBudget(LIMIT_BYTES)
    gone = Holder(budget, 500 * KIB)

    gone.account.close()
    gone.account.measure()
    gone.account.refuse("late")

    assert (budget.used_bytes, gone.refusals) == (0, [])
