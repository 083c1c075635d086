"""The garbage collector of a node: full collections are rare, and they still happen."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from hubmere.node.runtime.collector import SPARE_BLOCKS, Collector


class Cycle:
    """An object that only the collector frees."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


@pytest.fixture(autouse=True)
def _usual_collector() -> Iterator[None]:
    """Other tests are not affected."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    assert gc.get_threshold() == thresholds
    gc.collect()


def test_old_cycles_are_freed_once_the_memory_in_use_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts no full collection; the node does, so that its memory is bounded."""
    monkeypatch.setattr("hubmere.node.runtime.collector.CHECK_SECONDS", 0.001)

    async def run() -> tuple[int, int, int]:
        collector = Collector()
        collector.start()
        try:
            # Two collections of young objects make it old; later ones of young objects do not see it.
            cycle = Cycle()
            gc.collect(0)
            gc.collect(1)
            del cycle
            never = gc.get_threshold()[2]
            await asyncio.sleep(0.02)
            before = Cycle.alive
            more = [bytes(index % 200) for index in range(sys.getallocatedblocks() + 2 * SPARE_BLOCKS)]
            while Cycle.alive:
                await asyncio.sleep(0.01)
            del more
            return never, before, Cycle.alive
        finally:
            collector.stop()

    never, before, after = asyncio.run(asyncio.wait_for(run(), 120))
    assert never > 10**6
    assert (before, after) == (1, 0)
