"""A control log that loads its state again: after an outage in the middle of it, and after the log was trimmed.

The control logs are real; partition and snapshots below them are in memory, and fail when a test says so.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from hubmere.cluster.control.entries import Change, Checkpoint, Entry, Snapshot, Write, encode_entry
from hubmere.cluster.control.state import ControlState, Outcome
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.snapshots import Snapshots
from hubmere.cluster.upstream.failures import RequestRefused
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.records.records import Record
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import EARLIEST_TIMESTAMP

_PATIENCE_S = 240.0


class Topic:
    """The partition of the control log, which begins at `start`, and its last snapshot."""

    def __init__(self, *entries: Entry) -> None:
        self.entries = list(entries)
        self.start = 0
        self.snapshot_at = 0
        self.reads_before_failure: int | None = None

    async def read(self, offset: int, *, wait_ms: int) -> list[Record]:
        """One entry at a time."""
        await asyncio.sleep(0)
        if self.reads_before_failure is not None:
            if not self.reads_before_failure:
                self.reads_before_failure = None
                raise RequestRefused("control", ErrorCode.UNKNOWN_SERVER_ERROR)
            self.reads_before_failure -= 1
        if not self.start <= offset <= len(self.entries):
            raise RequestRefused("control", ErrorCode.OFFSET_OUT_OF_RANGE)
        found = self.entries[offset : offset + 1]
        return [Record(sequence_number=offset, time_ms=0, key=None, value=encode_entry(e), headers=()) for e in found]

    async def end(self, time_ms: int) -> int:
        """Where the log begins or ends."""
        return self.start if time_ms == EARLIEST_TIMESTAMP else len(self.entries)

    def state_at(self, end: int) -> ControlState:
        """The right state before an offset."""
        state = ControlState()
        for offset, entry in enumerate(self.entries[:end]):
            state.apply(offset, entry)
        return state

    async def load(self) -> bytes | None:
        """The snapshot."""
        return self.state_at(self.snapshot_at).encode()


class Gateway(ControlLog):
    """A control log over such a topic; what it appends is lost."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(cast("Upstream", None), "control", replication=1, in_sync=1, now_ms=lambda: 0)
        self._partition, self._snapshots = cast("OnePartition", topic), cast("Snapshots", topic)
        self._is_loading = False
        self.applied: list[int] = []
        self.reloads = 0
        self.listen(self._on_applied)
        self.on_reloaded = self._count

    def _on_applied(self, offset: int, entry: Entry, outcome: Outcome) -> None:
        self.applied.append(offset)

    def _count(self) -> None:
        self.reloads += 1

    def append(self, entry: Entry, on_failed: Callable[[], None] | None = None) -> None:
        """Nobody reads it."""


def a_change(number: int) -> Change:
    return Change(id=str(number), session="s", conditions=(), writes=(Write(key=f"row-{number}", value="x"),))


def run(topic: Topic, gateway: Gateway, *, end: int) -> None:
    """Let a gateway read until it has applied all entries before `end`, or has stopped."""

    async def work() -> None:
        task = asyncio.create_task(gateway._guard(gateway._read_loop()))
        async with asyncio.timeout(_PATIENCE_S):
            while gateway.failure is None and (gateway._must_load is not None or gateway.state.next_offset < end):
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())


@pytest.mark.parametrize("reads", range(8, 13))
def test_broker_that_dies_while_the_state_is_loaded_again_does_not_leave_half_of_it(reads: int) -> None:
    """The whole state is loaded when a broker answers again; listeners must not get an entry a second time."""
    topic = Topic(*(a_change(number) for number in range(3)))
    topic.entries.append(Checkpoint(id="c", session="other"))
    topic.entries += [a_change(number) for number in range(4, 7)]
    right = topic.state_at(4)
    topic.entries.append(Snapshot(id="c", offset=3, digest=right.digest))
    topic.entries += [a_change(number) for number in range(8, 12)]
    topic.snapshot_at, topic.reads_before_failure = 4, reads
    gateway = Gateway(topic)
    gateway.state.rows["nobody wrote this"] = (1, "x")

    run(topic, gateway, end=len(topic.entries))

    assert gateway.state.encode() == topic.state_at(len(topic.entries)).encode()
    assert gateway.applied == list(range(len(topic.entries)))
    assert (gateway.reloads, gateway.failure) == (1, None)


def test_gateway_that_was_cut_off_until_the_log_was_trimmed_loads_the_snapshot() -> None:
    """It was cut off for an hour. A restart would do the same; until then it could not be managed."""
    topic = Topic(*(a_change(number) for number in range(20)))
    gateway = Gateway(topic)
    run(topic, gateway, end=20)
    session = gateway.lease.session
    topic.entries += [a_change(number) for number in range(20, 50)]
    topic.start, topic.snapshot_at = 30, 40

    run(topic, gateway, end=50)

    assert gateway.state.encode() == topic.state_at(50).encode()
    assert (gateway.reloads, gateway.failure) == (1, None)
    assert gateway.lease.session != session


def test_log_that_was_trimmed_without_a_snapshot_stops_the_gateway() -> None:
    """Entries are never skipped silently."""
    topic = Topic(*(a_change(number) for number in range(20)))
    gateway = Gateway(topic)
    run(topic, gateway, end=10)
    topic.start, topic.snapshot_at = 15, 5

    run(topic, gateway, end=20)

    assert gateway.failure is not None
    assert "cannot be read" in gateway.failure


def test_log_whose_topic_was_deleted_stops_the_gateway() -> None:
    """Its entries are numbered from 0 again: they must not be taken for those that were read."""
    topic = Topic(*(a_change(number) for number in range(20)))
    gateway = Gateway(topic)
    run(topic, gateway, end=20)
    del topic.entries[5:]

    run(topic, gateway, end=21)

    assert gateway.failure is not None
    assert "its topic was deleted" in gateway.failure


def test_listener_that_fails_stops_the_gateway_and_is_reported() -> None:
    """The task that reads the log would end silently, and the gateway would be cut off for ever without a reason."""
    topic = Topic(*(a_change(number) for number in range(3)))
    gateway = Gateway(topic)

    def fail(offset: int, entry: Entry, outcome: Outcome) -> None:
        raise KeyError("a defect")

    gateway.listen(fail)

    run(topic, gateway, end=3)

    assert gateway.failure is not None
    assert "entry 0 of the control log" in gateway.failure
