"""The traces that the events of batches belong to, for a node that exports spans.

Clients put a trace context (W3C Trace Context, 3.2: `traceparent`) into an application property or a Kafka header:
`traceparent`, or `Diagnostic-Id` in older Azure SDKs. A record stores a property with its AMQP encoding, so the context
is searched for inside the value. Only batches that contain one of the names are decoded, and none that is too large to
be decompressed on the event loop (`slices.SMALL_BYTES`).
"""

import re
from collections.abc import Iterator

from hubmere.records import kernels
from hubmere.records.header import Buffer
from hubmere.translate.deliver import batches_from, is_visible
from hubmere.translate.slices import Record, Slice, open_small

_NAMES = frozenset({b"traceparent", b"diagnostic-id"})
_MARKS = (b"traceparent", b"Diagnostic-Id", b"diagnostic-id", b"Traceparent")
_CONTEXT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_parents(data: Buffer, from_sequence: int, end_sequence: int, limit: int) -> list[str]:
    """The distinct trace contexts of the events in a range of sequence numbers, at most `limit` of them."""
    found: dict[str, None] = {}
    for context in _contexts(data, from_sequence, end_sequence):
        found[context] = None
        if len(found) >= limit:
            break
    return list(found)


def _contexts(data: Buffer, from_sequence: int, end_sequence: int) -> Iterator[str]:
    for header, _, closed in batches_from(data, 0, from_sequence):
        batch = open_small(header, closed) if is_visible(header) else None
        if batch is None or not batch.is_readable:
            continue
        sequence, end = from_sequence, min(end_sequence, header.next_sequence_number)
        while sequence < end:
            part = batch.slice_from(sequence)
            sequence = part.next_sequence
            for _, delta, _, _, headers in _marked_records(part):
                if from_sequence <= header.base_sequence_number + delta < end_sequence:
                    yield from _record_context(headers)


def _marked_records(part: Slice) -> list[Record]:
    """The records of a slice; none if it has no trace context, or cannot be decoded."""
    if not any(mark in part.records for mark in _MARKS):
        return []
    try:
        return kernels.read_records(part.records, part.at, part.record_count)
    except kernels.Malformed:
        return []


def _record_context(headers: list[tuple[bytes, bytes | None]]) -> Iterator[str]:
    for name, value in headers:
        if name.lower() in _NAMES and (match := _CONTEXT.search(value or b"")):
            yield match.group().decode()
            return
