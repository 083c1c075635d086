"""Many clients with one request in flight each, compared with an echo server on the same event loop in the same run.

    python -m bench.crowds [--seconds 2.0] [--rounds 3] [--clients 500]

The echo server does what no broker can do without: it reads and writes the sockets. The rest of the cost of a request
is that of the node. The servers are measured in turns, and the median of the rounds is shown. Read the ratios and the
processor time; rates depend on the machine and on who else uses it.
"""

import argparse
import contextlib
import ctypes
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.load import lockstep, raw_amqp, raw_kafka
from bench.load.library import BenchFailed, Library
from bench.load.lockstep import ECHO, Answers, Crowd
from bench.load.machine import cpu_seconds, load_average

from hubmere.model.connection_string import ConnectionString
from hubmere.settings import HubSetting
from hubmere.testing import Node

HUB: Final = "crowds"
EVENT_BYTES: Final = 100
_PARTITIONS: Final = 4
# A request of about the size of a Kafka request with one event.
_ECHO_BYTES: Final = 220
_ECHO_SERVER: Final = """
import asyncio, sys
try:
    from uvloop import run
except ImportError:
    from asyncio import run
SCRATCH = memoryview(bytearray(1 << 18))
class Echo(asyncio.BufferedProtocol):
    def connection_made(self, transport): self.transport = transport
    def get_buffer(self, hint): return SCRATCH
    def buffer_updated(self, count): self.transport.write(bytes(SCRATCH[:count]))
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
run(main())
"""

# Processor time of a server in microseconds for each request, and the answers.
Point = tuple[float, Answers]


@contextlib.contextmanager
def echo_crowd(count: int) -> Iterator[tuple[int, Crowd]]:
    """Clients of an echo server, and its process id."""
    server = subprocess.Popen([sys.executable, "-c", _ECHO_SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
            request = (_ECHO_BYTES).to_bytes(4, "big") + bytes(_ECHO_BYTES)
            fds, next_ids = [each.fileno() for each in sockets], (ctypes.c_uint32 * count)()
            yield server.pid, Crowd(fds=fds, next_ids=next_ids, request=request, id_places=[4], protocol=ECHO)
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


@contextlib.contextmanager
def crowds(node: Node, count: int) -> Iterator[dict[str, tuple[int, Crowd]]]:
    """Every kind of client, each with the process that serves it."""
    kafka_host, _, kafka_port = node.kafka.rpartition(":")
    amqp_host, _, amqp_port = node.amqp.rpartition(":")
    place, password = (kafka_host.rpartition("/")[2], int(kafka_port)), node.connection_string
    key = ConnectionString.parse(node.connection_string)
    address = raw_amqp.Address(
        host=amqp_host.rpartition("/")[2], port=int(amqp_port), user=key.key_name or "", password=key.key or ""
    )
    batch = raw_kafka.a_batch(1, EVENT_BYTES, time.time_ns() // 1_000_000)
    target = f"{HUB}/Partitions/0"
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        yield {
            "echo": enter(echo_crowd(count)),
            "Kafka producers": (node.pid, enter(lockstep.kafka_crowd(place, password, HUB, batch, count))),
            "AMQP producers": (
                node.pid,
                enter(lockstep.amqp_crowd(address, target, raw_amqp.event(EVENT_BYTES), count)),
            ),
        }


def measure(library: Library, pid: int, crowd: Crowd, seconds: float) -> Point:
    """One round of one crowd."""
    before = cpu_seconds(pid)
    answers = crowd.run(library, seconds)
    return (cpu_seconds(pid) - before) / answers.count * 1e6, answers


def show(points: dict[str, list[Point]]) -> None:
    """The median of each crowd, and its processor time as a multiple of the echo server's."""
    floor = statistics.median(cost for cost, _ in points["echo"])
    print(f"{'':18}{'requests/s':>12}{'µs CPU':>9}{'x echo':>8}{'p50 ms':>9}{'p99 ms':>9}")
    for name, rounds in points.items():
        cost = statistics.median(cost for cost, _ in rounds)
        rate = statistics.median(answers.rate for _, answers in rounds)
        p50, p99 = (
            statistics.median(getattr(answers, which) for _, answers in rounds) for which in ("p50_ms", "p99_ms")
        )
        print(f"{name:18}{rate:12,.0f}{cost:9.1f}{cost / floor:8.1f}{p50:9.1f}{p99:9.1f}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=500)
    options = parser.parse_args()
    settings: dict[str, str | int | float | bool | Path | list[str]] = {"durability": "os", "as": "unlimited"}
    hubs = [HubSetting(name=HUB, partition_count=_PARTITIONS)]
    points: dict[str, list[Point]] = {}
    try:
        with (
            Library(lockstep.SOURCE) as library,
            Node(hubs=hubs, settings=settings) as node,
            crowds(node, options.clients) as served,
        ):
            for _ in range(options.rounds):
                for name, (pid, crowd) in served.items():
                    points.setdefault(name, []).append(measure(library, pid, crowd, options.seconds))
    except BenchFailed as failure:
        print(f"not measured: {failure}")
        return 1
    print(f"{options.clients} clients with one request in flight each, durability os, load {load_average():.1f}")
    show(points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
