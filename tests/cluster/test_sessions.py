"""Sessions of gateways on the control log: entries that could not be appended must not stop a gateway for ever.

The control logs are real; the partition below them is a list in memory that loses what a test tells it to lose.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from hubmere.cluster.control.entries import Beat, Claim, Entry, Gone, Release, Session, encode_entry
from hubmere.cluster.control.lease import EventKind
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.records.records import Record

_PATIENCE_S = 120.0
_TICK_S = 0.01


class MemoryLog:
    """The partition of the control log. `loses` says which entries cannot be appended."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.loses: Callable[[Entry], bool] = lambda _: False
        self.lost: list[Entry] = []

    def append(self, entry: Entry, on_failed: Callable[[], None] | None) -> None:
        if not self.loses(entry):
            self.entries.append(entry)
            return
        self.lost.append(entry)
        if on_failed is not None:
            asyncio.get_running_loop().call_soon(on_failed)

    def count(self, kind: type[Entry]) -> int:
        return sum(isinstance(entry, kind) for entry in self.entries)


class Gateway(ControlLog):
    """A control log over the list."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(cast("Upstream", None), "test-control", replication=1, in_sync=1, now_ms=lambda: 0)
        self._log = log
        self._is_loading = False
        self.granted: list[str] = []
        self.listen_to_claims(lambda event: self.granted.append(event.id) if event.kind is EventKind.GRANTED else None)

    def append(self, entry: Entry, on_failed: Callable[[], None] | None = None) -> None:
        self._log.append(entry, on_failed)

    async def _read_once(self) -> None:
        for offset in range(self._read_to, len(self._log.entries)):
            value = encode_entry(self._log.entries[offset])
            self._read_to = offset + 1
            self._apply(Record(sequence_number=offset, time_ms=0, key=None, value=value, headers=()))
        await asyncio.sleep(_TICK_S)

    async def serve(self) -> None:
        """Read the log and begin a session."""
        self._tasks.append(asyncio.create_task(self._read_loop()))
        self.begin_session()

    @property
    def is_served(self) -> bool:
        """Whether the cluster knows its session."""
        return self.has_lease and self.lease.session in self.state.members


def run(scenario: Callable[[MemoryLog, Gateway], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        log = MemoryLog()
        gateway = Gateway(log)
        try:
            await asyncio.wait_for(scenario(log, gateway), _PATIENCE_S)
        finally:
            await gateway.stop()

    asyncio.run(work())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(_TICK_S)


def test_gateway_begins_again_when_its_session_was_never_appended() -> None:
    """Else all its exclusive readers are refused for ever: the brokers were down while it began."""

    async def scenario(log: MemoryLog, gateway: Gateway) -> None:
        log.loses = lambda entry: isinstance(entry, Session)
        await gateway.serve()
        await until(lambda: bool(log.lost) and log.count(Beat) > 0)

        log.loses = lambda _: False

        await until(lambda: gateway.is_served)

    run(scenario)


def test_release_that_was_not_appended_is_appended_again() -> None:
    """Else the place is taken for as long as the gateway runs, by a reader that has gone."""

    async def scenario(log: MemoryLog, gateway: Gateway) -> None:
        await gateway.serve()
        await until(lambda: gateway.is_served)
        gateway.append(Claim(id="mine", session=gateway.lease.session, place="hub/0/g", epoch=1, name="r"))
        await until(lambda: "mine" in gateway.granted)
        log.loses = lambda entry: isinstance(entry, Release)
        gateway.release("mine")
        await until(lambda: bool(log.lost))

        log.loses = lambda _: False

        await until(lambda: not gateway.state.places)

    run(scenario)


def test_gateway_that_becomes_silent_again_is_declared_dead_again() -> None:
    """The first declaration comes too late: the gateway has sent a beat meanwhile, and goes silent after it."""

    async def scenario(log: MemoryLog, gateway: Gateway) -> None:
        await gateway.serve()
        log.append(Session(session="other"), None)

        def beat_before_the_first_gone(entry: Entry) -> bool:
            if isinstance(entry, Gone) and not log.count(Gone):
                log.entries.append(Beat(session="other", number=1))
            return False

        log.loses = beat_before_the_first_gone
        await until(lambda: log.count(Gone) == 1)

        await until(lambda: log.count(Gone) == 2)

        await until(lambda: [each.session for each in gateway.state.alive()] == [gateway.lease.session])

    run(scenario)


def test_declaration_that_was_not_appended_is_appended_again() -> None:
    """Else the places of a dead gateway stay taken."""

    async def scenario(log: MemoryLog, gateway: Gateway) -> None:
        await gateway.serve()
        log.append(Session(session="other"), None)
        log.loses = lambda entry: isinstance(entry, Gone) and not log.lost

        await until(lambda: [each.session for each in gateway.state.alive()] == [gateway.lease.session])

        assert log.lost == [Gone(session="other")]

    run(scenario)
