"""Common parts of all curves: a node, its CPU time, and the format of a result."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.load.charts import Line
from bench.load.library import Library
from bench.load.machine import cpu_seconds
from bench.load.raw_amqp import Address, Pump
from bench.load.raw_kafka import a_batch

from hubmere.model.names import ROOT_RULE
from hubmere.settings import HubSetting
from hubmere.testing import Node

T = TypeVar("T")

# These rates are never reached here: quotas are counted as for any customer, but refuse nothing.
_ENDLESS = 10**13
_RATES = ("ingress_bytes", "ingress_events", "egress_bytes", "egress_events")
_SETTINGS: Mapping[str, str | int | float | bool | Path | list[str]] = {
    **{f"limits.{rate}_per_unit": _ENDLESS for rate in _RATES},
    "limits.partitions_per_hub": 10_000,
    "limits.readers_per_partition": 10_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The clients, and how long one point of a curve is measured."""

    kafka: Library
    amqp: Pump
    folder: Path
    seconds: float


@dataclass(slots=True, kw_only=True)
class Curve:
    """How one cost of a node depends on a growing quantity."""

    slug: str
    title: str
    x_title: str
    y_title: str
    has_log_y: bool = False
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, line: str, x: float, y: float) -> None:
        """Add a point."""
        self.lines.setdefault(line, []).append((x, y))

    def chart_lines(self) -> list[Line]:
        """The lines for a picture."""
        return [Line(name=name, points=points) for name, points in self.lines.items()]


@dataclass(frozen=True, slots=True)
class Subject:
    """A node under measurement."""

    node: Node

    @property
    def kafka_address(self) -> tuple[str, int]:
        """Host and port of the Kafka endpoint."""
        host, _, port = self.node.kafka.rpartition(":")
        return host, int(port)

    @property
    def password(self) -> str:
        """The password of Kafka clients: the connection string."""
        return self.node.emulator_connection_string

    @property
    def amqp_address(self) -> Address:
        """Address and credential for AMQP clients."""
        host, _, port = self.node.amqp.rpartition(":")
        key = self.node.emulator_connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
        return Address(host=host, port=int(port), user=ROOT_RULE, password=key)

    def cost_of(self, work: Callable[[], T]) -> tuple[float, float, T]:
        """CPU seconds of the node and elapsed seconds of a piece of work, and its result."""
        before, began = cpu_seconds(self.node.pid), time.perf_counter()
        result = work()
        return cpu_seconds(self.node.pid) - before, time.perf_counter() - began, result


@contextlib.contextmanager
def a_node(tools: Tools, hubs: Mapping[str, int], durability: str = "os", **settings: float) -> Iterator[Subject]:
    """A fresh node with these hubs and their partition counts."""
    wished = [HubSetting(name=name, partition_count=count) for name, count in hubs.items()]
    with (
        tempfile.TemporaryDirectory(dir=tools.folder) as data,
        Node(hubs=wished, settings={**_SETTINGS, "durability": durability, **settings}, data=Path(data)) as node,
    ):
        try:
            yield Subject(node)
        finally:
            # The node is killed: the cost of a clean stop is measured elsewhere, and the data folder is deleted.
            node.kill()


def batch_now(count: int, size_bytes: int) -> bytes:
    """A batch of `count` events of `size_bytes`, with the current time."""
    return a_batch(count, size_bytes, int(time.time() * 1000))


def percentile_ms(waits_s: list[float], percent: float) -> float:
    """A percentile of waits, in milliseconds."""
    ordered = sorted(waits_s)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] * 1000 if ordered else 0.0
