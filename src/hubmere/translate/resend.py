"""An event that was read becomes a publication again: the same record, so that every client gets the same event.

Key, body, Kafka headers and all AMQP sections are those of the original. The log assigns a new sequence number, time
and partition.
"""

from hubmere.records.records import Record, encode_batch
from hubmere.translate.ingest import Publication
from hubmere.translate.view import EventView


def publication_from_view(event: EventView, now_ms: int) -> Publication:
    """A publication with one event that equals another. If its partition is not given, its key chooses it."""
    record = Record(0, now_ms, event.key, event.body, event.headers)
    return Publication(
        batch=encode_batch([record]),
        count=1,
        partition_key=text_key(event),
        producer=None,
        size_bytes=len(event.body or b""),
    )


def text_key(event: EventView) -> str | None:
    """The partition key, or the key of a Kafka record if it is UTF-8."""
    if event.partition_key is not None or event.key is None:
        return event.partition_key
    try:
        return event.key.decode()
    except UnicodeDecodeError:
        return None
