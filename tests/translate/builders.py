"""Builders for translation tests: AMQP messages by hand, stored batches, and parsers of the resulting transfers.

Encoders here are written from the AMQP specification and share nothing with the code under test.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hubmere.records.records import Record
from hubmere.records.varint import write_uvarint
from hubmere.translate import DecodedCache, Emission, emit_transfers
from hubmere.wire.amqp.codec.composites import read_described
from hubmere.wire.amqp.codec.decode import skip_value
from hubmere.wire.amqp.codec.message import MessageSections, split_message
from hubmere.wire.amqp.codec.performatives import Transfer
from records.builders import number_batch, stamp_append_time

NOW_MS = 1_700_000_000_000
LOG = "hub-0"


def record_of(
    index: int, body: bytes | None, partition_key: str | None, properties: Iterable[tuple[str, str | None]]
) -> Record:
    """The record of an event that was published over AMQP, at time 0; `index` counts in its batch.

    (reference: kafka 4.3)
    """
    headers = [(name, b"\x40" if value is None else text(value)) for name, value in properties]
    if partition_key is None and not headers:
        return Record(index, 0, None, body)
    count = bytearray()
    write_uvarint(count, len(headers))
    kind, rest = (0, b"\x00") if body is not None else (1, b"\x00\x00")
    envelope = ("x-opt-amqp", bytes((1, kind)) + count + rest)
    return Record(index, 0, None if partition_key is None else partition_key.encode(), body, (*headers, envelope))


def sized(code: int, content: bytes) -> bytes:
    """A value of variable width; `code` is its short constructor."""
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code + 0x10,)) + len(content).to_bytes(4, "big") + content


def compound(code: int, items: Sequence[bytes], *, wide: bool = False) -> bytes:
    """A list (0xc0) or map (0xc1) of encoded items."""
    content = b"".join(items)
    if wide or len(content) > 254 or len(items) > 255:
        return bytes((code + 0x10,)) + (len(content) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + content
    return bytes((code, len(content) + 1, len(items))) + content


def text(value: str) -> bytes:
    """A string."""
    return sized(0xA1, value.encode())


def symbol(value: str) -> bytes:
    """A symbol."""
    return sized(0xA3, value.encode())


def section(code: int, value: bytes) -> bytes:
    """A section around an encoded value."""
    return bytes((0, 0x53, code)) + value


def data(body: bytes) -> bytes:
    """A Data section."""
    return section(0x75, sized(0xA0, body))


def annotations(*pairs: tuple[str, bytes]) -> bytes:
    """A message-annotations section with symbol keys."""
    return section(0x72, compound(0xC1, [part for name, value in pairs for part in (symbol(name), value)]))


def application_properties(*pairs: tuple[str, bytes]) -> bytes:
    """An application-properties section with string keys."""
    return section(0x74, compound(0xC1, [part for name, value in pairs for part in (text(name), value)]))


def batch_of(*messages: bytes, envelope: bytes = b"") -> bytes:
    """A batch message: one message in each data section."""
    return envelope + b"".join(data(message) for message in messages)


def producer_annotations(sequence: int, *, producer_id: int = 7, epoch: int = 1) -> bytes:
    """The annotations of an idempotent producer's event."""
    return annotations(
        ("com.microsoft:producer-id", b"\x81" + producer_id.to_bytes(8, "big")),
        ("com.microsoft:producer-epoch", b"\x61" + epoch.to_bytes(2, "big")),
        ("com.microsoft:producer-sequence-number", b"\x71" + sequence.to_bytes(4, "big", signed=True)),
    )


def stored(batch: bytearray, *, base: int = 0, now_ms: int = NOW_MS) -> bytes:
    """A batch as the log stores it: numbered, stamped with its append time, sealed."""
    number_batch(batch, base)
    stamp_append_time(batch, now_ms)
    return bytes(batch)


def emit(
    batches: bytes,
    from_sequence: int = 0,
    *,
    offset: int = 0,
    limit: int = 1_000_000,
    max_bytes: int = 1 << 30,
    cache: DecodedCache | None = None,
    **options: Any,
) -> Emission:
    """Transfers of stored batches on channel 1, handle 3."""
    arguments = {"channel": 1, "handle": 3, "next_delivery_id": 0, "max_frame_size": 1 << 20} | options
    return emit_transfers(
        batches,
        offset,
        from_sequence,
        limit=limit,
        max_bytes=max_bytes,
        cache=cache or DecodedCache(),
        log=LOG,
        **arguments,
    )


@dataclass(frozen=True, slots=True)
class Delivered:
    """One transfer frame, read with the generic codec."""

    channel: int
    transfer: Transfer
    field_count: int
    payload: bytes

    @property
    def sections(self) -> MessageSections:
        """The sections of the message, not decoded."""
        return split_message(self.payload)


def deliveries(frames: bytes) -> list[Delivered]:
    """The frames in some bytes, which contain nothing else."""
    found = []
    at = 0
    while at < len(frames):
        size = int.from_bytes(frames[at : at + 4], "big")
        frame = frames[at : at + size]
        assert frame[4:6] == b"\x02\x00"
        transfer, end = read_described(frame, 8)
        found.append(Delivered(int.from_bytes(frame[6:8], "big"), transfer, frame[13], frame[end:]))
        at += size
    assert at == len(frames)
    return found


def pairs(value: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of an encoded map, still encoded."""
    at = 3 if value[0] == 0xC1 else 9
    found = []
    while at < len(value):
        middle = skip_value(value, at)
        end = skip_value(value, middle)
        found.append((value[at:middle], value[middle:end]))
        at = end
    return found
