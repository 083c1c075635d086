"""AMQP messages become record batches: one publication is one batch.

Reads a publication's partition key, publisher and producer; which key is stored is the broker's decision
(`resolve_key`). The kernels encode each event. The log numbers, stamps and seals the batch later. A publication is
stored or refused as a whole, with `UndecodableMessage` or as the refusal of `resolve_key`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hubmere.model.errors import UndecodableMessage
from hubmere.model.keys import check_partition_key
from hubmere.records import kernels
from hubmere.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER,
    UNSEALED,
    BatchHeader,
    Buffer,
    write_header,
)
from hubmere.records.split import split_batch

# Message format of a batch: one message in each data section.
BATCH_FORMAT = 0x8001_3700
_MAX_EPOCH = 0x7FFF
_MAX_SEQUENCE = 0x7FFF_FFFF
_MAX_PRODUCER_ID = 0x7FFF_FFFF_FFFF_FFFF

_PUBLISHER_NAME = b"\xa3\x0fx-opt-publisher"


# Decides which key is stored for events that were sent with a key or without one.
ResolveKey = Callable[[str | None], str | None]


def accept_key(key: str | None) -> str | None:
    """Store the key that was sent, if it is valid."""
    check_partition_key(key)
    return key


class ProducerStamp(NamedTuple):
    """The producer of a batch, and the producer's own sequence number of its first event."""

    producer_id: int
    epoch: int
    first_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One atomic publication, ready for a partition's log."""

    batch: bytearray
    count: int
    partition_key: str | None
    producer: ProducerStamp | None
    size_bytes: int  # as the publisher sent it: what limits and quotas count


def publication_from_amqp(
    payload: Buffer,
    message_format: int,
    *,
    publisher: str | None = None,
    resolve_key: ResolveKey = accept_key,
    idempotent: bool = True,
) -> Publication:
    """The events of one delivery, for one partition.

    `resolve_key` gets the key that was sent and returns the key to store, or refuses it. `idempotent` says whether
    producer annotations number the batch; on a link that did not ask for it they are kept as ordinary annotations (a
    forwarder may carry those of the event it read).
    """
    data = payload if type(payload) is bytes else bytes(payload)
    is_batch = message_format == BATCH_FORMAT
    producers: list[int] | None = [] if idempotent else None
    try:
        key = resolve_key(_sent_key(data, is_batch))
        key_bytes = None if key is None else key.encode()
        added = b"" if publisher is None else _publisher_entry(publisher)
        if is_batch:
            batch, count = split_batch(data, key_bytes, added, producers)
        else:
            batch, count = kernels.single_record(data, key_bytes, added, producers), 1
    except kernels.Malformed as error:
        raise UndecodableMessage(str(error)) from error
    producer = _producer_of(producers, count) if producers else None
    _write_header(batch, count, producer)
    return Publication(batch=batch, count=count, partition_key=key, producer=producer, size_bytes=len(data))


def publication_of(
    messages: Sequence[bytes], key: str | None, publisher: str | None, *, size_bytes: int
) -> Publication:
    """Messages that this package encoded, with the key to store, as one publication."""
    key_bytes = None if key is None else key.encode()
    added = b"" if publisher is None else _publisher_entry(publisher)
    batch = kernels.join_messages(list(messages), key_bytes, added)
    _write_header(batch, len(messages), None)
    return Publication(batch=batch, count=len(messages), partition_key=key, producer=None, size_bytes=size_bytes)


def messages_to_batch(messages: Sequence[bytes]) -> bytearray:
    """Single messages without partition key, publisher or producer as one batch, in their order.

    One undecodable message refuses them all; the caller then publishes them one at a time.
    """
    try:
        batch = kernels.join_messages(messages if type(messages) is list else list(messages), None, b"")
    except kernels.Malformed as error:
        raise UndecodableMessage(str(error)) from error
    _write_header(batch, len(messages), None)
    return batch


def keyed_messages(messages: list[bytes]) -> list[int]:
    """The indexes of the encoded messages that have a partition key, or are malformed and will be refused."""
    return kernels.keyed_messages(messages)


def _sent_key(data: bytes, is_batch: bool) -> str | None:
    """The key that the publisher wrote: on the envelope, else on the first message; an empty key is none."""
    first, stop = kernels.first_message(data) if is_batch else (0, len(data))
    key = kernels.annotated_key(data, 0, len(data), True) if is_batch else None
    sent = kernels.annotated_key(data, first, stop, False) if key is None else key
    try:
        return sent.decode() if sent else None
    except UnicodeDecodeError as error:
        raise UndecodableMessage("the partition key is not UTF-8") from error


def _publisher_entry(publisher: str) -> bytes:
    name = publisher.encode()
    width = b"\xa1" + bytes((len(name),)) if len(name) < 256 else b"\xb1" + len(name).to_bytes(4, "big")
    return _PUBLISHER_NAME + width + name


def _producer_of(producers: list[int], count: int) -> ProducerStamp:
    """The producer of a batch: the same on every event, its sequence numbers without a gap."""
    if len(producers) != count * 3:
        raise UndecodableMessage("only some events of the batch carry producer annotations")
    stamp = ProducerStamp(*producers[:3])
    if not (
        0 <= stamp.producer_id <= _MAX_PRODUCER_ID
        and 0 <= stamp.epoch <= _MAX_EPOCH
        and 0 <= stamp.first_sequence <= _MAX_SEQUENCE
    ):
        raise UndecodableMessage("a producer annotation is out of range")
    expected = [(stamp.first_sequence + index) & _MAX_SEQUENCE for index in range(count)]
    if (
        set(producers[0::3]) != {stamp.producer_id}
        or set(producers[1::3]) != {stamp.epoch}
        or producers[2::3] != expected
    ):
        raise UndecodableMessage("the producer annotations of the batch are not contiguous")
    return stamp


def _write_header(batch: bytearray, count: int, producer: ProducerStamp | None) -> None:
    """Write the header; the fields that the log sets (position, times, checksum) stay zero."""
    number = producer or ProducerStamp(NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
    assert len(batch) > HEADER_BYTES
    write_header(
        batch,
        BatchHeader(
            base_sequence_number=0,
            length=len(batch) - LENGTH_PREFIX_BYTES,
            leader_epoch=0,
            magic=MAGIC,
            crc=UNSEALED,
            attributes=0,
            last_delta=count - 1,
            base_time_ms=0,
            max_time_ms=0,
            producer_id=number.producer_id,
            producer_epoch=number.epoch,
            producer_sequence=number.first_sequence,
            record_count=count,
        ),
    )
