"""A bare TCP relay: the least work that any process between clients and a broker can do.

    python -m bench.load.relay HOST PORT

Prints its own port, then passes bytes on between each client and a connection of its own to the given address, until it
is terminated. It reads nothing of what it passes on. `Relay` runs it as a process beside a benchmark, so that its
processor time can be compared with that of a gateway.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, cast

import uvloop

_END_SECONDS: Final = 10.0
# As in a gateway: above this many unsent bytes the other side is not read.
_HIGH_WATER_BYTES: Final = 1024 * 1024


class _End(asyncio.Protocol):
    """One end of a relayed connection; what it receives goes to its peer."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _End | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_HIGH_WATER_BYTES)

    def join(self, peer: "_End") -> None:
        """Pass on what arrived before the other connection was open, and everything after it."""
        self.peer = peer
        for data in self._early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.peer is None or self.peer.transport is None:
            self._early.append(data)
        else:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


async def _serve(host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def connect(client: _End) -> None:
        _, broker = await loop.create_connection(_End, host, port)
        client.join(broker)
        broker.join(client)

    def accept() -> _End:
        client = _End()
        task = loop.create_task(connect(client))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return client

    server = await loop.create_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Relay:
    """A relay process to one address, for the length of a `with` block."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._target = address
        self._process: subprocess.Popen[str] | None = None
        self.address = ("127.0.0.1", 0)

    def __enter__(self) -> Self:
        host, port = self._target
        command = [sys.executable, "-m", "bench.load.relay", host, str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(_END_SECONDS)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid


def main(arguments: Sequence[str]) -> None:
    host, port = arguments
    uvloop.run(_serve(host, int(port)))


if __name__ == "__main__":
    main(sys.argv[1:])
