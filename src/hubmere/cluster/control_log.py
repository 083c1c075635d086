"""ControlLog: the control log on its Kafka partition. Reads every entry, applies it, and notifies listeners.

Every gateway appends to the log and reads it to its end. The gateway that appended an entry gets its outcome when it
reads the entry back. Entries are appended with producer sequence numbers, so a retry never appends one twice. A gateway
that cannot decode an entry stops there: `failure` names the entry, and no later entry is applied.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from hubmere.cluster.control.entries import (
    Beat,
    Entry,
    Gone,
    Leave,
    Session,
    UnreadableEntry,
    decode_entry,
    encode_entry,
)
from hubmere.cluster.control.lease import BEAT_SECONDS, ClaimEvent, Lease
from hubmere.cluster.control.state import ControlState, Outcome
from hubmere.cluster.engine.appends import Appended, PartitionAppends
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED, Upstream, with_patience
from hubmere.model.receipt import Receipt
from hubmere.records.header import UNSEALED, read_header, split_batches, write_header
from hubmere.records.records import Record, decode_records, encode_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import CreatableTopic, CreateTopicsRequest, TopicConfig
from hubmere.wire.kafka.messages.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from hubmere.wire.kafka.messages.transactions import InitProducerIdRequest

log = logging.getLogger("hubmere.cluster")

_LANE: Final = "control-append"
_READ_LANE: Final = "control-read"
_WAIT_MS: Final = 250
_FETCH_BYTES: Final = 4 * 1024 * 1024
_CREATE_MS: Final = 30_000
_START_SECONDS: Final = 60.0
_PAUSE_S: Final = 0.1
_TICK_S: Final = 0.05
_TRANSACTION_MS: Final = 60_000
# A fetch that is not answered in this time ends its connection: a frozen broker must not stop the log for long.
_FETCH_SECONDS: Final = 3.0

OnApplied = Callable[[int, Entry, Outcome], None]


class ControlLog:
    """The control log of one gateway. Thread rule: the loop's thread only."""

    def __init__(
        self,
        upstream: Upstream,
        topic: str,
        *,
        replication: int,
        in_sync: int,
        now_ms: Callable[[], int],
        address: str = "",
        version: str = "",
    ) -> None:
        self._upstream = upstream
        self.topic = topic
        self._replication = replication
        self._in_sync = in_sync
        self._now_ms = now_ms
        self._address = address
        self._version = version
        self.state = ControlState()
        self.lease = Lease(_new_session())
        self.failure: str | None = None
        self._listeners: list[OnApplied] = []
        self._claim_listeners: list[Callable[[ClaimEvent], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._appends: PartitionAppends | None = None
        self._read_to = 0
        self._moved = asyncio.Event()
        self._declared: set[str] = set()
        self.log_start = 0

    def listen(self, on_applied: OnApplied) -> None:
        """Call back for every entry that is applied."""
        self._listeners.append(on_applied)

    def listen_to_claims(self, on_event: Callable[[ClaimEvent], None]) -> None:
        """Call back for everything that happens to a claim of this gateway."""
        self._claim_listeners.append(on_event)

    # --- start and stop

    async def start(self) -> None:
        """Create the topic if it does not exist, and apply all its entries."""
        await with_patience(self._provide, seconds=_START_SECONDS)
        self._appends = PartitionAppends(
            0,
            connect=self._leader_lane,
            take_producer=self._take_producer,
            on_appended=self._on_appended,
            count_bytes=lambda _: None,
        )
        self._appends.topic = self.topic
        self.log_start = self._read_to = await with_patience(
            lambda: self._end(EARLIEST_TIMESTAMP), seconds=_START_SECONDS
        )
        end = await with_patience(lambda: self._end(LATEST_TIMESTAMP), seconds=_START_SECONDS)
        while self._read_to < end and self.failure is None:
            await with_patience(self._read_once, seconds=_START_SECONDS)
        self._tasks.append(asyncio.create_task(self._read_loop()))

    def begin_session(self) -> None:
        """Begin a session: from now on this gateway sends beats and may claim places."""
        self.append(Session(session=self.lease.session, address=self._address, version=self._version))
        self._tasks.append(asyncio.create_task(self._beat_loop()))

    async def stop(self) -> None:
        """Leave in order: the places of this gateway are free at once."""
        if self._appends is not None and self.failure is None:
            self.append(Leave(session=self.lease.session))
            try:
                async with asyncio.timeout(2.0):
                    while not self._appends.is_idle:
                        await asyncio.sleep(_TICK_S)
            except TimeoutError:
                log.warning("could not report to the cluster that this gateway stops")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._appends is not None:
            self._appends.close()

    async def abandon(self) -> None:
        """Stop reading the log without a Leave entry: for readers that have no session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _provide(self) -> None:
        codes = await self._upstream.refresh((self.topic,))
        if codes[self.topic] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create()
            codes = await self._upstream.refresh((self.topic,))
        if codes[self.topic] or self._upstream.leader(self.topic, 0) is None:
            raise RequestRefused(f"the topic {self.topic}", codes[self.topic] or ErrorCode.LEADER_NOT_AVAILABLE)

    async def _create(self) -> None:
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "min.insync.replicas": str(self._in_sync),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(_FETCH_BYTES),
        }
        topic = CreatableTopic(
            name=self.topic,
            num_partitions=1,
            replication_factor=self._replication,
            configs=tuple(TopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        (made,) = (await self._upstream.ask_any(CreateTopicsRequest(topics=(topic,), timeout_ms=_CREATE_MS))).topics
        if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RequestRefused(f"the topic {self.topic} cannot be made", made.error_code, made.error_message)

    # --- appending

    def append(self, entry: Entry, on_failed: Callable[[], None] | None = None) -> None:
        """Append an entry; `on_failed` is called if it was not appended, or if that is unknown."""
        assert self._appends is not None
        record = Record(sequence_number=0, time_ms=self._now_ms(), key=None, value=encode_entry(entry), headers=())
        batch = encode_batch([record])
        write_header(batch, read_header(batch)._replace(crc=UNSEALED))

        def on_done(receipt: Receipt) -> None:
            if receipt.error is not None and on_failed is not None:
                on_failed()

        self._appends.add(batch, Receipt(1, len(batch), on_done), is_own=True, transactional_id=None)

    def _on_appended(self, _: Appended) -> None:
        """Nothing to do: an entry counts when it is read back."""

    async def _take_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_MS)
        answer = await self._upstream.ask_any(request)
        if answer.error_code:
            raise RequestRefused("InitProducerId", answer.error_code)
        return answer.producer_id, answer.producer_epoch

    async def _leader_lane(self) -> BrokerConnection:
        leader = self._upstream.leader(self.topic, 0)
        if leader is None or (self._appends is not None and self._appends.failure):
            await self._upstream.refresh_shared(self.topic)
            leader = self._upstream.leader(self.topic, 0)
        if leader is None:
            raise RequestRefused(self.topic, ErrorCode.LEADER_NOT_AVAILABLE)
        return await self._upstream.connection(leader.broker, _LANE)

    # --- reading

    async def _end(self, time_ms: int) -> int:
        part = ListOffsetsPartition(index=0, timestamp_ms=time_ms)
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=self.topic, partitions=(part,)),))
        answer = (await self._ask_leader(request)).topics[0].partitions[0]
        await self._check(answer.error_code)
        offset: int = answer.offset
        return offset

    async def _ask_leader(self, request: object) -> Any:
        leader = self._upstream.leader(self.topic, 0)
        if leader is None:
            await self._upstream.refresh((self.topic,))
            raise RequestRefused(self.topic, ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            return await self._upstream.ask(leader.broker, request, lane=_READ_LANE, seconds=_FETCH_SECONDS)
        except UpstreamFailure:
            await self._upstream.refresh_shared(self.topic)
            raise

    async def _check(self, code: int) -> None:
        if code:
            if code in MOVED:
                await self._upstream.refresh_shared(self.topic)
            raise RequestRefused(f"the control log {self.topic}", code)

    async def _read_loop(self) -> None:
        while self.failure is None:
            try:
                await self._read_once()
            except UpstreamFailure as failure:
                log.debug("the control log cannot be read now: %s", failure)
                await asyncio.sleep(_PAUSE_S)

    async def _read_once(self) -> None:
        part = FetchPartition(index=0, fetch_offset=self._read_to, max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=1,
            topics=(FetchTopic(name=self.topic, partitions=(part,)),),
        )
        answer = (await self._ask_leader(request)).topics[0].partitions[0]
        await self._check(answer.error_code)
        for batch in split_batches(answer.records or b""):
            for record in decode_records(batch):
                if record.sequence_number >= self._read_to:
                    self._read_to = record.sequence_number + 1
                    self._apply(record.sequence_number, record.value or b"")

    def _apply(self, offset: int, value: bytes) -> None:
        if self.failure is not None:
            return
        try:
            entry = decode_entry(value)
        except UnreadableEntry as unreadable:
            self.failure = f"entry {offset} of the control log cannot be read: {unreadable}"
            log.error("%s; management stops on this gateway", self.failure)
            return
        outcome = self.state.apply(offset, entry)
        now = asyncio.get_running_loop().time()
        for listener in self._listeners:
            listener(offset, entry, outcome)
        self._tell(self.lease.observe(entry, outcome, now))

    def _tell(self, events: list[ClaimEvent]) -> None:
        for event in events:
            for listener in self._claim_listeners:
                listener(event)

    # --- beats

    @property
    def has_lease(self) -> bool:
        """Whether this gateway may deliver on its claims."""
        return self.lease.is_held(asyncio.get_running_loop().time())

    async def _beat_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while self.failure is None:
            now = loop.time()
            self._tell(self.lease.advance(now))
            if self.lease.is_gone:
                self._begin_again()
            beat = self.lease.beat(now)
            if beat is not None:
                self._send_beat(beat)
            for session in self.state.silent_sessions(self.lease.session):
                if session not in self._declared:
                    self._declared.add(session)
                    log.warning("gateway %s is silent and is declared dead", session)
                    self.append(Gone(session=session))
            self._declared &= set(self.state.members)
            await asyncio.sleep(min(_TICK_S, BEAT_SECONDS))

    def _send_beat(self, beat: Beat) -> None:
        lease = self.lease
        self.append(beat, lambda: lease.on_beat_failed(beat.number))

    def _begin_again(self) -> None:
        """Others have declared this gateway dead, while it was frozen or cut off: it begins a new session."""
        log.warning("this gateway was declared dead by another; it begins a new session")
        self.lease = Lease(_new_session())
        self.append(Session(session=self.lease.session, address=self._address, version=self._version))


def _new_session() -> str:
    return secrets.token_hex(8)
