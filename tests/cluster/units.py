"""Three gateways with real meters, boards and shares over a simulated pulse, on a clock that the test turns.

The control log is simulated too: gateways beat, and the others declare one dead that does not.
"""

import random
from dataclasses import dataclass, field

from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.quotas.demand import DemandMeter
from hubmere.broker.quotas.sharing import Sharing
from hubmere.cluster.control.entries import Beat, Entry, Gone, Session
from hubmere.cluster.control.lease import BEAT_SECONDS
from hubmere.cluster.control.state import ControlState
from hubmere.cluster.pulse.board import PulseBoard
from hubmere.cluster.pulse.encoding import decode_pulse, encode_pulse
from hubmere.cluster.pulse.gateways import silent_sessions
from hubmere.model.errors import ServerBusy
from hubmere.model.monitoring.pulse import GatewayPulse
from hubmere.model.spec import NamespaceSpec
from hubmere.model.tier import LimitsBook, Profile, Tier
from model.builders import a_namespace

MB = 1024 * 1024
STEP_S = 0.01
_PULSE_S = 0.5
_TICK_S = 0.1


@dataclass
class Client:
    """Publishes as fast as it may: as a Kafka client, which is delayed, or as an AMQP client, which is refused."""

    gateway: int
    batch_bytes: int = 32 * 1024
    is_refused: bool = False
    retry_s: float = 4.0
    limit_per_s: float = float("inf")
    waits_until: float = 0.0

    def step(self, live: LiveNamespace, now: float) -> int:
        """What it publishes now, in bytes."""
        sent = 0
        while now >= self.waits_until and sent < 16 * MB:
            throughput = live.throughput
            assert throughput is not None
            if self.is_refused:
                try:
                    throughput.require_ingress("hub", self.batch_bytes, 1, now)
                except ServerBusy:
                    self.waits_until = now + self.retry_s
                    break
            throughput.charge_ingress("hub", self.batch_bytes, 1, now)
            sent += self.batch_bytes
            delay_s = 0.0 if self.is_refused else throughput.ingress_delay("hub", now)
            self.waits_until = now + max(delay_s, self.batch_bytes / self.limit_per_s)
        return sent


class Gateway:
    """One gateway of the simulation."""

    def __init__(self, number: int, capacity: int) -> None:
        self.session = f"g{number}"
        limits = LimitsBook(profile=Profile.STANDARD).of(Tier.STANDARD)
        spec = NamespaceSpec(capacity=capacity, auto_inflate=True, maximum_throughput_units=10)
        self.live = LiveNamespace(a_namespace("hubmere", spec=spec), limits, 0.0, is_shared=True)
        namespaces = {"hubmere": self.live}
        self.meter, self.sharing, self.board = DemandMeter(namespaces), Sharing(namespaces), PulseBoard()
        self.number = 0
        self.pulse_at = self.tick_at = 0.0
        self.beat_at = number * BEAT_SECONDS / 3

    def next_pulse(self, now: float) -> bytes | None:
        """The report that is due, if one is."""
        is_tick = now >= self.tick_at
        if is_tick:
            self.tick_at = now + _TICK_S
        if now < self.pulse_at and not (is_tick and self.meter.is_urgent(now)):
            return None
        self.pulse_at = now + _PULSE_S
        self.number += 1
        namespaces, hubs = self.meter.measure(now)
        return encode_pulse(
            GatewayPulse(
                session=self.session,
                number=self.number,
                address="",
                version="",
                applied=0,
                connections=0,
                namespaces=namespaces,
                hubs=hubs,
            )
        )


@dataclass
class Simulation:
    """Runs gateways and clients; `sent` has the bytes of each step and gateway.

    `silent` gateways are cut off from the pulse, but beat; `dead` ones do nothing.
    """

    clients: list[Client]
    capacity: int = 1
    seed: int = 0
    is_pulse_lost: bool = False
    silent: frozenset[int] = frozenset()
    dead: set[int] = field(default_factory=set)
    now: float = 0.0
    sent: list[tuple[float, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.gateways = [Gateway(number, self.capacity) for number in range(3)]
        self.under_way: list[tuple[float, int, bytes]] = []
        self.tick_at = 0.0
        self.control = ControlState()
        for gateway in self.gateways:
            self._append(Session(session=gateway.session, address="", version=""))

    def _append(self, entry: Entry) -> None:
        self.control.apply(self.control.next_offset, entry)

    def run(self, seconds: float) -> None:
        """Run for a while."""
        end = self.now + seconds
        while self.now < end:
            self._beat()
            self._pulse()
            for number, gateway in enumerate(self.gateways):
                gateway.live.counters.connections_opened = sum(client.gateway == number for client in self.clients)
            for client in self.clients:
                self.sent.append((self.now, client.gateway, client.step(self.gateways[client.gateway].live, self.now)))
            self.now += STEP_S

    @property
    def _running(self) -> list[tuple[int, Gateway]]:
        return [(number, gateway) for number, gateway in enumerate(self.gateways) if number not in self.dead]

    def _beat(self) -> None:
        for _, gateway in self._running:
            if self.now >= gateway.beat_at:
                gateway.beat_at = self.now + BEAT_SECONDS
                self._append(Beat(session=gateway.session, number=gateway.number))
            for session in self.control.silent_sessions(gateway.session):
                self._append(Gone(session=session, address="", machine=""))

    def _pulse(self) -> None:
        for number, gateway in self._running:
            pulse = gateway.next_pulse(self.now)
            if pulse is not None and not self.is_pulse_lost and number not in self.silent:
                self.under_way += [
                    (self.now + self.random.uniform(0.01, 0.2), reader, pulse) for reader in range(len(self.gateways))
                ]
        for at, reader, pulse in [each for each in self.under_way if each[0] <= self.now]:
            decoded = decode_pulse(pulse)
            assert decoded is not None
            if reader not in self.silent:
                self.gateways[reader].board.record(decoded, at)
        self.under_way = [each for each in self.under_way if each[0] > self.now]
        if self.now >= self.tick_at:
            self.tick_at = self.now + _TICK_S
            members = [member.session for member in self.control.alive()]
            for _, gateway in self._running:
                gateway.sharing.update(
                    session=gateway.session,
                    members=members,
                    pulses=gateway.board.fresh(self.now),
                    silent=silent_sessions(self.control, gateway.board, self.now, session=gateway.session),
                    now=self.now,
                )

    def amount(self, begin: float, end: float, gateway: int | None = None) -> int:
        """The bytes that were published in a time."""
        return sum(
            size for at, number, size in self.sent if begin <= at < end and (gateway is None or gateway == number)
        )

    def most_in(self, seconds: float) -> int:
        """The most bytes in any time of this length."""
        steps: dict[float, int] = {}
        for at, _, size in self.sent:
            steps[at] = steps.get(at, 0) + size
        sizes, window = list(steps.values()), round(seconds / STEP_S)
        best = running = sum(sizes[:window])
        for old, new in zip(sizes, sizes[window:], strict=False):
            running += new - old
            best = max(best, running)
        return best
