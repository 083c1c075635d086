"""The unmodified Azure SDK for Python, asynchronous: its AMQP code differs from that of the blocking SDK."""

import asyncio
from typing import Any

import pytest
from azure.eventhub import EventData, TransportType
from azure.eventhub._eventprocessor.in_memory_checkpoint_store import InMemoryCheckpointStore
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient

from conformance.amqp.azure_clients import QUICK, WAIT_SECONDS
from conformance.amqp.conftest import TlsNode

# The SDK leaves some of its sockets to the garbage collector.
from conformance.conformance_node import Transport
from conformance.matrix import Feature, Name

judges = pytest.mark.judges

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class AsyncInMemoryCheckpointStore:
    """The SDK's in-memory store with the asynchronous interface."""

    def __init__(self) -> None:
        self._store = InMemoryCheckpointStore()

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(self._store, name)(*args, **kwargs)

        return call


def a_producer(connection_string: str, hub: str, **options: Any) -> EventHubProducerClient:
    return EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub, **(QUICK | options))


def a_consumer(connection_string: str, hub: str, **options: Any) -> EventHubConsumerClient:
    settings = QUICK | {"load_balancing_interval": 0.5} | options
    return EventHubConsumerClient.from_connection_string(connection_string, "$Default", eventhub_name=hub, **settings)


async def receive(consumer: EventHubConsumerClient, count: int, **options: Any) -> list[str]:
    results: list[str] = []
    done = asyncio.Event()

    async def on_event(_partition: Any, event: EventData) -> None:
        results.append(event.body_as_str())
        if len(results) >= count:
            done.set()

    task = asyncio.create_task(consumer.receive(on_event=on_event, **({"starting_position": "-1"} | options)))
    async with consumer:
        await asyncio.wait_for(done.wait(), WAIT_SECONDS)
    await task
    return results


@judges(client=Name.PYTHON_ASYNC, transport=Transport.PLAIN, feature=Feature.BATCHES)
def test_events_are_sent_and_received(connection_string: str, hub: str) -> None:
    """Batches, single events and keys are sent; then every partition is read at the same time."""

    async def scenario() -> list[str]:
        async with a_producer(connection_string, hub) as producer:
            batch = await producer.create_batch(partition_id="0")
            for number in range(10):
                batch.add(EventData(f"{number}"))
            await producer.send_batch(batch)
            await producer.send_event(EventData("single"), partition_key="k")
            assert await producer.get_partition_ids() == ["0", "1"]
        return await receive(a_consumer(connection_string, hub), 11)

    assert sorted(asyncio.run(scenario())) == sorted([*"0123456789", "single"])


@judges(client=Name.PYTHON_ASYNC, transport=Transport.PLAIN, feature=Feature.BUFFERED)
def test_buffered_producer_delivers_everything(connection_string: str, hub: str) -> None:
    """Its grouping by key and partition is kept."""
    sent: list[Any] = []
    failed: list[Any] = []

    async def on_success(events: list[Any], _partition: Any) -> None:
        sent.extend(events)

    async def on_error(_events: list[Any], _partition: Any, error: Exception) -> None:
        failed.append(error)

    async def scenario() -> list[str]:
        producer = a_producer(
            connection_string, hub, buffered_mode=True, max_wait_time=0.2, on_success=on_success, on_error=on_error
        )
        async with producer:
            for number in range(60):
                await producer.send_event(EventData(f"{number}"), partition_key=f"key-{number % 4}")
            await producer.flush()
        return await receive(a_consumer(connection_string, hub), 60)

    result = asyncio.run(scenario())

    assert (len(sent), failed) == (60, [])
    assert sorted(result, key=int) == [f"{number}" for number in range(60)]


@judges(client=Name.PYTHON_ASYNC, transport=Transport.TLS, feature=Feature.BATCHES)
def test_events_are_sent_and_received_over_tls_with_a_private_ca(tls_node: TlsNode, tls_hub: str) -> None:
    """The asynchronous transport verifies certificates itself."""
    tls = {
        "transport_type": TransportType.Amqp,
        "custom_endpoint_address": tls_node.endpoint,
        "connection_verify": tls_node.ca_file,
    }

    async def scenario() -> list[str]:
        async with a_producer(tls_node.connection_string, tls_hub, **tls) as producer:
            await producer.send_batch([EventData("async")], partition_id="1")
        return await receive(a_consumer(tls_node.connection_string, tls_hub, **tls), 1, partition_id="1")

    assert asyncio.run(scenario()) == ["async"]


@judges(client=Name.PYTHON_ASYNC, transport=Transport.PLAIN, feature=Feature.PROCESSOR)
def test_two_consumers_share_the_partitions(connection_string: str, hub: str) -> None:
    """With a common store of ownership they share the hub, and every event is read by one of them."""

    async def scenario() -> tuple[set[str], set[str], list[str]]:
        store = AsyncInMemoryCheckpointStore()
        options: dict[str, Any] = {"checkpoint_store": store}
        owners: tuple[set[str], set[str]] = (set(), set())
        results: list[str] = []
        both = asyncio.Event()

        def collector(mine: set[str]) -> Any:
            async def on_event(partition: Any, event: EventData) -> None:
                mine.add(partition.partition_id)
                results.append(event.body_as_str())
                if owners[0] and owners[1] and owners[0] | owners[1] == {"0", "1"}:
                    both.set()

            return on_event

        consumers = [a_consumer(connection_string, hub, **options) for _ in owners]
        tasks = [
            asyncio.create_task(consumer.receive(on_event=collector(mine), starting_position="-1"))
            for consumer, mine in zip(consumers, owners, strict=True)
        ]
        async with a_producer(connection_string, hub) as producer:
            for number in range(400):
                await producer.send_batch([EventData(f"{number}")], partition_id=f"{number % 2}")
                if both.is_set():
                    break
                if number > 20:
                    await asyncio.sleep(0.05)
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*tasks)
        return (*owners, results)

    first, second, results = asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))

    assert first
    assert second
    assert results
