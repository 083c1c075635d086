"""Builds the node's coalescer: `translate` encodes its batches, and the event loop ends its turns."""

import asyncio
from collections.abc import Callable

from hubmere.broker import Coalescer
from hubmere.model.clock import Clock
from hubmere.translate import messages_to_batch


def build_coalescer(clock: Clock) -> Coalescer:
    """A coalescer whose batches are published at the end of each loop turn."""

    def publish_open_batches(flush: Callable[[float, int], None]) -> None:
        flush(clock.monotonic(), clock.now_ms())

    def defer(flush: Callable[[float, int], None]) -> None:
        asyncio.get_running_loop().call_soon(publish_open_batches, flush)

    return Coalescer(messages_to_batch, defer)
