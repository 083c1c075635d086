"""Fetchers: read the requested positions of all logs, with a few long polls per broker.

A log that needs events waits for a free fetcher of its leader's broker. A fetcher takes all waiting logs, requests one
position of each, and waits for the answer; logs that need events meanwhile get another fetcher at once. So a reader at
the end of a partition is woken by the leader, and a new reader does not wait for the long polls of others.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from hubmere.cluster.engine.cache import parse_fetched
from hubmere.cluster.upstream.failures import TopicDamaged, UpstreamFailure
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from hubmere.cluster.engine.log import KafkaLog

log = logging.getLogger("hubmere.cluster")

# By topic and partition: a log, and where it is read from.
Positions = dict[tuple[str, int], tuple["KafkaLog", int]]

# Connections per broker that may wait in a long poll.
_FETCHERS_PER_BROKER: Final = 4
_WAIT_MS: Final = 500
# A fetch that is not answered in this time ends its connection: a frozen leader must not stop readers for long.
_ANSWER_SECONDS: Final = 5.0
_PARTITION_BYTES: Final = 1024 * 1024
_RESPONSE_BYTES: Final = 16 * 1024 * 1024
_READ_COMMITTED: Final = 1
_PAUSE_S: Final = 0.2
# Partitions in one request.
_MOST_PARTITIONS: Final = 1_000


class Fetchers:
    """All fetchers of a gateway. Thread rule: the loop's thread only."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._waiting: dict[KafkaLog, None] = {}
        self._busy: dict[int, int] = {}
        self._is_scheduled = False
        self._is_closed = False

    def add(self, wanting: "KafkaLog") -> None:
        """A log needs events."""
        if not wanting.wants <= wanting.fetching and not self._is_closed:
            self._waiting[wanting] = None
            self._schedule()

    def close(self) -> None:
        """Start no more fetches."""
        self._is_closed = True
        self._waiting.clear()

    def _schedule(self) -> None:
        # All positions that are requested in one turn are sent in one request.
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        by_broker: dict[int, list[KafkaLog]] = {}
        unknown: list[KafkaLog] = []
        for wanting in self._waiting:
            leader = self._engine.upstream.leader(wanting.topic, wanting.partition)
            if leader is None:
                unknown.append(wanting)
            else:
                by_broker.setdefault(leader.broker, []).append(wanting)
        for wanting in unknown:
            self._waiting.pop(wanting, None)
            wanting.fetching |= wanting.wants
            self._engine.start_task(self._look_up(wanting, set(wanting.wants)))
        for broker, logs in by_broker.items():
            number = self._busy.get(broker, 0)
            if number < _FETCHERS_PER_BROKER:
                self._busy[broker] = number + 1
                self._engine.start_task(self._fetch(broker, self._take(logs[:_MOST_PARTITIONS])))

    def _take(self, logs: "list[KafkaLog]") -> "Positions":
        """One position of each log."""
        positions: Positions = {}
        # Only the first partition with events gets a batch that is larger than the limit.
        for wanting in sorted(logs, key=lambda each: not each.needs_first_place):
            self._waiting.pop(wanting, None)
            if not wanting.wants <= wanting.fetching:
                sequence = min(wanting.wants - wanting.fetching)
                wanting.fetching.add(sequence)
                positions[wanting.topic, wanting.partition] = (wanting, sequence)
                # A request has one position of a partition: another fetcher takes the next one.
                self.add(wanting)
        return positions

    def _give_back(self, wanting: "KafkaLog", *sequences: int) -> None:
        wanting.fetching.difference_update(sequences)
        self.add(wanting)

    async def _look_up(self, wanting: "KafkaLog", sequences: set[int]) -> None:
        try:
            await self._engine.provide(wanting.hub_uid)
        except TopicDamaged:
            # Nothing can be fetched; the log refuses its readers.
            wanting.wants.clear()
        except UpstreamFailure:
            await asyncio.sleep(_PAUSE_S)
        else:
            if self._engine.upstream.leader(wanting.topic, wanting.partition) is None:
                await self._engine.upstream.refresh_shared(wanting.topic)
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._give_back(wanting, *sequences)

    async def _fetch(self, broker: int, positions: "Positions") -> None:
        lane = self._engine.take_fetch_lane(broker)
        try:
            if positions:
                request = _request(positions)
                answer = await self._engine.upstream.ask(broker, request, lane=lane, seconds=_ANSWER_SECONDS)
                await self._on_answer(positions, answer)
        except UpstreamFailure as failure:
            log.debug("a fetch failed: %s", failure)
            await self._pause_after_failure({topic for topic, _ in positions})
        finally:
            self._engine.return_fetch_lane(broker, lane)
            self._busy[broker] -= 1
            for wanting, sequence in positions.values():
                self._give_back(wanting, sequence)
            if self._waiting:
                self._schedule()

    async def _pause_after_failure(self, topics: set[str]) -> None:
        await asyncio.sleep(_PAUSE_S)
        for topic in topics:
            await self._engine.upstream.refresh_shared(topic)

    async def _on_answer(self, positions: "Positions", answer: Any) -> None:
        has_moved: set[str] = set()
        is_alone = len(positions) == 1
        for topic in answer.topics:
            for part in topic.partitions:
                wanting, sequence = positions[topic.name, part.index]
                if part.error_code == ErrorCode.NONE:
                    # A response of several partitions is one frame: keeping a part must not keep all of it.
                    records = part.records or b""
                    data = memoryview(records if is_alone else bytes(records))
                    gone = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
                    fetched = parse_fetched(data, gone, sequence) if len(data) else None
                    stable = part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark
                    wanting.needs_first_place = fetched is None and sequence < stable
                    wanting.on_fetched(sequence, fetched, part.log_start_offset, stable, part.high_watermark)
                elif part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await wanting.on_out_of_range(sequence)
                else:
                    has_moved.add(topic.name)
        if has_moved:
            await asyncio.sleep(_PAUSE_S)
            for name in has_moved:
                await self._engine.upstream.refresh_shared(name)


def _request(positions: "Positions") -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), (_, sequence) in positions.items():
        part = FetchPartition(index=partition, fetch_offset=sequence, max_bytes=_PARTITION_BYTES)
        topics.setdefault(topic, []).append(part)
    return FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=_RESPONSE_BYTES,
        isolation_level=_READ_COMMITTED,
        topics=tuple(FetchTopic(name=name, partitions=tuple(parts)) for name, parts in topics.items()),
    )
