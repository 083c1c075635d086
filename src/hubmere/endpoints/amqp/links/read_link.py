"""A link on which the peer reads a partition: credit becomes deliveries.

Algorithm:
1. While the link may send, closed batches are read from the log, turned into transfers by one compiled loop and written
   in pieces of about 100 KB.
2. It stops when credit, session window, socket, throughput units or events run out. The same cause starts it again: a
   flow frame, a window, a writable socket, a timer, or the move of the partition's committed end.
3. After `CHUNKS_PER_TURN` pieces or `TURN_SECONDS` the other connections get their turn, and while a large batch is
   being opened (`deliveries`).

Every delivery is sent settled and has an empty tag: reading removes nothing, so there is no outcome to wait for.
"""

import time

from hubmere.broker import LinkRole, LinkView, Reader, Resource
from hubmere.endpoints.amqp.errors import entity_name
from hubmere.endpoints.amqp.links.deliveries import Deliveries
from hubmere.endpoints.amqp.links.link_handler import HubLink, LinkHost
from hubmere.endpoints.stream import Timer
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.records.header import read_header
from hubmere.translate import OwnOffsets, RuntimeInfo, emit_transfers
from hubmere.wire.amqp import Link

# One write to the transport; smaller ones cost system calls, larger ones stall the other connections.
WRITE_BYTES = 96 * 1024
# One read of the log. Small events take about twice as many bytes as transfers than in the log.
READ_BYTES = 128 * 1024
# Pieces that one link sends before the others get their turn.
CHUNKS_PER_TURN = 16
# The same in processor time: events with many properties take longer. It is measured after the first piece.
TURN_SECONDS = 0.005


class RetainedBytes:
    """Bounds the batches that links of all connections keep between two turns.

    A reader whose credit covers a part of a batch needs the rest of it later; keeping it saves reading it again.
    """

    __slots__ = ("_limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Whether this many bytes may be kept; counts them if so."""
        if self.used_bytes + size_bytes > self._limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Bytes are not kept any more."""
        self.used_bytes -= size_bytes


class _Piece:
    """Whole batches from the log, and how far they are sent."""

    __slots__ = ("at", "data", "end_sequence", "offset", "offsets")

    def __init__(self, data: memoryview, offset: int, end_sequence: int, offsets: OwnOffsets) -> None:
        self.data = data
        self.offset = offset
        self.end_sequence = end_sequence
        self.offsets = offsets
        self.at = 0

    @property
    def rest(self) -> memoryview:
        """The data from the next batch on."""
        return self.data[self.at :]

    @property
    def rest_offset(self) -> int:
        """The byte offset of the next batch in the log."""
        return self.offset + self.at

    def skip_to(self, sequence: int) -> None:
        """Skip the batches that end before a sequence number."""
        data, at = self.data, self.at
        while at < len(data):
            header = read_header(data, at)
            if header.next_sequence_number > sequence:
                break
            at += header.size_bytes
        self.at = at


class ReadLink(HubLink):
    """A link on which the peer reads a partition."""

    __slots__ = (
        "_deliveries",
        "_has_metrics",
        "_hub_name",
        "_is_scheduled",
        "_log",
        "_piece",
        "_reader",
        "_retained",
        "_retained_bytes",
        "_timer",
    )

    right = Rights.LISTEN

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        resource: Resource,
        *,
        deliveries: Deliveries,
        retained: RetainedBytes,
        has_metrics: bool,
    ) -> None:
        super().__init__(host, link, resource)
        self._deliveries = deliveries
        self._retained = retained
        self._has_metrics = has_metrics
        self._reader: Reader | None = None
        self._hub_name = ""
        # Identifies the partition in the cache of decoded batches.
        self._log = ""
        self._piece: _Piece | None = None
        self._retained_bytes = 0
        self._timer: Timer | None = None
        self._is_scheduled = False

    def open(self, reader: Reader) -> None:
        """Start to follow the partition."""
        self._reader = reader
        self._hub_name = reader.entity.name
        self._log = f"{reader.entity.uid}-{reader.partition}"
        reader.start()

    # --- events that start sending

    def on_ready(self) -> None:
        """There may be more to read; the log calls this, and must not be read before it returns."""
        if not self._is_scheduled and self._link.credit:
            self._is_scheduled = True
            self._host.wire.call_soon(self._turn)

    def on_flow(self) -> None:
        """Credit, session window or socket changed."""
        if not self._is_scheduled:
            self._send_or_evict()

    def _turn(self) -> None:
        self._is_scheduled = False
        self._send_or_evict()
        self._host.flush()

    def _send_or_evict(self) -> None:
        """Send; a partition that cannot be read now ends this link, and no other of the connection."""
        try:
            self._send()
        except Refusal as refusal:
            self.evict(refusal)

    def _resume(self) -> None:
        self._timer = None
        self._turn()

    def view(self) -> LinkView:
        """Snapshot of this link for monitoring."""
        reader = self._reader
        return LinkView(
            role=LinkRole.READS,
            name=self._link.name,
            address=self.resource.path,
            hub=self._hub_name,
            group="" if reader is None else reader.group,
            partition=None if reader is None else reader.partition,
            credit=self._link.credit,
            position=None if reader is None else reader.next_sequence,
            lag=None if reader is None else reader.waiting_events,
            epoch=None if reader is None else reader.epoch,
            reader=reader,
        )

    # --- events that end the link

    def evict(self, refusal: Refusal) -> None:
        """Detach the link for a reason. The partition is released at once: the peer may never answer the detach."""
        if self._link.is_attached:
            reader = self._reader
            entity = entity_name(self._hub_name, *(() if reader is None else (reader.partition, reader.group)))
            self._link.detach(*self._host.explain(refusal, entity))
            self._host.flush_soon()
        self.on_detached()

    def on_detached(self) -> None:
        """The link is gone: close the reader. Calling it twice is harmless."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop_piece()

    # --- sending

    def _send(self) -> None:
        """Send as much as is possible now."""
        reader = self._reader
        if reader is None or self._timer is not None:
            return
        until = 0.0
        for number in range(CHUNKS_PER_TURN):
            if not self._may_send(reader):
                break
            piece = self._next_piece(reader)
            if piece is None:
                self._complete_drain()
                break
            if number == 1:
                until = time.thread_time() + TURN_SECONDS
            elif number and time.thread_time() > until:
                self._continue_later()
                return
            if self._send_from(piece, reader):
                self._host.flush()
            if self._is_scheduled:
                return
        else:
            self._continue_later()
            return
        self._keep_piece()

    def _continue_later(self) -> None:
        self._is_scheduled = True
        self._deliveries.take_turn(self._host.wire, self._turn)

    def _may_send(self, reader: Reader) -> bool:
        if not self._link.transfer_window():
            if not self._link.credit:
                self._complete_drain()
            return False
        if not self._host.backpressure.may_send:
            self._host.backpressure.retry_when_writable(self)
            return False
        now = self._host.clock.monotonic()
        delay = reader.delay(now)
        if delay > 0:
            self._timer = self._host.wire.call_at(now + delay, self._resume)
            return False
        return True

    def _next_piece(self, reader: Reader) -> _Piece | None:
        """The batches that hold the next event: those of the current piece, else the next ones of the log."""
        piece = self._piece
        sequence = reader.next_sequence
        if piece is not None and sequence < piece.end_sequence:
            return piece
        self._drop_piece()
        chunk = reader.read(READ_BYTES)
        if chunk is None:
            return None
        self._piece = _Piece(chunk.data, chunk.offset, chunk.next_sequence, chunk.offsets)
        return self._piece

    def _send_from(self, piece: _Piece, reader: Reader) -> int:
        """Queue transfers of events in a piece; returns how many."""
        sequence = reader.next_sequence
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
            cache=self._deliveries.cache,
            log=self._log,
            runtime=self._runtime_info(reader),
            offsets_are_sequences=reader.offsets_are_sequences,
            offsets=piece.offsets,
            skip=reader.aborted_transactions(sequence, piece.end_sequence),
        )
        for first, following in emission.unreadable:
            reader.report_unreadable(first, following)
        now = self._host.clock.monotonic()
        if emission.count:
            link.queue_transfers(emission.frames, emission.count)
        reader.advance(emission.next_sequence, emission.count, len(emission.frames), now)
        if emission.closed is not None:
            self._is_scheduled = True
            self._deliveries.open(emission.closed, self._host.wire, self._turn)
        if emission.long_message is None or not link.transfer_window():
            return emission.count
        link.send(emission.long_message, tag=b"", batchable=True)
        reader.advance(emission.next_sequence + 1, 1, len(emission.long_message), now)
        return emission.count + 1

    def _runtime_info(self, reader: Reader) -> RuntimeInfo | None:
        if not self._has_metrics:
            return None
        state = reader.state
        return RuntimeInfo(state.committed - 1, state.last_offset, state.last_enqueued_ms, self._host.clock.now_ms())

    def _complete_drain(self) -> None:
        """Nothing more can be sent: return the rest of the credit to a peer that drains the link."""
        if self._link.drain and self._link.is_attached:
            self._link.complete_drain()

    # --- pieces between turns

    def _keep_piece(self) -> None:
        """Keep the rest of a piece for the next turn, if the bound over all links allows it."""
        piece, reader = self._piece, self._reader
        if piece is None or self._retained_bytes:
            return
        is_sent = reader is None or reader.next_sequence >= piece.end_sequence
        if is_sent or not self._retained.take(len(piece.data)):
            self._piece = None
        else:
            self._retained_bytes = len(piece.data)

    def _drop_piece(self) -> None:
        self._retained.give_back(self._retained_bytes)
        self._retained_bytes = 0
        self._piece = None
