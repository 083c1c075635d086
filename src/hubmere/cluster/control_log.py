"""ControlLog: the control log on its Kafka partition. Reads every entry, applies it, and notifies listeners.

Every gateway appends to the log and reads it to its end. The gateway that appended an entry gets its outcome when it
reads the entry back. Entries are appended with producer sequence numbers, so a retry never appends one twice. A gateway
that cannot decode an entry stops there: `failure` names the entry, and no later entry is applied.

The gateway that began first appends a checkpoint after some thousand entries, so that the log does not grow for ever:

1. Every gateway computes the digest of its state at the checkpoint. The gateway that appended it writes a snapshot.
2. When the snapshot is written, its digest is appended. A gateway with another digest has a wrong state: it loads the
   snapshot, applies the entries since then again, and reports that it did. If it cannot, it stops.
3. Entries before the last snapshot but one are deleted. A gateway that has not read them, because it was cut off for an
   hour, loads the snapshot too.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

from hubmere.cluster.control.entries import (
    Beat,
    Checkpoint,
    Entry,
    Gone,
    Leave,
    Release,
    Session,
    Snapshot,
    UnreadableEntry,
    decode_entry,
    encode_entry,
)
from hubmere.cluster.control.history import GatewayHistory
from hubmere.cluster.control.lease import BEAT_SECONDS, ClaimEvent, Lease
from hubmere.cluster.control.state import ControlState, Outcome
from hubmere.cluster.engine.appends import PartitionAppends
from hubmere.cluster.engine.joining import unseal
from hubmere.cluster.engine.pending import AppendPosition
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.sealing import WrongSecret
from hubmere.cluster.snapshots import Snapshots, digest_of
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.cluster.upstream.upstream import Upstream, with_patience
from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.records.header import read_header
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

log = logging.getLogger("hubmere.cluster")

_WAIT_MS: Final = 250
_START_SECONDS: Final = 300.0
_PAUSE_S: Final = 0.1
# A beat that is not answered in this time ends its connection: the leader may be frozen.
_ANSWER_SECONDS: Final = 5.0
_TICK_S: Final = 0.05
# The pause before a release that was not appended is appended again.
_RELEASE_AGAIN_S: Final = 1.0
# Three gateways append this many entries in about half an hour.
SNAPSHOT_ENTRIES: Final = 10_000
# Entries before a snapshot that are read for the history of gateways: three gateways append them in five minutes.
_LOOK_BACK_ENTRIES: Final = 2_000
# Checkpoints whose snapshots may not be written yet.
_MAX_DIGESTS: Final = 16

# How long a gateway tries to load the snapshot after it has found its state wrong.
_RELOAD_SECONDS: Final = 30.0

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
        machine: str = "",
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
        self._machine = machine
        self._process = _new_session()
        self.history = GatewayHistory()
        self.state = ControlState()
        self.lease = Lease(_new_session())
        self.failure: str | None = None
        self._listeners: list[OnApplied] = []
        self._claim_listeners: list[Callable[[ClaimEvent], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._appends: PartitionAppends | None = None
        self._read_to = 0
        self._declared: set[str] = set()
        self._has_asked = False
        self._is_stopping = False
        # Why this gateway must load a snapshot, if it must.
        self._must_load: _Reload | None = None
        self.on_reloaded: Callable[[], None] | None = None
        # The address in the reports of a gateway, if some were read.
        self.reported_address: Callable[[str], str | None] = lambda _: None
        # What was wrong when the state was last loaded again, and when that was; for operators.
        self.reloaded: tuple[str, float] | None = None
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
            answer_seconds=_ANSWER_SECONDS,
        )
        self._appends.topic = self._partition.topic
        await with_patience(self._load_snapshot, seconds=_START_SECONDS)
        await self._look_back()
        end = await with_patience(lambda: self._partition.end(LATEST_TIMESTAMP), seconds=_START_SECONDS)
        while self._read_to < end and self.failure is None:
            await with_patience(self._read_once, seconds=_START_SECONDS)
        self._is_loading = False
        self._tasks.append(asyncio.create_task(self._guard(self._read_loop())))

    async def _load_snapshot(self) -> None:
        data = await self._snapshots.load()
        self.log_start = await self._partition.end(EARLIEST_TIMESTAMP)
        if data is not None:
            self.state = ControlState.decode(data)
        self._read_to = self.state.next_offset
        if self._read_to < self.log_start:
            self._stop_at(self._read_to, f"the control log begins at {self.log_start}, and no snapshot is newer")

    async def _look_back(self) -> None:
        """Read the entries before the snapshot for the history: they say which gateways have died lately."""
        offset, end = max(self.log_start, self._read_to - _LOOK_BACK_ENTRIES), self._read_to
        with contextlib.suppress(UpstreamFailure, UnreadableEntry):
            while offset < end and (records := await self._partition.read(offset, wait_ms=_WAIT_MS)):
                for record in records:
                    offset = record.sequence_number + 1
                    if offset <= end:
                        self.history.observe(decode_entry(record.value or b""), record.time_ms, self.state)

    def begin_session(self) -> None:
        """Begin a session: from now on this gateway sends beats and may claim places."""
        self._append_session()
        self._tasks.append(asyncio.create_task(self._guard(self._beat_loop())))

    def _append_session(self) -> None:
        self.append(
            Session(
                session=self.lease.session,
                address=self._address,
                version=self._version,
                machine=self._machine,
                process=self._process,
            )
        )

    async def stop(self) -> None:
        """Stop cleanly: the places of this gateway are free at once."""
        self._is_stopping = True
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
        own, header = unseal(batch, read_header(batch))

        def on_done(receipt: Receipt) -> None:
            if receipt.error is not None and on_failed is not None:
                on_failed()

        self._appends.add(own, header, Receipt(1, len(batch), on_done), is_own=True)

    def release(self, claim_id: str) -> None:
        """Release a claim. Repeated until it is appended: no other gateway releases it while this session is alive."""
        session = self.lease.session
        self.append(Release(id=claim_id), lambda: self._release_later(claim_id, session))

    def _release_later(self, claim_id: str, session: str) -> None:
        if not self._is_stopping:
            asyncio.get_running_loop().call_later(_RELEASE_AGAIN_S, self._release_again, claim_id, session)

    def _release_again(self, claim_id: str, session: str) -> None:
        # The claims of a session end with it.
        if not self._is_stopping and session == self.lease.session:
            self.release(claim_id)

    def _on_appended(self, _: AppendPosition) -> None:
        """Nothing to do: an entry counts when it is read back."""

    async def _connect(self, _: int) -> BrokerConnection:
        return await self._partition.append_lane(is_failing=self._appends is not None and bool(self._appends.failure))

    # --- reading

    async def _guard(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run a loop; if it fails, the gateway stops to follow the log, and says so."""
        try:
            await loop
        except Exception as error:
            log.exception("the control log cannot be followed")
            self._stop_at(self.state.next_offset - 1, f"this gateway has a defect and must be restarted: {error!r}")

    async def _read_loop(self) -> None:
        while self.failure is None:
            try:
                if self._must_load is not None:
                    await self._reload(self._must_load)
                await self._read_once()
            except UpstreamFailure as failure:
                log.debug("the control log cannot be read now: %s", failure)
                await asyncio.sleep(_PAUSE_S)

    async def _read_once(self) -> None:
        try:
            records = await self._partition.read(self._read_to, wait_ms=_WAIT_MS)
        except RequestRefused as refused:
            if refused.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._find_trimmed()
            return
        for record in records:
            if self._must_load is not None:
                return  # the rest is read again, with the right state
            self._read_to = record.sequence_number + 1
            self._apply(record)

    async def _find_trimmed(self) -> None:
        """The next entry does not exist: others have trimmed the log, or somebody has deleted its topic."""
        start, end = await self._partition.end(EARLIEST_TIMESTAMP), await self._partition.end(LATEST_TIMESTAMP)
        if end < self._read_to:
            self._stop_at(self._read_to, f"the control log ends at {end}: its topic was deleted")
            return
        why = f"entry {self._read_to} of the control log was deleted while this gateway was cut off"
        self._must_load = _Reload(why, start)

    def _apply(self, record: Record) -> None:
        offset, value = record.sequence_number, record.value or b""
        if self.failure is not None:
            return
        try:
            entry = decode_entry(value)
        except UnreadableEntry as unreadable:
            self._stop_at(offset, str(unreadable))
            return
        outcome = self.state.apply(offset, entry)
        # The clock of another gateway may be wrong: its times count only for what happened before this one began.
        self.history.observe(entry, record.time_ms if self._is_loading else self._now_ms(), self.state)
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
            case Gone():
                # If it was refused, the gateway is alive, and may become silent again.
                self._declared.discard(entry.session)

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
            why = f"the state of this gateway differed from the others' at entry {entry.offset} of the control log"
            log.error("%s", why)
            self._must_load = _Reload(why, entry.offset + 1)

    async def _reload(self, reload: "_Reload") -> None:
        """Replace the state by that of the snapshot, with the entries since then up to the last one that was applied.

        Nothing changes before all of them have been read: if a broker fails meanwhile, it is done again. Listeners do
        not get these entries. Claims may have been decided wrongly, or by entries that this gateway has never read: it
        leaves its session and begins a new one.
        """
        data = await with_patience(self._snapshots.load, seconds=_RELOAD_SECONDS)
        state = None if data is None else ControlState.decode(data)
        if state is None or state.next_offset < reload.least_offset:
            self._stop_at(reload.least_offset - 1, f"{reload.why}, and no snapshot is newer")
            return
        await self._catch_up(state)
        self.state, self._read_to, self._must_load = state, state.next_offset, None
        self._digests.clear()
        self._declared.clear()
        self._has_asked = False
        self._tell(self.lease.end())
        self.append(Leave(session=self.lease.session))
        self._begin_session()
        self.reloaded = (reload.why, asyncio.get_running_loop().time())
        if self.on_reloaded is not None:
            self.on_reloaded()
        log.error("%s; it was loaded again from the snapshot", reload.why)

    async def _catch_up(self, state: ControlState) -> None:
        """Apply the entries to a state that this gateway has applied already."""
        while state.next_offset < self._read_to:
            offset = state.next_offset
            records = await with_patience(
                lambda offset=offset: self._partition.read(offset, wait_ms=_WAIT_MS),  # type: ignore[misc]
                seconds=_RELOAD_SECONDS,
            )
            for record in records:
                if record.sequence_number < self._read_to:
                    state.apply(record.sequence_number, decode_entry(record.value or b""))

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
                    self._declare_dead(session)
            self._begin_snapshot()
            await asyncio.sleep(min(_TICK_S, BEAT_SECONDS))

    def _declare_dead(self, session: str) -> None:
        seen = self.history.find(session)
        address, machine = ("", "") if seen is None else (seen.address, seen.machine)
        address = self.reported_address(session) or address
        log.warning("gateway %s (%s on %s) is silent and is declared dead", session, address, machine or "?")
        gone = Gone(session=session, address=address, machine=machine)
        self.append(gone, lambda: self._declared.discard(session))

    def _send_beat(self, beat: Beat) -> None:
        lease = self.lease
        self.append(beat, lambda: lease.on_beat_failed(beat.number))

    def _begin_again(self) -> None:
        """The control log does not know the session of this gateway, or others have declared it dead."""
        log.warning("the cluster does not know this gateway any more; it begins a new session")
        self._begin_session()

    def _begin_session(self) -> None:
        self.lease = Lease(_new_session())
        self._append_session()


@dataclass(frozen=True, slots=True)
class _Reload:
    """Why a snapshot must be loaded; a state before `least_offset` is too old."""

    why: str
    least_offset: int


def _new_session() -> str:
    return secrets.token_hex(8)
