"""Appends to a partition whose leader fails at random: acknowledged events are stored once, in order.

`Leader` follows Kafka's rules for numbered batches: it drops duplicates of the last five, and refuses gaps.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from hubmere.cluster.engine import appends as appends_module
from hubmere.cluster.engine.appends import PartitionAppends
from hubmere.cluster.engine.pending import AppendPosition, PendingAppend
from hubmere.cluster.upstream.failures import BrokerUnreachable
from hubmere.model.errors import ClusterBusy, ClusterOutcomeUnknown, HubDamaged, InvalidBatch
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
    """The leader of a partition, and the connection to it."""

    def __init__(self, seed: int = 0, *, failures: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.failures = failures
        self.values: list[bytes] = []
        self.lanes: list[int] = []
        self.requests = 0
        self.newest = 12
        self.transactions: list[tuple[str | None, int | None]] = []
        self._recent: dict[int, list[tuple[int, int, int]]] = {}
        self._next_producer = 100
        self.code: int | None = None
        self.is_down = False
        self.is_open = True

    async def connect(self, lane: int) -> "Leader":
        self.lanes.append(lane)
        await asyncio.sleep(0)
        if self.is_down:
            raise BrokerUnreachable("b:1", "down")
        return self

    async def take_producer(self) -> tuple[int, int]:
        self._next_producer += 1
        return self._next_producer, 0

    def close(self, why: str = "") -> None:
        """There is nothing to close."""

    def nearest_version(self, request: type, version: int) -> int:
        return min(version, self.newest)

    def send(self, request: ProduceRequest, version: int | None = None) -> "asyncio.Future[Any]":
        self.requests += 1
        self.transactions.append((request.transactional_id, version))
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
            # The request was executed, and the answer was lost.
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


def a_batch(*values: bytes, is_own: bool = True, producer: int = NO_PRODUCER) -> bytearray:
    records = [
        Record(sequence_number=number, time_ms=1, key=None, value=value, headers=())
        for number, value in enumerate(values)
    ]
    batch = encode_batch(records)
    if is_own:
        write_header(batch, read_header(batch)._replace(crc=UNSEALED))
    elif producer != NO_PRODUCER:
        write_header(batch, read_header(batch)._replace(producer_id=producer, producer_epoch=0, producer_sequence=0))
        seal(batch)
    return batch


class Publications:
    """Publications to one partition, and their outcomes."""

    def __init__(
        self, leader: Leader, kind: type[PartitionAppends] = PartitionAppends, *, answer_seconds: float = 15.0
    ) -> None:
        self.acknowledged: list[tuple[bytes, int]] = []
        self.refused: list[tuple[bytes, Exception]] = []
        self.waiting_bytes = 0
        self.ends: list[AppendPosition] = []
        self.appends = kind(
            0,
            connect=leader.connect,  # type: ignore[arg-type]
            take_producer=leader.take_producer,
            on_appended=self.ends.append,
            count_bytes=self._count,
            answer_seconds=answer_seconds,
        )
        self.appends.topic = "t"

    def _count(self, size_bytes: int) -> None:
        self.waiting_bytes += size_bytes

    def publish(self, value: bytes, *, is_own: bool = True, producer: int = NO_PRODUCER) -> None:
        batch = a_batch(value, is_own=is_own, producer=producer)

        def done(receipt: Receipt) -> None:
            if receipt.error is None:
                self.acknowledged.append((value, receipt.sequence_number))
            else:
                self.refused.append((value, receipt.error))

        self.appends.add(batch, read_header(batch), Receipt(1, len(batch), done), is_own=is_own)

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
    """Requests and answers are lost at random: each event of the gateway is stored once, in order."""
    leader, publications = run(_publish_under_failures(seed, PartitionAppends))

    expected = [b"%d" % number for number in range(60)]
    assert leader.values == expected
    assert publications.acknowledged == [(value, at) for at, value in enumerate(expected)]
    assert publications.waiting_bytes == 0


class WithoutNumbers(PartitionAppends):
    """A faulty implementation: batches are sent again without sequence numbers of a producer."""

    def _stamp(self, append: PendingAppend) -> None:
        super()._stamp(append)
        header = read_header(append.batch)
        write_header(append.batch, header._replace(producer_id=NO_PRODUCER, producer_epoch=-1, producer_sequence=-1))
        seal(append.batch)


def test_implementation_that_retries_without_sequence_numbers_is_detected() -> None:
    """This shows that the tests above can fail: without sequence numbers events are stored twice."""
    runs = [run(_publish_under_failures(seed, WithoutNumbers))[0] for seed in range(10)]

    assert any(len(leader.values) > len(set(leader.values)) for leader in runs)


def test_waiting_batches_share_one_request() -> None:
    """A broker accepts one batch per partition and request: waiting batches are joined."""

    async def work() -> Leader:
        leader = Leader()
        publications = Publications(leader)
        for number in range(200):
            publications.publish(b"%d" % number)
        await publications.settle()
        assert [at for _, at in publications.acknowledged] == list(range(200))
        return leader

    assert run(work()).requests < 10


@pytest.mark.parametrize(("size", "requests"), [(10, 1), (200_000, 2)], ids=["small", "large"])
def test_only_large_batches_are_sent_before_the_last_answer(size: int, requests: int) -> None:
    """A broker serves one request of a connection at a time: small ones would only wait there, each alone."""

    async def work() -> int:
        leader = SilentLeader()
        publications = Publications(leader)
        publications.publish(b"first")
        while not leader.requests:
            await asyncio.sleep(0)
        for _ in range(2):
            publications.publish(bytes(size))
        for _ in range(20):
            await asyncio.sleep(0)
        sent = leader.requests
        leader.close()
        await publications.settle()
        assert len(publications.acknowledged) == 3
        return sent

    assert run(work()) == requests


def test_batch_of_a_client_is_never_sent_again() -> None:
    """The client retries with its own sequence numbers; a retry by the gateway could reorder its events."""

    async def work() -> tuple[Leader, Publications]:
        leader = Leader(failures=1.0)
        publications = Publications(leader)
        publications.publish(b"client", is_own=False)
        await publications.settle()
        return leader, publications

    leader, publications = run(work())

    assert leader.requests == 1
    assert isinstance(publications.refused[0][1], ClusterBusy)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (None, ClusterOutcomeUnknown),
        (ErrorCode.REQUEST_TIMED_OUT, ClusterOutcomeUnknown),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ClusterBusy),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ClusterBusy),
    ],
    ids=["connection lost", "timed out", "moved", "too few replicas"],
)
def test_client_is_informed_whether_its_batch_may_have_been_appended(code: int | None, kind: type[ClusterBusy]) -> None:
    """librdkafka builds other batches if events were certainly not appended, so Kafka cannot detect duplicates."""

    async def work() -> Publications:
        leader = Leader(failures=1.0 if code is None else 0.0)
        leader.code = code
        publications = Publications(leader)
        publications.publish(b"client", is_own=False, producer=5)
        await publications.settle()
        return publications

    ((_, refusal),) = run(work()).refused
    assert type(refusal) is kind


def test_batch_that_the_broker_refuses_does_not_stop_later_ones() -> None:
    """Its sequence numbers are not used: later batches get new ones."""

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
    """After some seconds the client gets "server busy", and nothing accumulates in memory."""
    monkeypatch.setattr(appends_module, "_REFUSED_SECONDS", 0.05)

    async def work() -> tuple[Leader, Publications]:
        leader = Leader()
        publications = Publications(leader)
        leader.is_down = down == "no broker"
        leader.code = ErrorCode.NOT_ENOUGH_REPLICAS
        publications.publish(b"lost")
        await publications.settle()
        leader.is_down, leader.code = False, None
        monkeypatch.setattr(appends_module, "_REFUSED_SECONDS", 60.0)
        publications.publish(b"later")
        await publications.settle()
        return leader, publications

    leader, publications = run(work())

    assert isinstance(publications.refused[0][1], ClusterBusy)
    assert leader.values == [b"later"]
    assert publications.waiting_bytes == 0


def test_producers_use_connections_by_their_ids() -> None:
    """A broker serves one request per connection at a time: producers do not wait for each other, and keep order."""

    async def work() -> Leader:
        leader = Leader()
        publications = Publications(leader)
        for producer in (4, 5, 6, 7, 8):
            publications.publish(b"%d" % producer, is_own=False, producer=producer)
        await publications.settle()
        assert len(publications.acknowledged) == 5
        return leader

    assert sorted(run(work()).lanes) == [0, 1, 2, 3]


class SilentLeader(Leader):
    """A leader that is frozen: it answers nothing until its connection is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_frozen = True
        self._unanswered: list[asyncio.Future[Any]] = []

    def close(self, why: str = "") -> None:
        self.is_frozen = False
        unanswered, self._unanswered = self._unanswered, []
        for future in unanswered:
            future.set_exception(BrokerUnreachable("b:1", why))

    def _handle(self, request: ProduceRequest, future: "asyncio.Future[Any]") -> None:
        if self.is_frozen:
            self._unanswered.append(future)
        else:
            super()._handle(request, future)


def test_frozen_leader_is_given_up_while_publications_arrive() -> None:
    """Each publication wakes the partition: the age of the oldest request counts, not the time since the last one."""

    async def work() -> tuple[SilentLeader, Publications]:
        leader = SilentLeader()
        publications = Publications(leader, answer_seconds=0.2)
        async with asyncio.timeout(60):
            while leader.is_frozen:
                publications.publish(b"%d" % len(publications.ends))
                await asyncio.sleep(0.01)
            await publications.settle()
        return leader, publications

    leader, publications = run(work())

    assert len(leader.values) == len(publications.acknowledged)
    assert not publications.refused


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "of a client"])
def test_leader_that_has_moved_is_looked_up_before_the_next_request(is_own: bool) -> None:
    """Otherwise the old leader would refuse every repeat at once, until another request looks up the new one."""
    failures: list[str] = []

    async def work() -> Leader:
        leader = Leader()
        publications = Publications(leader)
        connect = leader.connect

        async def look_up(lane: int) -> Leader:
            failures.append(publications.appends.failure)
            if publications.appends.failure:
                leader.code = None
            return await connect(lane)

        publications.appends._connect = look_up  # type: ignore[assignment]
        leader.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        publications.publish(b"moved", is_own=is_own)
        await publications.settle()
        publications.publish(b"later", is_own=is_own)
        await publications.settle()
        return leader

    leader = run(work())

    assert failures == ["", "NOT_LEADER_OR_FOLLOWER"]
    assert leader.values == ([b"moved", b"later"] if is_own else [b"later"])


def test_failing_callback_does_not_affect_others_of_the_same_request() -> None:
    """Publications of several connections share a request: an error of one must not leave the others waiting."""

    async def work() -> Publications:
        publications = Publications(Leader())
        batch = a_batch(b"broken")

        def fail(_: Receipt) -> None:
            raise RuntimeError("a broken connection")

        publications.appends.add(batch, read_header(batch), Receipt(1, len(batch), fail), is_own=True)
        publications.publish(b"fine")
        await publications.settle()
        return publications

    assert run(work()).acknowledged == [(b"fine", 1)]


def test_partition_that_starts_again_at_0_is_not_acknowledged() -> None:
    """The topic was deleted and created again: acknowledged events are lost, so nothing more is acknowledged."""

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


def test_senders_that_were_acknowledged_together_share_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """They answer an acknowledgement with their next event: sent alone, the first one would delay all others."""
    monkeypatch.setattr(appends_module, "_HOLD_PART", 1e9)
    monkeypatch.setattr(appends_module, "_LONGEST_HOLD_S", 60.0)

    async def work() -> list[int]:
        leader = Leader()
        publications = Publications(leader)
        publications.publish(b"1")
        publications.publish(b"2")
        await publications.settle()
        requests = [leader.requests]
        for value in (b"3", b"4"):
            publications.publish(value)
            for _ in range(20):
                await asyncio.sleep(0)
            requests.append(leader.requests)
        await publications.settle()
        assert leader.values == [b"1", b"2", b"3", b"4"]
        return requests

    assert run(work()) == [1, 1, 2]


def test_wait_for_senders_begins_after_their_acknowledgements() -> None:
    """Sixteen acknowledgements take as long to write as the wait: it would be over before the first sender has sent."""

    async def work() -> list[str]:
        loop = asyncio.get_running_loop()
        order: list[str] = []
        call_later = loop.call_later

        def record(delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
            if getattr(callback, "__name__", "") == "_end_hold":
                order.append("wait")
            return call_later(delay, callback, *arguments)

        loop.call_later = record  # type: ignore[method-assign,assignment]
        publications = Publications(Leader())
        for value in (b"1", b"2"):
            batch = a_batch(value)
            receipt = Receipt(1, len(batch), lambda _: order.append("acknowledged"))
            publications.appends.add(batch, read_header(batch), receipt, is_own=True)
        await publications.settle()
        return order

    assert run(work()) == ["acknowledged", "acknowledged", "wait"]


def test_wait_for_senders_is_not_ended_by_the_timer_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer has a long timer: the answers after it are fast, and their senders would be sent apart."""
    monkeypatch.setattr(appends_module, "_HOLD_PART", 1e9)
    monkeypatch.setattr(appends_module, "_LONGEST_HOLD_S", 60.0)

    async def work() -> list[bool]:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        call_later = loop.call_later

        def record(delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
            timer = call_later(delay, callback, *arguments)
            if getattr(callback, "__name__", "") == "_end_hold":
                timers.append(timer)
            return timer

        loop.call_later = record  # type: ignore[method-assign,assignment]
        publications = Publications(Leader())
        for _ in range(3):
            publications.publish(b"1")
            publications.publish(b"2")
            await publications.settle()
        are_stopped = [timer.cancelled() for timer in timers]
        publications.appends.close()
        assert timers[-1].cancelled()
        return are_stopped

    assert run(work()) == [True, True, False]


def test_an_event_does_not_wait_for_senders_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is over after a moment."""
    monkeypatch.setattr(appends_module, "_LONGEST_HOLD_S", 0.0)

    async def work() -> list[bytes]:
        leader = Leader()
        publications = Publications(leader)
        publications.publish(b"1")
        publications.publish(b"2")
        await publications.settle()
        publications.publish(b"3")
        await publications.settle()
        return leader.values

    assert run(work()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("of_client", "newest", "sent"), [(9, 12, 11), (11, 12, 11), (12, 12, 12), (9, 9, 9), (11, 11, 11)]
)
def test_batch_of_a_transaction_keeps_to_its_clients_protocol(of_client: int, newest: int, sent: int) -> None:
    """From version 12 on, a leader adds the partition to the transaction; older clients have done that before."""

    async def work() -> Leader:
        leader = Leader(0)
        leader.newest = newest
        publications = Publications(leader)
        record = Record(sequence_number=0, time_ms=1, key=None, value=b"x", headers=())
        batch = encode_batch([record], producer_id=7, producer_epoch=0, producer_sequence=0)
        publications.appends.add(
            batch, read_header(batch), Receipt(1, len(batch)), is_own=False, transaction=("name", of_client)
        )
        await publications.settle()
        return leader

    assert run(work()).transactions == [("name", sent)]
