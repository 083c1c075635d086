"""Incoming deliveries: reassembly of partial ones, and runs of complete ones (AMQP 1.0, 2.6.14).

Decides which pieces are copied and which are kept as views, never whether a delivery is accepted.

Frames in the middle of a large delivery all begin with the same bytes:
1. The general reader decodes a transfer that is not the last of its delivery, and remembers the bytes before its
   payload as a `RepeatedTransfer`.
2. While the following frames have the same size and the same beginning, they are the same transfer with other payload,
   and are not decoded again. They may be taken out of a buffer that is overwritten later: only payload is copied.
3. The first frame that differs goes to the general reader again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubmere.wire.amqp.codec.composites import read_described
from hubmere.wire.amqp.codec.frames import MAX_PERFORMATIVE_BYTES, FrameBuffer
from hubmere.wire.amqp.codec.performatives import Transfer
from hubmere.wire.amqp.codec.types import Buffer
from hubmere.wire.amqp.errors import Condition, RemoteProtocolError
from hubmere.wire.amqp.signals import DeliveriesReceived, Signal

if TYPE_CHECKING:
    from hubmere.wire.amqp.link import Link
    from hubmere.wire.amqp.session import Session

# Smaller pieces are collected in one buffer: a list of tiny objects would use many times their size.
SMALL_PIECE_BYTES = 1024


def first_id(transfer: Transfer) -> int:
    """The id of the delivery that a transfer begins."""
    # AMQP 1.0, 2.7.5: the first transfer of a delivery must have it.
    if transfer.delivery_id is None:
        raise RemoteProtocolError(Condition.INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
    return transfer.delivery_id


class PartialDelivery:
    """The payloads received so far of an incomplete delivery."""

    __slots__ = ("delivery_id", "is_oversized", "message_format", "pieces", "settled", "size_bytes")

    def __init__(self, transfer: Transfer) -> None:
        self.delivery_id = first_id(transfer)
        self.message_format = transfer.message_format or 0
        self.settled = False
        self.pieces: list[Buffer] = []
        self.size_bytes = 0
        self.is_oversized = False

    def add(self, payload: memoryview) -> None:
        """Add a piece: as a view if the buffer behind it is mostly this piece, else as a copy."""
        self.size_bytes += len(payload)
        if len(payload) < SMALL_PIECE_BYTES:
            if not self.pieces or type(self.pieces[-1]) is not bytearray:
                self.pieces.append(bytearray())
            self.pieces[-1] += payload  # type: ignore[operator]
        elif len(payload) * 2 >= memoryview(payload.obj).nbytes:
            self.pieces.append(payload)
        else:
            self.pieces.append(bytes(payload))

    def mark_oversized(self, size_bytes: int) -> None:
        """The delivery exceeds the limit of its link: drop its bytes and only count its size from now on."""
        self.size_bytes += size_bytes
        self.is_oversized = True
        self.pieces.clear()


def report_delivery(
    signals: list[Signal], link: Link, delivery_id: int, message_format: int, settled: bool, payload: bytes
) -> None:
    """Add a complete delivery to the run at the end of `signals`, or start a new run."""
    run = run_for(signals, link, message_format, settled)
    run.ids.append(delivery_id)
    run.payloads.append(payload)


def run_for(signals: list[Signal], link: Link, message_format: int, settled: bool) -> DeliveriesReceived:
    """The run at the end of `signals` if it is of this kind, else a new one."""
    last = signals[-1] if signals else None
    if (
        type(last) is DeliveriesReceived
        and last.link is link
        and last.message_format == message_format
        and last.settled is settled
    ):
        return last
    run = DeliveriesReceived(link, message_format, settled, [], [])
    signals.append(run)
    return run


class RepeatedTransfer:
    """The last transfer that more will follow, and the bytes of its frame before the payload."""

    __slots__ = ("_head", "_size_bytes", "channel", "performative", "transfer")

    def __init__(self, unit: memoryview, start: int, end: int, channel: int, transfer: Transfer) -> None:
        """`start` and `end` are the bounds of the performative in the frame."""
        self._head = bytes(unit[:end])
        self._size_bytes = len(unit)
        self.channel = channel
        self.performative = self._head[start:]
        self.transfer = transfer

    def take_frames(self, source: FrameBuffer, data: memoryview, session: Session, signals: list[Signal]) -> int:
        """Give the complete frames at the beginning of `data` to their session; returns how many bytes were taken.

        The first frame may have begun in `source`. Stops after a frame that has caused a signal.
        """
        head, size, skipped, taken = self._head, self._size_bytes, len(self._head), 0
        if source.is_torn:
            taken = size - source.torn_bytes
            unit = source.complete_torn(head, size, data)
            if unit is None:
                return 0
            session.receive(self.transfer, unit[skipped:], signals)
        while not signals and len(data) - taken >= size and data[taken : taken + skipped] == head:
            payload = bytes(data[taken + skipped : taken + size])
            taken += size
            session.receive(self.transfer, memoryview(payload), signals)
        return taken


def read_performative(
    unit: memoryview, channel: int, start: int, repeated: RepeatedTransfer | None
) -> tuple[Any, int, RepeatedTransfer | None]:
    """The performative of a frame, its end, and the transfer that the next frames may repeat."""
    if repeated is not None:
        end = start + len(repeated.performative)
        if unit[start:end] == repeated.performative:
            return repeated.transfer, end, repeated
    # Only payload may follow; a longer performative is truncated here and fails to decode.
    body, end = read_described(unit[: start + MAX_PERFORMATIVE_BYTES], start)
    if type(body) is Transfer and body.more:
        return body, end, RepeatedTransfer(unit, start, end, channel, body)
    return body, end, None
