"""What waits to be appended to a partition, and where it was appended. Values of `appends`; nothing here decides."""

from dataclasses import dataclass
from typing import Any

from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.model.receipt import Receipt
from hubmere.records.header import BatchHeader


@dataclass(slots=True, eq=False)
class PendingAppend:
    """One request's batch with the receipts that wait for it."""

    batch: bytearray | memoryview
    header: BatchHeader
    receipts: list[Receipt]
    is_own: bool
    since: float
    place: int
    size_bytes: int
    # How many publications of clients are in it.
    publications: int
    # The transactional id, and the version of the client's request.
    transaction: tuple[str, int] | None = None
    lane: int = 0
    number: int = -1
    sent_at: float = 0.0
    connection: BrokerConnection | None = None
    is_retry: bool = False
    is_sealed: bool = False
    is_done: bool = False
    # Whether a request with it was not answered, so that it may have been appended.
    is_unknown: bool = False
    outcome: Any = None
    why: str = ""


@dataclass(slots=True)
class ProducerNumbers:
    """The producer of a partition's own batches, and its next number."""

    producer: tuple[int, int] | None = None
    next: int = 0


@dataclass(slots=True, kw_only=True)
class AppendPosition:
    """Where a batch was appended."""

    end_sequence: int
    time_ms: int
    latency_s: float
