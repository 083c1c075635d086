"""Runs of transfers: many single-frame deliveries of one link, read in one loop without decoding each frame.

1. The general reader decodes a transfer.
2. Its bytes, without frame size, delivery-id and delivery-tag, are remembered as a `TransferShape`.
3. While following frames have the same bytes, they are the same transfer with another id, tag and payload: only these
   three are read, and nothing needs to be checked again.
4. The first frame that differs goes to the general reader again.

A client with one event in flight sends exactly one such frame at a time; `read_single` reads it without a run.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from hubmere.records.kernels import take_transfers
from hubmere.wire.amqp.codec.performatives import Transfer
from hubmere.wire.amqp.codec.types import Buffer
from hubmere.wire.amqp.deliveries import run_for

if TYPE_CHECKING:
    from hubmere.wire.amqp.codec.frames import FrameBuffer
    from hubmere.wire.amqp.link import Link
    from hubmere.wire.amqp.session import Session
    from hubmere.wire.amqp.signals import Signal

_TRANSFER_AT_8 = b"\x00\x53\x14"
# Where the fields begin after a narrow and a wide list constructor.
_FIELDS_AT = {0xC0: 14, 0xD0: 20}
_WIDTH = {0x43: 0, 0x52: 1, 0x70: 4}
_ID_FORMAT = {0x52: "B", 0x70: "I"}


@lru_cache(maxsize=256)
def _layout(head: int, id_format: str, tag: int, tail: int) -> struct.Struct:
    return struct.Struct(f">I{head}s{id_format}2s{tag}x{tail}s")


class TransferShape:
    """The constant bytes of the last single-frame transfer of a connection, and its link."""

    __slots__ = ("_head", "_id_bytes", "_layout", "_tag_head", "_tail", "link", "message_format", "settled")

    def __init__(
        self, link: Link, transfer: Transfer, layout: struct.Struct, fixed: tuple[Buffer, Buffer, Buffer]
    ) -> None:
        self.link = link
        self.message_format = transfer.message_format or 0
        self.settled = transfer.settled is True
        self._layout = layout
        self._head, self._tag_head, self._tail = (bytes(part) for part in fixed)
        self._id_bytes = _WIDTH[self._head[-1]]

    def take_run(self, source: FrameBuffer, frame_limit: int, signals: list[Signal]) -> bool:
        """Take the complete frames of this shape that follow; False if the link does not allow runs any more."""
        link = self.link
        if not link.can_receive_runs:
            return False
        largest = min(frame_limit, self._layout.size + link.max_message_size)
        source.position, ids, payloads = take_transfers(
            source.data, source.position, source.end, self._head, self._id_bytes, self._tag_head, self._tag_head[1],
            self._tail, largest,
        )  # fmt: skip
        if ids:
            run = run_for(signals, link, self.message_format, self.settled)
            run.ids += ids
            run.payloads += payloads
            self.count(len(ids))
        return True

    def read_single(self, data: bytes, frame_limit: int) -> tuple[int, bytes] | None:
        """Id and payload of the frame if `data` is exactly one frame of this shape, else None."""
        fixed_bytes, size = self._layout.size, len(data)
        if size < fixed_bytes or size > frame_limit or size > fixed_bytes + self.link.max_message_size:
            return None
        announced, head, delivery_id, tag_head, tail = self._layout.unpack_from(data)
        if announced != size or head != self._head or tail != self._tail or tag_head != self._tag_head:
            return None
        return delivery_id, data[fixed_bytes:]

    def count(self, deliveries: int) -> None:
        """Count deliveries that were read by this shape."""
        self.link.count_received(deliveries)
        self.link.session.count_incoming(deliveries)


def shape_of(
    frame: Buffer, body_start: int, payload_start: int, transfer: Transfer, session: Session
) -> TransferShape | None:
    """The shape of a complete transfer frame; None if the frame is of a kind that does not repeat."""
    link = session.links.get(transfer.handle)
    if link is None or not link.can_receive_runs or transfer.more or transfer.aborted or transfer.delivery_tag is None:
        return None
    fields_at = _FIELDS_AT.get(frame[11])
    if body_start != 8 or frame[8:11] != _TRANSFER_AT_8 or fields_at is None:
        return None
    id_at = fields_at + 1 + _WIDTH[frame[fields_at]]
    id_format = _ID_FORMAT.get(frame[id_at])
    tag_at = id_at + 1 + _WIDTH.get(frame[id_at], 0)
    tail_at = tag_at + 2 + len(transfer.delivery_tag)
    if id_format is None or frame[tag_at] != 0xA0:
        return None
    layout = _layout(id_at - 3, id_format, len(transfer.delivery_tag), payload_start - tail_at)
    fixed = (frame[4 : id_at + 1], frame[tag_at : tag_at + 2], frame[tail_at:payload_start])
    return TransferShape(link, transfer, layout, fixed)
