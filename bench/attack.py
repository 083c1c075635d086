"""Latency of a normal client while one connection floods the node, compared with an idle node.

    python -m bench.attack [--seconds 3] [--only "AMQP empty frames"]

The goal is a p99 below 50 ms under any flood of a single connection on two cores. The node, the flood and the clients
share the machine, so compare each row with the idle row of the same run.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.load.machine import load_average

from hubmere.testing import Node

# The attacks and the normal client are those of the tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from attack.floods import FLOODS, Attack
from attack.normal_client import PROBES, Flood, NormalClient, percentile_ms

GOAL_MS = 50.0
_QUIET = "(quiet)"


@contextlib.contextmanager
def _flooded(node: Node, attack: Attack | None) -> Iterator[Flood | None]:
    if attack is None:
        yield None
        return
    with Flood(attack.connection(node), attack.chunk, reads=not attack.is_tls) as flood:
        yield flood


def measure(node: Node, name: str, seconds: float) -> None:
    """One row: a normal client of each protocol during the attack."""
    with contextlib.ExitStack() as stack:
        flood = stack.enter_context(_flooded(node, FLOODS.get(name)))
        began = time.monotonic()
        clients = [stack.enter_context(NormalClient(node, probe, raises=False)) for probe in PROBES.values()]
        time.sleep(seconds)
        megabytes = 0.0 if flood is None else flood.sent_bytes / 1e6 / (time.monotonic() - began)
        state = "" if flood is None else f"{megabytes:8.2f} MB/s{'' if flood.is_served else ' (closed)'}"
    columns = []
    for client in clients:
        p50, p99 = (percentile_ms(client.latencies_s or [float("nan")], share) for share in (0.5, 0.99))
        columns.append(f"{p50:8.1f} {p99:8.1f} {len(client.latencies_s):6}{'!' if client.error else ' '}")
    print(f"{name:42}" + " | ".join(columns) + f" | {state}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each row")
    parser.add_argument("--only", action="append", choices=list(FLOODS), help="only this attack; may be repeated")
    arguments = parser.parse_args()
    print(f"load average {load_average():.1f}; goal: p99 < {GOAL_MS:g} ms")
    print("p50 and p99 in ms and number of answers (!: one failed), by protocol of the normal client")
    print(f"{'':42}" + " | ".join(f"{protocol:^24}" for protocol in PROBES) + " | flood")
    with Node(hubs=["orders"]) as node:
        measure(node, _QUIET, arguments.seconds)
        for name in arguments.only or FLOODS:
            measure(node, name, arguments.seconds)
        measure(node, _QUIET, arguments.seconds)


if __name__ == "__main__":
    main()
