"""Processors of the Azure SDK for Python with its blob checkpoint store: they share a hub, and survive one another."""

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.extensions.checkpointstoreblob._vendor.storage.blob import ContainerClient

from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.matrix import Feature, Name

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.PROCESSOR, transport=Transport.PLAIN, feature=Feature.FAIL_OVER),
]

_PROGRAM = Path(__file__).parent / "processor.py"
_PARTITIONS = 8
# Many times what the processors' own intervals need: it only bounds a test that fails.
_PATIENCE_SECONDS = 45.0
_ROUND_SECONDS = 0.5
_PROCESSORS = 8
# Eight processes start at once.
_CROWD_SECONDS = 300.0


class Processor:
    """A processor in a child process; what it tells is collected as it comes."""

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
                if line.endswith(b"\n"):  # one that was killed may leave half a line
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
    """Keep events coming, as in production, until the processors have come to something."""
    for _ in range(int(seconds / _ROUND_SECONDS)):
        publisher.publish_round()
        with news:
            if news.wait_for(is_true, timeout=_ROUND_SECONDS):
                return
    raise AssertionError("the processors did not come to it in time")


def test_a_processor_takes_over_from_one_that_was_killed(conformance_node: ConformanceNode, storage: str) -> None:
    """Two share eight partitions; when one dies, the other reads them all, and no event is missed."""
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
        # Fair shares, both at work: since the last time we looked, each has read from half of the partitions.
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
    """After each kill every partition is read again by one that lives, and in the end each event was processed.

    With `--torture` each of the eight is killed twice.
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


def _share(processors: list[Processor]) -> list[int]:
    """How many partitions each has read from lately: the newest events of each partition say who owns it."""
    recent = [processor.facts[-_PARTITIONS * 2 :] for processor in processors]
    owned = [{fact["partition"] for fact in facts if "event" in fact} for facts in recent]
    return [len(partitions) for partitions in owned] if not set.intersection(*owned) else []
