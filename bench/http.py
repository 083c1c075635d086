"""Publishing over HTTP, compared with the same server framework answering 201 without any work, in the same run.

    python -m bench.http [--seconds 4] [--rounds 3] [--connections 64]

It measures single events of 100 bytes over keep-alive connections with `fsync`: requests per second, latency, and the
ratio to the framework alone. Then it measures batches of 1 MB (1 KB events): bytes per second. Server and client are
two processes; rounds alternate, and the best of each is shown, with the CPU time of the server per request, which other
load on the machine changes least. Compare the ratios; absolute numbers depend on the machine.
"""

# ruff: noqa: A005 - only run as `bench.http`

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from hubmere.endpoints.http.server.server import HttpServers
from hubmere.endpoints.listener import bind
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.settings import HubSetting
from hubmere.testing import Node

HUB = "bench"
BODY = b"x" * 100
BATCH_CONNECTIONS = 4
FAR_FUTURE_S = 4_000_000_000
MB = 1_000_000
# Goals for publishing over HTTP.
GOAL_RATIO = 0.6
GOAL_BATCH_MB_PER_S = 60


async def bare_app(_scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Reads the body and answers 201, to measure the framework."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/xml; charset=utf-8"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def serve_bare() -> None:
    """The bare application on a free port, until standard input ends."""
    listening, port = bind("http", "127.0.0.1", 0)
    servers = HttpServers(bare_app)
    await servers.serve("http", listening)
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await servers.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server in a separate process."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """The CPU time of the process so far, its threads included; 0 if the system does not report it."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def bare_server() -> Iterator[Target]:
    """The bare application in a separate process."""
    command = [sys.executable, "-m", "bench.http", "--bare"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Target(port=int(process.stdout.readline()), pid=process.pid)
        process.communicate("")


class Client(asyncio.Protocol):
    """One keep-alive connection that repeats its request as soon as the previous one is answered."""

    def __init__(self, request: bytes, until: float, latencies: list[float], done: asyncio.Event) -> None:
        self._request = request
        self._until = until
        self._latencies = latencies
        self._done = done
        self._sent_at = 0.0
        self._head = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of `asyncio.Transport`, but do not inherit from it.
        self._transport = cast("asyncio.Transport", transport)
        self._again()

    def _again(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if not self._head.endswith(b"\r\n\r\n"):
            return
        assert self._head.startswith(b"HTTP/1.1 201"), self._head
        self._head = b""
        now = time.perf_counter()
        self._latencies.append(now - self._sent_at)
        if now < self._until:
            self._again()
        else:
            self._transport.close()
            self._done.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one round: number of requests, duration, and the latency of each."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float = 0.0


async def measure(port: int, request: bytes, seconds: float, connections: int) -> Result:
    """Keep some connections busy for a while."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    began = time.perf_counter()
    done = [asyncio.Event() for _ in range(connections)]
    for event in done:
        await loop.create_connection(
            lambda event=event: Client(request, began + seconds, latencies, event),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
    for event in done:
        await event.wait()
    elapsed = time.perf_counter() - began
    latencies.sort()
    return Result(
        rate=len(latencies) / elapsed,
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[len(latencies) * 99 // 100] * 1000,
    )


def request(token: str, body: bytes, *headers: str) -> bytes:
    """A POST request as a device sends it."""
    lines = [
        f"POST /{HUB}/messages?api-version=2014-01&timeout=60 HTTP/1.1",
        "Host: localhost",
        f"Authorization: {token}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def a_batch() -> bytes:
    """As many events of 1 KB as fit one publication of 1 MB."""
    event = json.dumps({"Body": "x" * 1000, "UserProperties": {"Sensor": "a-17"}})
    return ("[" + ",".join([event] * (MB // len(event) - 1)) + "]").encode()


def sas(node: Node) -> str:
    """A token for the hub."""
    parts = ConnectionString.parse(node.connection_string)
    assert parts.key_name is not None
    assert parts.key is not None
    return make_token(f"https://localhost/{HUB}", parts.key_name, parts.key, expires_at_s=FAR_FUTURE_S)


def run(target: Target, sent: bytes, seconds: float, connections: int) -> Result:
    """One round on a new event loop, uvloop if it is installed."""
    before = target.cpu_seconds()
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        result = runner.run(measure(target.port, sent, seconds, connections))
    used_s = target.cpu_seconds() - before
    return replace(result, cpu_us=used_s * 1e6 / (result.rate * seconds))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def compare(node: Target, bare: Target, token: str, options: argparse.Namespace) -> None:
    """Measure and print single events, then batches."""
    single = request(token, BODY, "Content-Type: text/plain", "Sensor: a-17")
    rounds = [
        tuple(run(target, single, options.seconds, options.connections) for target in (bare, node))
        for _ in range(options.rounds)
    ]
    best_bare, best = (max(results, key=lambda result: result.rate) for results in zip(*rounds, strict=True))
    print(f"{'single events, 100 B':<28}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'CPU us':>10}")
    for name, result in (("framework, no work", best_bare), ("hubmere, fsync", best)):
        print(f"{name:<28}{result.rate:>12.0f}{result.p50_ms:>10.2f}{result.p99_ms:>10.2f}{result.cpu_us:>10.0f}")
    print(f"{'ratio':<28}{best.rate / best_bare.rate:>12.2f}{'':>20}{best_bare.cpu_us / best.cpu_us:>10.2f}", end="")
    print(f"   (goal: {GOAL_RATIO})")
    body = a_batch()
    batch = request(token, body, "Content-Type: application/vnd.microsoft.servicebus.json")
    results = [run(node, batch, options.seconds, BATCH_CONNECTIONS) for _ in range(options.rounds)]
    fastest = max(results, key=lambda result: result.rate)
    rate = fastest.rate * len(body) / MB
    print(
        f"{'batches of 1 MB, 1 KB events':<28}{rate:>7.0f} MB/s{fastest.p50_ms:>10.2f}{fastest.p99_ms:>10.2f}", end=""
    )
    print(f"{fastest.cpu_us:>10.0f}   (goal: {GOAL_BATCH_MB_PER_S} MB/s)")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            runner.run(serve_bare())
        return
    with Node(hubs=[HubSetting(name=HUB, partition_count=4)]) as node, bare_server() as bare:
        compare(Target(port=int(node.http.rpartition(":")[2]), pid=node.pid), bare, sas(node), options)


if __name__ == "__main__":
    main()
