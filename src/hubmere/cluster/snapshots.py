"""Snapshots of the control log: the whole state as parts in a topic of their own, so that the log can be trimmed.

1. A gateway writes the bytes of the state as parts. The key of a part has the digest of the bytes, its number, and the
   count of parts.
2. A snapshot is valid if all its parts exist and the digest matches: an incomplete one is ignored.
3. The last valid snapshot is loaded. When another one is written, all but the last two are deleted.
"""

import asyncio
import hashlib
import logging
from typing import Final

from hubmere.cluster.engine.appends import PartitionAppends
from hubmere.cluster.engine.joining import unseal
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.upstream import with_patience
from hubmere.model.receipt import Receipt
from hubmere.records.header import read_header
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

log = logging.getLogger("hubmere.cluster")

_PART_BYTES: Final = 512 * 1024
_WAIT_MS: Final = 100
_PROVIDE_SECONDS: Final = 30.0


class Snapshots:
    """The snapshots of a cluster. Thread rule: the loop's thread only."""

    def __init__(self, partition: OnePartition, *, now_ms: int = 0) -> None:
        self._partition = partition
        self._now_ms = now_ms
        self._appends: PartitionAppends | None = None
        # Where the newest whole snapshots begin, in order.
        self._begins: list[int] = []

    async def load(self) -> bytes | None:
        """The bytes of the last whole snapshot; None if there is none."""
        if not await self._partition.exists():
            return None
        at, end = await self._partition.end(EARLIEST_TIMESTAMP), await self._partition.end(LATEST_TIMESTAMP)
        parts: dict[tuple[str, int], dict[int, tuple[int, bytes]]] = {}
        found: bytes | None = None
        while at < end:
            for record in await self._partition.read(at, wait_ms=_WAIT_MS):
                at = record.sequence_number + 1
                try:
                    digest, number, count = _parse_key(record.key)
                except ValueError:
                    log.warning("record %d of %s is no part of a snapshot", at - 1, self._partition.topic)
                    continue
                known = parts.setdefault((digest, count), {})
                known[number] = (record.sequence_number, record.value or b"")
                if len(known) == count:
                    data = b"".join(known[each][1] for each in range(count))
                    if digest_of(data) == digest:
                        found = data
                        self._begins.append(known[0][0])
                    del parts[digest, count]
        return found

    async def write(self, data: bytes) -> None:
        """Write a snapshot, then delete those before the last one; raises UpstreamFailure or a refusal."""
        await with_patience(self._partition.provide, seconds=_PROVIDE_SECONDS)
        digest = digest_of(data)
        count = max(-(-len(data) // _PART_BYTES), 1)
        begins = []
        for number in range(count):
            part = data[number * _PART_BYTES : (number + 1) * _PART_BYTES]
            begins.append(await self._append(f"{digest}/{number}/{count}".encode(), part))
        self._begins.append(begins[0])
        if len(self._begins) > 2:
            self._begins = self._begins[-2:]
            await self._partition.delete_before(self._begins[0])

    async def _append(self, key: bytes, value: bytes) -> int:
        if self._appends is None:
            self._appends = PartitionAppends(
                0,
                connect=self._connect,
                take_producer=self._partition.take_producer,
                on_appended=lambda _: None,
                count_bytes=lambda _: None,
            )
            self._appends.topic = self._partition.topic
        record = Record(sequence_number=0, time_ms=self._now_ms, key=key, value=value, headers=())
        batch = encode_batch([record])
        own, header = unseal(batch, read_header(batch))
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._appends.add(own, header, Receipt(1, len(batch), done.set_result), is_own=True)
        receipt = await done
        if receipt.error is not None:
            raise receipt.error
        return receipt.sequence_number

    async def _connect(self, _: int) -> BrokerConnection:
        assert self._appends is not None
        return await self._partition.append_lane(is_failing=bool(self._appends.failure))

    def close(self) -> None:
        """Stop writing."""
        if self._appends is not None:
            self._appends.close()


def digest_of(data: bytes) -> str:
    """The digest of a state; it must be equal on all gateways."""
    return hashlib.sha256(data).hexdigest()


def _parse_key(key: bytes | None) -> tuple[str, int, int]:
    digest, number, count = (key or b"").decode().split("/")
    return digest, int(number), int(count)
