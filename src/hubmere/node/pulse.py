"""The pulse of a gateway, composed: measures the broker, reports to the other gateways, applies the shares."""

import asyncio
from collections.abc import Callable
from typing import Final

from hubmere import __version__
from hubmere.broker.broker import Broker
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.pulse.board import FRESH_SECONDS, PulseBoard
from hubmere.cluster.pulse.gateways import gateway_statuses, silent_sessions, with_history
from hubmere.cluster.pulse.topic import PulseSource, PulseTopic, log_failure
from hubmere.model.clock import Clock
from hubmere.model.monitoring.pulse import GatewayPulse, GatewayStatus

_SHARE_SECONDS: Final = 0.1
# The topic may have to be created first, and its leader may change.
_FIRST_REPORT_SECONDS: Final = 5 * FRESH_SECONDS


class PulseService:
    """Reports and shares of one gateway. Thread rule: the loop's thread only."""

    def __init__(
        self, partition: OnePartition, control: ControlLog, broker: Broker, clock: Clock, *, address: str
    ) -> None:
        self.board = PulseBoard()
        self._control = control
        self._broker = broker
        self._clock = clock
        self._address = address
        self._number = 0
        self._began_at = 0.0
        source = PulseSource(next_pulse=self._next_pulse, is_urgent=self._is_urgent, now_ms=clock.now_ms)
        self._topic = PulseTopic(partition, self.board, source)
        self._task: asyncio.Task[None] | None = None
        control.reported_address = self._address_of

    def _address_of(self, session: str) -> str | None:
        heard = self.board.find(session)
        return None if heard is None else heard.pulse.address

    def gateways(self) -> list[GatewayStatus]:
        """All gateways of the cluster."""
        now, session = asyncio.get_running_loop().time(), self._control.lease.session
        alive = gateway_statuses(self._control.state, self.board, now, session=session)
        return with_history(alive, self._control.state, self._control.history, self._clock.now_ms())

    @property
    def is_silent(self) -> bool:
        """Whether this gateway does not read its own reports, long after it began to write them."""
        now = asyncio.get_running_loop().time()
        if now - self._began_at < _FIRST_REPORT_SECONDS:
            return False
        heard = self.board.find(self._control.lease.session)
        return heard is None or now - heard.heard_at > _FIRST_REPORT_SECONDS

    def start(self) -> None:
        """Begin to report, to read, and to apply shares."""
        self._began_at = asyncio.get_running_loop().time()
        self._apply_shares()
        self._topic.start()
        self._task = asyncio.create_task(_repeat(self._apply_shares))
        self._task.add_done_callback(log_failure)

    async def stop(self) -> None:
        """Stop reporting, reading and applying shares."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._topic.stop()

    def _next_pulse(self) -> GatewayPulse:
        assert self._broker.demand is not None
        namespaces, hubs = self._broker.demand.measure(self._clock.monotonic())
        self._number += 1
        return GatewayPulse(
            session=self._control.lease.session,
            number=self._number,
            address=self._address,
            version=__version__,
            applied=self._control.state.next_offset,
            connections=self._broker.counters.active_connections,
            namespaces=namespaces,
            hubs=hubs,
        )

    def _is_urgent(self) -> bool:
        assert self._broker.demand is not None
        return self._broker.demand.is_urgent(self._clock.monotonic())

    def _apply_shares(self) -> None:
        assert self._broker.sharing is not None
        state, session, now = self._control.state, self._control.lease.session, asyncio.get_running_loop().time()
        self._broker.sharing.update(
            session=session,
            members=[member.session for member in state.alive()],
            pulses=self.board.fresh(now),
            silent=silent_sessions(state, self.board, now, session=session),
            now=self._clock.monotonic(),
        )


async def _repeat(work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(_SHARE_SECONDS)
        work()
