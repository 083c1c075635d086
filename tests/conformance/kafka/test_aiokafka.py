"""aiokafka: produce, consume, groups and transactions, in the older non-flexible versions that it uses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from conformance.conformance_node import Transport
from conformance.kafka.foreign import AIOKafkaConsumer, AIOKafkaProducer, AioPlace
from conformance.kafka.kafka_clients import aiokafka
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(client=Name.AIOKAFKA, transport=Transport.PLAIN)]

_PATIENCE_S = 400.0


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine on a new loop, with a timeout."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work(), _PATIENCE_S)

    return asyncio.run(bounded())


async def publish(node: Node, topic: str, *values: bytes, **more: Any) -> list[Any]:
    producer = AIOKafkaProducer(**aiokafka(node, **more))
    await producer.start()
    try:
        return [await producer.send_and_wait(topic, value, key=b"k", partition=0) for value in values]
    finally:
        await producer.stop()


async def read(consumer: Any, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


@judges(feature=Feature.CODECS)
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_events_are_read_back_unchanged(node: Node, topic: str, codec: str | None) -> None:
    """Reference check 11: every codec is used."""

    async def work() -> list[tuple[int, bytes]]:
        await publish(node, topic, b"x" * 500, b"y", compression_type=codec)
        consumer = AIOKafkaConsumer(**aiokafka(node, auto_offset_reset="earliest"))
        await consumer.start()
        consumer.assign([AioPlace(topic, 0)])
        try:
            return [(one.offset, one.value) for one in await read(consumer, 2)]
        finally:
            await consumer.stop()

    assert run(work) == [(0, b"x" * 500), (1, b"y")]


@judges(feature=Feature.IDEMPOTENT)
def test_idempotent_producer_works(node: Node, topic: str) -> None:
    """Offsets have no gap."""

    async def work() -> list[int]:
        values = [b"%d" % number for number in range(50)]
        return [one.offset for one in await publish(node, topic, *values, enable_idempotence=True)]

    assert run(work) == list(range(50))


@judges(feature=Feature.GROUPS)
def test_group_of_two_members_shares_partitions(node: Node, topic: str, group: str) -> None:
    """A second member gets its share, which moves back when it leaves."""

    async def work() -> tuple[list[int], list[int], list[int]]:
        await publish(node, topic, b"x")
        arguments = aiokafka(node, group_id=group, session_timeout_ms=60_000, heartbeat_interval_ms=500)
        first, second = (AIOKafkaConsumer(topic, **arguments) for _ in range(2))
        await first.start()
        alone = sorted(part.partition for part in first.assignment())
        await second.start()
        while len(first.assignment()) != 2 or len(second.assignment()) != 2:
            await asyncio.sleep(0.05)
        shared = sorted(part.partition for one in (first, second) for part in one.assignment())
        await second.stop()
        while len(first.assignment()) != 4:
            await asyncio.sleep(0.05)
        back = sorted(part.partition for part in first.assignment())
        await first.stop()
        return alone, shared, back

    assert run(work) == ([0, 1, 2, 3],) * 3


@judges(feature=Feature.TRANSACTIONS)
def test_transactions_are_all_or_nothing(node: Node, topic: str) -> None:
    """This is a third implementation."""

    async def work() -> list[bytes]:
        producer = AIOKafkaProducer(**aiokafka(node, transactional_id=f"t-{topic}"))
        await producer.start()
        for value, is_kept in ((b"kept", True), (b"dropped", False), (b"too", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
        await producer.stop()
        consumer = AIOKafkaConsumer(**aiokafka(node, auto_offset_reset="earliest", isolation_level="read_committed"))
        await consumer.start()
        consumer.assign([AioPlace(topic, 0)])
        try:
            return [one.value for one in await read(consumer, 2)]
        finally:
            await consumer.stop()

    assert run(work) == [b"kept", b"too"]
