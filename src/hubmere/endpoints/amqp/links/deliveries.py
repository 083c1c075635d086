"""What the reading links of all connections share: decoded batches, the thread that opens large ones, and turns.

A link that has much to send does a bounded piece of it and asks for another turn. In each turn of the loop one such
link continues, so that many of them together delay other clients no more than one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from hubmere.endpoints.stream import Wire
from hubmere.translate import ClosedBatch, DecodedCache, OpenBatch, open_batch

Turn = Callable[[], None]


class Deliveries:
    """Shared by the reading links of a node. Thread rule: the node's loop only.

    One thread opens batches, so that at most one is being decompressed; a queued one takes no more memory than its
    link already has for it.
    """

    __slots__ = ("_executor", "_is_scheduled", "_opening", "_waiting", "cache")

    def __init__(self) -> None:
        self.cache = DecodedCache()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="open-batch")
        self._opening: dict[tuple[str, int, int], list[tuple[Wire, Turn]]] = {}
        self._waiting: deque[tuple[Wire, Turn]] = deque()
        self._is_scheduled = False

    def close(self) -> None:
        """Wait for the batch that is being opened; no other is opened any more."""
        self._executor.shutdown(cancel_futures=True)

    def take_turn(self, wire: Wire, turn: Turn) -> None:
        """Run the next piece of a link's work, after the links that asked before."""
        self._waiting.append((wire, turn))
        self._schedule()

    def open(self, batch: ClosedBatch, wire: Wire, turn: Turn) -> None:
        """Open a large batch; then the link takes its turn."""
        waiting = self._opening.setdefault(batch.key, [])
        waiting.append((wire, turn))
        if len(waiting) == 1:
            job = asyncio.get_running_loop().run_in_executor(self._executor, open_batch, batch.header, batch.data)
            job.add_done_callback(partial(self._on_opened, batch.key))

    def _on_opened(self, key: tuple[str, int, int], job: "asyncio.Future[OpenBatch]") -> None:
        waiting = self._opening.pop(key)
        if not job.cancelled():
            self.cache.opened.put(key, job.result())
            # Before the others: they may need other batches, for which this one is evicted.
            self._waiting.extendleft(reversed(waiting))
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_scheduled = False
        wire, turn = self._waiting.popleft()
        wire.call_soon(turn)
        if self._waiting:
            self._schedule()
