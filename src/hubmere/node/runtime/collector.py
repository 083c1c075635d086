"""Python's garbage collector in a node: full collections are rare, because one stops the event loop.

A full collection visits every object that the collector knows, about 0.7 microseconds each, and nobody is served
meanwhile: 50 to 80 ms in a node with a thousand open partitions. By Python's rule it runs whenever the number of old
objects has grown by a quarter, and finds next to nothing: nearly all objects are freed by their reference count, and
most cycles by collections of young objects, which take a few milliseconds. So:

1. What exists when the node is ready stays alive as long as the node, and is exempt from collections (`gc.freeze`).
2. Python starts no full collection. The node starts one when the number of memory blocks in use has doubled since the
   last one, which bounds the cycles of old objects that are not freed.

Thread rule: the loop's thread only.
"""

import asyncio
import gc
import sys
from typing import Final

CHECK_SECONDS: Final = 10.0
# Growth beyond the double that needs no full collection: a few megabytes.
SPARE_BLOCKS: Final = 100_000
# Python starts a full collection after this many collections of the younger generation: never.
_NEVER: Final = 2**30


class Collector:
    """The rules above, from `start` to `stop`."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()
        self._limit_blocks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The node is ready: collect once, and enable the collector."""
        gc.set_threshold(*self._thresholds[:2], _NEVER)
        self._collect()
        gc.freeze()
        gc.enable()
        self._schedule()

    def stop(self) -> None:
        """The node stops: the collector works as usual again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.set_threshold(*self._thresholds)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        if sys.getallocatedblocks() > self._limit_blocks:
            self._collect()
        self._schedule()

    def _collect(self) -> None:
        gc.collect()
        self._limit_blocks = 2 * sys.getallocatedblocks() + SPARE_BLOCKS
