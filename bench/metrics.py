"""The cost of counting in the data path: two brokers from the same source, one without counters.

    python -m bench.metrics [--publications 4000] [--rounds 61]

Both are compiled from the same files in the same way; one of them without the statements that add to a counter.
Publications go to a log in memory and from there to a reader, without socket, disk and decoding, so that the share of
counting is larger than in a node. Short rounds alternate between the two, and each is compared with the next: the cost
is the median of these ratios, because other load on the machine varies by more than the measured difference. The goal
is less than two percent.
"""

import argparse
import ast
import gc
import importlib.util
import sys
import time
from dataclasses import fields
from pathlib import Path
from statistics import median
from types import ModuleType

from hubmere.broker import egress, publish
from hubmere.broker import read as consume
from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.hubs.counters import Counters
from hubmere.broker.management.manager import Actor
from hubmere.model.errors import Refusal
from hubmere.model.names import hub_name, namespace_name
from hubmere.model.position import Position
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.records.header import seal
from hubmere.store.catalog.sqlite import SqliteCatalog
from hubmere.store.memory import MemoryEngine
from hubmere.translate import HttpEvent, publication_from_http

GOAL = 0.02
HUB = "bench"
_COUNTED = frozenset(field.name for field in fields(Counters))
_READ_BYTES = 128 * 1024


class _WithoutCounts(ast.NodeTransformer):
    """Removes the statements that add to a counter."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        is_count = isinstance(node.target, ast.Attribute) and node.target.attr in _COUNTED
        return ast.copy_location(ast.Pass(), node) if is_count else node


def rebuilt(module: ModuleType, *, counts: bool) -> ModuleType:
    """The same module from the same source, with or without its counters."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    tree = ast.parse(source) if counts else ast.fix_missing_locations(_WithoutCounts().visit(ast.parse(source)))
    spec = importlib.util.spec_from_loader(f"{module.__name__}_{counts}", loader=None)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    made.__dict__["__file__"] = module.__file__
    sys.modules[spec.name] = made
    exec(compile(tree, module.__file__, "exec"), made.__dict__)
    return made


def rebuilt_broker(*, counts: bool) -> tuple[ModuleType, ModuleType]:
    """The modules of publishing and reading, with or without their counters."""
    publishing, consuming = (rebuilt(module, counts=counts) for module in (publish, consume))
    consuming.__dict__["Egress"] = rebuilt(egress, counts=counts).Egress
    return publishing, consuming


class InMemoryBroker:
    """A broker with its log in memory and one hub with one partition."""

    def __init__(self) -> None:
        self._calls: list[object] = []
        self._engine = MemoryEngine(post=self._calls.append)
        self._catalog = catalog = SqliteCatalog.open(post=self._calls.append)
        self.broker = Broker(
            engine=self._engine,
            catalog=catalog,
            book=LimitsBook(profile=Profile.UNLIMITED),
            access=Access(lambda: catalog.view, host_names(["localhost"], lambda: catalog.view)),
            default_namespace="bench",
            segment_bytes=1 << 30,
            default_partition_count=1,
        )
        manager, actor = self.broker.manager, Actor(name="bench", now_ms=0, now=0.0)
        manager.create_namespace(namespace_name("bench-ns"), NamespaceSpec(), actor, _done)
        self._settle()
        manager.create_hub("bench-ns", hub_name(HUB), HubSpec(partition_count=1), actor, _done)
        self._settle()
        self.hub = self.broker._namespace("bench-ns").hub(HUB)

    def _settle(self) -> None:
        self._catalog.apply()
        self.turn()

    def turn(self) -> None:
        """Run the calls that were posted to the owner's thread."""
        while self._calls:
            call = self._calls.pop(0)
            assert callable(call)
            call()

    def close(self) -> None:
        """Close the engine and the catalog, which ends their threads."""
        self._engine.close()
        self._catalog.close()


def _done(refusal: Refusal | None) -> None:
    assert refusal is None


def measure(publishing: ModuleType, consuming: ModuleType, events: int, publications: int) -> tuple[float, int]:
    """CPU seconds to publish and read `publications`, and the number of events that were counted."""
    publication = publication_from_http([HttpEvent(body=b"x" * 100) for _ in range(events)])
    harness = InMemoryBroker()
    harness.hub.readers = consuming.Readers(None)
    publisher = publishing.Publisher(harness.hub, partition=0)
    spec = consuming.ReaderSpec(
        group="$default",
        partition=0,
        position=Position.first(),
        epoch=None,
        name=HUB,
        on_ready=_nothing,
        on_closed=_ignore,
    )
    reader = harness.hub.readers.open(harness.hub, spec)
    batches = [bytearray(publication.batch) for _ in range(publications)]
    for batch in batches:
        seal(batch)
    gc.collect()
    gc.disable()
    began = time.process_time()
    for batch in batches:
        publisher.publish(batch, count=events, size_bytes=100 * events, key=None, now=0.0, now_ms=0)
        harness.turn()
        chunk = reader.read(_READ_BYTES)
        assert chunk is not None
        reader.advance(chunk.next_sequence, events, len(chunk.data), 0.0)
    took = time.process_time() - began
    gc.enable()
    counted = harness.hub.counters.incoming_messages
    harness.close()
    return took, counted


def _nothing() -> None:
    """A wake-up callback that does nothing."""


def _ignore(_: Refusal) -> None:
    """An eviction callback that does nothing."""


def main() -> int:
    """Measure, and print whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--publications", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=61)
    given = parser.parse_args()
    builds = {counts: rebuilt_broker(counts=counts) for counts in (True, False)}
    print("publication     counted    uncounted   counting costs")
    is_met = True
    for events in (1, 10, 100):
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(given.rounds):
            for is_counted in (True, False) if number % 2 else (False, True):
                publishing, consuming = builds[is_counted]
                took, counted_events = measure(publishing, consuming, events, given.publications)
                assert bool(counted_events) == is_counted
                times[is_counted].append(took)
        counted, uncounted = (median(times[which]) / given.publications * 1e6 for which in (True, False))
        cost = median(one / other for one, other in zip(times[True], times[False], strict=True)) - 1
        # One event per publication is the worst case; clients that send many events use batches.
        is_met = is_met and cost <= GOAL
        print(f"{events:4} events  {counted:8.2f} µs  {uncounted:8.2f} µs   {cost:8.2%}")
    print(f"goal: less than {GOAL:.0%}: {'met' if is_met else 'MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
