"""Producer ids: numbers that are never given twice, not even after a crash.

They are taken from the catalog in blocks; what is left of a block at a stop is not used. AMQP producers have ids far
above these.
"""

from collections import deque
from collections.abc import Callable

from hubmere.model.errors import Refusal
from hubmere.store.catalog.catalog import Catalog, reserve_numbers

# As many as Kafka takes at a time: one durable write for a thousand producers.
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
        """The next id, through the callback: at once while a block lasts, else when the next one is durable."""
        number = next(self._left, None)
        if number is not None:
            taken(number, None)
            return
        self._waiting.append(taken)
        if len(self._waiting) == 1:
            self._reserve()

    def _reserve(self) -> None:
        try:
            reserve_numbers(self._catalog, _COUNTER, _BLOCK, self._reserved)
        except Refusal as refusal:
            self._reserved(range(0), refusal)

    def _reserved(self, block: range, refusal: Refusal | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        if refusal is not None:
            for taken in waiting:
                taken(-1, refusal)
            return
        self._left = iter(block)
        for taken in waiting:
            self.take(taken)
