"""Processors of the Azure SDK for Python with its blob checkpoint store: they share a hub, and take over partitions."""

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.extensions.checkpointstoreblob._vendor.storage.blob import ContainerClient

from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.matrix import Feature, Name
from conformance.processors.processor import OWNERSHIP_SECONDS

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.PROCESSOR, transport=Transport.PLAIN, feature=Feature.FAIL_OVER),
]

_PROGRAM = Path(__file__).parent / "processor.py"
_PARTITIONS = 8
# Many times what the intervals of the processors need; it only limits a failing test.
_PATIENCE_SECONDS = 180.0
_ROUND_SECONDS = 0.5
_PROCESSORS = 8
# Eight processes start at the same time.
_CROWD_SECONDS = 300.0
# One round of any processor is enough to claim a partition; two of each are lost claims, and no more.
_MISSED_ROUNDS = 2 * _PROCESSORS


class Processor:
    """A processor in a child process; its output is collected."""

    def __init__(self, news: threading.Condition, *arguments: str) -> None:
        self._news = news
        self.facts: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # A killed process may leave an incomplete line.
                    with self._news:
                        self.facts.append(json.loads(line))
                        self._news.notify_all()

    def kill(self) -> None:
        """Kill it like a crash: it releases nothing."""
        self._process.kill()
        self._process.wait()
        self._reader.join(_PATIENCE_SECONDS)

    def read_from(self, since: int = 0) -> set[str]:
        """The partitions from which events came."""
        return {fact["partition"] for fact in self.facts[since:] if "event" in fact}

    def events(self) -> set[str]:
        return {fact["event"] for fact in self.facts if "event" in fact}


class Publisher:
    """Publishes numbered events to every partition in turn."""

    def __init__(self, place: HubLocation) -> None:
        self._producer = EventHubProducerClient.from_connection_string(place.connection, eventhub_name=place.hub)
        self.sent: set[str] = set()

    def publish_round(self) -> None:
        for partition in map(str, range(_PARTITIONS)):
            body = f"{partition}-{len(self.sent)}"
            self._producer.send_event(EventData(body), partition_id=partition)
            self.sent.add(body)

    def close(self) -> None:
        self._producer.close()


def publish_until(
    publisher: Publisher, news: threading.Condition, is_true: Callable[[], bool], seconds: float = _PATIENCE_SECONDS
) -> None:
    """Publish continuously, as in production, until a condition holds for the processors."""
    for _ in range(int(seconds / _ROUND_SECONDS)):
        publisher.publish_round()
        with news:
            if news.wait_for(is_true, timeout=_ROUND_SECONDS):
                return
    raise AssertionError(f"the processors did not reach the expected state with {len(publisher.sent)} events")


def test_processor_takes_over_the_partitions_of_a_killed_one(conformance_node: ConformanceNode, storage: str) -> None:
    """Two share eight partitions; when one is killed, the other reads them all, and no event is missed."""
    place = conformance_node.place(Transport.PLAIN, conformance_node.new_hub(_PARTITIONS))
    container = f"checkpoints-{uuid.uuid4().hex}"
    with ContainerClient.from_connection_string(storage, container) as blobs:
        blobs.create_container()
    news = threading.Condition()
    arguments = (place.connection, place.hub, storage, container)
    publisher = Publisher(place)
    processors = [Processor(news, *arguments), Processor(news, *arguments)]
    doomed, survivor = processors
    try:
        # Both have an equal share: since the last check each has read from half of the partitions.
        publish_until(publisher, news, lambda: _share(processors) == [_PARTITIONS // 2] * 2)
        doomed.kill()
        since = len(survivor.facts)
        publish_until(publisher, news, lambda: len(survivor.read_from(since)) == _PARTITIONS)
        with news:
            is_complete = news.wait_for(
                lambda: publisher.sent <= doomed.events() | survivor.events(), _PATIENCE_SECONDS
            )
    finally:
        publisher.close()
        for processor in processors:
            processor.kill()

    assert is_complete, sorted(publisher.sent - doomed.events() - survivor.events())[:20]


def test_eight_processors_with_kills_and_restarts_miss_no_event(
    conformance_node: ConformanceNode, request: pytest.FixtureRequest
) -> None:
    """After each kill every partition is read by a running processor, and finally each event was processed.

    No partition is without an owner for longer than the SDK's own expiry and a round of load balancing. With
    `--torture` each of the eight is killed twice.
    """
    kills = 2 * _PROCESSORS if request.config.getoption("--torture") else 2
    place = conformance_node.place(Transport.PLAIN, conformance_node.new_hub(_PARTITIONS))
    storage, container = conformance_node.node.blob_connection_string, f"checkpoints-{uuid.uuid4().hex}"
    with ContainerClient.from_connection_string(storage, container) as blobs:
        blobs.create_container()
    news = threading.Condition()
    publisher = Publisher(place)
    living = [Processor(news, place.connection, place.hub, storage, container) for _ in range(_PROCESSORS)]
    dead: list[Processor] = []

    def is_read_since(marks: list[int]) -> bool:
        read = (processor.read_from(mark) for processor, mark in zip(living, marks, strict=True))
        return len(set[str]().union(*read)) == _PARTITIONS

    def missed() -> set[str]:
        return publisher.sent.difference(*(processor.events() for processor in (*living, *dead)))

    try:
        publish_until(publisher, news, lambda: is_read_since([0] * _PROCESSORS), _CROWD_SECONDS)
        for number in range(kills):
            victim = living[number % _PROCESSORS]
            victim.kill()
            dead.append(victim)
            living[number % _PROCESSORS] = Processor(news, place.connection, place.hub, storage, container)
            marks = [len(processor.facts) for processor in living]
            publish_until(publisher, news, partial(is_read_since, marks), _CROWD_SECONDS)
        with news:
            is_complete = news.wait_for(lambda: not missed(), _CROWD_SECONDS)
    finally:
        publisher.close()
        for processor in living:
            processor.kill()

    assert is_complete, sorted(missed())[:20]
    for partition in map(str, range(_PARTITIONS)):
        unowned = _unowned_times([*living, *dead], partition)
        assert [time for time in unowned if time.missed_rounds > _MISSED_ROUNDS] == []


class UnownedTime(NamedTuple):
    """A time in which nobody owned a partition: it begins when the last ownership expires, and ends with a claim."""

    partition: str
    seconds: float
    # Rounds of load balancing, of any processor, that began and ended meanwhile without a claim.
    missed_rounds: int


def _unowned_times(processors: list[Processor], partition: str) -> list[UnownedTime]:
    """The times without an owner, from the times that the store gave to claims and renewals.

    They are compared with the rounds of load balancing in which a processor could have claimed the partition: on a
    busy machine these come later, too.
    """
    renewals = sorted(
        fact["at"] for processor in processors for fact in processor.facts if fact.get("owned") == partition
    )
    assert len(renewals) > 1, f"no ownership of partition {partition} was recorded"
    found = []
    for last, following in pairwise(renewals):
        expiry = last + OWNERSHIP_SECONDS
        if following > expiry:
            # The store's times have whole seconds, and a processor compares them with its own clock.
            missed = sum(_rounds_within(processor, expiry + 1, following) for processor in processors)
            found.append(UnownedTime(partition, following - expiry, missed))
    return found


def _rounds_within(processor: Processor, begin: float, end: float) -> int:
    """How many rounds of a processor began and ended within a time."""
    starts = [fact["listed"] for fact in processor.facts if "listed" in fact]
    return sum(1 for start, following in pairwise(starts) if begin < start and following < end)


def _share(processors: list[Processor]) -> list[int]:
    """The number of partitions that each has read recently: the newest events of each partition show its owner."""
    events = [[fact["partition"] for fact in processor.facts if "event" in fact] for processor in processors]
    owned = [set(partitions[-_PARTITIONS * 2 :]) for partitions in events]
    return [len(partitions) for partitions in owned] if not set.intersection(*owned) else []
