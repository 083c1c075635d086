"""Readers that follow a partition on a leader: each is woken, and all share the fetches of their gateway."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from hubmere.cluster.engine.engine import KafkaEngine
from hubmere.cluster.engine.log import KafkaLog
from hubmere.cluster.engine.pending import AppendPosition
from hubmere.cluster.engine.topics import Topics
from hubmere.cluster.upstream.upstream import Leader, Upstream
from hubmere.records.records import Record, encode_batch
from hubmere.store.engine import LogConfig, log_id
from hubmere.wire.kafka.messages.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

T = TypeVar("T")
_PATIENCE_S = 240.0


class Broker:
    """The leader of every partition, as the upstream of an engine. A fetch waits until there are events."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.sent_bytes = 0
        self._changed = asyncio.Event()

    def append(self, partition: int, *, size_bytes: int = 10) -> None:
        """Another gateway appends one event."""
        batches = self.batches.setdefault(partition, [])
        first = len(batches)
        record = Record(sequence_number=first, time_ms=1, key=None, value=bytes(size_bytes), headers=())
        batches.append(bytes(encode_batch([record], base_sequence_number=first)))
        self._changed.set()
        self._changed = asyncio.Event()

    def leader(self, topic: str, partition: int) -> Leader:
        """It leads everything."""
        return Leader(1, 0)

    async def ask(self, broker: int, request: FetchRequest, *, lane: str, seconds: float) -> FetchResponse:
        """Answer a fetch."""
        parts = self._answers(request)
        while not any(part.records for part in parts):
            await self._changed.wait()
            parts = self._answers(request)
        name = request.topics[0].name
        return FetchResponse(topics=(FetchTopicResponse(name=name, partitions=tuple(parts)),))

    def _answers(self, request: FetchRequest) -> list[FetchPartitionResponse]:
        found: list[FetchPartitionResponse] = []
        for part in request.topics[0].partitions:
            records, end = bytearray(), len(self.batches.get(part.index, ()))
            for batch in self.batches.get(part.index, ())[part.fetch_offset :]:
                # Only the first partition with events gets a batch that is larger than its limit.
                if len(records) + len(batch) > part.max_bytes and (records or any(each.records for each in found)):
                    break
                records += batch
            if end:
                self.sent_bytes += len(records)
                answer = FetchPartitionResponse(
                    index=part.index,
                    error_code=0,
                    high_watermark=end,
                    last_stable_offset=end,
                    log_start_offset=0,
                    records=bytes(records),
                )
                found.append(answer)
        return found


class TopicNames:
    """Topics that exist already."""

    def name_of(self, hub_uid: str) -> str:
        """The topic of a hub."""
        return hub_uid

    async def suspects(self, hub_uids: Sequence[str]) -> Sequence[str]:
        """Nobody has deleted one."""
        return ()


class Follower:
    """A reader that reads as far as it can whenever it is woken."""

    def __init__(self, log: KafkaLog, sequence: int) -> None:
        self._log = log
        self.sequence = sequence
        log.watch(self.read)
        self.read()

    def read(self) -> None:
        """Read everything that is there."""
        while (chunk := self._log.read(self.sequence, 1_000_000)) is not None:
            self.sequence = chunk.next_sequence


def run(scenario: Callable[[Broker, KafkaEngine], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario in a loop of its own."""

    async def work() -> T:
        broker = Broker()
        engine = KafkaEngine(cast("Upstream", broker), cast("Topics", TopicNames()))
        try:
            return await asyncio.wait_for(scenario(broker, engine), _PATIENCE_S)
        finally:
            # The long polls that it has begun have to run before they can be cancelled.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            engine.close()

    return asyncio.run(work())


async def until(follower: Follower, sequence: int) -> None:
    """Wait until a follower is there."""
    while follower.sequence < sequence:
        await asyncio.sleep(0)


def test_reader_at_the_end_gets_events_of_other_gateways() -> None:
    """This gateway has written the partition and never read it; then another one goes on."""

    async def scenario(broker: Broker, engine: KafkaEngine) -> None:
        for _ in range(3):
            broker.append(0)
        log = engine.log(log_id("hub", 0), LogConfig())
        log._on_appended(AppendPosition(end_sequence=3, time_ms=1, latency_s=0.0))
        follower = Follower(log, 3)

        for number in range(4, 8):
            broker.append(0)
            await until(follower, number)

    run(scenario)


def test_readers_of_a_partition_share_its_fetches() -> None:
    """Fifty of them cost the brokers as much as one."""

    async def sent_bytes(readers: int, broker: Broker, engine: KafkaEngine) -> int:
        log = engine.log(log_id("hub", 0), LogConfig())
        followers = [Follower(log, 0) for _ in range(readers)]
        for number in range(1, 100):
            broker.append(0)
            if number % 3 == 0:
                for follower in followers:
                    await until(follower, number)
        return broker.sent_bytes

    assert run(partial(sent_bytes, 50)) <= 1.1 * run(partial(sent_bytes, 1))


def test_readers_at_different_positions_share_what_was_fetched() -> None:
    """A fetch from an early position brings the later ones. Only fetches that run at the same time overlap."""

    async def scenario(broker: Broker, engine: KafkaEngine) -> int:
        for _ in range(100):
            broker.append(0)
        log = engine.log(log_id("hub", 0), LogConfig())
        followers = [Follower(log, number) for number in range(20)]
        for follower in followers:
            await until(follower, 100)
        return broker.sent_bytes

    one = len(encode_batch([Record(sequence_number=0, time_ms=1, key=None, value=bytes(10), headers=())]))
    assert run(scenario) <= 4 * 100 * one


def test_batch_larger_than_a_fetch_is_read_beside_a_busy_partition() -> None:
    """A leader gives such a batch only to the first partition of a request: each one must be first at times."""

    async def scenario(broker: Broker, engine: KafkaEngine) -> None:
        broker.append(0)
        busy, large = (Follower(engine.log(log_id("hub", number), LogConfig()), 0) for number in (0, 1))
        broker.append(1, size_bytes=2 * 1024 * 1024)
        while not large.sequence:
            broker.append(0)
            await asyncio.sleep(0)
        assert busy.sequence

    run(scenario)


class SlowTopics(TopicNames):
    """Topics that are created slowly; remembers what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.may_create = asyncio.Event()

    async def provide(self, hub_uid: str) -> None:
        await self.may_create.wait()
        self.done.append(f"created {hub_uid}")

    async def delete(self, hub_uid: str) -> None:
        self.done.append(f"deleted {hub_uid}")


def test_topic_of_a_hub_that_is_deleted_at_once_does_not_stay() -> None:
    """The topic of a new hub is created in the background: its deletion comes after that."""

    async def work() -> None:
        topics = SlowTopics()
        engine = KafkaEngine(cast("Upstream", Broker()), cast("Topics", topics))

        engine.provide_soon(["new"], lambda: None, seconds=_PATIENCE_S)
        await asyncio.sleep(0)
        engine.delete(log_id("new", 0))
        await asyncio.sleep(0)
        assert not topics.done
        topics.may_create.set()
        async with asyncio.timeout(_PATIENCE_S):
            while len(topics.done) < 2:
                await asyncio.sleep(0)
        engine.close()

        assert topics.done == ["created new", "deleted new"]

    asyncio.run(work())
