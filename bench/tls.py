"""What TLS costs on an event loop without a broker: a server that sends prepared blocks, plain and over TLS in turns.

`python -m bench.tls` prints both rates and their ratio. A node that consumes at a plain rate cannot be faster over TLS
than its own cost and this cost together: the last line computes that ceiling from `--plain`, the rate of `bench.kafka`.
"""

import argparse
import asyncio
import multiprocessing
import socket
import ssl
import statistics
import tempfile
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import uvloop
from bench.load.machine import MB, load_average

from hubmere.endpoints.certificates import build_ca, build_server_certificate, server_context

# As large as the pieces of a node's responses over TLS.
_BLOCK_BYTES = 256 * 1024
_TOTAL_BYTES = 400 * MB


class _Sender(asyncio.Protocol):
    """Sends prepared blocks for each byte that arrives."""

    def __init__(self) -> None:
        self._block = bytes(_BLOCK_BYTES)
        self._remaining = 0
        self._is_paused = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._remaining += _TOTAL_BYTES * len(data)
        self._send()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        while self._remaining > 0 and not self._is_paused:
            self._transport.write(self._block)
            self._remaining -= _BLOCK_BYTES


def _serve(folder: Path, ports: Connection) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        context = server_context(folder / "certificate", folder / "key")
        servers = [await loop.create_server(_Sender, "127.0.0.1", 0, ssl=each) for each in (None, context)]
        ports.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.gather(*(server.serve_forever() for server in servers))

    uvloop.run(work())


def _read(connection: socket.socket, buffer: bytearray) -> float:
    """Megabytes per second."""
    remaining, began = _TOTAL_BYTES, time.perf_counter()
    connection.sendall(b"x")
    while remaining > 0:
        count = connection.recv_into(buffer)
        if not count:
            raise ConnectionError("the server has closed the connection")
        remaining -= count
    return _TOTAL_BYTES / MB / (time.perf_counter() - began)


def measure(port: int, tls_port: int, rounds: int) -> list[tuple[float, float]]:
    """Plain and TLS rates; each round has connections of its own."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    buffer, rates = bytearray(_BLOCK_BYTES), []
    for _ in range(rounds):
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain_rate = _read(plain, buffer)
        with context.wrap_socket(socket.create_connection(("127.0.0.1", tls_port))) as secure:
            rates.append((plain_rate, _read(secure, buffer)))
    return rates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plain", type=float, default=1400.0, help="MB/s that a node's consumer reads without TLS")
    options = parser.parse_args()
    now = datetime.now(UTC)
    ca = build_ca(now)
    identity = build_server_certificate(ca, ["localhost"], now)
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as name:
        folder = Path(name)
        (folder / "certificate").write_bytes(identity.certificate)
        (folder / "key").write_bytes(identity.key)
        ports, child = multiprocessing.Pipe()
        server = multiprocessing.Process(target=_serve, args=(folder, child), daemon=True)
        server.start()
        port, tls_port = ports.recv()
        rates = measure(port, tls_port, options.rounds)
        server.terminate()
        server.join()
    plain, secure = (statistics.median(each) for each in zip(*rates, strict=True))
    ratio = statistics.median(tls / raw for raw, tls in rates)
    cost_s = 1 / secure - 1 / plain
    ceiling = 1 / (1 / options.plain + cost_s) / options.plain
    print(f"load average {load_average():.1f}; {options.rounds} rounds of {_TOTAL_BYTES // MB} MB, medians")
    print(f"  bare server, plain / TLS      {plain:8,.0f} / {secure:,.0f} MB/s   ratio {ratio:.2f}")
    costs = f"TLS costs {cost_s * 1000:.2f} ms/MB"
    print(f"  {costs}: with {options.plain:,.0f} MB/s plain, a node reaches {ceiling:.2f} of it")


if __name__ == "__main__":
    main()
