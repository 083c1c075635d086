"""The topics of hubs while the brokers cannot be reached: what was asked for is done when they can be."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from hubmere.cluster.engine import engine as engine_module
from hubmere.cluster.engine.engine import KafkaEngine
from hubmere.cluster.engine.topics import Topics
from hubmere.cluster.upstream.failures import BrokerUnreachable, RequestRefused, TopicDamaged
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.store.engine import LogConfig, log_id
from hubmere.wire.kafka.errors import ErrorCode

_PATIENCE_S = 240.0


class FakeTopics:
    """Topics of brokers that fail so many times first."""

    def __init__(self) -> None:
        self.failures = 0
        self.error: Exception = BrokerUnreachable("b1", "killed")
        self.attempts = 0
        self.done: list[object] = []
        self.hubs = {"hub"}

    def name_of(self, hub_uid: str) -> str:
        return hub_uid

    def exists(self, hub_uid: str) -> bool:
        return hub_uid in self.hubs

    async def _try(self, what: object) -> None:
        await asyncio.sleep(0)
        self.attempts += 1
        if self.attempts <= self.failures:
            raise self.error
        self.done.append(what)

    async def provide(self, hub_uid: str) -> None:
        """It exists."""

    async def delete(self, hub_uid: str) -> None:
        await self._try(f"deleted {hub_uid}")

    async def reconfigure(self, hub_uid: str, config: LogConfig) -> None:
        await self._try(config.retention_ms)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait between attempts."""
    monkeypatch.setattr(engine_module, "_FIRST_PAUSE_S", 0.0)


def run(topics: FakeTopics, scenario: Callable[[KafkaEngine], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        engine = KafkaEngine(cast("Upstream", None), cast("Topics", topics))
        try:
            await asyncio.wait_for(scenario(engine), _PATIENCE_S)
        finally:
            engine.close()

    asyncio.run(work())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_topic_of_a_deleted_hub_is_deleted_after_an_outage() -> None:
    """The deletion is done when the topic is gone; until then the catalog remembers it for other gateways."""
    topics = FakeTopics()
    topics.failures = 3
    deleted: list[int] = []

    async def scenario(engine: KafkaEngine) -> None:
        for partition in range(2):
            engine.delete(log_id("hub", partition), lambda partition=partition: deleted.append(partition))  # type: ignore[misc]
        await until(lambda: topics.attempts == 2)
        assert not deleted
        await until(lambda: len(deleted) == 2)

    run(topics, scenario)

    assert topics.done == ["deleted hub"]


def test_topic_gets_its_new_configuration_after_an_outage() -> None:
    """Otherwise Kafka would delete events by the old retention until the next change of the hub."""
    topics = FakeTopics()
    topics.failures = 3

    async def scenario(engine: KafkaEngine) -> None:
        engine.log(log_id("hub", 0), LogConfig()).reconfigure(LogConfig(retention_ms=1000))
        await until(lambda: bool(topics.done))

    run(topics, scenario)

    assert topics.done == [1000]


def test_last_configuration_wins_if_several_wait() -> None:
    """Two changes during an outage: the older one must not be applied behind the newer one."""
    topics = FakeTopics()
    topics.failures = 3

    async def scenario(engine: KafkaEngine) -> None:
        log = engine.log(log_id("hub", 0), LogConfig())
        log.reconfigure(LogConfig(retention_ms=1000))
        await until(lambda: topics.attempts == 1)
        log.reconfigure(LogConfig(retention_ms=2000))
        await until(lambda: bool(topics.done))
        await turns()

    run(topics, scenario)

    assert topics.done == [2000]


@pytest.mark.parametrize(
    "error",
    [
        TopicDamaged("the topic was deleted by hand"),
        RequestRefused("the topic", ErrorCode.INVALID_CONFIG),
    ],
)
def test_configuration_that_is_refused_is_not_tried_for_ever(error: Exception) -> None:
    """No later attempt can succeed."""
    topics = FakeTopics()
    topics.failures, topics.error = 1_000_000, error

    async def scenario(engine: KafkaEngine) -> None:
        engine.log(log_id("hub", 0), LogConfig()).reconfigure(LogConfig(retention_ms=1000))
        await turns()

    run(topics, scenario)

    assert topics.attempts == 1


def test_configuration_of_a_deleted_hub_is_not_tried_for_ever() -> None:
    """The hub was deleted during the outage."""
    topics = FakeTopics()
    topics.failures = 1_000_000

    async def scenario(engine: KafkaEngine) -> None:
        engine.log(log_id("hub", 0), LogConfig()).reconfigure(LogConfig(retention_ms=1000))
        await until(lambda: topics.attempts == 3)
        topics.hubs.clear()
        await turns()

    run(topics, scenario)

    assert topics.attempts <= 4
