"""The contract of logs on the engine of a gateway, with one Kafka broker.

The cases are those of `test_log_contract`, except for what Kafka decides itself: byte offsets (the offset is the
sequence number), the enqueued time of an event, retention, and the order in which watchers are called.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from hubmere.cli.cluster.brokers import BrokersFailed, LocalBrokers, find_jars
from hubmere.cluster.engine.engine import KafkaEngine
from hubmere.cluster.engine.log import KafkaLog
from hubmere.cluster.engine.topics import TopicPlan, Topics
from hubmere.cluster.upstream.connection import Access
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.store.engine import Chunk, LogConfig, LogId, LogState
from store.builders import a_batch
from store.contract import test_log_contract as contract
from store.contract.test_log_contract import (  # noqa: F401  the cases, with the harness of this module
    test_a_failing_callback_does_not_affect_the_others,
    test_a_read_outside_the_log_is_refused_with_its_bounds,
    test_a_receipt_never_completes_inside_the_append_that_returns_it,
    test_an_unsealed_batch_is_sealed_by_the_log,
    test_batches_that_violate_the_format_are_refused,
    test_byte_offsets_are_unique_increasing_and_can_be_found,
    test_byte_offsets_survive_retention,
    test_empty_log_has_no_events,
    test_last_byte_offset_starts_after_the_last_event,
    test_offered_batch_with_a_flipped_byte_is_refused_and_changes_nothing,
    test_read_inside_a_batch_returns_the_whole_batch,
    test_reads_return_complete_batches_in_order_across_segments,
    test_record_count_that_exceeds_the_bytes_is_refused,
    test_sequence_numbers_are_contiguous_from_zero,
    test_small_reads_at_the_end_see_each_commit,
    test_start_position_beyond_the_end_is_refused_with_both_values,
    test_time_inside_a_batch_with_producer_times_finds_the_event,
)

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(1800)]
T = TypeVar("T")
_PATIENCE_S = 240.0


class Turns:
    """The event loop of the engine; it runs while a test waits."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.receipts: list[Receipt] = []

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, _PATIENCE_S))

    def run(self) -> None:
        """Run until every append is acknowledged or refused."""
        self.call(self._until_done())

    async def _until_done(self) -> None:
        while not all(receipt.is_done for receipt in self.receipts):
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


class WaitingLog:
    """A KafkaLog with the synchronous interface of the contract: calls wait for their answers."""

    def __init__(self, log: KafkaLog, turns: Turns) -> None:
        self._log = log
        self._turns = turns

    @property
    def state(self) -> LogState:
        self._turns.call(self._ask(None))
        return self._log.state

    async def _ask(self, position: Position | None) -> None:
        answered = asyncio.Event()
        while not self._log.is_current(position, answered.set):
            await answered.wait()
            answered.clear()

    def append(self, batch: bytearray, now_ms: int, callback: Callable[[Receipt], None] | None = None) -> Receipt:
        receipt = self._turns.call(self._append(batch, now_ms, callback))
        self._turns.receipts.append(receipt)
        return receipt

    async def _append(self, batch: bytearray, now_ms: int, callback: Callable[[Receipt], None] | None) -> Receipt:
        return self._log.append(batch, now_ms, callback)

    def read(self, sequence: int, max_bytes: int) -> Chunk | None:
        return self._turns.call(self._read(sequence, max_bytes))

    async def _read(self, sequence: int, max_bytes: int) -> Chunk | None:
        await self._ask(None)
        moved = asyncio.Event()
        self._log.watch(moved.set)
        try:
            while (chunk := self._log.read(sequence, max_bytes)) is None and sequence != self._log.state.last_stable:
                await moved.wait()
                moved.clear()
            return chunk
        finally:
            self._log.unwatch(moved.set)

    def find(self, position: Position) -> int:
        self._turns.call(self._ask(position))
        return self._log.find(position)

    def trim(self, before_sequence: int) -> None:
        self._turns.call(self._trim(before_sequence))

    async def _trim(self, before_sequence: int) -> None:
        self._log.trim(before_sequence)
        while self._log.state.log_start < before_sequence:
            await asyncio.sleep(0.01)

    def offset_of(self, sequence: int) -> int:
        return self._log.offset_of(sequence)


class KafkaHarness:
    """The same as `LogHarness`, on its own hub."""

    def __init__(self, engine: KafkaEngine, turns: Turns, uid: str, configs: dict[str, LogConfig]) -> None:
        self._engine = engine
        self.owner = turns
        self._uid = uid
        self._configs = configs

    def open(self, config: LogConfig | None = None) -> WaitingLog:
        wanted = self._configs[self._uid] = config or LogConfig()
        return WaitingLog(self.owner.call(self._open(wanted)), self.owner)

    async def _open(self, config: LogConfig) -> KafkaLog:
        return self._engine.log(LogId(f"{self._uid}-0"), config)

    def publish(self, log: WaitingLog, *values: bytes, now_ms: int = 1_000) -> Receipt:
        receipt = log.append(a_batch(values or (b"one",)), now_ms)
        self.owner.run()
        return receipt


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    try:
        find_jars()
    except BrokersFailed as missing:
        pytest.skip(str(missing))
    brokers = LocalBrokers(tmp_path_factory.mktemp("contract"), 1)
    try:
        brokers.start()
        yield "127.0.0.1", brokers.brokers[0].port
    finally:
        brokers.stop()


@pytest.fixture
def harness(broker: tuple[str, int]) -> Iterator[KafkaHarness]:
    turns, uid = Turns(), secrets.token_hex(8)
    configs: dict[str, LogConfig] = {}
    upstream = Upstream([broker], Access(), client_id="contract")
    turns.call(upstream.connect())
    plan = TopicPlan(prefix="contract.", replication=1, in_sync=1)
    engine = KafkaEngine(upstream, Topics(upstream, plan, lambda _: 1, configs.__getitem__))
    yield KafkaHarness(engine, turns, uid, configs)
    turns.call(_close(engine, upstream))
    turns.close()


async def _close(engine: KafkaEngine, upstream: Upstream) -> None:
    engine.close()
    await upstream.close()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position.first(), 2),
        (Position.latest(), 6),
        (Position.sequence(3, inclusive=True), 3),
        (Position.sequence(3), 4),
        (Position.sequence(-1), 2),
        (Position.sequence(6, inclusive=True), 6),
        (Position.offset(-1), 2),
        (Position.time(0), 2),
    ],
)
def test_every_start_position_resolves_between_first_and_end(
    harness: KafkaHarness, position: Position, expected: int
) -> None:
    """As on a disk, except for times, which the broker's clock assigns."""
    contract.test_every_start_position_resolves_between_first_and_end(harness, position, expected)  # type: ignore[arg-type]
