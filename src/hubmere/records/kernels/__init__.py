"""The inner loops over events and requests: what arrives becomes records, and records become messages and transfers.

One call handles a run of events. The modules are written for the interpreter (tables, slices, one join per run) and are
compiled together by mypyc from the same source where a compiler is available; both forms give the same bytes and the
same errors. They import nothing outside this package, keep no state but two bounded tables of property names, and
answer any malformed input with `Malformed`, never with another exception.
"""

from .amqp_values import DELIVERY_ANNOTATIONS, MAX_DEPTH, Malformed, value_end
from .frames import frame_messages, frame_template
from .incoming import keyed_messages, take_transfers
from .produce_requests import take_requests
from .record_layout import (
    ENVELOPE_NAME,
    ENVELOPE_VERSION,
    KIND_DATA,
    KIND_MANY_DATA,
    MAX_RECORDS,
    NULL,
    PLAIN_ENVELOPE,
    TABLE_SIZE,
    offset_delta,
    read_records,
    skip_records,
    with_length,
)
from .renumbering import renumber_records
from .to_messages import encode_messages, message_of
from .to_records import annotated_key, first_message, join_messages, single_record, split_batch

__all__ = [
    "DELIVERY_ANNOTATIONS",
    "ENVELOPE_NAME",
    "ENVELOPE_VERSION",
    "KIND_DATA",
    "KIND_MANY_DATA",
    "MAX_DEPTH",
    "MAX_RECORDS",
    "NULL",
    "PLAIN_ENVELOPE",
    "TABLE_SIZE",
    "Malformed",
    "annotated_key",
    "encode_messages",
    "first_message",
    "frame_messages",
    "frame_template",
    "join_messages",
    "keyed_messages",
    "message_of",
    "offset_delta",
    "read_records",
    "renumber_records",
    "single_record",
    "skip_records",
    "split_batch",
    "take_requests",
    "take_transfers",
    "value_end",
    "with_length",
]
