"""Three gateways over one ordered log, with delays, freezes and skewed clocks; they compete for one exclusive reader.

`overlaps` counts the steps at which two gateways could deliver to that reader at the same time. The gateways run the
real `ControlState` and `Lease`; weaker rules are subclasses of them.
"""

import random
from dataclasses import dataclass, field

from hubmere.cluster.control.entries import Claim, Entry, Gone, Release, Session
from hubmere.cluster.control.lease import EventKind, Lease
from hubmere.cluster.control.state import ControlState, Outcome

STEP_S = 0.02
STEPS = 1_500
PLACE = "hub/$default/0"


@dataclass
class Rules:
    """The implementations that a simulation runs."""

    lease: type[Lease] = Lease


@dataclass
class Gateway:
    """One gateway: its own copy of the state, its claims, and its clock."""

    name: str
    skew: float
    lease: Lease
    state: ControlState = field(default_factory=ControlState)
    frozen_until: int = 0
    reads_after: int = 0
    generation: int = 0
    claims: int = 0
    held: str | None = None
    granted: bool = False

    def now(self, step: int) -> float:
        return step * STEP_S * self.skew


class Simulation:
    """One schedule, given by its seed."""

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.random = random.Random(seed)
        self.log: list[Entry] = []
        self.under_way: list[tuple[int, int, Entry]] = []
        self.sent = 0
        self.gateways = [self._gateway(name) for name in "abc"]
        self.overlaps = 0
        self.delivering_steps = 0
        self.epoch = 0

    def _gateway(self, name: str) -> Gateway:
        gateway = Gateway(name=name, skew=1 + self.random.uniform(-0.02, 0.02), lease=self.rules.lease(f"{name}0"))
        self._send(0, Session(session=f"{name}0"), delay_s=0.0)
        return gateway

    def _send(self, step: int, entry: Entry, delay_s: float | None = None) -> None:
        if delay_s is None:
            delay_s = self.random.choice((0.02, 0.02, 0.04, 0.1, self.random.uniform(0, 1.5)))
        self.sent += 1
        self.under_way.append((step + round(delay_s / STEP_S), self.sent, entry))

    def run(self) -> "Simulation":
        for step in range(STEPS):
            self._append(step)
            for gateway in self.gateways:
                if step >= gateway.frozen_until:
                    self._turn(gateway, step)
            delivering = sum(self._delivers(gateway, step) for gateway in self.gateways)
            self.overlaps += delivering > 1
            self.delivering_steps += delivering == 1
        return self

    def _append(self, step: int) -> None:
        due = sorted(item for item in self.under_way if item[0] <= step)
        self.under_way = [item for item in self.under_way if item[0] > step]
        self.log += [entry for _, _, entry in due]

    def _turn(self, gateway: Gateway, step: int) -> None:
        now = gateway.now(step)
        if self.random.random() < 0.002:
            gateway.frozen_until = step + round(self.random.uniform(0.5, 8) / STEP_S)
            # A process that continues after a freeze does not read at once: it must connect again.
            gateway.reads_after = gateway.frozen_until + self.random.randrange(60)
            return
        if self.random.random() < 0.01:
            gateway.reads_after = step + self.random.randrange(60)
        elif self.random.random() < 0.001:
            # A broker that lost its leadership answers reads with no new data, for longer than a lease.
            gateway.reads_after = step + self.random.randrange(400)
        if step >= gateway.reads_after:
            self._read(gateway, step)
        for event in gateway.lease.advance(now):
            self._on_event(gateway, step, event.kind, event.id)
        beat = gateway.lease.beat(now)
        if beat is not None:
            self._send(step, beat)
        for silent in gateway.state.silent_sessions(gateway.lease.session):
            if self.random.random() < 0.2:
                self._send(step, Gone(session=silent))
        self._claim_or_release(gateway, step)

    def _claim_or_release(self, gateway: Gateway, step: int) -> None:
        if gateway.lease.is_gone:
            gateway.generation += 1
            gateway.lease = self.rules.lease(f"{gateway.name}{gateway.generation}")
            self._send(step, Session(session=gateway.lease.session))
        elif gateway.held is None and self.random.random() < 0.01:
            self.epoch += self.random.choice((0, 1))
            gateway.claims += 1
            gateway.held, gateway.granted = f"{gateway.lease.session}.{gateway.claims}", False
            claim = Claim(
                id=gateway.held, session=gateway.lease.session, place=PLACE, epoch=self.epoch, name=gateway.name
            )
            self._send(step, claim)
        elif gateway.granted and self.random.random() < 0.002:
            self._give_up(gateway, step)

    def _read(self, gateway: Gateway, step: int) -> None:
        for offset in range(gateway.state.next_offset, len(self.log)):
            entry = self.log[offset]
            outcome: Outcome = gateway.state.apply(offset, entry)
            for event in gateway.lease.observe(entry, outcome, gateway.now(step)):
                self._on_event(gateway, step, event.kind, event.id)

    def _on_event(self, gateway: Gateway, step: int, kind: EventKind, claim_id: str) -> None:
        if kind is EventKind.GRANTED and gateway.held == claim_id:
            gateway.granted = True
        elif kind is EventKind.REFUSED and gateway.held == claim_id:
            gateway.held = None
        elif kind is EventKind.DISPLACED:
            if gateway.held == claim_id:
                gateway.held, gateway.granted = None, False
            self._send(step, Release(id=claim_id))

    def _give_up(self, gateway: Gateway, step: int) -> None:
        assert gateway.held is not None
        gateway.lease.forget(gateway.held)
        self._send(step, Release(id=gateway.held))
        gateway.held, gateway.granted = None, False

    def _delivers(self, gateway: Gateway, step: int) -> bool:
        # A frozen process delivers nothing; the check applies when it runs.
        return step >= gateway.frozen_until and gateway.granted and gateway.lease.is_held(gateway.now(step))
