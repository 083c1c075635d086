"""Waits in a task for logs that are being opened: for HTTP handlers, the portal and the node's own loops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hubmere.broker import MAX_OPENING_WAIT_S, LogOpening
from hubmere.model.clock import Clock

T = TypeVar("T")


async def run_when_open(work: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Do work that may need a log which is being opened: it is done again whenever such a log is open.

    The work must have changed nothing when it raises LogOpening. Raises LogOpening if the logs do not open in time.
    """
    until = clock.monotonic() + MAX_OPENING_WAIT_S
    while True:
        try:
            return await work()
        except LogOpening as opening:
            now = clock.monotonic()
            if now >= until:
                raise
            await _wait(opening, now, until - now)


async def _wait(opening: LogOpening, now: float, max_wait_s: float) -> None:
    done = asyncio.Event()
    waiting = opening.wait(done.set, now, max_wait_s=max_wait_s)
    try:
        await done.wait()
    finally:
        waiting.cancel()
