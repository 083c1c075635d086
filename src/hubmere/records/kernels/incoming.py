"""Runs of incoming AMQP transfers: ids and payloads of equal frames, and which messages have a partition key."""

from .amqp_values import DATA8, Malformed, read_u32
from .to_records import annotated_key


def take_transfers(
    data: bytes, at: int, end: int, head: bytes, id_bytes: int, tag: bytes, tag_bytes: int, tail: bytes, largest: int
) -> tuple[int, list[int], list[bytes]]:
    """Delivery-ids and payloads of the complete frames at `at` that have the same fixed bytes, and where they end.

    A frame has these parts: its size in four bytes; `head`; the delivery-id in one or four bytes; `tag`, which is the
    constructor and the size of a delivery-tag; its `tag_bytes`; `tail`; and the payload. `largest` limits its size.
    """
    ids: list[int] = []
    payloads: list[bytes] = []
    id_at = 4 + len(head)
    tag_at = id_at + id_bytes
    tail_at = tag_at + len(tag) + tag_bytes
    fixed = tail_at + len(tail)
    while at + fixed <= end:
        size = read_u32(data, at, end)
        stop = at + size
        if size < fixed or size > largest or stop > end:
            break
        if (
            data[at + 4 : at + id_at] != head
            or data[at + tail_at : at + fixed] != tail
            or data[at + tag_at : at + tag_at + len(tag)] != tag
        ):
            break
        ids.append(data[at + id_at] if id_bytes == 1 else read_u32(data, at + id_at, end))
        payloads.append(data[at + fixed : stop])
        at = stop
    return at, ids, payloads


def keyed_messages(messages: list[bytes]) -> list[int]:
    """Which of these messages have a partition key, or cannot be read; by their indexes."""
    found: list[int] = []
    index = -1
    for message in messages:
        index += 1
        end = len(message)
        # Almost every event is a body and nothing else.
        if end >= 5 and message[:4] == DATA8 and message[4] == end - 5:
            continue
        try:
            if annotated_key(message, 0, end, False) is not None:
                found.append(index)
        except Malformed:
            found.append(index)
    return found
