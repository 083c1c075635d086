"""PulseTopic: writes the reports of this gateway to the pulse, and reads those of all gateways.

1. The topic is created by the first gateway, and again if somebody deletes it. Its records are kept for minutes.
2. A report is written every PULSE_SECONDS, and earlier if `is_urgent` says so. It is skipped while the previous one is
   under way: nothing queues up while the topic cannot be reached.
3. Reading begins at the end of the topic, or some records before it. Records that are not reports are counted and
   ignored.

Nothing that fails here ends or delays the gateway: the pulse is silent, and the board says since when.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hubmere.cluster.engine.appends import PartitionAppends
from hubmere.cluster.engine.joining import unseal
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.pulse.board import PulseBoard
from hubmere.cluster.pulse.encoding import decode_pulse, encode_pulse
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.model.monitoring.pulse import GatewayPulse
from hubmere.model.receipt import Receipt
from hubmere.records.header import read_header
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

log = logging.getLogger("hubmere.cluster")

PULSE_SECONDS: Final = 0.5
RETENTION_MS: Final = 5 * 60_000
_TICK_S: Final = 0.1
_WAIT_MS: Final = 500
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseSource:
    """Where reports come from: the next one, whether it should be written at once, and the time of its record."""

    next_pulse: Callable[[], GatewayPulse]
    is_urgent: Callable[[], bool]
    now_ms: Callable[[], int]


class PulseTopic:
    """The pulse of one gateway. Thread rule: the loop's thread only."""

    def __init__(self, partition: OnePartition, board: PulseBoard, source: PulseSource | None = None) -> None:
        """Without a source it only reads."""
        self._partition = partition
        self._board = board
        self._source = source
        self._read_from: int | None = None
        self._appends: PartitionAppends | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.unreadable_count = 0

    def start(self) -> None:
        """Begin to write and to read, in the background."""
        self._tasks = [asyncio.create_task(self._read_loop())]
        if self._source is not None:
            self._tasks.append(asyncio.create_task(self._write_loop(self._source)))
        for task in self._tasks:
            task.add_done_callback(log_failure)

    async def stop(self) -> None:
        """Stop reading and writing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._drop_appends()

    # --- writing

    async def _write_loop(self, source: PulseSource) -> None:
        loop = asyncio.get_running_loop()
        next_at = 0.0
        while True:
            if loop.time() >= next_at or source.is_urgent():
                next_at = loop.time() + PULSE_SECONDS
                self._write(source)
            await asyncio.sleep(_TICK_S)

    def _write(self, source: PulseSource) -> None:
        if self._partition.upstream.leader(self._partition.topic, 0) is None:
            return  # the read loop creates the topic
        if self._appends is None:
            self._appends = self._new_appends()
        if not self._appends.is_idle:
            return
        value = encode_pulse(source.next_pulse())
        batch = encode_batch([Record(sequence_number=0, time_ms=source.now_ms(), key=None, value=value, headers=())])
        own, header = unseal(batch, read_header(batch))
        self._appends.add(own, header, Receipt(1, len(batch), self._on_written), is_own=True)

    def _on_written(self, receipt: Receipt) -> None:
        if receipt.error is not None:
            # Begin again, with another producer id: the topic may be another one now.
            asyncio.get_running_loop().call_soon(self._drop_appends)

    def _drop_appends(self) -> None:
        if self._appends is not None:
            self._appends.close()
            self._appends = None

    def _new_appends(self) -> PartitionAppends:
        appends = PartitionAppends(
            0,
            connect=self._connect,
            take_producer=self._partition.take_producer,
            on_appended=lambda _: None,
            count_bytes=lambda _: None,
        )
        appends.topic = self._partition.topic
        return appends

    async def _connect(self, _: int) -> BrokerConnection:
        return await self._partition.append_lane(is_failing=self._appends is not None and bool(self._appends.failure))

    # --- reading

    async def _read_loop(self) -> None:
        while True:
            try:
                if self._read_from is None:
                    await self._partition.provide()
                    self._read_from = await self._partition.end(LATEST_TIMESTAMP)
                await self._read_once(self._read_from)
            except UpstreamFailure as failure:
                log.debug("the pulse cannot be read now: %s", failure)
                if isinstance(failure, RequestRefused) and failure.code in _ELSEWHERE:
                    self._read_from = None
                await asyncio.sleep(_PAUSE_S)

    async def read_last(self, count: int) -> None:
        """Read the last records of the topic, if it exists: for readers that do not stay."""
        if not await self._partition.exists():
            return
        end = await self._partition.end(LATEST_TIMESTAMP)
        self._read_from = max(end - count, await self._partition.end(EARLIEST_TIMESTAMP))
        while self._read_from < end:
            await self._read_once(self._read_from)

    async def _read_once(self, offset: int) -> None:
        records = await self._partition.read(offset, wait_ms=_WAIT_MS)
        now = asyncio.get_running_loop().time()
        for record in records:
            self._read_from = record.sequence_number + 1
            pulse = decode_pulse(record.value or b"")
            if pulse is None:
                self.unreadable_count += 1
            else:
                self._board.record(pulse, now)


def log_failure(task: asyncio.Task[None]) -> None:
    """Log that a task of the pulse has failed: the gateway serves on, and its condition says that it is silent."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the pulse of this gateway has stopped", exc_info=error)


# The topic was deleted or trimmed: find its end again, and create it if it does not exist.
_ELSEWHERE: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
