"""Producer ids: numbers that are never issued twice, not even after a crash.

They are taken from the catalog in blocks; the rest of a block is lost when the node stops. AMQP producers have ids far
above these.
"""

from collections import deque
from collections.abc import Callable

from hubmere.model.errors import Refusal
from hubmere.store.catalog.runtime_state import Counter
from hubmere.store.catalog.view import Put
from hubmere.store.engine import Catalog

# Block size as in Kafka: one durable write for a thousand producers.
_BLOCK = 1000
_COUNTER = "producer-id"

Taken = Callable[[int, Refusal | None], None]


class ProducerIds:
    """The ids of one node. Thread rule: the owner's thread only."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._left = iter(range(0))
        self._waiting: deque[Taken] = deque()

    def take(self, taken: Taken) -> None:
        """Pass the next id to the callback: at once if the current block has one, else when the next block is
        durable."""
        number = next(self._left, None)
        if number is not None:
            taken(number, None)
            return
        self._waiting.append(taken)
        if len(self._waiting) == 1:
            self._reserve()

    def _reserve(self) -> None:
        # From `planned`, which includes a block that was submitted and is not durable yet.
        first = self._catalog.planned_view.counter(_COUNTER)
        block = range(first, first + _BLOCK)
        counter = Counter(name=_COUNTER, next_value=block.stop)
        try:
            self._catalog.submit(Put(counter), callback=lambda refusal: self._on_reserved(block, refusal))
        except Refusal as refusal:
            self._on_reserved(range(0), refusal)

    def _on_reserved(self, block: range, refusal: Refusal | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        if refusal is not None:
            for taken in waiting:
                taken(-1, refusal)
            return
        self._left = iter(block)
        for taken in waiting:
            self.take(taken)
