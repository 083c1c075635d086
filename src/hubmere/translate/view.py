"""Events decoded for display in the portal, on the command line and over HTTP.

The AMQP side is read from the message that a receiver would get, with the generic codec; the Kafka side is the record's
own key, value and headers. This code is not on a data path.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hubmere.model.offsets import spread_offset
from hubmere.records import kernels
from hubmere.records.header import BatchHeader, Buffer
from hubmere.translate.columns import PROPERTY_NAMES, section_value
from hubmere.translate.deliver import OwnOffsets, batches_from, is_visible
from hubmere.translate.slices import Record, Slice, open_batch
from hubmere.wire.amqp.codec import types as amqp
from hubmere.wire.amqp.codec.message import split_message

_TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    amqp.UByte: "ubyte",
    amqp.UShort: "ushort",
    amqp.UInt: "uint",
    amqp.ULong: "ulong",
    amqp.Byte: "byte",
    amqp.Short: "short",
    amqp.Int: "int",
    amqp.Long: "long",
    amqp.Float: "float",
    float: "double",
    amqp.Decimal32: "decimal32",
    amqp.Decimal64: "decimal64",
    amqp.Decimal128: "decimal128",
    amqp.Char: "char",
    amqp.Timestamp: "timestamp",
    uuid.UUID: "uuid",
    bytes: "binary",
    str: "string",
    amqp.Symbol: "symbol",
    list: "list",
    dict: "map",
    amqp.Array: "array",
    amqp.Described: "described",
}


class TypedValue(NamedTuple):
    """A decoded value and the name of its AMQP type."""

    type: str
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One event as both protocols show it."""

    sequence: int
    offset: int
    enqueued_ms: int
    key: bytes | None
    partition_key: str | None
    publisher: str | None
    body: bytes | None
    properties: Mapping[str, TypedValue]
    system_properties: Mapping[str, TypedValue]
    headers: tuple[tuple[str, bytes | None], ...]


def events(
    data: Buffer,
    offset: int,
    from_sequence: int,
    limit: int,
    *,
    on_unreadable: Callable[[int, int], None] | None = None,
    offsets_are_sequences: bool = False,
    offsets: OwnOffsets = None,
) -> list[EventView]:
    """At most `limit` events of whole batches, from a sequence number on; `offsets` as for `emit_transfers`.

    A batch whose records cannot be decoded is skipped; `on_unreadable` gets its first and its next sequence number.
    """
    found: list[EventView] = []
    for header, batch_offset, closed in batches_from(data, offset, from_sequence):
        if not is_visible(header):
            continue
        own = None if offsets is None else offsets.get(header.base_sequence_number)
        batch = open_batch(header, closed)
        sequence = max(from_sequence, header.base_sequence_number)
        while sequence < header.next_sequence_number:
            part = batch.slice_from(sequence)
            records = _records(part) if batch.is_readable else None
            if records is None:
                if on_unreadable is not None:
                    on_unreadable(part.sequence, header.next_sequence_number)
                break
            for view in _views(header, records, part.first, batch_offset, has_sequences=offsets_are_sequences, own=own):
                if len(found) >= limit:
                    return found
                if view.sequence >= from_sequence:
                    found.append(view)
            sequence = part.next_sequence
    return found


def _records(part: Slice) -> list[Record] | None:
    """The decoded records of a slice; None if they cannot be decoded."""
    try:
        return kernels.read_records(part.records, part.at, part.record_count)
    except kernels.Malformed:
        return None


def _views(
    header: BatchHeader,
    records: list[Record],
    first: int,
    offset: int,
    *,
    has_sequences: bool,
    own: Sequence[int] | None,
) -> Iterator[EventView]:
    """The events of records, of which `first` are before them in the batch."""
    is_append_time = header.is_append_time
    for index, (time_delta, delta, key, value, headers) in enumerate(records, first):
        sequence = header.base_sequence_number + delta
        if own is not None:
            event_offset = own[index]
        elif has_sequences:
            event_offset = sequence
        else:
            event_offset = spread_offset(offset, header.size_bytes, header.last_delta + 1, delta)
        time_ms = header.max_time_ms if is_append_time else header.base_time_ms + time_delta
        yield _view(sequence, event_offset, time_ms, key, value, headers)


def _view(
    sequence: int,
    offset: int,
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
) -> EventView:
    sections = split_message(kernels.message_of(key, value, headers))
    annotations = {
        str(name): _typed_value(content) for name, content in section_value(sections.message_annotations, {}).items()
    }
    fields = zip(PROPERTY_NAMES, section_value(sections.properties, []), strict=False)
    system = {name: _typed_value(content) for name, content in fields if content is not None}
    application = section_value(sections.application_properties, {})
    partition_key = annotations.get("x-opt-partition-key")
    publisher = annotations.get("x-opt-publisher")
    return EventView(
        sequence=sequence,
        offset=offset,
        enqueued_ms=time_ms,
        key=key,
        partition_key=None if partition_key is None else str(partition_key.value),
        publisher=None if publisher is None else str(publisher.value),
        body=value,
        properties={str(name): _typed_value(content) for name, content in application.items()},
        system_properties=annotations | system,
        headers=tuple((name.decode("utf-8", "replace"), content) for name, content in headers),
    )


def _typed_value(value: amqp.Value) -> TypedValue:
    return TypedValue(_TYPE_NAMES.get(type(value), "described"), value)
