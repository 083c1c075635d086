"""Events as JSON or CSV, for a download from the Explorer."""

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence

from hubmere.portal import formatting
from hubmere.portal.events.search import FoundEvent

# Maximum size of an export: what a browser and a person can handle.
MAX_EXPORTED_EVENTS = 5000
MAX_EXPORTED_BYTES = 16 * 1024 * 1024
_COLUMNS = (
    "partition",
    "sequenceNumber",
    "offset",
    "enqueuedTime",
    "key",
    "keyBase64",
    "properties",
    "body",
    "bodyBase64",
)


def fields(hit: FoundEvent) -> dict[str, object]:
    """One event as plain values. A key or a body that is not text is in `keyBase64` or `bodyBase64`."""
    event = hit.event
    text = None if event.body is None else formatting.bytes_text(event.body)
    key = event.partition_key
    if key is None and event.key is not None:
        key = formatting.bytes_text(event.key)
    binary_key = event.key if key is None else None
    return {
        "partition": hit.partition,
        "sequenceNumber": event.sequence,
        "offset": str(event.offset),
        "enqueuedTime": formatting.timestamp(event.enqueued_ms),
        "key": key,
        "keyBase64": None if binary_key is None else _base64(binary_key),
        "properties": {name: _plain(typed.value) for name, typed in event.properties.items()},
        "body": text,
        "bodyBase64": None if text is not None or event.body is None else _base64(event.body),
    }


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such number (RFC 8259, 6).
        return str(value)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return formatting.value_text(value)


def to_json(hits: Sequence[FoundEvent]) -> str:
    """A JSON array with one object per event."""
    return json.dumps([fields(hit) for hit in hits], indent=2, ensure_ascii=False)


def to_csv(hits: Sequence[FoundEvent]) -> str:
    """CSV with a header (RFC 4180); properties are one JSON object.

    A text that a spreadsheet would run as a formula gets an apostrophe in front, because events come from anybody.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for hit in hits:
        values = fields(hit)
        values["properties"] = json.dumps(values["properties"], ensure_ascii=False)
        writer.writerow([_safe_cell(values[name]) for name in _COLUMNS])
    return text.getvalue()


def _safe_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


# Encoder and media type of each format.
FORMATS: Mapping[str, tuple[Callable[[Sequence[FoundEvent]], str], str]] = {
    "JSON": (to_json, "application/json"),
    "CSV": (to_csv, "text/csv"),
}
