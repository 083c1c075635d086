"""MirrorMaker 2 from a real Apache Kafka over a node to another Apache Kafka, for minutes, with crashes in between.

A producer writes numbers to the first cluster all the time and a group reads them there. Readers of the node and of the
last cluster check the events: they stay connected from the first number to the last, over all crashes.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.clients import NotInstalled
from conformance.kafka.apache import Service, broker
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import topics
from conformance.kafka_ecosystem.manual import node_in, pasted
from conformance.kafka_ecosystem.mirror import OFTEN, PAGE, mirror_maker
from conformance.kafka_ecosystem.topics import PATIENCE_S, until
from hubmere.testing import Node

_SECONDS = 300.0
_PARTITIONS = 3
# A burst for each partition at each pause: 600 events a second.
_BURST = 20
_PAUSE_S = 0.1
_EVENT_BYTES = 100
_TOPIC, _HUB, _ARCHIVE = "orders", "kafka.orders", "hubmere.kafka.orders"
_GROUP = "billing"
# The time between the end of the producer and the last number at the target; a crash may cost a minute.
_CATCH_UP_S = 240.0
_HEAP = "256m"
# librdkafka prints refused connections to standard error, which a crash causes.
_QUIET = {"log_level": 0}


# --- the chain -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """First cluster, node and last cluster, and the MirrorMaker that copies from each to the next."""

    first: dict[str, Any]
    node: Node
    last: dict[str, Any]
    mirror: Service

    def restart_node(self) -> None:
        self.node.restart()

    def crash_node(self) -> None:
        self.node.kill()
        self.node.start()

    def crash_mirror(self) -> None:
        self.mirror.kill()
        self.mirror.start()


@contextmanager
def a_chain(folder: Path, more: Callable[[], str]) -> Iterator[Chain]:
    """All of it, with the settings of the manual and more; skips if something is not installed."""
    with ExitStack() as running:
        node = running.enter_context(Node(settings={"as": "premium"}))
        try:
            first = running.enter_context(broker(folder / "first", heap=_HEAP)).bootstrap
            last = running.enter_context(broker(folder / "last", heap=_HEAP)).bootstrap
        except NotInstalled as reason:
            pytest.skip(str(reason))
        _create_topic(first)
        mirror = mirror_maker(folder, _settings(node, first, last) + more())
        running.callback(mirror.stop)
        mirror.start()
        yield Chain(first={"bootstrap.servers": first}, node=node, last={"bootstrap.servers": last}, mirror=mirror)


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(PATIENCE_S)


def _settings(node: Node, first: str, last: str) -> str:
    """The flows of the manual; the second one copies to a third cluster instead of back to the first."""
    changes = {
        **node_in(node),
        "localhost:9092": first,
        "clusters=kafka, hubmere": f"clusters=kafka, hubmere, archive\narchive.bootstrap.servers={last}",
        "hubmere->kafka.": "hubmere->archive.",
        "telemetry.*": _HUB,
        "alarms.*": f"{_GROUP}.*",
    }
    # Heartbeats would create flows between all pairs of clusters.
    return pasted(PAGE, "mm2.properties", changes) + OFTEN + "emit.heartbeats.enabled=false\n"


def _at_least_once() -> str:
    return ""


def _exactly_once() -> str:
    changes = {"kafka.exactly": "archive.exactly", "http://localhost:8083": "http://127.0.0.1:0"}
    return pasted(PAGE, "exactly-once.properties", changes)


# --- who writes and who reads ----------------------------------------------------------------------------------------


class Reader:
    """Reads a topic in a thread during a `with` block; its events can be read meanwhile."""

    def __init__(self, settings: dict[str, Any], begin: Callable[[Consumer], None]) -> None:
        self._settings = {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest", **_QUIET}
        self._begin = begin
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._done: Future[None] | None = None
        # By partition: the offset of each number, and the number.
        self.found: list[list[tuple[int, int]]] = [[] for _ in range(_PARTITIONS)]

    def __enter__(self) -> Self:
        self._done = self._pool.submit(self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()
        assert self._done is not None
        self._done.result()

    def _read(self) -> None:
        consumer = Consumer(self._settings)
        self._begin(consumer)
        try:
            while not self._stop.is_set():
                for message in consumer.consume(1000, 0.2):
                    assert message.error() is None, message.error()
                    self.found[message.partition()].append((message.offset(), int(message.value())))
        finally:
            consumer.close()

    def has_come_to(self, number: int) -> bool:
        """Whether this number has arrived in every partition."""
        return all(found and found[-1][1] >= number for found in self.found)


def _follows(topic: str) -> Callable[[Consumer], None]:
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(_PARTITIONS)]
    return lambda consumer: consumer.assign(places)


def _belongs(topic: str) -> Callable[[Consumer], None]:
    return lambda consumer: consumer.subscribe([topic])


@dataclass(slots=True)
class Crash:
    """A crash that happens after a share of the time."""

    after: float
    do: Callable[[], None]
    written: int = 0


def write(settings: dict[str, Any], crashes: Sequence[Crash]) -> int:
    """Write numbers to every partition continuously while crashes happen; returns how many each partition has."""
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5, **_QUIET})
    waiting = list(crashes)
    under_way: list[Future[None]] = []
    pause, count, began = threading.Event(), 0, time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        while (elapsed := time.monotonic() - began) < _SECONDS:
            if waiting and elapsed >= waiting[0].after * _SECONDS:
                waiting[0].written = count
                under_way.append(pool.submit(waiting.pop(0).do))
            for number in range(count, count + _BURST):
                for partition in range(_PARTITIONS):
                    producer.produce(_TOPIC, value=b"%0*d" % (_EVENT_BYTES, number), partition=partition)
            count += _BURST
            producer.poll(0)
            pause.wait(_PAUSE_S)
    for crash in under_way:
        crash.result()
    assert len(under_way) == len(crashes)
    assert producer.flush(240) == 0
    return count


# --- the run ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.foreign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("more", [_at_least_once, _exactly_once], ids=["at least once", "exactly once"])
def test_mirrored_events_survive_crashes_of_everything_between(
    request: pytest.FixtureRequest, tmp_path: Path, more: Callable[[], str]
) -> None:
    """Nothing is lost, nothing is out of order, and with exactly-once nothing is duplicated."""
    if not request.config.getoption("--torture", default=False):
        pytest.skip("takes ten minutes; --torture runs it")
    with a_chain(tmp_path, more) as chain, ExitStack() as reading:
        hub, archive, group = _readers(chain, reading)
        crashes = [Crash(0.25, chain.restart_node), Crash(0.5, chain.crash_mirror), Crash(0.75, chain.crash_node)]

        count = write(chain.first, crashes)
        ended = time.monotonic()
        for reader in (group, hub, archive):
            until(partial(reader.has_come_to, count - 1), "last number", seconds=_CATCH_UP_S)
        caught_up_s = time.monotonic() - ended
        resumes = until(lambda: _resumes(chain, archive, after=crashes[-1].written), "place of the group")

    again = [sum(map(len, reader.found)) - count * _PARTITIONS for reader in (hub, archive)]
    print(f"{count * _PARTITIONS} written, {again} of them again in hub and archive; {caught_up_s:.1f} s to catch up")
    print(f"the group goes on at {resumes} of {count}")
    for reader in (hub, archive):
        _judge(reader, count, is_exactly_once=more is _exactly_once)
    assert all(number <= count for number in resumes)


def _readers(chain: Chain, reading: ExitStack) -> tuple[Reader, Reader, Reader]:
    """Readers of the hub and of the last topic, and the group that MirrorMaker watches."""
    hub = librdkafka(chain.node, tls=True)
    until(lambda: _HUB in topics.topic_names(hub), "hub")
    until(lambda: _ARCHIVE in topics.topic_names(chain.last), "last topic")
    return (
        reading.enter_context(Reader({**hub, "group.id": "judge"}, _follows(_HUB))),
        reading.enter_context(Reader({**chain.last, "group.id": "judge"}, _follows(_ARCHIVE))),
        reading.enter_context(
            Reader({**chain.first, "group.id": _GROUP, "auto.commit.interval.ms": 1000}, _belongs(_TOPIC))
        ),
    )


def _resumes(chain: Chain, archive: Reader, *, after: int) -> list[int]:
    """The numbers at which the group would continue in the last cluster; none before its offsets were translated.

    Everything before them counts as read, including repetitions.
    """
    places = topics.committed(chain.last, _GROUP, _ARCHIVE, _PARTITIONS)
    passed = [
        max((number for offset, number in found if offset < place), default=-1) + 1
        for place, found in zip(places, archive.found, strict=True)
    ]
    return passed if min(passed) > after else []


def _judge(reader: Reader, count: int, *, is_exactly_once: bool) -> None:
    """Check that every number follows the previous one, or goes back to repeat earlier ones."""
    everything = list(range(count))
    for found in reader.found:
        offsets, numbers = zip(*found, strict=True)
        assert all(sooner < later for sooner, later in pairwise(offsets))
        assert list(dict.fromkeys(numbers)) == everything
        assert all(later <= sooner + 1 for sooner, later in pairwise(numbers))
        assert not is_exactly_once or list(numbers) == everything
