"""One session: its channel, its windows, its links, transfers and dispositions.

Decides how many transfer frames may be sent (AMQP 1.0, 2.5.6), which link a handle means, and how settlements become
range dispositions. Our own incoming window is renewed as it is used and not enforced: the Azure SDK for Python counts
deliveries where the specification counts frames. Back-pressure comes from credit and from not reading the socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, Any

from hubmere.wire.amqp.codec.frames import framing_error, shorten
from hubmere.wire.amqp.codec.performatives import (
    ACCEPTED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Rejected,
    Source,
    Target,
    Transfer,
)
from hubmere.wire.amqp.codec.types import Value
from hubmere.wire.amqp.errors import Condition, FrameTooLarge, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.link import Link, LinkState, check_modes
from hubmere.wire.amqp.serial import SERIAL_MASK, serial_add, serial_distance
from hubmere.wire.amqp.settlements import (
    Settlement,
    accepted_frame,
    add_settlement,
    encode_accepted,
    merge_settlements,
)
from hubmere.wire.amqp.signals import DispositionReceived, SessionBegun, SessionEnded, Signal, WindowOpened

if TYPE_CHECKING:
    from hubmere.wire.amqp.connection import Connection

# The service's first transfer-id; delivery-ids count on their own, from 0.
FIRST_OUTGOING_ID = 1
# SDKs use a GUID or an address as link name. The limit keeps memory per link independent of the frame size.
MAX_LINK_NAME_CHARACTERS = 2048
# Size of a null attach without the name.
_NULL_ATTACH_BYTES = 48


def free_number(taken: Mapping[int, object]) -> int:
    """A free handle or channel number: the next one if the used numbers have no gap, else the lowest."""
    return next(number for number in chain((len(taken),), range(len(taken))) if number not in taken)


class SessionState(Enum):
    """The state of a session, in the order of its life."""

    PENDING = auto()  # we sent begin and wait for the peer's
    MAPPED = auto()
    ENDING = auto()  # we sent end; input is ignored until the peer's end
    DISCARDING = auto()  # the same, after a violation that has already been reported
    ENDED = auto()


_MAPPED = SessionState.MAPPED
# The end of a session in these states is not reported: it never began, or its end was reported.
_UNREPORTED = frozenset({SessionState.PENDING, SessionState.DISCARDING, SessionState.ENDED})
_OVER = frozenset({SessionState.ENDING, SessionState.DISCARDING, SessionState.ENDED})


class Session:
    """One session of a connection. Commands follow the same rules as those of `Link`. `context` belongs to the caller.

    Only the owner of the connection may call; not thread-safe.
    """

    __slots__ = (
        "_backlog",
        "_incoming_used",
        "_local_links",
        "_pending_links",
        "_remote_window",
        "_settlements",
        "channel",
        "connection",
        "links",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing_window",
        "remote_handle_max",
        "state",
    )

    def __init__(self, connection: Connection, channel: int, state: SessionState) -> None:
        self.connection = connection
        self.channel = channel
        self.state = state
        self.next_outgoing_id = FIRST_OUTGOING_ID
        self.next_delivery_id = 0
        self.next_incoming_id: int | None = None
        self.outgoing_window = SERIAL_MASK >> 1
        self.remote_handle_max = 0
        self.links: dict[int, Link] = {}  # by the peer's handle
        self._local_links: dict[int, Link] = {}  # by ours
        self._pending_links: dict[tuple[str, bool], Link] | None = None
        self._remote_window = 0
        self._incoming_used = 0
        self._backlog: deque[bytes] | None = None
        self._settlements: list[Settlement] | None = None

    def __repr__(self) -> str:
        return f"<Session {self.channel}, {self.state.name}, {len(self.links)} links>"

    # --- commands

    @property
    def is_mapped(self) -> bool:
        """Whether both sides have begun and none has ended."""
        return self.state is SessionState.MAPPED

    def transfer_window(self) -> int:
        """How many transfer frames may be sent now."""
        return 0 if self._backlog or not self.is_mapped else self._remote_window

    def attach(
        self,
        name: str,
        *,
        is_sender: bool,
        source: Source | None = None,
        target: Target | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
        properties: dict[Value, Value] | None = None,
    ) -> Link:
        """Ask the peer for a link; `LinkAttached` reports its answer."""
        self._check_attach(name, is_sender)
        link = Link(self, name=name, handle=self._free_handle(), is_sender=is_sender, state=LinkState.PENDING)
        self.emit(
            Attach(
                name=name,
                handle=link.handle,
                role=ROLE_SENDER if is_sender else ROLE_RECEIVER,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source or Source(),
                target=target or Target(),
                initial_delivery_count=0 if is_sender else None,
                max_message_size=max_message_size,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        self._pending_links = self._pending_links or {}
        self._pending_links[name, is_sender] = link
        self._local_links[link.handle] = link
        return link

    def _check_attach(self, name: str, is_sender: bool) -> None:
        if not self.is_mapped:
            raise LocalProtocolError(f"{self!r} is not mapped")
        if (name, is_sender) in (self._pending_links or {}):
            raise LocalProtocolError(f"a link named {name!r} is being attached already")

    def _free_handle(self) -> int:
        handle = free_number(self._local_links)
        if handle > self.remote_handle_max:
            raise LocalProtocolError(f"the peer allows handles up to {self.remote_handle_max}")
        return handle

    def settle(self, first: int, last: int | None = None, *, state: DeliveryState = ACCEPTED) -> bool:
        """Settle the received deliveries `first` to `last`. Adjacent ranges with the same state share one disposition,
        which is sent with the next `data_to_send`."""
        if not self.is_mapped:
            return False
        if self._settlements is None:
            self._settlements = []
            self.connection.outbox.add_unsettled(self)
        add_settlement(self._settlements, first, first if last is None else last, state)
        return True

    def accept_at_once(self, delivery_id: int) -> bytes | None:
        """The frame that settles one received delivery as accepted, for the caller to send now; None, and nothing has
        changed, if frames are queued that must be sent before it."""
        connection = self.connection
        if self.state is not _MAPPED or not connection.outbox.is_empty:
            return None
        connection.note_sent()
        return accepted_frame(delivery_id, self.channel)

    def end(self, condition: str | None = None, description: str = "") -> bool:
        """End the session, with an error if one is given. Its links end with it, without frames of their own."""
        if self.state in _OVER:
            return False
        if self.state is SessionState.PENDING:
            raise LocalProtocolError(f"{self!r} is not mapped yet")
        self.flush_settlements()
        self.state = SessionState.ENDING
        self._backlog = None
        self.emit_ending(End, condition, description)
        return True

    # --- frames out

    def emit(self, performative: Any) -> None:
        """Queues a frame on our channel."""
        self.connection.outbox.add(performative, self.channel)

    def emit_ending(self, make: Callable[[Error | None], Any], condition: str | None, description: str) -> None:
        """Queue a detach or end, with its error text shortened to fit a frame of the peer."""
        self.connection.outbox.add_ending(make, condition, description, self.channel)

    def flow(self) -> Flow:
        """A flow frame with the state of the session; sending it renews our incoming window."""
        self._incoming_used = 0
        return Flow(
            next_incoming_id=self.next_incoming_id,
            incoming_window=self.connection.options.incoming_window,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=self.outgoing_window,
            echo=False,
        )

    def emit_transfers(self, bodies: Iterable[bytes]) -> None:
        """Queue transfer frames; those beyond the remote window are sent when it opens."""
        for body in bodies:
            if self._remote_window and not self._backlog:
                self._emit_transfer(body)
            else:
                self._backlog = self._backlog or deque()
                self._backlog.append(body)

    def _emit_transfer(self, body: bytes) -> None:
        self._remote_window -= 1
        self.next_outgoing_id = serial_add(self.next_outgoing_id, 1)
        self.connection.outbox.add_body(body, self.channel)

    def emit_frames(self, frames: bytes, count: int) -> None:
        """Queue `count` transfers that already are complete frames."""
        self._remote_window -= count
        self.next_outgoing_id = serial_add(self.next_outgoing_id, count)
        self.connection.outbox.add_raw(frames)

    def flush_settlements(self) -> None:
        """Queue the pending settlements as range dispositions, as few as possible."""
        settlements, self._settlements = self._settlements, None
        for first, last, state in merge_settlements(settlements or []):
            if type(state) is Accepted:
                self.connection.outbox.add_body(encode_accepted(first, last), self.channel)
            else:
                self._emit_disposition(ROLE_RECEIVER, first, last, state)

    def _emit_disposition(self, role: bool, first: int, last: int, state: DeliveryState) -> None:
        end = None if last == first else last
        try:
            self.emit(Disposition(role=role, first=first, last=end, settled=True, state=state))
        except FrameTooLarge:
            # Only an error text can be that long; the condition matters and stays.
            error = state.error if isinstance(state, Rejected) else None
            short = Rejected(Error(shorten(error.condition), shorten(error.description or ""))) if error else None
            self.emit(Disposition(role=role, first=first, last=end, settled=True, state=short))

    # --- frames of the peer

    def receive_begin(self, begin: Begin, signals: list[Signal]) -> None:
        """Apply the peer's begin; the session is mapped."""
        self.state = SessionState.MAPPED
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_handle_max = begin.handle_max
        self.outgoing_window = self._remote_window = begin.incoming_window
        signals.append(SessionBegun(self))

    def answer_begin(self, remote_channel: int) -> None:
        """Queue our begin in answer to the peer's."""
        self.emit(self.begin_frame(remote_channel))

    def begin_frame(self, remote_channel: int | None) -> Begin:
        """Our begin frame."""
        options = self.connection.options
        return Begin(
            remote_channel=remote_channel,
            next_outgoing_id=self.next_outgoing_id,
            incoming_window=options.incoming_window,
            outgoing_window=self.outgoing_window,
            handle_max=options.handle_max,
        )

    def receive(self, performative: Any, payload: memoryview, signals: list[Signal]) -> None:
        """Process any frame on this session's channel except begin and end."""
        if self.state is not SessionState.MAPPED:
            return
        try:
            _RECEIVERS[type(performative)](self, performative, payload, signals)
        except RemoteProtocolError as violation:
            if not violation.is_session_scoped:
                raise
            self.end(violation.condition, violation.description)
            self.on_lost(signals, None, violation)
            self.state = SessionState.DISCARDING

    def _receive_attach(self, attach: Attach, _payload: memoryview, signals: list[Signal]) -> None:
        self._check_remote_attach(attach)
        is_sender = attach.role == ROLE_RECEIVER
        pending = self._pending_links.pop((attach.name, is_sender), None) if self._pending_links else None
        if pending is not None:
            self.links[attach.handle] = pending
            self.connection.link_count += 1
            pending.receive_attach_response(attach, signals)
            return
        link = Link(
            self,
            name=attach.name,
            handle=self._answering_handle(attach.handle),
            is_sender=is_sender,
            state=LinkState.REQUESTED,
        )
        self.links[attach.handle] = self._local_links[link.handle] = link
        self.connection.link_count += 1
        link.receive_attach(attach, signals)

    def _check_remote_attach(self, attach: Attach) -> None:
        connection = self.connection
        if attach.handle > connection.options.handle_max:
            raise framing_error(f"handle {attach.handle} exceeds handle-max {connection.options.handle_max}")
        if attach.handle in self.links:
            raise RemoteProtocolError(
                Condition.SESSION_HANDLE_IN_USE, f"handle {attach.handle} is attached to another link"
            )
        if len(attach.name) > MAX_LINK_NAME_CHARACTERS:
            raise RemoteProtocolError(Condition.INVALID_FIELD, "a link name is too long")
        if len(attach.name.encode()) + _NULL_ATTACH_BYTES > connection.outbox.limit_bytes:
            raise RemoteProtocolError(Condition.FRAME_SIZE_TOO_SMALL, "a link name does not fit a frame of the peer")
        check_modes(attach)
        connection.check_link_limit()

    def _answering_handle(self, remote_handle: int) -> int:
        # Using the same number as the peer is allowed and keeps traces readable.
        if remote_handle not in self._local_links and remote_handle <= self.remote_handle_max:
            return remote_handle
        handle = free_number(self._local_links)
        if handle > self.remote_handle_max:
            raise RemoteProtocolError(Condition.NOT_ALLOWED, "the peer's handle-max leaves no handle for an answer")
        return handle

    def _receive_flow(self, flow: Flow, _payload: memoryview, signals: list[Signal]) -> None:
        self._move_window(flow, signals)
        if flow.handle is None:
            if flow.echo:
                self.emit(self.flow())
            return
        self._link(flow.handle).receive_flow(flow, signals)

    def _move_window(self, flow: Flow, signals: list[Signal]) -> None:
        # AMQP 1.0, 2.5.6. A peer that has not seen our begin sends no next-incoming-id and means our first one.
        start = FIRST_OUTGOING_ID if flow.next_incoming_id is None else flow.next_incoming_id
        in_flight = max(0, serial_distance(start, self.next_outgoing_id))
        was_shut = not self.transfer_window()
        self._remote_window = max(0, flow.incoming_window - in_flight)
        while self._backlog and self._remote_window:
            self._emit_transfer(self._backlog.popleft())
        if was_shut and self.transfer_window():
            signals.append(WindowOpened(self))

    def _receive_transfer(self, transfer: Transfer, payload: memoryview, signals: list[Signal]) -> None:
        link = self._link(transfer.handle)
        self.count_incoming(1)
        link.receive_transfer(transfer, payload, signals)

    def count_incoming(self, frames: int) -> None:
        """Advance our incoming window, and renew it when half of it is used."""
        self.next_incoming_id = serial_add(self.next_incoming_id or 0, frames)
        self._incoming_used += frames
        if self._incoming_used * 2 > self.connection.options.incoming_window:
            self.emit(self.flow())

    def _receive_disposition(self, disposition: Disposition, _payload: memoryview, signals: list[Signal]) -> None:
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        settled = disposition.settled is True
        by_receiver = disposition.role == ROLE_RECEIVER
        if by_receiver:
            # Only ids that we have sent are valid: cut the range at the last one.
            if serial_distance(first, self.next_delivery_id) <= 0:
                return
            if serial_distance(last, self.next_delivery_id) <= 0:
                last = serial_add(self.next_delivery_id, -1)
            if not settled and disposition.state is not None:
                self._settle_second(first, last, disposition.state)
        signals.append(DispositionReceived(self, by_receiver, first, last, settled, disposition.state))

    def _settle_second(self, first: int, last: int, state: DeliveryState) -> None:
        # AMQP 1.0, 2.6.12: a receiver in mode "second" waits for the sender to settle. We hold no locks, so settle at
        # once.
        self._emit_disposition(ROLE_SENDER, first, last, state)

    def _receive_detach(self, detach: Detach, _payload: memoryview, signals: list[Signal]) -> None:
        link = self.links.pop(detach.handle, None)
        if link is not None:  # a second detach is ignored
            self._forget(link)
            link.receive_detach(detach, signals)

    def _forget(self, link: Link) -> None:
        del self._local_links[link.handle]
        self.connection.link_count -= 1

    def _link(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise RemoteProtocolError(Condition.SESSION_UNATTACHED_HANDLE, f"no link is attached to handle {handle}")
        return link

    def receive_end(self, end: End, signals: list[Signal]) -> None:
        """The peer's end: answer it unless we sent end first."""
        if self.state not in _OVER:
            self.flush_settlements()
            self.emit(End())
        self.on_lost(signals, end.error)

    def on_lost(self, signals: list[Signal], error: Error | None, violation: RemoteProtocolError | None = None) -> None:
        """The session and its links have ended on both sides."""
        before, self.state = self.state, SessionState.ENDED
        if before in _UNREPORTED:
            return
        links = list(self._local_links.values())
        self.links.clear()
        self._local_links.clear()
        self._pending_links = self._backlog = self._settlements = None
        for link in links:
            self.connection.link_count -= link.state is not LinkState.PENDING
            link.on_lost(signals, error, False)
        signals.append(SessionEnded(self, error, violation))


_RECEIVERS: dict[type, Callable[[Session, Any, memoryview, list[Signal]], None]] = {
    Attach: Session._receive_attach,
    Flow: Session._receive_flow,
    Transfer: Session._receive_transfer,
    Disposition: Session._receive_disposition,
    Detach: Session._receive_detach,
}
