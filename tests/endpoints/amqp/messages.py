"""Messages as clients encode them."""

from collections.abc import Sequence

from hubmere.wire.amqp.codec.message import Annotations, Data, Message, write_message
from hubmere.wire.amqp.codec.types import Int, Long, Short, Symbol, Value

BATCH_FORMAT = 0x80013700


def an_event(body: bytes | str = b"hi", *, key: str | None = None, annotations: Annotations | None = None) -> bytes:
    """One event with a data body."""
    known: dict[Value, Value] = dict(annotations or {})
    if key is not None:
        known[Symbol("x-opt-partition-key")] = key
    payload = body.encode() if isinstance(body, str) else body
    return write_message(Message(message_annotations=known or None, body=Data((payload,))))


def a_batch(events: Sequence[bytes], *, key: str | None = None) -> bytes:
    """An envelope with one event in each data section."""
    annotations: Annotations | None = None if key is None else {Symbol("x-opt-partition-key"): key}
    return write_message(Message(message_annotations=annotations, body=Data(tuple(events))))


def a_numbered_event(body: str, *, producer: int, epoch: int, sequence: int) -> bytes:
    """An event of an idempotent producer."""
    return an_event(
        body,
        annotations={
            Symbol("com.microsoft:producer-id"): Long(producer),
            Symbol("com.microsoft:producer-epoch"): Short(epoch),
            Symbol("com.microsoft:producer-sequence-number"): Int(sequence),
        },
    )


def body_of(message: Message) -> bytes:
    """The data of an event."""
    assert isinstance(message.body, Data)
    return b"".join(part or b"" for part in message.body.sections)
