"""One link: credit, delivery count, reassembly, settlement.

Decides what may be sent on a link and when a delivery is complete (AMQP 1.0, 2.6). It never refuses a delivery for lack
of credit: the Azure SDK for Python sends without checking it. The caller decides who may attach and what a delivery
means.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from hubmere.wire.amqp.codec.composites import write_described
from hubmere.wire.amqp.codec.frames import FRAME_HEADER_BYTES
from hubmere.wire.amqp.codec.performatives import (
    RCV_SECOND,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SND_MIXED,
    SND_SETTLED,
    SND_UNSETTLED,
    Attach,
    Coordinator,
    DeliveryState,
    Detach,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)
from hubmere.wire.amqp.codec.types import Buffer, Value
from hubmere.wire.amqp.deliveries import PartialDelivery, first_id, report_delivery
from hubmere.wire.amqp.errors import Condition, FrameTooLarge, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.serial import SERIAL_MASK, serial_add, serial_distance
from hubmere.wire.amqp.signals import (
    AttachRequested,
    CreditChanged,
    DeliveryOversized,
    LinkAttached,
    LinkDetached,
    Signal,
)

if TYPE_CHECKING:
    from hubmere.wire.amqp.session import Session

# AMQP 1.0, 2.6.14 allows 32 bytes for a tag.
MAX_TAG_BYTES = 32


class LinkState(Enum):
    """The state of a link, in the order of its life."""

    REQUESTED = auto()  # the peer sent attach; our answer is due
    PENDING = auto()  # we sent attach; the peer's answer is due
    ATTACHED = auto()
    DETACHING = auto()  # we sent detach; input is ignored until the peer's detach
    DETACHED = auto()


_REQUESTED, _ATTACHED = LinkState.REQUESTED, LinkState.ATTACHED
_LIVE = frozenset({_REQUESTED, _ATTACHED})


class Link:
    """One link of a session. Commands return whether they had an effect: False if the peer has already detached the
    link. They raise `LocalProtocolError`, before changing anything, if the caller violates the protocol.

    `context` belongs to the caller. Only the owner of the connection may call; not thread-safe.
    """

    __slots__ = (
        "_owes_flow",
        "_partial",
        "_request",
        "context",
        "credit",
        "delivery_count",
        "drain",
        "handle",
        "is_sender",
        "max_message_size",
        "name",
        "sends_settled",
        "session",
        "snd_settle_mode",
        "state",
    )

    def __init__(self, session: Session, *, name: str, handle: int, is_sender: bool, state: LinkState) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.is_sender = is_sender
        self.state = state
        self.credit = 0
        self.delivery_count = 0
        self.drain = False
        self.snd_settle_mode: int | None = None
        self.sends_settled = False
        self.max_message_size = session.connection.options.max_message_bytes
        self.context: object = None
        self._request: Attach | None = None
        self._partial: PartialDelivery | None = None
        self._owes_flow = False

    def __repr__(self) -> str:
        direction = "to peer" if self.is_sender else "from peer"
        return f"<Link {self.name!r} {direction}, {self.state.name}, credit {self.credit}>"

    # --- queries

    @property
    def channel(self) -> int:
        """The channel on which we send the frames of this link."""
        return self.session.channel

    @property
    def is_attached(self) -> bool:
        """Whether both sides have attached and none has detached."""
        return self.state is _ATTACHED

    @property
    def next_delivery_id(self) -> int:
        """The id of the next delivery on any sending link of the session."""
        return self.session.next_delivery_id

    @property
    def max_frame_size(self) -> int:
        """The largest frame that we may send, header included."""
        return self.session.connection.outbox.limit_bytes

    def transfer_window(self) -> int:
        """How many single-frame transfers may be sent now."""
        if self.state is not LinkState.ATTACHED or not self.is_sender:
            return 0
        return min(self.credit, self.session.transfer_window())

    # --- commands: attach and detach

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int | None = None,
        offered_capabilities: tuple[str, ...] | None = None,
        properties: dict[Value, Value] | None = None,
    ) -> bool:
        """Answer the peer's attach; arguments that are not given are echoed from it. If the answer does not fit a frame
        of the peer, the link is refused instead.

        `max_message_size` is our limit: the smaller of it and the peer's is announced.
        """
        request = self._take_request()
        if request is None:
            return False
        answer = Attach(
            name=self.name,
            handle=self.handle,
            role=ROLE_SENDER if self.is_sender else ROLE_RECEIVER,
            snd_settle_mode=request.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
            rcv_settle_mode=request.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
            source=source or request.source or Source(),
            target=target or _echo_target(request.target),
            initial_delivery_count=self.delivery_count if self.is_sender else None,
            max_message_size=_smaller_limit(request.max_message_size, max_message_size),
            offered_capabilities=offered_capabilities,
            properties=properties,
        )
        return self._answer(request, answer)

    def _answer(self, request: Attach, answer: Attach) -> bool:
        try:
            self.session.emit(answer)
        except FrameTooLarge as refused:
            self._request = request
            self.refuse(Condition.FRAME_SIZE_TOO_SMALL, str(refused))
            return False
        self._settle_terms(answer)
        return True

    def _settle_terms(self, answer: Attach) -> None:
        self.state = LinkState.ATTACHED
        self.snd_settle_mode = answer.snd_settle_mode
        self.sends_settled = answer.snd_settle_mode == SND_SETTLED
        if answer.max_message_size:
            self.max_message_size = min(answer.max_message_size, self.session.connection.options.max_message_bytes)
        if self._owes_flow:
            self._owes_flow = False
            self._emit_flow()

    def refuse(self, condition: str, description: str) -> bool:
        """Answer the peer's attach with a null attach, followed by a detach with the error."""
        if self._take_request() is None:
            return False
        self._emit_null_attach()
        self._emit_detach(condition, description)
        return True

    def _take_request(self) -> Attach | None:
        if self.state is LinkState.DETACHED:
            return None
        if self._request is None or self.state is not LinkState.REQUESTED:
            raise LocalProtocolError(f"{self!r} has no attach to answer")
        request, self._request = self._request, None
        return request

    def _emit_null_attach(self) -> None:
        role = ROLE_SENDER if self.is_sender else ROLE_RECEIVER
        self.session.emit(Attach(name=self.name, handle=self.handle, role=role))

    def detach(self, condition: str | None = None, description: str = "") -> bool:
        """Close the link, with an error if one is given."""
        if self.state in (LinkState.DETACHED, LinkState.DETACHING):
            return False
        if self.state is not LinkState.ATTACHED:
            raise LocalProtocolError(f"{self!r} is not attached")
        self.session.flush_settlements()
        self._emit_detach(condition, description)
        return True

    def _emit_detach(self, condition: str | None, description: str) -> None:
        self.state = LinkState.DETACHING
        self._drop_partial()
        self.session.emit_ending(
            lambda error: Detach(handle=self.handle, closed=True, error=error), condition, description
        )

    # --- commands: receiving

    def grant(self, credit: int, *, drain: bool = False) -> bool:
        """Allow the peer to send `credit` more deliveries; replaces the credit granted before."""
        if self.is_sender or not 0 <= credit <= SERIAL_MASK:
            raise LocalProtocolError("credit is a uint and is granted by the receiver")
        if not self._is_usable():
            return False
        self.credit = credit
        self.drain = drain
        self._emit_flow()
        return True

    def settle(self, first: int, last: int | None = None, *, state: DeliveryState) -> bool:
        """Settle the received deliveries `first` to `last` with one state."""
        return self.session.settle(first, last, state=state)

    # --- commands: sending

    def send(
        self,
        payload: Buffer,
        *,
        tag: bytes | None = None,
        settled: bool | None = None,
        message_format: int = 0,
        batchable: bool = False,
    ) -> int:
        """Queue one delivery in as many frames as it needs and return its id. The tag defaults to the id.

        Requires `transfer_window() > 0`. Frames beyond the remote window wait in the session, which sends no other
        transfer until they are sent.
        """
        settled = self.sends_settled if settled is None else settled
        self._check_send(tag, settled)
        delivery_id = self.session.next_delivery_id
        head = Transfer(
            handle=self.handle,
            delivery_id=delivery_id,
            delivery_tag=delivery_id.to_bytes(4, "big") if tag is None else tag,
            message_format=message_format,
            settled=settled,
            more=False,
            batchable=batchable,
        )
        self.session.emit_transfers(self._split(head, payload))
        self._count_sent(1)
        return delivery_id

    def _check_send(self, tag: bytes | None, settled: bool) -> None:
        if self.transfer_window() < 1:
            raise LocalProtocolError(f"{self!r} may not send now")
        if tag is not None and len(tag) > MAX_TAG_BYTES:
            raise LocalProtocolError(f"a tag has at most {MAX_TAG_BYTES} bytes")
        if self.snd_settle_mode in (SND_UNSETTLED, SND_SETTLED) and settled != (self.snd_settle_mode == SND_SETTLED):
            raise LocalProtocolError(f"{self!r} has a settle mode that forbids this")

    def _split(self, head: Transfer, payload: Buffer) -> list[bytes]:
        """The frame bodies of one delivery. All heads have the same length: they differ only in `more`."""
        last_head = write_described(head)
        room = self.max_frame_size - FRAME_HEADER_BYTES - len(last_head)
        if len(payload) <= room:
            return [last_head + payload]
        head.more = True
        more_head = write_described(head)
        view = memoryview(payload)
        last_start = (len(view) - 1) // room * room
        bodies = [more_head + view[start : start + room] for start in range(0, last_start, room)]
        bodies.append(last_head + view[last_start:])
        return bodies

    def queue_transfers(self, frames: bytes, count: int) -> None:
        """Queue `count` complete single-frame transfers that the caller has encoded: with this link's channel and
        handle, delivery-ids contiguous from `next_delivery_id`, none larger than `max_frame_size`."""
        if not 0 <= count <= self.transfer_window():
            raise LocalProtocolError(f"{self!r} may not send {count} transfers now")
        self.session.emit_frames(frames, count)
        self._count_sent(count)

    def _count_sent(self, deliveries: int) -> None:
        self.credit -= deliveries
        self.delivery_count = serial_add(self.delivery_count, deliveries)
        self.session.next_delivery_id = serial_add(self.session.next_delivery_id, deliveries)

    def complete_drain(self) -> bool:
        """Answer a drain request when there is nothing more to send: use up the rest of the credit and send a flow."""
        if not self.is_sender or not self.drain:
            raise LocalProtocolError(f"{self!r} was not asked to drain")
        if not self._is_usable():
            return False
        self.delivery_count = serial_add(self.delivery_count, self.credit)
        self.credit = 0
        self._emit_flow()
        self.drain = False
        return True

    def _is_usable(self) -> bool:
        if self.state in (LinkState.REQUESTED, LinkState.PENDING):
            raise LocalProtocolError(f"{self!r} is not attached yet")
        return self.state is LinkState.ATTACHED

    def _emit_flow(self) -> None:
        flow = self.session.flow()
        flow.handle = self.handle
        flow.delivery_count = self.delivery_count
        flow.link_credit = self.credit
        flow.available = 0
        flow.drain = True if self.drain else None
        self.session.emit(flow)

    # --- frames of the peer

    def receive_attach(self, attach: Attach, signals: list[Signal]) -> None:
        """The peer's attach, which requests this link."""
        self._take_terms(attach)
        self._request = attach
        signals.append(AttachRequested(self, attach))

    def receive_attach_response(self, attach: Attach, signals: list[Signal]) -> None:
        """The peer's attach, which answers ours."""
        self._take_terms(attach)
        self._settle_terms(attach)
        signals.append(LinkAttached(self, attach))

    def _take_terms(self, attach: Attach) -> None:
        if not self.is_sender:
            self.delivery_count = attach.initial_delivery_count or 0

    def receive_flow(self, flow: Flow, signals: list[Signal]) -> None:
        """Apply a flow: credit from a receiving peer, delivery-count from a sending peer."""
        if self.state not in _LIVE:
            return
        if not self.is_sender:
            self._follow_sender(flow)
        elif flow.link_credit is not None:
            # AMQP 1.0, 2.6.7. A peer may not know our delivery-count yet: null means the initial one.
            ahead = serial_distance(flow.delivery_count or 0, self.delivery_count)
            self.credit = max(0, flow.link_credit - max(0, ahead))
            self.drain = bool(flow.drain)
            signals.append(CreditChanged(self))
        if flow.echo and not self.drain:
            self._answer_echo()

    def _follow_sender(self, flow: Flow) -> None:
        # The link-credit of a sending peer has no meaning for us; its delivery-count moves when it has drained.
        if flow.delivery_count is None:
            return
        skipped = serial_distance(self.delivery_count, flow.delivery_count)
        if 0 < skipped <= self.credit:
            self.credit -= skipped
            self.delivery_count = flow.delivery_count

    def _answer_echo(self) -> None:
        if self.state is LinkState.ATTACHED:
            self._emit_flow()
        else:
            self._owes_flow = True

    def receive_transfer(self, transfer: Transfer, payload: memoryview, signals: list[Signal]) -> None:
        """Process one frame of a delivery."""
        if self.state not in _LIVE:
            return
        if self.is_sender:
            raise RemoteProtocolError(Condition.NOT_ALLOWED, "a transfer came on a link whose receiver is the peer")
        partial = self._partial
        if partial is None and not transfer.more and not transfer.aborted and len(payload) <= self.max_message_size:
            settled = transfer.settled is True
            report_delivery(signals, self, first_id(transfer), transfer.message_format or 0, settled, bytes(payload))
            self.count_received(1)
        else:
            self._receive_piece(transfer, payload, signals)

    def _receive_piece(self, transfer: Transfer, payload: memoryview, signals: list[Signal]) -> None:
        partial = self._partial
        if partial is None:
            partial = self._partial = PartialDelivery(transfer)
        elif transfer.delivery_id not in (None, partial.delivery_id):
            raise RemoteProtocolError(Condition.INVALID_FIELD, "a delivery began before the last one on its link ended")
        partial.settled = partial.settled or transfer.settled is True
        if transfer.aborted:
            # AMQP 1.0, 2.6.14: an aborted delivery is settled and its bytes mean nothing.
            self._drop_partial()
            self.count_received(1)
            return
        self._hold(partial, payload)
        if not transfer.more:
            self._finish_partial(partial, signals)

    def _hold(self, partial: PartialDelivery, payload: memoryview) -> None:
        connection = self.session.connection
        if partial.is_oversized:
            partial.size_bytes += len(payload)
        elif partial.size_bytes + len(payload) > self.max_message_size:
            connection.held_bytes -= partial.size_bytes
            partial.mark_oversized(len(payload))
        else:
            connection.hold(len(payload))
            partial.add(payload)

    def _finish_partial(self, partial: PartialDelivery, signals: list[Signal]) -> None:
        self.count_received(1)
        if partial.is_oversized:
            signals.append(DeliveryOversized(self, partial.delivery_id, partial.size_bytes, partial.settled))
        else:
            payload = b"".join(partial.pieces)
            report_delivery(signals, self, partial.delivery_id, partial.message_format, partial.settled, payload)
        self._drop_partial()

    def _drop_partial(self) -> None:
        if self._partial is not None and not self._partial.is_oversized:
            self.session.connection.held_bytes -= self._partial.size_bytes
        self._partial = None

    def discard_partial_deliveries(self) -> None:
        """Free the memory of a partial delivery."""
        self._drop_partial()

    @property
    def can_receive_runs(self) -> bool:
        """Whether complete deliveries may be processed without decoding their frames one by one."""
        state = self.state
        return self._partial is None and (state is _ATTACHED or state is _REQUESTED)

    def count_received(self, deliveries: int) -> None:
        """Advance delivery-count and reduce credit; credit stays at 0 for a peer that sends without credit."""
        self.delivery_count = serial_add(self.delivery_count, deliveries)
        self.credit = max(0, self.credit - deliveries)

    def receive_detach(self, detach: Detach, signals: list[Signal]) -> None:
        """The peer's detach: answer it, even if its attach is not answered yet."""
        if self.state is LinkState.REQUESTED:
            self._emit_null_attach()
        if self.state in (LinkState.REQUESTED, LinkState.ATTACHED):
            self.session.flush_settlements()
            self.session.emit(Detach(handle=self.handle, closed=True))
        self.on_lost(signals, detach.error, bool(detach.closed))

    def on_lost(self, signals: list[Signal], error: Error | None, closed: bool) -> None:
        """The link has ended on both sides."""
        self.state = LinkState.DETACHED
        self._request = None
        self._drop_partial()
        self.credit = 0
        signals.append(LinkDetached(self, error, closed))


def check_modes(attach: Attach) -> None:
    """Raise if an attach has an unknown settle mode."""
    if (attach.snd_settle_mode or 0) > SND_MIXED or (attach.rcv_settle_mode or 0) > RCV_SECOND:
        raise RemoteProtocolError(Condition.INVALID_FIELD, "an attach has a settle mode that does not exist")


def _smaller_limit(theirs: int | None, ours: int | None) -> int | None:
    # AMQP 1.0, 2.7.3: 0 and null mean no limit.
    limits = [limit for limit in (theirs, ours) if limit]
    return min(limits) if limits else None


def _echo_target(target: Target | Coordinator | None) -> Target:
    return target if isinstance(target, Target) else Target()
