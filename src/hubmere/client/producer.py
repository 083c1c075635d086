"""Writes batches to a hub exactly once: repeating the same batches under the same producer id adds no duplicates.

The caller chooses the id, which stands for exactly one series of batches per partition. The log of a partition
remembers a producer's last sequence and its last five batches for a day after its last write, and ignores what it
already has (Kafka's rules for idempotent producers). Batches are acknowledged when they are on disk; a few requests are
in flight at a time. Batches for different partitions share a request, which the node stores in one go.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hubmere.client.connection import Client, Connection
from hubmere.client.facts import largest_batch_bytes
from hubmere.client.failures import ClientFailure, Refused
from hubmere.records.header import PRODUCER_SEQUENCE_MASK, read_header, seal, write_header
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

# Re-exported, so that users of the client need not import the wire format.
__all__ = ["HubProducer", "Record", "encode_batch", "producer_id_of"]

# The log recognises duplicates of a producer's last five batches, so fewer than that may be unacknowledged. A request
# has at most one batch for a partition.
_MAX_IN_FLIGHT: Final = 4
# Several batches in one request stay below what the service accepts (`message.max.bytes`).
_MAX_REQUEST_BYTES: Final = 1_000_000
# A node refuses a batch that is too large. A request larger than 4 MiB it may not even read: it closes the connection.
_MAX_READ_BYTES: Final = 4_000_000
_ACKS_ALL: Final = -1
_PRODUCE_TIMEOUT_MS: Final = 30_000
_EPOCH: Final = 0
# A node assigns ids from 0 upwards; chosen ids are hashed into the upper half of the range.
_CHOSEN_IDS: Final = 1 << 62

# The last one: all earlier batches are stored and the series is the same, so this batch was stored long ago.
_WRITTEN: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
)


def producer_id_of(parts: Iterable[bytes | memoryview]) -> int:
    """A producer id for the series of batches that these parts identify."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return _CHOSEN_IDS | int.from_bytes(digest.digest()[:8], "big") >> 2


class _Batch(NamedTuple):
    partition: int
    events: int
    content: bytearray


class HubProducer:
    """Writes one series of batches to one hub. Thread rule: one owner; `flush` before the work counts as done."""

    def __init__(self, client: Client, hub: str, producer_id: int) -> None:
        self._client = client
        self._hub = hub
        self._producer_id = producer_id
        self._next: dict[int, int] = {}
        # Requests without a response yet.
        self._in_flight: deque[list[_Batch]] = deque()

    def send(self, partition: int, batch: bytearray) -> None:
        """As `send_all`, with one batch."""
        self.send_all([(partition, batch)])

    def send_all(self, batches: Sequence[tuple[int, bytearray]]) -> None:
        """Number, seal and write batches, which must not be used again; waits only while too many are in flight."""
        self._check_sizes(batches)
        for request in _requests_of(batches):
            self._send_request([self._number(partition, batch) for partition, batch in request])

    def _check_sizes(self, batches: Sequence[tuple[int, bytearray]]) -> None:
        """Refuse a batch that the hub does not take, if the node might close the connection instead of refusing it."""
        partition, batch = max(batches, key=lambda each: len(each[1]), default=(0, bytearray()))
        if len(batch) <= _MAX_READ_BYTES:
            return
        # The answers that are still to come arrive before that of another request.
        self.flush()
        limit = largest_batch_bytes(self._client, self._hub)
        if limit is not None and len(batch) > limit:
            text = f"It has {len(batch)} bytes; the hub takes at most {limit}."
            raise Refused(self._what(partition, read_header(batch).record_count), ErrorCode.MESSAGE_TOO_LARGE, text)

    def _what(self, partition: int, events: int) -> str:
        return f"a batch of {events} events to partition {partition} of '{self._hub}'"

    def _send_request(self, batches: list[_Batch]) -> None:
        self._settle(_MAX_IN_FLIGHT - 1)
        self._in_flight.append(batches)
        try:
            self._client.call_once(lambda connection: self._post(connection, batches))
        except ClientFailure as failure:
            self._recover(failure)

    def _number(self, partition: int, batch: bytearray) -> _Batch:
        header = read_header(batch)
        first = self._next.get(partition, 0)
        self._next[partition] = (first + header.record_count) & PRODUCER_SEQUENCE_MASK
        numbered = header._replace(producer_id=self._producer_id, producer_epoch=_EPOCH, producer_sequence=first)
        write_header(batch, numbered)
        seal(batch)
        return _Batch(partition, header.record_count, batch)

    def flush(self) -> None:
        """Wait until everything that was sent is on disk."""
        self._settle(0)

    def _settle(self, allowed: int) -> None:
        while len(self._in_flight) > allowed:
            try:
                self._client.call_once(self._take_answer)
            except ClientFailure as failure:
                self._recover(failure)
            else:
                self._in_flight.popleft()

    def _recover(self, failure: ClientFailure) -> None:
        """Write all unacknowledged batches again, one by one: responses after a failed one cannot be used."""
        if not failure.is_transient:
            raise failure
        while self._in_flight:
            self._client.call(self._write_next)
            self._in_flight.popleft()

    def _write_next(self, connection: Connection) -> None:
        self._post(connection, self._in_flight[0])
        self._take_answer(connection)

    def _post(self, connection: Connection, sent: Sequence[_Batch]) -> None:
        parts = tuple(ProducePartition(index=batch.partition, records=batch.content) for batch in sent)
        topics = (ProduceTopic(name=self._hub, partitions=parts),)
        connection.send(ProduceRequest(acks=_ACKS_ALL, timeout_ms=_PRODUCE_TIMEOUT_MS, topics=topics))

    def _take_answer(self, connection: Connection) -> None:
        events = {batch.partition: batch.events for batch in self._in_flight[0]}
        for part in [part for topic in connection.receive().topics for part in topic.partitions]:
            if part.error_code not in _WRITTEN:
                raise Refused(self._what(part.index, events[part.index]), part.error_code, part.error_message)


def _requests_of(batches: Sequence[tuple[int, bytearray]]) -> Iterator[list[tuple[int, bytearray]]]:
    """The batches of each request, in order: one for a partition, and more than one only below the limit."""
    request: list[tuple[int, bytearray]] = []
    size_bytes = 0
    for partition, batch in batches:
        if any(partition == other for other, _ in request) or (
            request and size_bytes + len(batch) > _MAX_REQUEST_BYTES
        ):
            yield request
            request, size_bytes = [], 0
        request.append((partition, batch))
        size_bytes += len(batch)
    if request:
        yield request
