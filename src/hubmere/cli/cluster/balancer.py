"""One address in front of several gateways: passes TCP connections on, in turns, to those that are healthy.

For trying a cluster out. A real one has a load balancer or DNS in this place.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_CONNECT_SECONDS: Final = 2.0
_CHUNK_BYTES: Final = 256 * 1024
_PROBE_SECONDS: Final = 1.0
_HEALTHY: Final = b" 200 "


class Health:
    """Which gateways answer `/health` with 200. Thread rule: the loop's thread only."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._addresses = list(addresses)
        self._healthy = set(range(len(addresses)))

    def order(self, first: int) -> list[int]:
        """The gateways to try, from one on: healthy ones before the others."""
        count = len(self._addresses)
        turns = [(first + number) % count for number in range(count)]
        return sorted(turns, key=lambda number: number not in self._healthy)

    async def watch(self) -> None:
        """Ask all gateways once a second."""
        while True:
            answers = await asyncio.gather(*(self._probe(host, port) for host, port in self._addresses))
            self._healthy = {number for number, is_healthy in enumerate(answers) if is_healthy}
            await asyncio.sleep(_PROBE_SECONDS)

    async def _probe(self, host: str, port: int) -> bool:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    return _HEALTHY in await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False


class Balancer:
    """Passes connections to one port on to the gateways. Thread rule: the loop's thread only."""

    def __init__(self, targets: Sequence[tuple[str, int]], health: Health) -> None:
        self._targets = list(targets)
        self._health = health
        self._next = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> None:
        """Accept connections on a port of loopback."""
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", port, limit=_CHUNK_BYTES)

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is None:
            return
        far_reader, far_writer = upstream
        ways = [asyncio.create_task(_copy(reader, far_writer)), asyncio.create_task(_copy(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the next gateway that accepts one."""
        self._next += 1
        for number in self._health.order(self._next % len(self._targets)):
            host, port = self._targets[number]
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(host, port, limit=_CHUNK_BYTES)
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
