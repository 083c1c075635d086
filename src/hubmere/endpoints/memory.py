"""The node's memory budget: a bound on the buffers of all connections together.

Each connection has an `Account` and reports how much it holds: incomplete requests and deliveries, and responses that
the peer has not read. Small amounts (`UNCOUNTED_BYTES`) are not counted, so small requests cost nothing.

Algorithm:
1. A large allocation is requested first (`Account.admits`, `Account.available_bytes`). Buffers that grow with each read
   are counted after the read (`Account.set`).
2. When the budget is used up it is *tight*. While it is tight, connections that hold a part of a message are not read
   (they `wait` and are called in order when memory is free), reads are small (`Account.read_bytes`), large requests are
   not started, and fetches wait or return less. Connections with small requests continue.
3. If the budget is still tight after `PATIENCE_S`, every account is measured again, and holders are refused, in their
   protocol's terms, until `_RESUME_SHARE` of the budget is in use: first those that hold no less than when the budget
   became tight, the largest first. Each refusal is logged and counted.
4. When less than `_RESUME_SHARE` is in use, the budget is not tight any more. Waiting holders are called as long as it
   stays so, and free memory is returned to the system (`trim`).

No connection waits for ever: one that holds a part of a message continues when others release memory, and after
`PATIENCE_S` others do so or are refused.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from hubmere.model.errors import setting_hint

log = logging.getLogger("hubmere.memory")

# Bytes of a connection that are not counted; 20,000 connections can hold 80 MB in this way.
UNCOUNTED_BYTES: Final = 4096
# Size of one read while the budget is tight: enough for small requests, and affordable for many connections.
_TIGHT_READ_BYTES: Final = 4096
# What a connection that holds nothing may allocate while larger ones wait: requests and responses of most clients.
_SMALL_BYTES: Final = 64 * 1024
# How long the budget may stay tight before holders are refused: a request of some MB arrives in far less time.
PATIENCE_S: Final = 1.0
# Large allocations are admitted up to this share of the budget; the rest is for small ones.
_LARGE_SHARE: Final = 0.8
# Below this share a tight budget is free again.
_RESUME_SHARE: Final = 0.7
# What a waiting holder may read before it is counted, and how many are called in one turn of the loop.
_WOKEN_BYTES: Final = 512 * 1024
_MAX_WOKEN: Final = 64
# When to return memory to the system after the budget was tight.
_TRIM_AFTER_S: Final = (0.1, 1.0, 5.0)
_UNLIMITED_BYTES: Final = 1 << 62


class Holder(Protocol):
    """A holder of counted memory: a connection, or a request body."""

    def held_bytes(self) -> int:
        """Bytes that are held now."""

    def refuse_memory(self, why: str) -> None:
        """Release everything, and report the reason in the protocol's terms."""


class Account:
    """The memory of one holder. Thread rule: the loop's thread only."""

    __slots__ = ("_budget", "_holder", "_mark_bytes", "held_bytes")

    def __init__(self, budget: "MemoryBudget", holder: Holder) -> None:
        self._budget = budget
        self._holder = holder
        self._mark_bytes = 0
        self.held_bytes = 0

    @property
    def is_tight(self) -> bool:
        """Whether the budget is used up: nothing large is started."""
        return self._budget.is_tight

    @property
    def read_bytes(self) -> int:
        """Size of one read while the budget is tight."""
        return _TIGHT_READ_BYTES

    def set(self, size_bytes: int) -> None:
        """Report how many bytes are held now."""
        counted = size_bytes if size_bytes > UNCOUNTED_BYTES else 0
        if counted != self.held_bytes:
            self._budget.change(self, counted)

    def admits(self, size_bytes: int) -> bool:
        """Whether this much more may be allocated now; if not, the budget is tight: `wait`, then ask again."""
        if size_bytes <= UNCOUNTED_BYTES or self.available_bytes(size_bytes) >= size_bytes:
            return True
        self._budget.press()
        return False

    def press(self) -> None:
        """Mark the budget as tight: something waits for memory."""
        self._budget.press()

    def available_bytes(self, wanted_bytes: int) -> int:
        """How many of the wanted bytes may be allocated now."""
        budget = self._budget
        available = budget.large_limit_bytes - budget.used_bytes
        if available >= wanted_bytes:
            return wanted_bytes
        small = budget.limit_bytes - budget.used_bytes
        if not self.held_bytes and small >= _SMALL_BYTES:
            return max(available, min(wanted_bytes, _SMALL_BYTES))
        return max(available, 0)

    def wait(self, on_free: Callable[[], None]) -> None:
        """Call `on_free` when memory is free again."""
        self._budget.wait(on_free)

    def close(self) -> None:
        """Release everything, and drop the holder, so that no reference cycle keeps it alive."""
        self.set(0)
        self._holder = _NOBODY

    # --- used by the budget

    def mark(self) -> None:
        """Remember how much is held now."""
        self._mark_bytes = self.held_bytes

    @property
    def is_stalled(self) -> bool:
        """Whether no less is held than at the mark."""
        return self.held_bytes >= self._mark_bytes

    def measure(self) -> None:
        """Ask the holder again: sockets accept bytes without notice."""
        self.set(self._holder.held_bytes())

    def refuse(self, why: str) -> None:
        """Make the holder release its memory."""
        self._holder.refuse_memory(why)
        self.set(0)


class _Nobody:
    """The holder of a closed account."""

    def held_bytes(self) -> int:
        """Nothing is held."""
        return 0

    def refuse_memory(self, why: str) -> None:
        """Nothing to release."""


_NOBODY: Final = _Nobody()


class MemoryBudget:
    """The memory of all connections of a node. Thread rule: the loop's thread only.

    `on_refused` is called for each refusal, `trim` after much was released.
    """

    def __init__(
        self,
        limit_bytes: int = _UNLIMITED_BYTES,
        *,
        on_refused: Callable[[], None] = lambda: None,
        trim: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.large_limit_bytes = int(limit_bytes * _LARGE_SHARE)
        self.used_bytes = 0
        self.is_tight = False
        self._on_refused = on_refused
        self._trim = trim
        self._accounts: set[Account] = set()
        self._waiting: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_waking = False
        self._trimming: list[asyncio.TimerHandle] = []

    def account(self, holder: Holder) -> Account:
        """A new account for a holder."""
        return Account(self, holder)

    def change(self, account: Account, size_bytes: int) -> None:
        """Change the amount of an account."""
        self.used_bytes += size_bytes - account.held_bytes
        account.held_bytes = size_bytes
        if size_bytes:
            self._accounts.add(account)
            if self.used_bytes > self.large_limit_bytes:
                self.press()
        else:
            self._accounts.discard(account)
        if self.is_tight:
            self._relax()

    def wait(self, on_free: Callable[[], None]) -> None:
        """Call `on_free` when memory is free again, on the next turn of the loop if it is free now."""
        self._waiting.append(on_free)
        if not self.is_tight:
            self._wake_soon()

    def press(self) -> None:
        """Mark the budget as tight."""
        if self.is_tight:
            return
        self.is_tight = True
        log.info("the memory budget is used up: %d of %d bytes", self.used_bytes, self.limit_bytes)
        self._watch()

    def _watch(self) -> None:
        for account in self._accounts:
            account.mark()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._relieve)

    def _relieve(self) -> None:
        """The budget was tight for too long: measure, then refuse holders until it is not."""
        self._timer = None
        for account in list(self._accounts):
            account.measure()
        self._relax()
        if self.is_tight:
            self._refuse_some()
        if self.is_tight:
            self._watch()

    def _refuse_some(self) -> None:
        hint = setting_hint("memory_budget_bytes")
        why = f"The node's memory budget of {self.limit_bytes} bytes is used up. {hint}"
        order = sorted(self._accounts, key=lambda account: (account.is_stalled, account.held_bytes), reverse=True)
        for account in order:
            if not self.is_tight:
                return
            log.warning("refused a connection that holds %d bytes: %s", account.held_bytes, why)
            self._on_refused()
            account.refuse(why)

    def _relax(self) -> None:
        if not self.is_tight or self.used_bytes > self.limit_bytes * _RESUME_SHARE:
            return
        self.is_tight = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        log.info("the memory budget is free again: %d of %d bytes", self.used_bytes, self.limit_bytes)
        self._wake_soon()
        self._trim_soon()

    def _wake_soon(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Call as many waiting holders as the budget allows; what they read is counted before the next are called."""
        self._is_waking = False
        free_bytes = max(self.large_limit_bytes - self.used_bytes, 0)
        for _ in range(min(max(free_bytes // _WOKEN_BYTES, 1), _MAX_WOKEN, len(self._waiting))):
            if self.is_tight:
                return
            self._waiting.popleft()()
        if self._waiting and not self.is_tight:
            self._wake_soon()

    def _trim_soon(self) -> None:
        """Return memory to the system now, and again when refused holders are gone."""
        for trimming in self._trimming:
            trimming.cancel()
        loop = asyncio.get_running_loop()
        self._trimming = [loop.call_later(delay_s, self._trim) for delay_s in _TRIM_AFTER_S]
