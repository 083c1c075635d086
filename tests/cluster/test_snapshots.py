"""Snapshots of the control log, on one Kafka broker: the log is trimmed, and a later gateway has the same state."""

import asyncio
import secrets
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from hubmere.cli.cluster.brokers import BrokersFailed, LocalBrokers, find_jars
from hubmere.cluster.control import state
from hubmere.cluster.control.entries import Change, Write
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.upstream.connection import Access
from hubmere.cluster.upstream.upstream import Upstream

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(1200)]
T = TypeVar("T")
_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    try:
        find_jars()
    except BrokersFailed as missing:
        pytest.skip(str(missing))
    brokers = LocalBrokers(tmp_path_factory.mktemp("snapshots"), 1)
    try:
        brokers.start()
        yield "127.0.0.1", brokers.brokers[0].port
    finally:
        brokers.stop()


class Gateway:
    """The control log of one gateway."""

    def __init__(self, broker: tuple[str, int], prefix: str) -> None:
        self._upstream = Upstream([broker], Access(), client_id="snapshots")
        self.log = ControlLog(
            self._upstream, f"{prefix}control", replication=1, in_sync=1, now_ms=lambda: 1, snapshot_entries=20
        )

    async def start(self) -> None:
        await self._upstream.connect()
        await self.log.start()
        self.log.begin_session()

    async def write(self, key: str) -> None:
        write = Write(key=key, value="x" * 100)
        self.log.append(Change(id=secrets.token_hex(4), session="s", conditions=(), writes=(write,)))
        await until(lambda: key in self.log.state.rows)

    async def stop(self) -> None:
        await self.log.stop()
        await self._upstream.close()


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 2 * _PATIENCE_S))


def test_gateway_that_starts_after_the_log_was_trimmed_has_the_same_state(broker: tuple[str, int]) -> None:
    """Rows that were written before the log begins are in the snapshot; the digests of all gateways are equal."""

    async def work() -> None:
        prefix = f"{secrets.token_hex(4)}."
        first, second = Gateway(broker, prefix), Gateway(broker, prefix)
        await first.start()
        await second.start()
        for number in range(70):
            await first.write(f"row-{number}")
        # Usually the first gateway trims. On a busy machine the others may have declared it dead meanwhile.
        await until(lambda: first.log.log_start > 0 or second.log.log_start > 0)

        late = Gateway(broker, prefix)
        await late.start()

        assert late.log.log_start > 0
        assert {f"row-{number}" for number in range(70)} <= set(late.log.state.rows)
        await until(lambda: first.log.state.snapshot == late.log.state.snapshot == second.log.state.snapshot)
        assert [each.log.failure for each in (first, second, late)] == [None, None, None]
        for each in (late, second, first):
            await each.stop()

    run(work())


def test_gateway_whose_state_differs_loads_it_again(broker: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong catalog must be detected: the gateway names the entry at which it differed, and is right again."""
    # The oldest session writes the snapshots. On a busy machine it must not be declared dead: the wrong gateway would
    # write the next snapshot, and the right one would differ from it.
    monkeypatch.setattr(state, "MISSED_BEATS", 1_000_000)

    async def work() -> None:
        prefix = f"{secrets.token_hex(4)}."
        first, wrong = Gateway(broker, prefix), Gateway(broker, prefix)
        await first.start()
        await wrong.start()
        before = wrong.log.lease.session
        wrong.log.state.rows["nobody wrote this"] = (1, "x")
        for number in range(30):
            await first.write(f"row-{number}")
            # One that is far behind finds entries deleted, which is another reason to load the state.
            await until(lambda row=f"row-{number}": row in wrong.log.state.rows)

        await until(lambda: wrong.log.reloaded is not None)

        assert wrong.log.reloaded is not None
        assert "the state of this gateway differed from the others' at entry" in wrong.log.reloaded[0]
        assert "nobody wrote this" not in wrong.log.state.rows
        await first.write("after")
        await until(lambda: "after" in wrong.log.state.rows)
        assert [first.log.failure, wrong.log.failure] == [None, None]
        assert wrong.log.lease.session != before
        await until(lambda: wrong.log.lease.session in first.log.state.members)
        await until(lambda: before not in first.log.state.members)
        await wrong.stop()
        await first.stop()

    run(work())


def test_incomplete_snapshot_is_ignored(broker: tuple[str, int]) -> None:
    """The gateway that wrote it was killed: the previous snapshot is used."""

    async def work() -> None:
        prefix = f"{secrets.token_hex(4)}."
        first = Gateway(broker, prefix)
        await first.start()
        for number in range(50):
            await first.write(f"row-{number}")
        await until(lambda: first.log.state.snapshot is not None)
        await first.log._snapshots._append(b"0" * 64 + b"/0/2", b"half of it")
        await first.log._snapshots._append(b"not a part", b"at all")

        late = Gateway(broker, prefix)
        await late.start()

        assert {f"row-{number}" for number in range(50)} <= set(late.log.state.rows)
        await late.stop()
        await first.stop()

    run(work())
