"""The engine: one AMQP 1.0 connection, either end, without I/O.

`receive_data` turns bytes into signals, commands queue frames, `data_to_send` returns the queued bytes. The engine
implements the transport layer of AMQP (parts 2 and 5): headers, SASL, open and close, heartbeats, channels. It answers
open, begin, detach, end and close itself. The caller decides which links to accept, how much credit to grant and how to
settle a delivery.

A protocol violation by the peer is not raised as an exception: signals that came before it in the same input would be
lost, and the result would depend on how the input was split. Instead the closing frame is queued, and the last signal
is `ConnectionFailed` (or `SessionEnded` with a violation). Later input is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hubmere.wire.amqp import sasl
from hubmere.wire.amqp.channels import Channels
from hubmere.wire.amqp.codec.composites import read_described
from hubmere.wire.amqp.codec.frames import (
    EMPTY_FRAME,
    FRAME_TYPE_AMQP,
    FRAME_TYPE_SASL,
    HEADER_AMQP,
    HEADER_SASL,
    MAX_UNOPENED_FRAME_BYTES,
    MIN_MAX_FRAME_BYTES,
    FrameBuffer,
    frame,
    framing_error,
    split_frame,
)
from hubmere.wire.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from hubmere.wire.amqp.codec.types import Buffer
from hubmere.wire.amqp.deliveries import RepeatedTransfer, read_performative
from hubmere.wire.amqp.errors import Condition, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.link import Link
from hubmere.wire.amqp.options import EngineOptions
from hubmere.wire.amqp.outbox import Outbox
from hubmere.wire.amqp.phases import Phase, Role
from hubmere.wire.amqp.runs import TransferShape, shape_of
from hubmere.wire.amqp.session import Session
from hubmere.wire.amqp.signals import ConnectionClosed, ConnectionFailed, ConnectionOpened, CredentialsOffered, Signal
from hubmere.wire.amqp.timers import Timers

# What a peer may send after its credentials before they are checked: header, open, begin and some attaches.
MAX_PENDING_BYTES = 16384
_OPENED = Phase.OPENED


class Connection:
    """One connection. Pass every received chunk and the present time to `receive_data`, write `data_to_send` after it
    and after commands, and call `advance` at `next_deadline`.

    Owned by one task; not thread-safe. Times are seconds of any monotonic clock.
    """

    __slots__ = (
        "_channels",
        "_frame_limit",
        "_input",
        "_phase",
        "_repeated",
        "_shape",
        "_timers",
        "held_bytes",
        "link_count",
        "options",
        "outbox",
        "role",
    )

    def __init__(self, role: Role, options: EngineOptions, now: float) -> None:
        self.role = role
        self.options = options
        self.held_bytes = 0
        self.link_count = 0
        self.outbox = Outbox()
        self._phase = Phase.HEADER
        self._input = FrameBuffer()
        self._frame_limit = MAX_UNOPENED_FRAME_BYTES
        self._channels = Channels(options.channel_max)
        self._timers = Timers(now, options.idle_timeout_ms)
        self._shape: TransferShape | None = None
        self._repeated: RepeatedTransfer | None = None

    # --- methods that every engine has

    @property
    def phase(self) -> Phase:
        """The state of the connection."""
        return self._phase

    @property
    def is_closed(self) -> bool:
        """Whether the transport should be closed once `data_to_send` is written."""
        return self._phase is Phase.CLOSED

    @property
    def last_received(self) -> float:
        """When the last bytes of the peer arrived, in the time of `receive_data`."""
        return self._timers.last_received

    def links(self) -> Iterator[Link]:
        """Every link of all sessions."""
        return (link for session in self._channels for link in session.links.values())

    def receive_data(self, data: Buffer, now: float) -> list[Signal]:
        """Process bytes of the peer and return their signals. Input that is not `bytes` is copied."""
        self._timers.now = now
        if self._phase is Phase.CLOSED or not data:
            return []
        self._timers.last_received = now
        self._input.feed(data)
        return self._read()

    def receive_single(self, data: bytes, now: float) -> tuple[TransferShape, int, bytes] | None:
        """Shape, id and payload if `data` is exactly one delivery like the last; None, and nothing changed, if not."""
        shape = self._shape
        if shape is None or self._phase is not _OPENED or self._input.is_torn or not shape.link.can_receive_runs:
            return None
        if (single := shape.read_single(data, self._frame_limit)) is None:
            return None
        self._timers.now = self._timers.last_received = now
        shape.count(1)
        return shape, *single

    def receive_pieces(self, data: memoryview, now: float) -> tuple[int, list[Signal]]:
        """Take frames in the middle of a large delivery from `data`, which may be overwritten later. Returns how many
        bytes were taken, and signals to handle before the rest of `data` goes to `receive_data`."""
        repeated, signals = self._repeated, list[Signal]()
        if repeated is None or self._phase is not Phase.OPENED:
            return 0, signals
        self._timers.now = self._timers.last_received = now
        try:
            session = self._channels.find(repeated.channel)
            return 0 if session is None else repeated.take_frames(self._input, data, session, signals), signals
        except RemoteProtocolError as violation:
            self._fail(violation, signals)
            return len(data), signals

    def data_to_send(self) -> bytes:
        """All queued bytes; they are removed from the queue."""
        data = self.outbox.take()
        if data:
            self._timers.last_sent = self._timers.now
        return data

    def note_sent(self) -> None:
        """Bytes go to the peer without `data_to_send`."""
        self._timers.last_sent = self._timers.now

    def next_deadline(self) -> float | None:
        """When `advance` is due; None if there is nothing to wait for."""
        if self._phase is Phase.CLOSED:
            return None
        if self._phase is Phase.CLOSING:
            return self._timers.close_deadline()
        if self._phase is not Phase.OPENED:
            return self._timers.handshake_deadline(self.options.handshake_seconds)
        return self._timers.idle_deadline()

    def advance(self, now: float) -> list[Signal]:
        """Do what is due at `now`: send a heartbeat, or close if the peer is silent or slow."""
        self._timers.now = now
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        signals: list[Signal] = []
        if self._phase is Phase.CLOSING:
            if not self._timers.start_close_timer():
                self._finish(signals, ConnectionClosed(None))
        elif self._phase is not Phase.OPENED:
            self._fail(RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, "no open came in time"), signals)
        elif self._timers.is_peer_silent():
            self._close_idle_connection(signals)
        else:
            self._send_heartbeat()
            self._timers.last_sent = now
        return signals

    def _send_heartbeat(self) -> None:
        """Send an empty frame to a peer that announced an idle-time-out. Otherwise request a flow from the peer: its
        answer shows that it is alive, and keeps the connection in the tables of address translators."""
        session = next((session for session in self._channels if session.is_mapped), None)
        if self._timers.is_heartbeat or session is None:
            self.outbox.add_raw(EMPTY_FRAME)
        else:
            flow = session.flow()
            flow.echo = True
            session.emit(flow)

    def _close_idle_connection(self, signals: list[Signal]) -> None:
        """Detach every link, end every session and close, all with one error, as the service does. Clients reconnect
        after `amqp:connection:forced`; other conditions make some of them wait for ever."""
        text = (
            f"The connection was inactive for more than the allowed {self.options.idle_timeout_ms * 2} milliseconds "
            f"and is closed by container '{self.options.container_id}'."
        )
        for session in self._channels:
            for link in session.links.values():
                if link.is_attached:
                    link.detach(Condition.CONNECTION_FORCED, text)
            if session.is_mapped:
                session.end(Condition.CONNECTION_FORCED, text)
        self._fail(RemoteProtocolError(Condition.CONNECTION_FORCED, text), signals)

    def on_connection_lost(self) -> list[Signal]:
        """The transport is closed: return the end of every link and session that was open."""
        signals: list[Signal] = []
        if self._phase is not Phase.CLOSED:
            self._finish(signals, ConnectionClosed(None))
        return signals

    # --- commands

    def open(self) -> None:
        """Client: start the exchange of headers, SASL and open."""
        if self.role is not Role.CLIENT or self._phase is not Phase.HEADER or not self.outbox.is_empty:
            raise LocalProtocolError("a client opens once")
        if self.options.credentials is not None:
            self.outbox.add_raw(HEADER_SASL)
        else:
            self._open_amqp()

    def _open_amqp(self) -> None:
        self._phase = Phase.AMQP_HEADER
        self.outbox.add_raw(HEADER_AMQP)
        self.outbox.add_raw(frame(self.options.open_frame()))

    def accept_credentials(self, now: float) -> list[Signal]:
        """Server: accept the credentials of `CredentialsOffered`. Returns the signals of the input that arrived
        meanwhile."""
        self._require_pending_credentials()
        self._end_sasl(True)
        self._timers.now = now
        self._input.reclaim()
        return self._read()

    def refuse_credentials(self) -> None:
        """Server: reject the credentials. Queues the SASL outcome; the connection is closed."""
        self._require_pending_credentials()
        self._end_sasl(False)

    def _require_pending_credentials(self) -> None:
        if self._phase is not Phase.AUTHENTICATION:
            raise LocalProtocolError("there are no credentials to accept or refuse")

    def begin(self) -> Session:
        """Ask the peer for a session; `SessionBegun` reports its answer."""
        if self._phase is not Phase.OPENED:
            raise LocalProtocolError("a session can begin only on an open connection")
        return self._channels.begin(self)

    def close(self, condition: str | None = None, description: str = "") -> bool:
        """Close the connection, with an error if one is given; `ConnectionClosed` reports the peer's answer."""
        if self._phase in (Phase.CLOSING, Phase.CLOSED):
            return False
        if self._phase is not Phase.OPENED:
            self._phase = Phase.CLOSED  # no open was sent, so no close is due
            return True
        self.outbox.flush_settlements()
        self._phase = Phase.CLOSING
        self.outbox.add_ending(Close, condition, description, 0)
        return True

    # --- limits, for sessions and links

    @property
    def input_bytes(self) -> int:
        """Memory used by partial deliveries and by an incomplete frame."""
        return self.held_bytes + self._input.torn_bytes

    def discard_partial_deliveries(self) -> None:
        """Free the memory of partial deliveries; for a connection that is being closed."""
        for link in self.links():
            link.discard_partial_deliveries()

    def hold(self, size_bytes: int) -> None:
        """Count bytes of partial deliveries against the limit."""
        if self.held_bytes + size_bytes > self.options.max_held_bytes:
            raise RemoteProtocolError(
                Condition.RESOURCE_LIMIT_EXCEEDED, "incomplete deliveries use more memory than a connection may hold"
            )
        self.held_bytes += size_bytes

    def check_link_limit(self) -> None:
        """Raise if the connection has as many links as it may have."""
        if self.link_count >= self.options.max_links:
            raise RemoteProtocolError(
                Condition.RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {self.options.max_links} links"
            )

    # --- frames of the peer

    def _read(self) -> list[Signal]:
        signals: list[Signal] = []
        try:
            while (reader := _READERS.get(self._phase)) is not None and reader(self, signals):
                pass
            if self._input.keep_rest() > MAX_PENDING_BYTES and self._phase is Phase.AUTHENTICATION:
                raise framing_error("too much input before the credentials were checked")
        except RemoteProtocolError as violation:
            self._fail(violation, signals)
        self._input.release()
        return signals

    def _read_header(self, signals: list[Signal]) -> bool:
        header = self._input.take_header()
        if header is None:
            return False
        reaction = _HEADERS.get((self.role, self._phase, bytes(header)))
        if reaction is None:
            raise framing_error("this protocol header is not supported")
        reaction(self)
        return True

    def _begin_sasl(self) -> None:
        self._phase = Phase.SASL
        if self.role is Role.SERVER:
            self.outbox.add_raw(HEADER_SASL)
            self.outbox.add_raw(frame(SaslMechanisms(self.options.mechanisms), 0, FRAME_TYPE_SASL))

    def _begin_amqp(self) -> None:
        self._phase = Phase.OPEN
        if self.role is Role.SERVER:
            self.outbox.add_raw(HEADER_AMQP)

    def _read_sasl(self, signals: list[Signal]) -> bool:
        unit = self._input.take_frame(MAX_UNOPENED_FRAME_BYTES)
        if unit is None:
            return False
        _channel, start = split_frame(unit, FRAME_TYPE_SASL)
        body, end = read_described(unit, start)
        step = _SASL_STEPS.get((self.role, type(body)))
        if step is None or end != len(unit):
            raise RemoteProtocolError(Condition.NOT_ALLOWED, "this frame is not part of the SASL exchange")
        step(self, body, signals)
        return True

    def _receive_init(self, init: SaslInit, signals: list[Signal]) -> None:
        verdict = sasl.evaluate_init(init, self.options.mechanisms)
        if isinstance(verdict, CredentialsOffered):
            self._phase = Phase.AUTHENTICATION
            signals.append(verdict)
        elif verdict:
            self._end_sasl(True)
        else:
            raise RemoteProtocolError(Condition.UNAUTHORIZED_ACCESS, f"mechanism {init.mechanism!r} is not offered")

    def _end_sasl(self, accepted: bool) -> None:
        code = sasl.OUTCOME_OK if accepted else sasl.OUTCOME_AUTH
        self.outbox.add_raw(frame(SaslOutcome(code), 0, FRAME_TYPE_SASL))
        self._phase = Phase.AMQP_HEADER if accepted else Phase.CLOSED

    def _receive_mechanisms(self, offer: SaslMechanisms, signals: list[Signal]) -> None:
        assert self.options.credentials is not None
        init = self.options.credentials.init(offer.mechanisms, self.options.hostname)
        self.outbox.add_raw(frame(init, 0, FRAME_TYPE_SASL))

    def _receive_outcome(self, outcome: SaslOutcome, signals: list[Signal]) -> None:
        if outcome.code != sasl.OUTCOME_OK:
            raise RemoteProtocolError(Condition.UNAUTHORIZED_ACCESS, f"SASL ended with outcome {outcome.code}")
        self._open_amqp()

    def _read_frame(self, signals: list[Signal]) -> bool:
        shape, source = self._shape, self._input
        if shape is not None and not source.is_torn and not shape.take_run(source, self._frame_limit, signals):
            self._shape = None
        unit = self._input.take_frame(self._frame_limit)
        if unit is None:
            return False
        channel, start = split_frame(unit, FRAME_TYPE_AMQP)
        if start == len(unit):
            return True  # a heartbeat
        self._receive_body(unit, channel, start, signals)
        return True

    def _receive_body(self, unit: memoryview, channel: int, start: int, signals: list[Signal]) -> None:
        body, end, self._repeated = read_performative(unit, channel, start, self._repeated)
        kind = type(body)
        if kind is not Transfer and end != len(unit):
            raise framing_error("bytes follow a performative that has no payload")
        receive = _PERFORMATIVES.get((self._phase, kind))
        if receive is not None:
            receive(self, body, channel, signals)
        elif self._phase is Phase.OPENED and kind in _SESSION_PERFORMATIVES:
            self._receive_session(unit, channel, (start, end), body, signals)
        elif self._phase is not Phase.CLOSING:
            raise RemoteProtocolError(Condition.ILLEGAL_STATE, f"{kind.__name__.lower()} is not allowed now")

    def _receive_session(
        self, unit: memoryview, channel: int, bounds: tuple[int, int], body: Any, signals: list[Signal]
    ) -> None:
        session = self._channels.find(channel)
        if session is not None:
            session.receive(body, unit[bounds[1] :], signals)
            if type(body) is Transfer:
                self._shape = shape_of(unit, bounds[0], bounds[1], body, session)

    def _receive_open(self, peer: Open, channel: int, signals: list[Signal]) -> None:
        if peer.max_frame_size < MIN_MAX_FRAME_BYTES:
            raise RemoteProtocolError(Condition.INVALID_FIELD, f"max-frame-size is less than {MIN_MAX_FRAME_BYTES}")
        if self.role is Role.SERVER:
            self.outbox.add_raw(frame(self.options.open_frame()))
        self._phase = Phase.OPENED
        self._frame_limit = self.options.max_frame_size
        self.outbox.limit_bytes = min(peer.max_frame_size, self.options.max_frame_size)
        self._channels.remote_max = peer.channel_max
        self._timers.start_idle_timer(peer.idle_time_out)
        signals.append(ConnectionOpened(peer))

    def _receive_begin(self, begin: Begin, channel: int, signals: list[Signal]) -> None:
        self._channels.receive_begin(self, begin, channel, signals)

    def _receive_end(self, end: End, channel: int, signals: list[Signal]) -> None:
        self._channels.receive_end(end, channel, signals)

    def _receive_close(self, close: Close, channel: int, signals: list[Signal]) -> None:
        if self._phase is Phase.OPENED:
            self.outbox.flush_settlements()
            self.outbox.add(Close(), 0)
        self._finish(signals, ConnectionClosed(close.error))

    def _fail(self, violation: RemoteProtocolError, signals: list[Signal]) -> None:
        """Queue the closing frame that fits the phase; the connection is closed."""
        self.outbox.flush_settlements()
        if self.role is Role.SERVER and self._phase in _REFUSALS:
            self.outbox.add_raw(_REFUSALS[self._phase])
        elif self._phase in (Phase.OPEN, Phase.OPENED):
            if self.role is Role.SERVER and self._phase is Phase.OPEN:
                # AMQP 1.0, 2.4.3: a close follows an open, even if the peer's open was invalid.
                self.outbox.add_raw(frame(self.options.open_frame()))
            self.outbox.add_ending(Close, violation.condition, violation.description, 0)
        self._finish(signals, ConnectionFailed(violation))

    def _finish(self, signals: list[Signal], last: Signal) -> None:
        self._channels.clear(signals)
        self._shape = None
        self._input = FrameBuffer()
        self._phase = Phase.CLOSED
        signals.append(last)


_READERS: dict[Phase, Callable[[Connection, list[Signal]], bool]] = {
    Phase.HEADER: Connection._read_header,
    Phase.SASL: Connection._read_sasl,
    Phase.AMQP_HEADER: Connection._read_header,
    Phase.OPEN: Connection._read_frame,
    Phase.OPENED: Connection._read_frame,
    Phase.CLOSING: Connection._read_frame,
}

_HEADERS: dict[tuple[Role, Phase, bytes], Callable[[Connection], None]] = {
    (Role.SERVER, Phase.HEADER, HEADER_SASL): Connection._begin_sasl,
    # No SASL layer equals ANONYMOUS.
    (Role.SERVER, Phase.HEADER, HEADER_AMQP): Connection._begin_amqp,
    (Role.SERVER, Phase.AMQP_HEADER, HEADER_AMQP): Connection._begin_amqp,
    (Role.CLIENT, Phase.HEADER, HEADER_SASL): Connection._begin_sasl,
    (Role.CLIENT, Phase.AMQP_HEADER, HEADER_AMQP): Connection._begin_amqp,
}

# AMQP 1.0, 2.2: an unsupported header is answered with a supported one, then the transport is closed.
_REFUSALS: dict[Phase, bytes] = {
    Phase.HEADER: HEADER_SASL,
    Phase.AMQP_HEADER: HEADER_AMQP,
    Phase.SASL: frame(SaslOutcome(sasl.OUTCOME_AUTH), 0, FRAME_TYPE_SASL),
    Phase.AUTHENTICATION: frame(SaslOutcome(sasl.OUTCOME_AUTH), 0, FRAME_TYPE_SASL),
}

_SASL_STEPS: dict[tuple[Role, type], Callable[[Connection, Any, list[Signal]], None]] = {
    (Role.SERVER, SaslInit): Connection._receive_init,
    (Role.CLIENT, SaslMechanisms): Connection._receive_mechanisms,
    (Role.CLIENT, SaslOutcome): Connection._receive_outcome,
}

_PERFORMATIVES: dict[tuple[Phase, type], Callable[[Connection, Any, int, list[Signal]], None]] = {
    (Phase.OPEN, Open): Connection._receive_open,
    (Phase.OPENED, Begin): Connection._receive_begin,
    (Phase.OPENED, End): Connection._receive_end,
    (Phase.OPENED, Close): Connection._receive_close,
    (Phase.CLOSING, Close): Connection._receive_close,
}

_SESSION_PERFORMATIVES = frozenset({Attach, Flow, Transfer, Disposition, Detach})
