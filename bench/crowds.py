"""Many clients with one request in flight each, compared with an echo server and with Apache Kafka in the same run.

    python -m bench.crowds [--seconds 2.0] [--rounds 3] [--clients 500] [--warm-up 8.0]

The echo server uses the same event loop as the node and only reads and writes the sockets, which every broker has to
do. The remaining cost of a request is that of the node. Apache Kafka acknowledges from the page cache, as `os` does,
and without sign-in; its row is left out where its jars are missing (`make kafka-jars`). All clients are the same C
code.

Every server gets the load for `--warm-up` seconds before it is measured: Java compiles what is used often, and Apache
Kafka answers five times as many requests after eight seconds of load as in the first two. Then the servers are measured
in turns, and the median of the rounds is shown. Compare the ratios and the CPU time; rates depend on the machine and on
its other load. No round begins after `MAX_SECONDS`.
"""

import argparse
import contextlib
import ctypes
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.load import apache_kafka, lockstep, raw_amqp, raw_kafka
from bench.load.library import BenchFailed, Library
from bench.load.lockstep import ECHO, Answers, Crowd
from bench.load.machine import cpu_seconds, load_average

from hubmere.model.security.connection_string import ConnectionString
from hubmere.settings import HubSetting
from hubmere.testing import Node

HUB: Final = "crowds"
EVENT_BYTES: Final = 100
MAX_SECONDS: Final = 120.0
ECHO_NAME, APACHE_NAME = "echo", "Apache Kafka 4"
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

# CPU time of a server in microseconds per request, and the answers.
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
def apache_crowd(folder: Path, batch: bytes, count: int) -> Iterator[tuple[int, Crowd]]:
    """Producers of Apache Kafka, and its process id."""
    with apache_kafka.apache_kafka(folder, [HUB], _PARTITIONS) as node:
        host, _, port = node.plain.rpartition(":")
        with lockstep.kafka_crowd((host, int(port)), None, HUB, batch, count) as crowd:
            yield node.pid, crowd


@contextlib.contextmanager
def crowds(node: Node, folder: Path, count: int) -> Iterator[dict[str, tuple[int, Crowd]]]:
    """Every kind of client, each with the process that serves it."""
    kafka_host, _, kafka_port = node.kafka.rpartition(":")
    amqp_host, _, amqp_port = node.amqp.rpartition(":")
    kafka_address, password = (kafka_host.rpartition("/")[2], int(kafka_port)), node.connection_string
    key = ConnectionString.parse(node.connection_string)
    address = raw_amqp.Address(
        host=amqp_host.rpartition("/")[2], port=int(amqp_port), user=key.key_name or "", password=key.key or ""
    )
    batch = raw_kafka.a_batch(1, EVENT_BYTES, time.time_ns() // 1_000_000)
    target = f"{HUB}/Partitions/0"
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        served = {
            ECHO_NAME: enter(echo_crowd(count)),
            "Kafka producers": (node.pid, enter(lockstep.kafka_crowd(kafka_address, password, HUB, batch, count))),
            "AMQP producers": (
                node.pid,
                enter(lockstep.amqp_crowd(address, target, raw_amqp.event(EVENT_BYTES), count)),
            ),
        }
        if reason := apache_kafka.missing():
            print(f"without Apache Kafka: {reason}")
        else:
            served[APACHE_NAME] = enter(apache_crowd(folder, batch, count))
        yield served


def measure(library: Library, pid: int, crowd: Crowd, seconds: float) -> Point:
    """One round of one crowd."""
    before = cpu_seconds(pid)
    answers = crowd.run(library, seconds)
    return (cpu_seconds(pid) - before) / answers.count * 1e6, answers


def run_rounds(
    served: dict[str, tuple[int, Crowd]], seconds: float, rounds: int, warm_up_s: float
) -> dict[str, list[Point]]:
    """Warm all servers up, then measure them in turns."""
    points: dict[str, list[Point]] = {}
    began = time.perf_counter()
    with Library(lockstep.SOURCE) as library:
        for _, crowd in served.values():
            crowd.run(library, warm_up_s)
        for number in range(rounds):
            if number and time.perf_counter() - began > MAX_SECONDS:
                print(f"only {number} rounds: the machine is too busy for more in {MAX_SECONDS:.0f} s")
                break
            for name, (pid, crowd) in served.items():
                points.setdefault(name, []).append(measure(library, pid, crowd, seconds))
    return points


def show(points: dict[str, list[Point]]) -> None:
    """The median of each crowd, its CPU time compared with the echo server, and its rate with Apache Kafka."""
    floor = statistics.median(cost for cost, _ in points[ECHO_NAME])
    apache = points.get(APACHE_NAME)
    head = f"{'requests/s':>12}{'µs CPU':>9}{'x echo':>8}{'p50 ms':>9}{'p99 ms':>9}"
    print(f"{'':18}{head}{'x Apache, rate':>16}" if apache else f"{'':18}{head}")
    for name, rounds in points.items():
        cost = statistics.median(cost for cost, _ in rounds)
        rate = statistics.median(answers.rate for _, answers in rounds)
        p50, p99 = (
            statistics.median(getattr(answers, which) for _, answers in rounds) for which in ("p50_ms", "p99_ms")
        )
        ratio = f"{rate / statistics.median(answers.rate for _, answers in apache):16.1f}" if apache else ""
        print(f"{name:18}{rate:12,.0f}{cost:9.1f}{cost / floor:8.1f}{p50:9.1f}{p99:9.1f}{ratio}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--warm-up", type=float, default=8.0, help="seconds of load before the measurement")
    options = parser.parse_args()
    settings: dict[str, str | int | float | bool | Path | list[str]] = {"durability": "os", "as": "unlimited"}
    hubs = [HubSetting(name=HUB, partition_count=_PARTITIONS)]
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-crowds-") as folder,
            Node(hubs=hubs, settings=settings) as node,
            crowds(node, Path(folder), options.clients) as served,
        ):
            points = run_rounds(served, options.seconds, options.rounds, options.warm_up)
    except BenchFailed as failure:
        print(f"not measured: {failure}")
        return 1
    print(f"{options.clients} clients with one request in flight each, durability os, load {load_average():.1f}")
    show(points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
