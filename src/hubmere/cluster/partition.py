"""OnePartition: a topic with one partition that only gateways use, such as the control log.

Creates the topic, reads it, and deletes its beginning. Appends are made by `engine.appends`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED, Upstream
from hubmere.records.header import split_batches
from hubmere.records.records import Record, decode_records
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    TopicConfig,
)
from hubmere.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from hubmere.wire.kafka.messages.transactions import InitProducerIdRequest

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
_CREATE_MS: Final = 30_000
_TRANSACTION_MS: Final = 60_000
_READ_COMMITTED: Final = 1
# A fetch that is not answered in this time ends its connection: a frozen broker must not stop the log for long.
_ANSWER_SECONDS: Final = 3.0


@dataclass(slots=True, kw_only=True)
class OnePartition:
    """A topic with one partition. Thread rule: the loop's thread only.

    `lane` begins the names of its connections; records are kept for `retention_ms`, or for ever.
    """

    upstream: Upstream
    topic: str
    replication: int
    in_sync: int
    lane: str
    retention_ms: int | None = None

    async def exists(self) -> bool:
        """Whether the topic was created."""
        codes = await self.upstream.refresh((self.topic,))
        return codes[self.topic] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def provide(self) -> None:
        """Create the topic if it does not exist; raises a temporary failure until it has a leader."""
        codes = await self.upstream.refresh((self.topic,))
        if codes[self.topic] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create()
            codes = await self.upstream.refresh((self.topic,))
        if codes[self.topic] or self.upstream.leader(self.topic, 0) is None:
            raise RequestRefused(f"the topic {self.topic}", codes[self.topic] or ErrorCode.LEADER_NOT_AVAILABLE)

    async def _create(self) -> None:
        configs: Mapping[str, str] = {
            "cleanup.policy": "delete",
            "retention.ms": "-1" if self.retention_ms is None else str(self.retention_ms),
            "retention.bytes": "-1",
            "min.insync.replicas": str(self.in_sync),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(MAX_BATCH_BYTES),
        }
        if self.retention_ms is not None:
            # Kafka deletes whole segments, and never the one that is written.
            configs = {**configs, "segment.ms": str(max(self.retention_ms // 5, 60_000))}
        topic = CreatableTopic(
            name=self.topic,
            num_partitions=1,
            replication_factor=self.replication,
            configs=tuple(TopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        (made,) = (await self.upstream.ask_any(CreateTopicsRequest(topics=(topic,), timeout_ms=_CREATE_MS))).topics
        if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RequestRefused(f"the topic {self.topic} cannot be created", made.error_code, made.error_message)

    # --- for appends

    async def append_lane(self, *, is_failing: bool) -> BrokerConnection:
        """The connection for appends."""
        leader = self.upstream.leader(self.topic, 0)
        if leader is None or is_failing:
            await self.upstream.refresh_shared(self.topic)
            leader = self.upstream.leader(self.topic, 0)
        if leader is None:
            raise RequestRefused(self.topic, ErrorCode.LEADER_NOT_AVAILABLE)
        return await self.upstream.connection(leader.broker, f"{self.lane}-append")

    async def take_producer(self) -> tuple[int, int]:
        """A producer id and epoch that nobody else has."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_MS)
        answer = await self.upstream.ask_any(request)
        if answer.error_code:
            raise RequestRefused("InitProducerId", answer.error_code)
        return answer.producer_id, answer.producer_epoch

    # --- reading

    async def end(self, time_ms: int) -> int:
        """The offset of the first or of the next record: EARLIEST_TIMESTAMP or LATEST_TIMESTAMP."""
        part = ListOffsetsPartition(index=0, timestamp_ms=time_ms)
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=self.topic, partitions=(part,)),))
        answer = (await self._ask_leader(request)).topics[0].partitions[0]
        await self._check(answer.error_code)
        offset: int = answer.offset
        return offset

    async def read(self, offset: int, *, wait_ms: int) -> list[Record]:
        """The next records from an offset on; none if nothing comes in time."""
        part = FetchPartition(index=0, fetch_offset=offset, max_bytes=MAX_BATCH_BYTES)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MAX_BATCH_BYTES,
            isolation_level=_READ_COMMITTED,
            topics=(FetchTopic(name=self.topic, partitions=(part,)),),
        )
        answer = (await self._ask_leader(request)).topics[0].partitions[0]
        await self._check(answer.error_code)
        return [record for record in _records(answer.records or b"") if record.sequence_number >= offset]

    async def delete_before(self, offset: int) -> None:
        """Delete the records before an offset."""
        part = DeleteRecordsPartition(index=0, offset=offset)
        topic = DeleteRecordsTopic(name=self.topic, partitions=(part,))
        answer = await self._ask_leader(DeleteRecordsRequest(topics=(topic,), timeout_ms=_CREATE_MS), lane="delete")
        await self._check(answer.topics[0].partitions[0].error_code)

    async def _ask_leader(self, request: object, *, lane: str = "read") -> Any:
        leader = self.upstream.leader(self.topic, 0)
        if leader is None:
            await self.upstream.refresh((self.topic,))
            raise RequestRefused(self.topic, ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            return await self.upstream.ask(leader.broker, request, lane=f"{self.lane}-{lane}", seconds=_ANSWER_SECONDS)
        except UpstreamFailure:
            await self.upstream.refresh_shared(self.topic)
            raise

    async def _check(self, code: int) -> None:
        if code:
            if code in MOVED:
                await self.upstream.refresh_shared(self.topic)
            raise RequestRefused(f"the topic {self.topic}", code)


def _records(data: bytes | memoryview) -> Iterator[Record]:
    for batch in split_batches(data):
        yield from decode_records(batch)
