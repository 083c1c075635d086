"""Appends to a partition whose leader fails at random: acknowledged events are there once, in order.

`Leader` follows Kafka's rules for numbered batches: it drops repeats of the last five, and refuses gaps.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from hubmere.cluster.engine import appends as appends_module
from hubmere.cluster.engine.appends import Appended, PartitionAppends, _Append
from hubmere.cluster.upstream.failures import BrokerUnreachable
from hubmere.model.errors import ClusterBusy, HubDamaged, InvalidBatch
from hubmere.model.receipt import Receipt
from hubmere.records.header import NO_PRODUCER, UNSEALED, is_intact, read_header, seal, write_header
from hubmere.records.records import Record, decode_records, encode_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)

T = TypeVar("T")


class Leader:
    """A partition's leader, and the connection to it."""

    def __init__(self, seed: int = 0, *, failures: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.failures = failures
        self.values: list[bytes] = []
        self.requests = 0
        self._recent: dict[int, list[tuple[int, int, int]]] = {}
        self._next_producer = 100
        self.code: int | None = None
        self.is_down = False

    async def connect(self) -> "Leader":
        await asyncio.sleep(0)
        if self.is_down:
            raise BrokerUnreachable("b:1", "down")
        return self

    async def take_producer(self) -> tuple[int, int]:
        self._next_producer += 1
        return self._next_producer, 0

    def close(self, why: str = "") -> None:
        """Nothing to close."""

    def send(self, request: ProduceRequest) -> "asyncio.Future[Any]":
        self.requests += 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        loop.call_soon(self._handle, request, future)
        return future

    def _handle(self, request: ProduceRequest, future: "asyncio.Future[Any]") -> None:
        chance = self.random.random()
        if chance < self.failures / 2:
            # The request never arrived.
            future.set_exception(BrokerUnreachable("b:1", "lost"))
            return
        records = request.topics[0].partitions[0].records
        assert isinstance(records, bytearray)
        batch = bytes(records)
        code, offset = (self.code, -1) if self.code is not None else self._append(batch)
        if chance < self.failures:
            # It was carried out, and the answer was lost.
            future.set_exception(BrokerUnreachable("b:1", "lost"))
            return
        part = ProducePartitionResponse(index=0, error_code=code, base_offset=offset, log_append_time_ms=1)
        future.set_result(ProduceResponse(topics=(ProduceTopicResponse(name="t", partitions=(part,)),)))

    def _append(self, batch: bytes) -> tuple[int, int]:
        assert is_intact(batch)
        header = read_header(batch)
        offset = len(self.values)
        if header.producer_id != NO_PRODUCER:
            recent = self._recent.setdefault(header.producer_id, [])
            first, last = header.producer_sequence, header.producer_sequence + header.last_delta
            for known_first, known_last, known_offset in recent:
                if (known_first, known_last) == (first, last):
                    return ErrorCode.NONE, known_offset
            if first != (recent[-1][1] + 1 if recent else 0):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self._recent[header.producer_id] = [*recent, (first, last, offset)][-5:]
        self.values += [record.value or b"" for record in decode_records(batch)]
        return ErrorCode.NONE, offset


def a_batch(*values: bytes, is_own: bool = True) -> bytearray:
    records = [
        Record(sequence_number=number, time_ms=1, key=None, value=value, headers=())
        for number, value in enumerate(values)
    ]
    batch = encode_batch(records)
    if is_own:
        write_header(batch, read_header(batch)._replace(crc=UNSEALED))
    return batch


class Publications:
    """Publications to one partition, and their outcomes."""

    def __init__(self, leader: Leader, kind: type[PartitionAppends] = PartitionAppends) -> None:
        self.acknowledged: list[tuple[bytes, int]] = []
        self.refused: list[tuple[bytes, Exception]] = []
        self.waiting_bytes = 0
        self.ends: list[Appended] = []
        self.appends = kind(
            0,
            connect=leader.connect,  # type: ignore[arg-type]
            take_producer=leader.take_producer,
            on_appended=self.ends.append,
            count_bytes=self._count,
        )
        self.appends.topic = "t"

    def _count(self, size_bytes: int) -> None:
        self.waiting_bytes += size_bytes

    def publish(self, value: bytes, *, is_own: bool = True) -> None:
        batch = a_batch(value, is_own=is_own)

        def done(receipt: Receipt) -> None:
            if receipt.error is None:
                self.acknowledged.append((value, receipt.sequence_number))
            else:
                self.refused.append((value, receipt.error))

        self.appends.add(batch, Receipt(1, len(batch), done), is_own=is_own, transactional_id=None)

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            while not self.appends.is_idle:
                await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends_module, "_PAUSE_S", 0.0)


async def _publish_under_failures(seed: int, kind: type[PartitionAppends]) -> tuple[Leader, Publications]:
    leader = Leader(seed, failures=0.3)
    publications = Publications(leader, kind)
    for number in range(60):
        publications.publish(b"%d" % number)
        if leader.random.random() < 0.5:
            await asyncio.sleep(0)
    await publications.settle()
    return leader, publications


@pytest.mark.parametrize("seed", range(30))
def test_a_retry_never_duplicates_or_reorders_an_event(seed: int) -> None:
    """Requests and answers get lost at random: each of the gateway's own events is stored once, in order."""
    leader, publications = run(_publish_under_failures(seed, PartitionAppends))

    expected = [b"%d" % number for number in range(60)]
    assert leader.values == expected
    assert publications.acknowledged == [(value, at) for at, value in enumerate(expected)]
    assert publications.waiting_bytes == 0


class WithoutNumbers(PartitionAppends):
    """A known bad build: batches are sent again without a producer's numbers."""

    def _stamp(self, append: _Append) -> None:
        super()._stamp(append)
        header = read_header(append.batch)
        write_header(append.batch, header._replace(producer_id=NO_PRODUCER, producer_epoch=-1, producer_sequence=-1))
        seal(append.batch)


def test_a_build_that_retries_without_numbers_is_caught() -> None:
    """The runs above can fail: without numbers events appear twice."""
    runs = [run(_publish_under_failures(seed, WithoutNumbers))[0] for seed in range(10)]

    assert any(len(leader.values) > len(set(leader.values)) for leader in runs)


def test_waiting_batches_share_a_request() -> None:
    """A broker takes one batch per request: what waits meanwhile goes into one."""

    async def work() -> Leader:
        leader = Leader()
        publications = Publications(leader)
        for number in range(200):
            publications.publish(b"%d" % number)
        await publications.settle()
        assert [at for _, at in publications.acknowledged] == list(range(200))
        return leader

    assert run(work()).requests < 10


def test_a_batch_of_a_client_is_never_sent_again() -> None:
    """The client retries under its own numbers; a retry by the gateway could reorder its events."""

    async def work() -> tuple[Leader, Publications]:
        leader = Leader(failures=1.0)
        publications = Publications(leader)
        publications.publish(b"client", is_own=False)
        await publications.settle()
        return leader, publications

    leader, publications = run(work())

    assert leader.requests == 1
    assert isinstance(publications.refused[0][1], ClusterBusy)


def test_a_batch_that_the_broker_refuses_does_not_stop_those_behind_it() -> None:
    """Its numbers are never used: what follows gets new ones."""

    async def work() -> tuple[Leader, Publications]:
        leader = Leader()
        publications = Publications(leader)
        leader.code = ErrorCode.MESSAGE_TOO_LARGE
        publications.publish(b"too large")
        await publications.settle()
        leader.code = None
        publications.publish(b"fine")
        await publications.settle()
        return leader, publications

    leader, publications = run(work())

    assert isinstance(publications.refused[0][1], InvalidBatch)
    assert leader.values == [b"fine"]


@pytest.mark.parametrize("down", ["no broker", "too few replicas"])
def test_publications_are_refused_while_the_cluster_is_down(down: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds the client hears that the server is busy, and nothing piles up in memory."""
    monkeypatch.setattr(appends_module, "_REFUSED_SECONDS", 0.05)

    async def work() -> tuple[Leader, Publications]:
        leader = Leader()
        publications = Publications(leader)
        leader.is_down = down == "no broker"
        leader.code = ErrorCode.NOT_ENOUGH_REPLICAS
        publications.publish(b"lost")
        await publications.settle()
        leader.is_down, leader.code = False, None
        publications.publish(b"later")
        await publications.settle()
        return leader, publications

    leader, publications = run(work())

    assert isinstance(publications.refused[0][1], ClusterBusy)
    assert leader.values == [b"later"]
    assert publications.waiting_bytes == 0


def test_a_failing_callback_does_not_reach_those_in_the_same_request() -> None:
    """Publications of several connections share a request: the fault of one must not leave the others waiting."""

    async def work() -> Publications:
        publications = Publications(Leader())
        batch = a_batch(b"broken")

        def fail(_: Receipt) -> None:
            raise RuntimeError("a broken connection")

        publications.appends.add(batch, Receipt(1, len(batch), fail), is_own=True, transactional_id=None)
        publications.publish(b"fine")
        await publications.settle()
        return publications

    assert run(work()).acknowledged == [(b"fine", 1)]


def test_a_partition_that_begins_again_is_not_acknowledged() -> None:
    """Somebody deleted the topic and made it again: what was acknowledged before is gone, so nothing more is."""

    async def work() -> Publications:
        leader = Leader()
        publications = Publications(leader)
        for number in range(3):
            publications.publish(b"%d" % number)
            await publications.settle()
        leader.values.clear()
        publications.publish(b"new")
        await publications.settle()
        return publications

    publications = run(work())

    assert len(publications.acknowledged) == 3
    assert isinstance(publications.refused[0][1], HubDamaged)
