"""Two thousand clients at the same time: each has its own connection and link, and none misses an event."""

import asyncio
import resource
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, an_event
from endpoints.amqp.raw_client import RawClient
from hubmere.model.tier import LimitsBook
from hubmere.wire.amqp import ClientCredentials, Connection, EngineOptions, Role
from hubmere.wire.amqp.codec.performatives import Source
from hubmere.wire.amqp.signals import ConnectionOpened, DeliveriesReceived, LinkAttached, SessionBegun

CONNECTIONS = 2000
EVENTS = 25
WAIT_SECONDS = 240
# Both ends of a connection are in this process: sockets, engines, transports, and the test's own future.
MAX_BYTES_PER_CONNECTION = 40_000


class QuietReader(asyncio.Protocol):
    """A client that attaches one reader and counts the events."""

    def __init__(self, options: EngineOptions, source: str, attached: asyncio.Future[None]) -> None:
        self._engine = Connection(Role.CLIENT, options, 0.0)
        self._source = source
        self._attached = attached
        self._transport: asyncio.Transport | None = None
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._engine.open()
        transport.write(self._engine.data_to_send())

    def data_received(self, data: bytes) -> None:
        for signal in self._engine.receive_data(data, 0.0):
            if isinstance(signal, ConnectionOpened):
                self._engine.begin()
            elif isinstance(signal, SessionBegun):
                signal.session.attach("reader", is_sender=False, source=Source(address=self._source), snd_settle_mode=1)
            elif isinstance(signal, LinkAttached):
                signal.link.grant(1000)
                self._attached.set_result(None)
            elif isinstance(signal, DeliveriesReceived):
                self.received += len(signal.ids)
        assert self._transport is not None
        self._transport.write(self._engine.data_to_send())

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()


def _same(reader: QuietReader) -> QuietReader:
    return reader


class Crowd:
    """All clients, on an event loop of the test."""

    def __init__(self, node: AmqpNode) -> None:
        self._node = node
        self.readers: list[QuietReader] = []

    async def __aenter__(self) -> Self:
        options = EngineOptions(
            container_id="crowd",
            hostname="localhost",
            idle_timeout_ms=0,
            credentials=ClientCredentials.plain("RootManageSharedAccessKey", self._node.key),
        )
        loop = asyncio.get_running_loop()
        for first in range(0, CONNECTIONS, 100):
            attached = [loop.create_future() for _ in range(100)]
            for number, ready in enumerate(attached, first):
                source = f"orders/ConsumerGroups/$Default/Partitions/{number % 2}"
                reader = QuietReader(options, source, ready)
                await loop.create_connection(partial(_same, reader), "127.0.0.1", self._node.port)
                self.readers.append(reader)
            await asyncio.wait_for(asyncio.gather(*attached), WAIT_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self.readers:
            reader.close()

    async def all_have(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while any(reader.received < count for reader in self.readers):
                await asyncio.sleep(0.02)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.mark.slow
def test_two_thousand_readers_get_every_event() -> None:
    """Memory stays limited, and each event reaches all readers."""
    book = LimitsBook(overrides={"readers_per_partition": "unlimited"})

    async def scenario(node: AmqpNode) -> tuple[int, list[int]]:
        before = resident_bytes()
        async with Crowd(node) as crowd:
            grown = resident_bytes() - before
            await asyncio.to_thread(publish, node)
            await crowd.all_have(EVENTS)
            async with asyncio.timeout(WAIT_SECONDS):
                while len(node.connections.streams) > CONNECTIONS:  # the publisher's connection is being closed
                    await asyncio.sleep(0.02)
            assert len(node.connections.streams) == CONNECTIONS
            return grown, [reader.received for reader in crowd.readers]

    with AmqpNode(book=book) as node:
        grown, received = asyncio.run(scenario(node))

    assert received == [EVENTS] * CONNECTIONS
    assert grown / CONNECTIONS < MAX_BYTES_PER_CONNECTION


def publish(node: AmqpNode) -> None:
    with RawClient(node) as client:
        client.authorize()
        for partition in (0, 1):
            sender = client.sender(f"orders/Partitions/{partition}")
            client.publish(sender, an_event("single"))
            client.publish(
                sender, a_batch([an_event(f"{number}") for number in range(EVENTS - 1)]), message_format=BATCH_FORMAT
            )
