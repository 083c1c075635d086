"""KafkaEngine: the logs of all hubs on a Kafka cluster, the LogEngine of a gateway."""

import asyncio
import logging
import zlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from hubmere.cluster.engine.appends import LANES
from hubmere.cluster.engine.cache import DEFAULT_CACHE_BYTES, FetchCache
from hubmere.cluster.engine.fetchers import Fetchers
from hubmere.cluster.engine.log import KafkaLog
from hubmere.cluster.engine.topics import Topics, split_log_id
from hubmere.cluster.upstream.failures import RequestRefused, TopicDamaged, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED, Upstream
from hubmere.model.errors import ClusterBusy
from hubmere.model.monitoring.damage import DamagedRange, DamageKind
from hubmere.model.monitoring.histogram import Histogram
from hubmere.store.engine import LogConfig, LogId, OnOpened
from hubmere.store.recovery.damage_registry import DamageRegistry
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.transactions import InitProducerIdRequest

_LOGGER = logging.getLogger("hubmere.cluster")

# Batches that wait for the cluster, in bytes: beyond this, publications are refused.
MAX_WAITING_BYTES: Final = 128 * 1024 * 1024
_TRANSACTION_MS: Final = 60_000
# Producers whose transactional id is remembered; the endpoint reports it again before each batch.
_MAX_TRANSACTIONAL: Final = 10_000
# How often the topics in use are checked: one request for all of them, and less often if there are many.
_LOOK_SECONDS: Final = 2.0
_LOOK_SECONDS_PER_TOPIC: Final = 0.01
# Pauses between attempts to delete or reconfigure a topic.
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0


class KafkaEngine:
    """All logs of a gateway. Thread rule: the loop's thread only."""

    def __init__(self, upstream: Upstream, topics: Topics, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.upstream = upstream
        self.topics = topics
        self.cache = FetchCache(cache_bytes)
        self.fetchers = Fetchers(self)
        self.damage = DamageRegistry()
        self.commit_latency = Histogram()
        self.question_lane = "questions"
        self._logs: dict[LogId, KafkaLog] = {}
        self._provided: set[str] = set()
        self._providing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._free_lanes: dict[int, list[str]] = {}
        # Topics that are being deleted, and who waits for it.
        self._deleting: dict[str, list[Callable[[], None]]] = {}
        # Configurations that topics do not have yet.
        self._configs: dict[str, LogConfig] = {}
        self._damaged: set[str] = set()
        self._is_watching = False
        self._transactions: dict[int, tuple[str, int]] = {}
        self.waiting_bytes = 0
        self._is_closed = False

    # --- LogEngine

    def open(self, log: LogId, config: LogConfig, on_opened: OnOpened) -> None:
        """Open the log of a partition at once: its topic is created on first use."""
        on_opened(self.log(log, config))

    def log(self, log_id: LogId, config: LogConfig) -> KafkaLog:
        """The log of a partition."""
        opened = self._logs.get(log_id)
        if opened is None:
            hub_uid, partition = split_log_id(log_id)
            opened = self._logs[log_id] = KafkaLog(self, hub_uid, partition, config)
            if not self._is_watching:
                self._is_watching = True
                self.start_task(self._watch_topics())
        return opened

    def exists(self, log: LogId) -> bool:
        """Opening a log creates nothing: its topic is created on first use."""
        return True

    def find_unrecovered(self, on_found: Callable[[Sequence[LogId]], None]) -> None:
        """The brokers recover their logs themselves."""

    def delete(self, log: LogId, on_deleted: Callable[[], None] | None = None) -> None:
        """Delete the topic of a hub, when the first of its logs is deleted; `on_deleted` is called when it is gone."""
        hub_uid, _ = split_log_id(log)
        opened = self._logs.pop(log, None)
        if opened is not None:
            opened.close()
        if hub_uid not in self._deleting:
            self._deleting[hub_uid] = []
            self._provided.discard(hub_uid)
            self.start_task(self._delete(hub_uid))
        if on_deleted is not None:
            self._deleting[hub_uid].append(on_deleted)

    async def _delete(self, hub_uid: str) -> None:
        providing = self._providing.get(hub_uid)
        if providing is not None:
            # A topic that is created after its deletion would stay for ever.
            await asyncio.wait([providing])
            self._provided.discard(hub_uid)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self.topics.delete(hub_uid)
                break
            except UpstreamFailure as failure:
                _LOGGER.warning("the topic of the deleted hub %s was not deleted yet: %s", hub_uid, failure)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        for on_deleted in self._deleting.pop(hub_uid):
            on_deleted()

    def set_shortage(self, reason: str | None) -> None:
        """Does nothing: the brokers monitor their own disks."""

    def maintain(self, now_ms: int) -> None:
        """Nothing to do: the brokers keep the logs."""

    def close(self) -> None:
        """Refuse appends that are not acknowledged, and stop all tasks."""
        self._is_closed = True
        self.fetchers.close()
        for opened in self._logs.values():
            opened.close()
        for task in self._tasks:
            task.cancel()

    # --- used by the logs

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; a failure is logged."""
        if self._is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOGGER.error("a task of the log engine failed", exc_info=error)

    async def provide(self, uid: str) -> None:
        """Create the topic of a hub if it does not exist; concurrent callers share one attempt."""
        if uid in self._provided:
            return
        task = self._providing.get(uid)
        if task is None:
            task = self._providing[uid] = asyncio.create_task(self._provide(uid))
            task.add_done_callback(lambda done: self._on_provided(uid, done))
        await asyncio.shield(task)

    def provide_soon(self, uids: Sequence[str], on_done: Callable[[], None], *, seconds: float) -> None:
        """Create the topics of new hubs in the background; if that fails, their first use does it.

        `on_done` is called when it has been tried, and after this time at the latest.
        """
        self.start_task(self._provide_all(uids, on_done, seconds))

    async def _provide_all(self, uids: Sequence[str], on_done: Callable[[], None], seconds: float) -> None:
        tasks = [asyncio.create_task(self._provide_quietly(uid)) for uid in uids]
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            on_done()
        await asyncio.wait(tasks)

    async def _provide_quietly(self, uid: str) -> None:
        try:
            await self.provide(uid)
        except UpstreamFailure as failure:
            _LOGGER.warning("the topic of the new hub %s was not created yet: %s", uid, failure)

    async def _provide(self, hub_uid: str) -> None:
        await self.topics.provide(hub_uid)
        self._provided.add(hub_uid)

    def _on_provided(self, hub_uid: str, task: "asyncio.Task[None]") -> None:
        self._providing.pop(hub_uid, None)
        if not task.cancelled() and isinstance(failure := task.exception(), TopicDamaged):
            self._on_damaged(hub_uid, str(failure))

    def _on_damaged(self, hub_uid: str, why: str) -> None:
        """Refuse a hub whose topic was deleted or replaced, and show it as damaged, until its topic is back."""
        self._damaged.add(hub_uid)
        self._provided.discard(hub_uid)
        for log_id, opened in self._logs.items():
            if opened.hub_uid == hub_uid:
                opened.on_damaged(why)
                self.damage.report(
                    DamagedRange(log=log_id, first_sequence=0, next_sequence=0, kind=DamageKind.MISSING, reason=why)
                )

    async def _watch_topics(self) -> None:
        """Find topics that somebody deletes or replaces while their hubs are in use."""
        in_use: set[str] = set()
        while True:
            await asyncio.sleep(max(_LOOK_SECONDS, len(in_use) * _LOOK_SECONDS_PER_TOPIC))
            in_use = {opened.hub_uid for opened in self._logs.values()} & (self._provided | self._damaged)
            try:
                suspects = await self.topics.suspects(sorted(in_use))
            except UpstreamFailure:
                continue
            for uid in suspects:
                self._provided.discard(uid)
                with suppress(UpstreamFailure):
                    await self.provide(uid)
            for uid in self._damaged & in_use - set(suspects):
                self._on_repaired(uid)

    def _on_repaired(self, hub_uid: str) -> None:
        """The recorded topic exists: the broker that was asked before did not know it yet."""
        self._damaged.discard(hub_uid)
        for log_id, opened in self._logs.items():
            if opened.hub_uid == hub_uid:
                opened.on_repaired()
                self.damage.forget(log_id)

    def reconfigure_soon(self, hub_uid: str, config: LogConfig) -> None:
        """Give the topic of a hub another configuration, and the partitions that the hub has now.

        While brokers cannot be reached, it is tried again, with the last configuration.
        """
        is_trying = hub_uid in self._configs
        self._configs[hub_uid] = config
        if not is_trying:
            self.start_task(self._reconfigure(hub_uid))

    async def _reconfigure(self, hub_uid: str) -> None:
        pause_s = _FIRST_PAUSE_S
        while self.topics.exists(hub_uid):
            config = self._configs[hub_uid]
            try:
                await self.topics.provide(hub_uid)
                await self.topics.reconfigure(hub_uid, config)
            except UpstreamFailure as failure:
                _LOGGER.warning("the topic of hub %s was not reconfigured: %s", hub_uid, failure)
                if not _may_pass(failure):
                    break
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                if self._configs[hub_uid] == config:
                    break
        del self._configs[hub_uid]

    def lane_of(self, wanted: KafkaLog, lane: int) -> str:
        """The connection on which the appends of one lane of a log keep their order."""
        return f"append-{(zlib.crc32(wanted.topic.encode()) + wanted.partition + lane) % LANES}"

    def take_fetch_lane(self, broker: int) -> str:
        """A connection for one long poll."""
        free = self._free_lanes.setdefault(broker, [f"fetch-{number}" for number in range(8)])
        return free.pop()

    def return_fetch_lane(self, broker: int, lane: str) -> None:
        """The long poll is over."""
        self._free_lanes[broker].append(lane)

    async def take_producer(self) -> tuple[int, int]:
        """A new producer id and its epoch."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_MS)
        answer = await self.upstream.ask_any(request)
        if answer.error_code:
            raise RequestRefused("InitProducerId", answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def note_transaction(self, producer_id: int, transactional_id: str, produce_version: int) -> None:
        """Record the transactional id of a producer's next batch, and the version of its client's Produce request."""
        if len(self._transactions) >= _MAX_TRANSACTIONAL:
            self._transactions.pop(next(iter(self._transactions)))
        self._transactions[producer_id] = (transactional_id, produce_version)

    def transaction_of(self, producer_id: int) -> tuple[str, int] | None:
        """The transactional id of a producer, and the version in which its client sends batches."""
        return self._transactions.get(producer_id)

    def admit_waiting(self, size_bytes: int) -> None:
        """Refuse a publication if too many bytes already wait for the cluster."""
        if self.waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            raise ClusterBusy("too many events wait for it")

    def count_waiting(self, size_bytes: int) -> None:
        """Count batches that wait for the cluster, or no longer do."""
        self.waiting_bytes += size_bytes


def _may_pass(failure: UpstreamFailure) -> bool:
    """Whether a later attempt may succeed."""
    if isinstance(failure, RequestRefused):
        return failure.code in MOVED or failure.code == ErrorCode.NOT_CONTROLLER
    return not failure.is_lasting
