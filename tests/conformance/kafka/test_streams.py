"""Kafka Streams: a word count with its state in hubs, restarted without its folder, and killed while it works."""

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.clients import NotInstalled
from conformance.conformance_node import Transport, gateway_settings
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import topics
from conformance.kafka_ecosystem.manual import pasted
from conformance.kafka_ecosystem.streams import INPUT, OUTPUT, PAGE, WordCount, compiled
from conformance.kafka_ecosystem.topics import Event, until
from conformance.matrix import Feature, Name
from hubmere.testing import Node

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.KAFKA_STREAMS, transport=Transport.TLS),
]

_PARTITIONS = 2
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")
_ROUND = 2000
_REPARTITION, _CHANGELOG = "word-count-counts-repartition", "word-count-counts-changelog"
# Every change of a count is written; none is omitted because of a newer one.
_EACH_CHANGE = "statestore.cache.max.bytes=0"
# Transactions are short, so that a kill hits an open one. Records are deleted, and a missing member is noticed, soon.
_OFTEN = (
    "commit.interval.ms=100",
    "repartition.purge.interval.ms=500",
    "session.timeout.ms=6000",
    "heartbeat.interval.ms=1000",
)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compiled(tmp_path_factory.mktemp("streams"))
    except NotInstalled as reason:
        pytest.skip(str(reason))


@contextmanager
def _a_node(folder: Path) -> Iterator[Node]:
    """A node of the tier in which the service has Streams, with the hubs of the application."""
    with Node(settings={"as": "premium", **gateway_settings(folder)}) as node:
        admin = AdminClient(librdkafka(node))
        for made in admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in (INPUT, OUTPUT)]).values():
            made.result(300)
        yield node


def _write(settings: dict[str, Any], counts: Counter[str], start: int) -> None:
    """Write some thousand lines of three words each, and count them in `counts`."""
    lines = []
    for number in range(start, start + _ROUND):
        words = [_WORDS[(number * step) % len(_WORDS)] for step in (1, 3, 5)]
        counts.update(words)
        lines.append(Event(number % _PARTITIONS, b"%d" % number, " ".join(words).encode()))
    topics.write(settings, INPUT, lines)


def _committed_counts(settings: dict[str, Any]) -> dict[str, list[int]]:
    """All counts that a read_committed consumer gets, by word and in order."""
    results: dict[str, list[int]] = {}
    for message in topics.messages(settings, OUTPUT, committed_only=True):
        (count,) = struct.unpack(">q", message.value() or b"")
        results.setdefault((message.key() or b"").decode(), []).append(count)
    return results


def _last(settings: dict[str, Any]) -> Counter[str]:
    return Counter({word: counts[-1] for word, counts in _committed_counts(settings).items()})


def _each_once(counts: Counter[str]) -> dict[str, list[int]]:
    return {word: list(range(1, count + 1)) for word, count in counts.items()}


@dataclass(frozen=True, slots=True)
class Finished:
    """An application that was restarted without its folder, and its results."""

    settings: dict[str, Any]
    counts: Counter[str]


@pytest.fixture(scope="module")
def finished(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Two runs of one application; the second one has an empty disk."""
    counts: Counter[str] = Counter()
    folder = tmp_path_factory.mktemp("word-count")
    with _a_node(folder) as node:
        settings = librdkafka(node)
        application = WordCount(node, classes, folder, more=(_EACH_CHANGE, *_OFTEN))
        try:
            for start in (0, _ROUND):
                _write(settings, counts, start)
                application.start()
                until(lambda: _last(settings) == counts, "counts")
                until(lambda: not topics.messages(settings, _REPARTITION), "repartition topic that was emptied")
                application.stop()
                shutil.rmtree(application.state)
        finally:
            application.stop()
        yield Finished(settings, counts)


@pytest.mark.judges(feature=Feature.OWN_RESTARTS)
def test_counts_continue_without_the_folder(finished: Finished) -> None:
    """State is in the changelog: an instance with an empty disk restores everything from the hub."""
    assert _committed_counts(finished.settings) == _each_once(finished.counts)


@pytest.mark.judges(feature=Feature.OWN_TOPICS)
def test_application_creates_the_topics_that_it_needs(finished: Finished) -> None:
    """They are a repartition topic and a compacted changelog, with the partitions of the input and CreateTime."""
    assert _shape(finished.settings, _REPARTITION) == (_PARTITIONS, "delete", "CreateTime")
    assert _shape(finished.settings, _CHANGELOG) == (_PARTITIONS, "compact", "CreateTime")


def _shape(settings: dict[str, Any], topic: str) -> tuple[int, str, str]:
    entries = topics.configuration(settings, topic)
    return topics.partition_count(settings, topic), entries["cleanup.policy"], entries["message.timestamp.type"]


@pytest.mark.judges(feature=Feature.EXACTLY_ONCE)
def test_counts_are_exact_after_kills(classes: Path, tmp_path: Path) -> None:
    """Exactly once: each count is published once and in order, although instances were killed during their work."""
    counts: Counter[str] = Counter()
    exactly_once = pasted(PAGE, "exactly-once.properties", {}).strip()
    with _a_node(tmp_path) as node:
        settings = librdkafka(node)
        application = WordCount(node, classes, tmp_path, more=(exactly_once, _EACH_CHANGE, *_OFTEN))
        try:
            for start in (0, _ROUND):
                before = _last(settings)
                _write(settings, counts, start)
                application.start()
                until(partial(_has_moved, settings, before), "counts that begin to move")
                application.kill()
            application.start()
            until(lambda: _last(settings) == counts, "all counts")
        finally:
            application.stop()

        assert _committed_counts(settings) == _each_once(counts)


def _has_moved(settings: dict[str, Any], before: Counter[str]) -> bool:
    return _last(settings) != before


@pytest.mark.judges(feature=Feature.REFUSALS)
def test_streams_groups_are_refused_with_a_reason(classes: Path, tmp_path: Path) -> None:
    """KIP-1071 is not supported: the application ends with the reason, instead of waiting."""
    with _a_node(tmp_path) as node:
        application = WordCount(node, classes, tmp_path, more=("group.protocol=streams",))
        application.start()
        try:
            until(lambda: not application.is_running, "the application's end")
        finally:
            application.stop()

    assert "The cluster does not support the STREAMS group protocol" in application.logs()
