"""Random faults of a cluster, in the order of a seed: gateways and brokers are killed, stopped and frozen, and healed.

One broker and one gateway at most are harmed at the same time: what remains must serve.
"""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.load import Load
from cluster.machines import Machines

_FROZEN_SECONDS = (1.0, 12.0)
# Which connections break: those of one gateway. A client of it may repeat the event that was under way.
_GATEWAY_FAULTS = ("kill gateway", "stop gateway", "freeze gateway")
_BROKER_FAULTS = ("kill broker", "stop broker", "freeze broker")


@dataclass(frozen=True, slots=True)
class Fault:
    """One harm, and how long it lasts if it is a freeze."""

    kind: str
    number: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind} {self.number}" + (f" for {self.seconds:.1f} s" if "freeze" in self.kind else "")


def random_round(chance: random.Random, machines: Machines) -> list[Fault]:
    """A fault of a gateway, of a broker, or of both."""
    gateway = Fault(
        chance.choice(_GATEWAY_FAULTS), chance.randrange(len(machines.gateways)), chance.uniform(*_FROZEN_SECONDS)
    )
    broker = Fault(
        chance.choice(_BROKER_FAULTS), chance.randrange(len(machines.brokers.brokers)), chance.uniform(*_FROZEN_SECONDS)
    )
    return chance.choice(([gateway], [broker], [gateway, broker]))


def begin(machines: Machines, fault: Fault) -> Callable[[], None]:
    """Do harm; returns what heals it."""
    is_gateway = fault.kind.endswith("gateway")
    send = machines.gateways[fault.number].signal if is_gateway else _signals_to(machines, fault.number)
    if fault.kind.startswith("freeze"):
        send(signal.SIGSTOP)
        return lambda: _thaw(machines, fault, send)
    if is_gateway:
        send(signal.SIGKILL if fault.kind.startswith("kill") else signal.SIGTERM)
        return lambda: machines.start_gateway(fault.number)
    if fault.kind.startswith("kill"):
        send(signal.SIGKILL)
    else:
        machines.stop_broker(fault.number)
    return lambda: machines.start_broker(fault.number)


def _signals_to(machines: Machines, number: int) -> Callable[[int], None]:
    return lambda sent: machines.signal_broker(number, sent)


def _thaw(machines: Machines, fault: Fault, send: Callable[[int], None]) -> None:
    time.sleep(fault.seconds)
    send(signal.SIGCONT)
    if fault.kind.endswith("broker"):
        machines.await_sync()


def run_faults(machines: Machines, load: Load, *, seed: int, rounds: int) -> int:
    """Harm and heal; after each round all senders must make progress. Returns how many gateways were harmed."""
    chance = random.Random(seed)
    broken = 0
    for number in range(rounds):
        faults = random_round(chance, machines)
        print(f"round {number + 1} of {rounds}: {', '.join(map(str, faults))}", flush=True)
        heal = []
        try:
            for fault in faults:
                heal.append(begin(machines, fault))
                broken += fault.kind.endswith("gateway")
                time.sleep(chance.uniform(0.0, 2.0))
        finally:
            for mend in heal:
                mend()
        load.await_progress()
    return broken
