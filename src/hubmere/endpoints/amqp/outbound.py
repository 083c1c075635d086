"""Credit becomes deliveries.

A link that may send is pumped: closed batches are read, turned into transfers by one compiled loop, and written some
64 to 128 KB at a time, until credit, session window, socket, throughput units or events run out. What stopped it also
starts it again: a flow, a window, a writable socket, a timer, or the move of the partition's committed end. After some
chunks the other connections get their turn. Every delivery is settled when it is sent and has an empty tag: reading
takes nothing away, so there is no outcome to wait for.
"""

from hubmere.broker.access import Resource
from hubmere.broker.live import LiveHub
from hubmere.broker.management.connections import LinkView, Role
from hubmere.broker.read import Reader
from hubmere.endpoints.amqp.errors import entity_name
from hubmere.endpoints.amqp.links import Host, HubPart
from hubmere.endpoints.stream import Timer
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.records.header import read_header
from hubmere.translate import DecodedCache, RuntimeInfo, emit_transfers, message_at
from hubmere.wire.amqp import Link

# One write to the transport; smaller ones cost system calls, larger ones stall the other connections.
WRITE_BYTES = 96 * 1024
# One read of the log. Small events take about twice their bytes in the log when they leave as transfers.
READ_BYTES = 128 * 1024
# Chunks that one link sends before the others get their turn.
CHUNKS_PER_TURN = 16


class HeldBytes:
    """What links keep of the log between two turns, all connections together: bounded, and only to save reading again.

    A reader whose credit covers a part of a batch comes back for the rest of it.
    """

    __slots__ = ("_limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Whether so many bytes may be kept; counts them if so."""
        if self.used_bytes + size_bytes > self._limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """They are kept no longer."""
        self.used_bytes -= size_bytes


class _Piece:
    """Whole batches from the log, and how far they are used up."""

    __slots__ = ("at", "data", "end_sequence", "offset")

    def __init__(self, data: memoryview, offset: int, end_sequence: int) -> None:
        self.data = data
        self.offset = offset
        self.end_sequence = end_sequence
        self.at = 0

    @property
    def rest(self) -> memoryview:
        """From the batch that is next."""
        return self.data[self.at :]

    @property
    def rest_offset(self) -> int:
        """Its byte number."""
        return self.offset + self.at

    def skip_to(self, sequence: int) -> None:
        """Pass over the batches that end before a sequence number."""
        data, at = self.data, self.at
        while at < len(data):
            header = read_header(data, at)
            if header.next_sequence_number > sequence:
                break
            at += header.size_bytes
        self.at = at


class Outbound(HubPart):
    """A link on which the peer reads a partition."""

    __slots__ = (
        "_cache",
        "_held",
        "_hub",
        "_is_scheduled",
        "_log",
        "_piece",
        "_pieces",
        "_subscription",
        "_timer",
        "_with_metrics",
    )

    right = Rights.LISTEN

    def __init__(
        self,
        host: Host,
        link: Link,
        resource: Resource,
        hub: LiveHub,
        *,
        cache: DecodedCache,
        pieces: HeldBytes,
        with_metrics: bool,
    ) -> None:
        super().__init__(host, link, resource)
        self._hub = hub
        self._cache = cache
        self._pieces = pieces
        self._with_metrics = with_metrics
        self._subscription: Reader | None = None
        self._log = ""
        self._piece: _Piece | None = None
        self._held = 0
        self._timer: Timer | None = None
        self._is_scheduled = False

    def open(self, subscription: Reader) -> None:
        """Begin to follow the partition."""
        self._subscription = subscription
        self._log = f"{self._hub.entity.uid}-{subscription.partition}"
        subscription.start()

    # --- what starts it

    def wake(self) -> None:
        """More may be committed; called by the log, which must not be read from within."""
        if not self._is_scheduled and self._link.credit:
            self._is_scheduled = True
            self._host.wire.call_soon(self._turn)

    def credit_moved(self) -> None:
        """Credit, window or socket allow more; or less."""
        if not self._is_scheduled:
            self._pump_guarded()

    def _turn(self) -> None:
        self._is_scheduled = False
        self._pump_guarded()
        self._host.flush()

    def _pump_guarded(self) -> None:
        """A partition that cannot be read now ends this link, and no other of the connection."""
        try:
            self._pump()
        except Refusal as refusal:
            self.evicted(refusal)

    def _resume(self) -> None:
        self._timer = None
        self._turn()

    def view(self) -> LinkView:
        """The link as those see it who look at the connection."""
        reader = self._subscription
        return LinkView(
            role=Role.READS,
            name=self._link.name,
            address=self.resource.path,
            hub=self._hub.name,
            group="" if reader is None else reader.group,
            partition=None if reader is None else reader.partition,
            credit=self._link.credit,
            position=None if reader is None else reader.next_sequence,
            lag=None if reader is None else reader.waiting_events,
            epoch=None if reader is None else reader.epoch,
            reader=reader,
        )

    # --- what ends it

    def evicted(self, refusal: Refusal) -> None:
        """The reader lost its place, which is free at once: the peer may never answer the detach."""
        if self._link.is_attached:
            reader = self._subscription
            entity = self._hub.name if reader is None else entity_name(self._hub.name, reader.partition, reader.group)
            self._link.detach(*self._host.explain(refusal, entity))
            self._host.flush_soon()
        self.closed()

    def closed(self) -> None:
        """The link is gone: the place in the group is free again. Closing twice is harmless."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop_piece()

    # --- sending

    def _pump(self) -> None:
        """Send as much as may go now."""
        subscription = self._subscription
        if subscription is None or self._timer is not None:
            return
        for _ in range(CHUNKS_PER_TURN):
            if not self._may_send(subscription):
                break
            piece = self._next_piece(subscription)
            if piece is None:
                self._complete_drain()
                break
            if self._send_from(piece, subscription):
                self._host.flush()
        else:
            self._is_scheduled = True
            self._host.wire.call_soon(self._turn)
            return
        self._keep_piece()

    def _may_send(self, subscription: Reader) -> bool:
        if not self._link.transfer_window():
            if not self._link.credit:
                self._complete_drain()
            return False
        if not self._host.may_send:
            self._host.retry_when_writable(self)
            return False
        now = self._host.clock.monotonic()
        delay = subscription.delay(now)
        if delay > 0:
            self._timer = self._host.wire.call_at(now + delay, self._resume)
            return False
        return True

    def _next_piece(self, subscription: Reader) -> _Piece | None:
        """The batches that hold the next event: those at hand, else the log's next."""
        piece = self._piece
        sequence = subscription.next_sequence
        if piece is not None and sequence < piece.end_sequence:
            return piece
        self._drop_piece()
        chunk = subscription.read(READ_BYTES)
        if chunk is None:
            return None
        self._piece = _Piece(chunk.data, chunk.offset, chunk.next_sequence)
        return self._piece

    def _send_from(self, piece: _Piece, subscription: Reader) -> int:
        """Queue transfers out of a piece and move on; how many."""
        sequence = subscription.next_sequence
        piece.skip_to(sequence)
        link = self._link
        emission = emit_transfers(
            piece.rest,
            piece.rest_offset,
            sequence,
            limit=link.transfer_window(),
            max_bytes=WRITE_BYTES,
            channel=link.channel,
            handle=link.handle,
            next_delivery_id=link.next_delivery_id,
            max_frame_size=link.max_frame_size,
            cache=self._cache,
            log=self._log,
            runtime=self._runtime_info(subscription),
            offsets_are_sequences=self._are_offsets_sequences,
            skip=subscription.aborted_transactions(sequence, piece.end_sequence),
        )
        for first, following in emission.unreadable:
            self._hub.report_unreadable(subscription.partition, first, following)
        now = self._host.clock.monotonic()
        if emission.count:
            link.queue_transfers(emission.frames, emission.count)
        subscription.advance(emission.next_sequence, emission.count, len(emission.frames), now)
        if emission.needs_split and link.transfer_window():
            return emission.count + self._send_split(piece, subscription, now)
        return emission.count

    def _send_split(self, piece: _Piece, subscription: Reader, now: float) -> int:
        """Send one event that needs several frames."""
        sequence = subscription.next_sequence
        message = message_at(
            piece.rest,
            piece.rest_offset,
            sequence,
            cache=self._cache,
            log=self._log,
            runtime=self._runtime_info(subscription),
            offsets_are_sequences=self._are_offsets_sequences,
        )
        if message is None:
            return 0
        self._link.send(message, tag=b"", batchable=True)
        subscription.advance(sequence + 1, 1, len(message), now)
        return 1

    @property
    def _are_offsets_sequences(self) -> bool:
        return self._hub.entity.retention.is_compacted

    def _runtime_info(self, subscription: Reader) -> RuntimeInfo | None:
        if not self._with_metrics:
            return None
        state = subscription.state
        return RuntimeInfo(state.committed - 1, state.last_offset, state.last_enqueued_ms, self._host.clock.now_ms())

    def _complete_drain(self) -> None:
        """Nothing more is there, or no more may go: a peer that drains gets what is left of its credit back."""
        if self._link.drain and self._link.is_attached:
            self._link.complete_drain()

    # --- pieces between turns

    def _keep_piece(self) -> None:
        """Hold on to what is left of a piece, unless too much is held already."""
        piece, subscription = self._piece, self._subscription
        if piece is None or self._held:
            return
        is_used_up = subscription is None or subscription.next_sequence >= piece.end_sequence
        if is_used_up or not self._pieces.take(len(piece.data)):
            self._piece = None
        else:
            self._held = len(piece.data)

    def _drop_piece(self) -> None:
        self._pieces.give_back(self._held)
        self._held = 0
        self._piece = None
