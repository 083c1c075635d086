"""ControlLog: the control log on its Kafka partition. Reads every entry, applies it, and notifies listeners.

Every gateway appends to the log and reads it to its end. The gateway that appended an entry gets its outcome when it
reads the entry back. Entries are appended with producer sequence numbers, so a retry never appends one twice. A gateway
that cannot decode an entry stops there: `failure` names the entry, and no later entry is applied.

The gateway that began first appends a checkpoint after some thousand entries, so that the log does not grow for ever:

1. Every gateway computes the digest of its state at the checkpoint. The gateway that appended it writes a snapshot.
2. When the snapshot is written, its digest is appended. A gateway with another digest stops: its state is wrong.
3. Entries before the last snapshot but one are deleted.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hubmere.cluster.control.entries import (
    Beat,
    Checkpoint,
    Entry,
    Gone,
    Leave,
    Session,
    Snapshot,
    UnreadableEntry,
    decode_entry,
    encode_entry,
)
from hubmere.cluster.control.lease import BEAT_SECONDS, ClaimEvent, Lease
from hubmere.cluster.control.state import ControlState, Outcome
from hubmere.cluster.engine.appends import Appended, PartitionAppends
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.sealing import WrongSecret
from hubmere.cluster.snapshots import Snapshots, digest_of
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.cluster.upstream.upstream import Upstream, with_patience
from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.records.header import UNSEALED, read_header, write_header
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

log = logging.getLogger("hubmere.cluster")

_WAIT_MS: Final = 250
_START_SECONDS: Final = 60.0
_PAUSE_S: Final = 0.1
_TICK_S: Final = 0.05
# Three gateways append this many entries in about half an hour.
SNAPSHOT_ENTRIES: Final = 10_000
# Checkpoints whose snapshots may not be written yet.
_MAX_DIGESTS: Final = 16

OnApplied = Callable[[int, Entry, Outcome], None]


class ControlLog:
    """The control log of one gateway. Thread rule: the loop's thread only."""

    def __init__(
        self,
        upstream: Upstream,
        topic: str,
        *,
        replication: int,
        in_sync: int,
        now_ms: Callable[[], int],
        address: str = "",
        version: str = "",
        snapshot_entries: int = SNAPSHOT_ENTRIES,
    ) -> None:
        self._partition = OnePartition(
            upstream=upstream, topic=topic, replication=replication, in_sync=in_sync, lane="control"
        )
        kept = replace(self._partition, topic=f"{topic.removesuffix('control')}snapshots", lane="snapshots")
        self._snapshots = Snapshots(kept)
        self._snapshot_entries = snapshot_entries
        self._digests: dict[str, str] = {}
        self._is_loading = True
        self._now_ms = now_ms
        self._address = address
        self._version = version
        self.state = ControlState()
        self.lease = Lease(_new_session())
        self.failure: str | None = None
        self._listeners: list[OnApplied] = []
        self._claim_listeners: list[Callable[[ClaimEvent], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._appends: PartitionAppends | None = None
        self._read_to = 0
        self._moved = asyncio.Event()
        self._declared: set[str] = set()
        self._has_asked = False
        self.log_start = 0

    def listen(self, on_applied: OnApplied) -> None:
        """Call back for every entry that is applied."""
        self._listeners.append(on_applied)

    def listen_to_claims(self, on_event: Callable[[ClaimEvent], None]) -> None:
        """Call back for everything that happens to a claim of this gateway."""
        self._claim_listeners.append(on_event)

    # --- start and stop

    async def start(self) -> None:
        """Create the topic if it does not exist, load the last snapshot, and apply all later entries."""
        await with_patience(self._partition.provide, seconds=_START_SECONDS)
        self._appends = PartitionAppends(
            0,
            connect=self._connect,
            take_producer=self._partition.take_producer,
            on_appended=self._on_appended,
            count_bytes=lambda _: None,
        )
        self._appends.topic = self._partition.topic
        await with_patience(self._load_snapshot, seconds=_START_SECONDS)
        end = await with_patience(lambda: self._partition.end(LATEST_TIMESTAMP), seconds=_START_SECONDS)
        while self._read_to < end and self.failure is None:
            await with_patience(self._read_once, seconds=_START_SECONDS)
        self._is_loading = False
        self._tasks.append(asyncio.create_task(self._read_loop()))

    async def _load_snapshot(self) -> None:
        data = await self._snapshots.load()
        self.log_start = await self._partition.end(EARLIEST_TIMESTAMP)
        if data is not None:
            self.state = ControlState.decode(data)
        self._read_to = self.state.next_offset
        if self._read_to < self.log_start:
            self._stop_at(self._read_to, f"the control log begins at {self.log_start}, and no snapshot is newer")

    def begin_session(self) -> None:
        """Begin a session: from now on this gateway sends beats and may claim places."""
        self.append(Session(session=self.lease.session, address=self._address, version=self._version))
        self._tasks.append(asyncio.create_task(self._beat_loop()))

    async def stop(self) -> None:
        """Leave in order: the places of this gateway are free at once."""
        if self._appends is not None and self.failure is None:
            self.append(Leave(session=self.lease.session))
            try:
                async with asyncio.timeout(2.0):
                    while not self._appends.is_idle:
                        await asyncio.sleep(_TICK_S)
            except TimeoutError:
                log.warning("could not report to the cluster that this gateway stops")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._appends is not None:
            self._appends.close()
        self._snapshots.close()

    async def abandon(self) -> None:
        """Stop reading the log without a Leave entry: for readers that have no session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- appending

    def append(self, entry: Entry, on_failed: Callable[[], None] | None = None) -> None:
        """Append an entry; `on_failed` is called if it was not appended, or if that is unknown."""
        assert self._appends is not None
        record = Record(sequence_number=0, time_ms=self._now_ms(), key=None, value=encode_entry(entry), headers=())
        batch = encode_batch([record])
        write_header(batch, read_header(batch)._replace(crc=UNSEALED))

        def on_done(receipt: Receipt) -> None:
            if receipt.error is not None and on_failed is not None:
                on_failed()

        self._appends.add(batch, Receipt(1, len(batch), on_done), is_own=True, transactional_id=None)

    def _on_appended(self, _: Appended) -> None:
        """Nothing to do: an entry counts when it is read back."""

    async def _connect(self) -> BrokerConnection:
        return await self._partition.append_lane(is_failing=self._appends is not None and bool(self._appends.failure))

    # --- reading

    async def _read_loop(self) -> None:
        while self.failure is None:
            try:
                await self._read_once()
            except UpstreamFailure as failure:
                log.debug("the control log cannot be read now: %s", failure)
                await asyncio.sleep(_PAUSE_S)

    async def _read_once(self) -> None:
        try:
            records = await self._partition.read(self._read_to, wait_ms=_WAIT_MS)
        except RequestRefused as refused:
            if refused.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._stop_at(self._read_to, "it was deleted while this gateway was cut off; restart the gateway")
                return
            raise
        for record in records:
            self._read_to = record.sequence_number + 1
            self._apply(record.sequence_number, record.value or b"")

    def _apply(self, offset: int, value: bytes) -> None:
        if self.failure is not None:
            return
        try:
            entry = decode_entry(value)
        except UnreadableEntry as unreadable:
            self._stop_at(offset, str(unreadable))
            return
        outcome = self.state.apply(offset, entry)
        if self._is_loading:
            return
        now = asyncio.get_running_loop().time()
        try:
            for listener in self._listeners:
                listener(offset, entry, outcome)
        except (UnreadableEntry, WrongSecret) as unreadable:
            self._stop_at(offset, str(unreadable))
            return
        self._tell(self.lease.observe(entry, outcome, now))
        match entry:
            case Checkpoint():
                self._on_checkpoint(offset, entry)
            case Snapshot():
                self._on_snapshot(entry)

    def _stop_at(self, offset: int, why: str) -> None:
        self.failure = f"entry {offset} of the control log cannot be read: {why}"
        log.error("%s; management stops on this gateway", self.failure)

    def _tell(self, events: list[ClaimEvent]) -> None:
        for event in events:
            for listener in self._claim_listeners:
                listener(event)

    # --- snapshots

    def _begin_snapshot(self) -> None:
        """Append a checkpoint if it is time, and this gateway is the one that does it."""
        state = self.state
        is_due = state.next_offset - max(state.checkpoint_at, 0) >= self._snapshot_entries
        alive = state.alive()
        if is_due and not self._has_asked and alive and alive[0].session == self.lease.session:
            self._has_asked = True
            self.append(Checkpoint(id=_new_session(), session=self.lease.session), self._on_not_asked)

    def _on_not_asked(self) -> None:
        self._has_asked = False

    def _on_checkpoint(self, offset: int, entry: Checkpoint) -> None:
        self._has_asked = False
        data = self.state.encode()
        if len(self._digests) >= _MAX_DIGESTS:
            self._digests.pop(next(iter(self._digests)))
        self._digests[entry.id] = digest_of(data)
        if entry.session == self.lease.session:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks.append(asyncio.create_task(self._write_snapshot(offset, entry.id, data)))

    async def _write_snapshot(self, offset: int, checkpoint: str, data: bytes) -> None:
        before = self.state.snapshot
        try:
            await self._snapshots.write(data)
        except (UpstreamFailure, Refusal) as failure:
            log.warning("the snapshot of entry %d was not written: %s", offset, failure)
            return
        self.append(Snapshot(id=checkpoint, offset=offset, digest=digest_of(data)))
        if before is not None:
            try:
                await self._partition.delete_before(before.offset)
                self.log_start = before.offset
            except UpstreamFailure as failure:
                log.warning("the control log was not trimmed: %s", failure)

    def _on_snapshot(self, entry: Snapshot) -> None:
        own = self._digests.pop(entry.id, entry.digest)
        if own != entry.digest:
            self._stop_at(entry.offset, "the state of this gateway differs from the others'; restart the gateway")

    # --- beats

    @property
    def has_lease(self) -> bool:
        """Whether this gateway may deliver on its claims."""
        return self.lease.is_held(asyncio.get_running_loop().time())

    async def _beat_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while self.failure is None:
            now = loop.time()
            self._tell(self.lease.advance(now))
            if self.lease.is_gone:
                self._begin_again()
            beat = self.lease.beat(now)
            if beat is not None:
                self._send_beat(beat)
            for session in self.state.silent_sessions(self.lease.session):
                if session not in self._declared:
                    self._declared.add(session)
                    log.warning("gateway %s is silent and is declared dead", session)
                    self.append(Gone(session=session))
            self._declared &= set(self.state.members)
            self._begin_snapshot()
            await asyncio.sleep(min(_TICK_S, BEAT_SECONDS))

    def _send_beat(self, beat: Beat) -> None:
        lease = self.lease
        self.append(beat, lambda: lease.on_beat_failed(beat.number))

    def _begin_again(self) -> None:
        """Others have declared this gateway dead, while it was frozen or cut off: it begins a new session."""
        log.warning("this gateway was declared dead by another; it begins a new session")
        self.lease = Lease(_new_session())
        self.append(Session(session=self.lease.session, address=self._address, version=self._version))


def _new_session() -> str:
    return secrets.token_hex(8)
