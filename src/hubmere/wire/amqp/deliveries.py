"""Incoming deliveries: reassembly of partial ones, and runs of complete ones (AMQP 1.0, 2.6.14).

Decides which pieces are copied and which are kept as views, never whether a delivery is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubmere.wire.amqp.codec.performatives import Transfer
from hubmere.wire.amqp.codec.types import Buffer
from hubmere.wire.amqp.errors import Condition, RemoteProtocolError
from hubmere.wire.amqp.signals import DeliveriesReceived, Signal

if TYPE_CHECKING:
    from hubmere.wire.amqp.link import Link

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
