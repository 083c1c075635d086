"""AMQP and HTTP messages to record batches and back: the only package that knows two formats.

`ingest` and `http` turn publications into batches, `typed_values` reads properties whose types are named, `deliver`
turns batches into transfers, `view` decodes events for display, `view_json` writes them as the HTTP API returns them,
`resend` turns such an event into a publication again, and `assignments` decodes the partitions of a group member.
`hubmere.records.kernels` does the work per event; its `record_layout` describes how a message is stored in a record.
"""

from hubmere.translate.assignments import assigned_partitions
from hubmere.translate.decoded import DecodedCache
from hubmere.translate.deliver import (
    AbortedRange,
    ClosedBatch,
    Emission,
    OwnOffsets,
    RuntimeInfo,
    delivery_annotations,
    emit_transfers,
)
from hubmere.translate.http import HttpEvent, UserProperty, message_from_http, publication_from_http
from hubmere.translate.ingest import (
    BATCH_FORMAT,
    ProducerStamp,
    Publication,
    keyed_messages,
    messages_to_batch,
    publication_from_amqp,
)
from hubmere.translate.resend import publication_from_view, text_key
from hubmere.translate.slices import OpenBatch, open_batch
from hubmere.translate.traces import trace_parents
from hubmere.translate.typed_values import parse_typed_value
from hubmere.translate.view import EventView, TypedValue, events
from hubmere.translate.view_json import event_json

__all__ = [
    "BATCH_FORMAT",
    "Publication",
    "ProducerStamp",
    "publication_from_amqp",
    "messages_to_batch",
    "keyed_messages",
    "HttpEvent",
    "UserProperty",
    "message_from_http",
    "publication_from_http",
    "parse_typed_value",
    "publication_from_view",
    "text_key",
    "DecodedCache",
    "RuntimeInfo",
    "AbortedRange",
    "ClosedBatch",
    "Emission",
    "OwnOffsets",
    "emit_transfers",
    "OpenBatch",
    "open_batch",
    "delivery_annotations",
    "EventView",
    "TypedValue",
    "events",
    "event_json",
    "assigned_partitions",
    "trace_parents",
]
