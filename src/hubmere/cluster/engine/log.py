"""KafkaLog: one partition of a hub's topic, the PartitionLog that the broker uses on a cluster.

Sequence numbers are Kafka's offsets, and so are the AMQP offsets. The state here may be outdated, because other
gateways append too. So:

- `state` is the last known state. `is_current` queries the partition's leader; after its answer, `state` and `find` are
  not older than the query.
- `read` returns batches that have been fetched; otherwise it requests them, and watchers are called when they have
  arrived.
- A position beyond the known end is not refused; the leader is queried. `check_position` refuses it only if the leader
  has answered that the position does not exist. The known start is never too high, because it only grows.

Events are fetched up to the last stable offset, so readers of uncommitted transactions see them when they end.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from hubmere.cluster.engine.appends import PartitionAppends
from hubmere.cluster.engine.cache import FetchedBatches
from hubmere.cluster.engine.joining import check_own_run, join_run, may_number, unseal
from hubmere.cluster.engine.pending import AppendPosition
from hubmere.cluster.engine.questions import LeaderAnswer, LeaderQuestion, LogEnds
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import RequestRefused, TopicDamaged, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED, with_patience
from hubmere.model.errors import (
    ClusterBusy,
    CorruptBatch,
    HubDamaged,
    InvalidBatch,
    PositionBeyondEnd,
    Refusal,
    SequenceOutOfRange,
    TransactionRefused,
)
from hubmere.model.position import Anchor, Position
from hubmere.model.receipt import Receipt
from hubmere.records.header import NO_PRODUCER, TRANSACTIONAL, UNSEALED, read_header
from hubmere.records.runs import BatchRun
from hubmere.records.validate import HeaderFault, find_broken_rule
from hubmere.store.engine import (
    AbortedTransaction,
    Chunk,
    CompactionPass,
    FileRange,
    LogConfig,
    LogState,
    ProducerState,
    RetentionHold,
    Watcher,
)
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from hubmere.wire.kafka.messages.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from hubmere.cluster.engine.engine import KafkaEngine

log = logging.getLogger("hubmere.cluster")

# Timeout of a query to a leader, with all retries: longer than an election, shorter than a client waits.
_PATIENCE_S: Final = 20.0
# A leader that does not answer in this time may be frozen: the next attempt looks it up again.
_ANSWER_SECONDS: Final = 5.0
_READ_COMMITTED: Final = 1
_DELETE_MS: Final = 30_000
# How long a leader's refusal of a position is valid: the end of the log moves.
_FRESH_S: Final = 1.0
# Positions by time whose answers are kept until they are used in the same turn.
_MAX_FOUND: Final = 64


class KafkaLog:
    """One partition on the cluster. Thread rule: the loop's thread only."""

    def __init__(self, engine: "KafkaEngine", hub_uid: str, partition: int, config: LogConfig) -> None:
        self._engine = engine
        self.hub_uid = hub_uid
        self.partition = partition
        self._config = config
        self.topic = engine.topics.name_of(hub_uid)
        self._state = LogState(0, 0, 0, -1, -1, 0)
        self._appends = PartitionAppends(
            partition,
            connect=self._leader_lane,
            take_producer=engine.take_producer,
            on_appended=self._on_appended,
            count_bytes=engine.count_waiting,
        )
        self._appends.topic = self.topic
        self.cache = engine.cache.partition()
        self._watchers: dict[Watcher, None] = {}
        # Sequence numbers to fetch from; the tail is one of them while somebody follows it.
        self.wants: set[int] = set()
        self.fetching: set[int] = set()
        # Whether the last fetch had no space for a batch that is there.
        self.needs_first_place = False
        # Positions that the leader has just refused, and when.
        self._beyond_end: dict[int, float] = {}
        self._found: dict[Position, int] = {}
        self._questions: dict[Position | None, LeaderQuestion] = {}
        self._answers: dict[Position | None, LeaderAnswer] = {}
        self._damage: str | None = None

    # --- known state

    @property
    def state(self) -> LogState:
        """The last known state."""
        return self._state

    @property
    def is_offline(self) -> bool:
        """Whether publications wait because the partition has no leader, or its topic is damaged."""
        return self._damage is not None or (bool(self._appends.failure) and not self._appends.is_idle)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader, as far as it is known."""
        leader = self._engine.upstream.leader(self.topic, self.partition)
        return -1 if leader is None else leader.epoch

    @property
    def offsets_are_sequences(self) -> bool:
        """Always true: Kafka assigns offsets after the batch was sent, so there are no byte offsets."""
        return True

    def check_position(self, sequence: int, leader_epoch: int) -> Refusal | None:
        """The refusal of a position, if the leader has just refused it; the leader checks epochs."""
        state = self._state
        asked_at = self._beyond_end.pop(sequence, -_FRESH_S)
        is_beyond = sequence > state.committed and asyncio.get_running_loop().time() - asked_at < _FRESH_S
        if sequence < state.log_start or is_beyond:
            return SequenceOutOfRange(sequence, state.log_start, state.committed)
        return None

    # --- writing

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        callback: Callable[[Receipt], None] | None = None,
        *,
        lenient_producer: bool = False,
    ) -> Receipt:
        """Queue one closed batch; the receipt completes when enough brokers have it."""
        broken = find_broken_rule(batch, may_be_unsealed=True)
        if broken is not None:
            raise (CorruptBatch if broken.fault is HeaderFault.CHECKSUM else InvalidBatch)(broken.reason)
        if self._damage is not None:
            raise HubDamaged(self._damage)
        self._engine.admit_waiting(len(batch))
        header = read_header(batch)
        if not header.codec and header.record_count > len(batch):
            raise InvalidBatch(f"its record count is {header.record_count}, and it has {len(batch)} bytes")
        receipt = Receipt(header.record_count, len(batch), callback)
        is_own = header.crc == UNSEALED and header.producer_id == NO_PRODUCER
        if not is_own and may_number(batch, header, self._config):
            batch, header = unseal(batch, header)
            is_own = True
        is_transactional = bool(header.attributes & TRANSACTIONAL)
        transaction = self._engine.transaction_of(header.producer_id) if is_transactional else None
        self._appends.add(batch, header, receipt, is_own=is_own, transaction=transaction)
        return receipt

    @property
    def runs(self) -> "KafkaLog":
        """This log appends runs."""
        return self

    def check_run(self, data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
        """The run if it can be appended as one batch of this gateway."""
        if self._damage is not None:
            return None
        return check_own_run(data, sizes, newest_ms, self._config)

    def append_run(self, run: BatchRun, now_ms: int, callback: Callable[[Receipt], None] | None = None) -> Receipt:
        """Queue a run that was just checked as one batch; one receipt for all of it."""
        self._engine.admit_waiting(len(run.data))
        batch, header = join_run(run)
        receipt = Receipt(run.events, len(run.data), callback)
        self._appends.add(batch, header, receipt, is_own=True, publications=len(run.sizes))
        return receipt

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        callback: Callable[[Receipt], None] | None = None,
    ) -> Receipt:
        """Markers are written by Kafka's own coordinator."""
        raise TransactionRefused("Transactions of a cluster end at its transaction coordinator.")

    def _on_appended(self, appended: AppendPosition) -> None:
        """This gateway has appended: the end is at least there, and readers are notified."""
        self._engine.commit_latency.observe(appended.latency_s)
        state = self._state
        if appended.end_sequence > state.committed:
            self._state = state._replace(
                committed=appended.end_sequence,
                last_offset=appended.end_sequence - 1,
                last_enqueued_ms=max(state.last_enqueued_ms, appended.time_ms),
            )

    async def _leader_lane(self, lane: int) -> BrokerConnection:
        await self._engine.provide(self.hub_uid)
        upstream = self._engine.upstream
        leader = upstream.leader(self.topic, self.partition)
        if leader is None or self._appends.failure:
            await upstream.refresh_shared(self.topic)
            leader = upstream.leader(self.topic, self.partition)
        if leader is None:
            raise RequestRefused(f"partition {self.partition} of {self.topic}", ErrorCode.LEADER_NOT_AVAILABLE)
        return await upstream.connection(leader.broker, self._engine.lane_of(self, lane))

    # --- reading

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Fetched batches from `sequence` on; None if they have to be fetched first, or do not exist yet."""
        refusal = self.check_position(sequence, -1)
        if self._damage is not None:
            refusal = HubDamaged(self._damage)
        if refusal is not None:
            raise refusal
        if self._config.compact:
            self.cache.expire(asyncio.get_running_loop().time())
        chunk = self.cache.read(sequence, max_bytes)
        if chunk is None:
            self._want(sequence)
        elif self._watchers and (ahead := self.cache.missing_after(sequence)) is not None:
            # Fetched while this chunk is delivered; at the end of the log it is the tail.
            self._want(ahead)
        return chunk

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions in a range that was just read."""
        return self.cache.aborted_transactions(first_sequence, end_sequence)

    def file_ranges(self, first_sequence: int, end_sequence: int, boot_id: str) -> Sequence[FileRange]:
        """None: the files are those of the cluster's brokers."""
        return ()

    def _want(self, sequence: int) -> None:
        if sequence not in self.wants:
            self.wants.add(sequence)
            self._engine.fetchers.add(self)

    def on_fetched(
        self, sequence: int, fetched: FetchedBatches | None, start: int, stable: int, committed: int
    ) -> None:
        """The leader has answered a fetch."""
        state = self._state
        self._state = state._replace(
            log_start=max(state.log_start, start),
            committed=max(state.committed, committed),
            last_stable=max(state.last_stable, stable),
            last_offset=max(state.last_offset, committed - 1),
            last_enqueued_ms=max(state.last_enqueued_ms, -1 if fetched is None else fetched.last_time_ms),
        )
        if fetched is not None:
            # Other positions in these batches need no fetch of their own.
            self.wants = {each for each in self.wants if not fetched.first_sequence <= each < fetched.next_sequence}
            self.cache.add(fetched)
        elif not self._watchers:
            self.wants.discard(sequence)
        if fetched is not None or self._state[:3] != state[:3]:
            self._notify()

    async def on_out_of_range(self, sequence: int) -> None:
        """The leader has refused a position: query the bounds of its log, and notify the readers."""
        await self._refresh(None)
        self.wants.discard(sequence)
        if sequence > self._state.committed:
            self._beyond_end[sequence] = asyncio.get_running_loop().time()
        self._notify()

    def on_damaged(self, why: str) -> None:
        """The topic was deleted or replaced: refuse waiting appends, and wake readers, whose next read is refused."""
        if self._damage is None:
            self._damage = why
            self._appends.refuse_waiting(HubDamaged(why))
            self.wants.clear()
            self._notify()

    def on_repaired(self) -> None:
        """The topic is there again."""
        self._damage = None
        self._notify()

    def _notify(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever more may be read, until `unwatch`."""
        self._watchers[watcher] = None
        self._want(self._state.last_stable)

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""
        self._watchers.pop(watcher, None)
        if not self._watchers:
            self.wants.clear()

    # --- queries to the leader

    def is_current(self, position: Position | None, on_answer: Callable[[], None]) -> bool:
        """Whether the leader has just answered for this position; if not, it is asked.

        Each answer is used only by the requests that waited for it.
        """
        answer = self._answers.get(position)
        if answer is not None and answer.use(asyncio.get_running_loop().time()):
            if answer.refusal is not None:
                raise answer.refusal
            return True
        question = self._questions.get(position)
        if question is None or question.is_sent:
            # The leader may have answered a pending query before this call: send another one.
            question = self._questions[position] = LeaderQuestion()
            self._engine.start_task(self._ask(position, question))
        question.waiting.append(on_answer)
        return False

    async def _ask(self, position: Position | None, question: "LeaderQuestion") -> None:
        # All requests of this turn share the query.
        await asyncio.sleep(0)
        question.is_sent = True
        refusal: Refusal | None = None
        try:
            await self._refresh(position)
        except TopicDamaged as damaged:
            refusal = HubDamaged(str(damaged))
        except UpstreamFailure as failure:
            refusal = ClusterBusy(str(failure))
        if self._questions.get(position) is question:
            del self._questions[position]
        if len(self._answers) >= _MAX_FOUND:
            self._answers.clear()
        now = asyncio.get_running_loop().time()
        self._answers[position] = LeaderAnswer(len(question.waiting), now + _FRESH_S, refusal)
        for on_answer in question.waiting:
            on_answer()

    async def _refresh(self, position: Position | None) -> None:
        await self._engine.provide(self.hub_uid)
        ends = await with_patience(lambda: self._ends(position), seconds=_PATIENCE_S)
        state = self._state
        self._state = LogState(
            log_start=max(state.log_start, ends.start),
            committed=max(state.committed, ends.committed),
            last_stable=max(state.last_stable, ends.stable),
            last_offset=max(state.committed, ends.committed) - 1,
            last_enqueued_ms=max(state.last_enqueued_ms, ends.newest_ms),
            size_bytes=0,
        )
        if position is not None and position.anchor is Anchor.TIME:
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            self._found[position] = ends.at_time if ends.at_time >= 0 else self._state.committed

    async def _ends(self, position: Position | None) -> LogEnds:
        upstream = self._engine.upstream
        leader = upstream.leader(self.topic, self.partition)
        if leader is None:
            await upstream.refresh((self.topic,))
            raise RequestRefused(self.topic, ErrorCode.LEADER_NOT_AVAILABLE)
        connection = await upstream.connection(leader.broker, self._engine.question_lane)
        wanted = 0
        if position is not None and position.anchor is Anchor.TIME:
            wanted = position.value + (not position.inclusive)
        # The end is queried first: everything that was acknowledged before this call is before it.
        times = (LATEST_TIMESTAMP, LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP, max(wanted, 0))
        levels = (0, _READ_COMMITTED, 0, 0, _READ_COMMITTED)
        questions = [self._question(time, level) for time, level in zip(times, levels, strict=True)]
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answers = await asyncio.gather(*(connection.send(question) for question in questions))
        except TimeoutError:
            connection.close("no answer to ListOffsets")
            raise RequestRefused(self.topic, ErrorCode.REQUEST_TIMED_OUT) from None
        parts = [answer.topics[0].partitions[0] for answer in answers]
        for part in parts:
            if part.error_code:
                if part.error_code in MOVED:
                    await upstream.refresh((self.topic,))
                raise RequestRefused(f"ListOffsets of {self.topic}", part.error_code)
        return LogEnds(parts[2].offset, parts[1].offset, parts[0].offset, parts[3].timestamp_ms, parts[4].offset)

    def _question(self, time_ms: int, isolation_level: int) -> ListOffsetsRequest:
        part = ListOffsetsPartition(index=self.partition, timestamp_ms=time_ms)
        topic = ListOffsetsTopic(name=self.topic, partitions=(part,))
        return ListOffsetsRequest(isolation_level=isolation_level, topics=(topic,))

    def find(self, position: Position) -> int:
        """Where a reader of this position starts; the leader has just been asked (`is_current`)."""
        state = self._state
        if position.anchor is Anchor.FIRST:
            found = state.log_start
        elif position.anchor is Anchor.LATEST:
            found = state.committed
        elif position.anchor is Anchor.TIME:
            found = self._found.get(position, state.committed)
        else:
            found = position.value + (not position.inclusive)
            if found > state.committed:
                kind = "sequence number" if position.anchor is Anchor.SEQUENCE else "offset"
                raise PositionBeyondEnd(kind, str(position.value), str(state.committed - 1))
        return min(max(found, state.log_start), state.committed)

    def offset_of(self, sequence: int) -> int:
        """The offset of an event is its sequence number."""
        return sequence

    # --- producers, retention: Kafka's

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Not known here: Kafka checks the numbers of producers itself."""
        return None

    def producers(self) -> Sequence[ProducerState]:
        """Not known here."""
        return ()

    def open_transactions(self) -> Sequence[ProducerState]:
        """Kafka's own coordinator ends transactions."""
        return ()

    def trim(self, before_sequence: int) -> None:
        """Have the leader delete everything before a sequence number; it is done when a later `state` says so."""
        self._engine.start_task(self._trim(before_sequence))

    async def _trim(self, before_sequence: int) -> None:
        part = DeleteRecordsPartition(index=self.partition, offset=before_sequence)
        topic = DeleteRecordsTopic(name=self.topic, partitions=(part,))
        leader = self._engine.upstream.leader(self.topic, self.partition)
        try:
            if leader is None:
                raise RequestRefused(self.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            await self._engine.upstream.ask(leader.broker, DeleteRecordsRequest(topics=(topic,), timeout_ms=_DELETE_MS))
            await self._refresh(None)
        except UpstreamFailure as failure:
            log.warning("events of %s before %d were not deleted: %s", self.topic, before_sequence, failure)

    def apply_retention(self, now_ms: int, hold: RetentionHold | None = None) -> int:
        """Kafka applies the retention of the topic."""
        return 0

    def overdue_bytes(self, now_ms: int) -> int:
        """Kafka applies the retention of the topic."""
        return 0

    def compaction_pass(self, now_ms: int) -> CompactionPass | None:
        """Kafka compacts the topic."""
        return None

    def reconfigure(self, config: LogConfig) -> None:
        """Give the topic another configuration; partition 0 does it for all."""
        if config != self._config:
            self._config = config
            if self.partition == 0:
                self._engine.reconfigure_soon(self.hub_uid, config)

    def close(self) -> None:
        """Refuse appends that are not acknowledged, and drop the cache."""
        self._appends.close()
        self.wants.clear()
        self._watchers.clear()
        self.cache.clear()
