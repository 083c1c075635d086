"""Containers and blobs of a node: every rule of the Blob endpoint, and when an operation takes effect.

A change is decided against everything that was submitted before it, written to the catalog in one transaction, and
answered when it is durable. Reads see durable state only. A body that is too large for a row is on disk before the
change that names it is decided. An immediate refusal is raised; a later one is passed to the callback.
Thread rule: the owner's thread only. Time is an argument, in Unix milliseconds.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from hubmere.broker.blobs import leases, names
from hubmere.broker.blobs.conditions import RequestConditions, check_read, check_write
from hubmere.broker.blobs.leases import LeaseOperation, LeaseRequest
from hubmere.broker.blobs.listing import ListRequest, Page, read_page
from hubmere.broker.blobs.owner_moves import OwnerMoves
from hubmere.broker.blobs.recent_deletions import RecentDeletions
from hubmere.broker.blobs.records import (
    BlobHeaders,
    check_block_id,
    committed_blocks,
    decode_metadata,
    encode_metadata,
    find_block,
    part_of,
    require_blob,
    with_headers,
)
from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.model.errors import Conflict, Refusal
from hubmere.store.blob_files import BodyStore
from hubmere.store.catalog.blob_records import (
    BlobRecord,
    BlockRecord,
    BodyPart,
    ContainerRecord,
    decode_parts,
    encode_parts,
)
from hubmere.store.catalog.view import Drop, Put, Step
from hubmere.store.engine import Catalog

# Bodies up to this size are kept in the catalog: checkpoints have none, the leases of EventProcessorHost a few hundred
# bytes. Larger ones become files.
INLINE_BYTES: Final = 16 * 1024
# Limit of the service for one block list.
MAX_BLOCKS: Final = 50_000
# Blocks that are staged and never committed: the service drops them after a week.
_STAGED_BLOCK_MS: Final = 7 * 24 * 3600 * 1000
# Etags look like those of the service: hundreds of nanoseconds since the year 1.
_TICKS_AT_EPOCH: Final = 621_355_968_000_000_000
_TICKS_PER_MS: Final = 10_000

T = TypeVar("T")
OnDone = Callable[[T | Refusal], None]


class BlobAccount:
    """The containers of one storage account."""

    def __init__(self, name: str, catalog: Catalog, bodies: BodyStore, owner_moves: OwnerMoves | None = None) -> None:
        self.name = name
        self._catalog = catalog
        self._bodies = bodies
        self._owner_moves = owner_moves or OwnerMoves()
        self._deletions = RecentDeletions()
        self._last_etag = 0

    # --- containers ---

    def list_containers(self, wanted: ListRequest) -> Page[ContainerRecord]:
        """One page of the containers, in order."""
        return read_page(lambda first: self._catalog.view.containers_from(self.name, first), wanted)

    def container(self, name: str, conditions: RequestConditions, now_ms: int) -> ContainerRecord:
        """One container."""
        record = self._container(name, self._catalog.view.find_container(self.name, name))
        leases.require_read(record, conditions.lease_id, now_ms, is_container=True)
        return record

    def create_container(
        self, name: str, metadata: Mapping[str, str], now_ms: int, on_done: OnDone[ContainerRecord]
    ) -> None:
        """Create a container; refused if it exists."""
        names.check_container(name)
        names.check_metadata(metadata)
        if not self._is_planned_missing(name):
            raise BlobRefused(BlobErrorCode.CONTAINER_ALREADY_EXISTS)
        record = ContainerRecord(
            account=self.name,
            name=name,
            etag=self._next_etag(now_ms),
            modified_ms=now_ms,
            metadata=encode_metadata(metadata),
        )
        self._submit([Put(record)], record, on_done)

    def set_container_metadata(
        self,
        name: str,
        metadata: Mapping[str, str],
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[ContainerRecord],
    ) -> None:
        """Replace the metadata of a container."""
        names.check_metadata(metadata)
        record = self._planned_container(name)
        leases.require_read(record, conditions.lease_id, now_ms, is_container=True)
        check_write(record, conditions)
        fresh = replace(record, metadata=encode_metadata(metadata), etag=self._next_etag(now_ms), modified_ms=now_ms)
        self._submit([Put(fresh)], fresh, on_done)

    def delete_container(self, name: str, conditions: RequestConditions, now_ms: int, on_done: OnDone[None]) -> None:
        """Delete a container with all its blobs; one that was just deleted may be deleted again."""
        if self._deletions.has_just_deleted(name, now_ms) and self._is_planned_missing(name):
            on_done(None)
            return
        record = self._planned_container(name)
        leases.require_write(record, conditions.lease_id, now_ms, is_container=True)
        check_write(record, conditions)
        planned = self._catalog.planned_view
        blobs, blocks = planned.blobs(self.name, name), planned.container_blocks(self.name, name)
        unused = [part for blob in blobs for part in decode_parts(blob.parts)] + [part_of(block) for block in blocks]
        steps = [*map(Drop, blobs), *map(Drop, blocks), Drop(record)]
        self._submit(steps, None, self._deletions.noting(name, now_ms, on_done), unused)

    def lease_container(
        self,
        name: str,
        operation: LeaseOperation[ContainerRecord],
        request: LeaseRequest,
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[ContainerRecord],
    ) -> None:
        """Acquire, renew, change, release or break the lease of a container."""
        record = self._planned_container(name)
        check_write(record, conditions)
        fresh = operation(record, request, now_ms)
        self._submit([Put(fresh)], fresh, on_done)

    # --- reading blobs ---

    def list_blobs(self, container: str, wanted: ListRequest) -> Page[BlobRecord]:
        """One page of the blobs of a container, in order."""
        view = self._catalog.view
        self._container(container, view.find_container(self.name, container))
        return read_page(lambda first: view.blobs_from(self.name, container, first), wanted)

    def blob(self, container: str, name: str, conditions: RequestConditions, now_ms: int) -> BlobRecord:
        """One blob without its body."""
        view = self._catalog.view
        self._container(container, view.find_container(self.name, container))
        record = require_blob(view.find_blob(self.name, container, name))
        leases.require_read(record, conditions.lease_id, now_ms)
        check_read(record, conditions)
        return record

    def read(self, record: BlobRecord, first: int, count: int, on_done: OnDone[bytes]) -> None:
        """Bytes of a blob's body, from byte `first`."""
        if record.parts:
            self._bodies.read(decode_parts(record.parts), first, count, on_done)
        else:
            on_done(base64.b64decode(record.body)[first : first + count])

    def staged_blocks(self, container: str, name: str) -> list[BlockRecord]:
        """The blocks of a blob that are staged and not committed."""
        return list(self._catalog.view.blocks(self.name, container, name))

    # --- writing blobs ---

    def put_blob(
        self,
        container: str,
        name: str,
        body: bytes,
        headers: BlobHeaders,
        metadata: Mapping[str, str],
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[BlobRecord],
    ) -> None:
        """Create or replace a blob."""
        self._check_new_blob(container, name, metadata)
        self._check_overwrite(container, name, conditions, now_ms)
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        record = self._new_record(container, name, len(body), headers, metadata, now_ms)
        record = replace(record, content_md5=md5)
        if len(body) <= INLINE_BYTES:
            self._write(replace(record, body=base64.b64encode(body).decode()), conditions, now_ms, on_done)
            return

        def on_saved(saved: BodyPart | Refusal) -> None:
            if isinstance(saved, Refusal):
                on_done(saved)
            else:
                fresh = replace(record, parts=encode_parts((saved,)))
                self._decide(lambda: self._write(fresh, conditions, now_ms, on_done), on_done, [saved])

        self._bodies.save(body, on_saved)

    def set_metadata(
        self,
        container: str,
        name: str,
        metadata: Mapping[str, str],
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[BlobRecord],
    ) -> None:
        """Replace the metadata of a blob. Checkpoint stores write checkpoints and ownership in this way."""
        names.check_metadata(metadata)
        self._update(
            container,
            name,
            conditions,
            now_ms,
            lambda blob: replace(blob, metadata=encode_metadata(metadata)),
            on_done,
        )

    def write_checkpoints(
        self,
        container: str,
        entries: Mapping[str, Mapping[str, str]],
        now_ms: int,
        on_done: Callable[[Refusal | None], None],
    ) -> None:
        """Create or change the metadata of several blobs in one change; other metadata of a blob stays."""
        self._planned_container(container)
        records = []
        for name, metadata in entries.items():
            current = self._catalog.planned_view.find_blob(self.name, container, name)
            kept = {} if current is None else decode_metadata(current)
            fresh = {key: value for key, value in kept.items() if key.lower() not in metadata} | dict(metadata)
            record = current or self._new_record(container, name, 0, BlobHeaders(), {}, now_ms)
            etag = self._next_etag(now_ms)
            records.append(replace(record, metadata=encode_metadata(fresh), etag=etag, modified_ms=now_ms))
        self._submit([*map(Put, records)], None, on_done)

    def set_headers(
        self,
        container: str,
        name: str,
        headers: BlobHeaders,
        content_md5: str,
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[BlobRecord],
    ) -> None:
        """Replace the HTTP properties of a blob."""
        self._update(
            container,
            name,
            conditions,
            now_ms,
            lambda blob: replace(with_headers(blob, headers), content_md5=content_md5),
            on_done,
        )

    def delete_blob(
        self, container: str, name: str, conditions: RequestConditions, now_ms: int, on_done: OnDone[None]
    ) -> None:
        """Delete a blob and its staged blocks."""
        record = self._planned_blob(container, name)
        leases.require_write(record, conditions.lease_id, now_ms)
        check_write(record, conditions)
        blocks = self._catalog.planned_view.blocks(self.name, container, name)
        unused = [*decode_parts(record.parts), *map(part_of, blocks)]
        self._submit([Drop(record), *map(Drop, blocks)], None, on_done, unused)

    def lease_blob(
        self,
        container: str,
        name: str,
        operation: LeaseOperation[BlobRecord],
        request: LeaseRequest,
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[BlobRecord],
    ) -> None:
        """Acquire, renew, change, release or break the lease of a blob. Neither etag nor modification time changes."""
        record = self._planned_blob(container, name)
        check_write(record, conditions)
        fresh = operation(record, request, now_ms)
        self._submit([Put(fresh)], fresh, on_done)

    # --- blocks ---

    def stage_block(
        self,
        container: str,
        name: str,
        block_id: str,
        body: bytes,
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[None],
    ) -> None:
        """Keep a block until a block list commits it."""
        self._check_new_blob(container, name, {})
        check_block_id(block_id)
        current = self._catalog.planned_view.find_blob(self.name, container, name)
        if current is not None:
            leases.require_write(current, conditions.lease_id, now_ms)

        def on_saved(saved: BodyPart | Refusal) -> None:
            if isinstance(saved, Refusal):
                on_done(saved)
                return
            block = BlockRecord(
                account=self.name,
                container=container,
                blob=name,
                block_id=block_id,
                file=saved.file,
                size_bytes=saved.size_bytes,
                staged_ms=now_ms,
            )
            self._decide(lambda: self._stage(block, on_done), on_done, [saved])

        self._bodies.save(body, on_saved)

    def commit_blocks(
        self,
        container: str,
        name: str,
        wanted: Sequence[tuple[str, str]],
        headers: BlobHeaders,
        metadata: Mapping[str, str],
        conditions: RequestConditions,
        now_ms: int,
        on_done: OnDone[BlobRecord],
    ) -> None:
        """Create or replace a blob from blocks: pairs of a kind (Committed, Uncommitted or Latest) and a block id."""
        self._check_new_blob(container, name, metadata)
        if len(wanted) > MAX_BLOCKS:
            raise BlobRefused(BlobErrorCode.BLOCK_COUNT_EXCEEDS_LIMIT)
        planned = self._catalog.planned_view
        staged = {block.block_id: part_of(block) for block in planned.blocks(self.name, container, name)}
        committed = committed_blocks(planned.find_blob(self.name, container, name))
        chosen = [(block_id, find_block(kind, block_id, staged, committed)) for kind, block_id in wanted]
        record = self._new_record(
            container, name, sum(part.size_bytes for _, part in chosen), headers, metadata, now_ms
        )
        record = replace(
            record,
            parts=encode_parts(tuple(part for _, part in chosen)),
            blocks=json.dumps([[block_id, part.size_bytes] for block_id, part in chosen]),
        )
        self._write(record, conditions, now_ms, on_done)

    def _stage(self, block: BlockRecord, on_done: OnDone[None]) -> None:
        self._planned_container(block.container)
        old = self._catalog.planned_view.find_block(self.name, block.container, block.blob, block.block_id)
        self._submit([Put(block)], None, on_done, [] if old is None else [part_of(old)])

    def drop_old_blocks(self, now_ms: int) -> None:
        """Delete blocks that were staged a week ago and never committed."""
        old = [
            block
            for block in self._catalog.view.all_blocks()
            if block.account == self.name and block.staged_ms < now_ms - _STAGED_BLOCK_MS
        ]
        if old:
            self._submit([*map(Drop, old)], None, _ignore, [part_of(block) for block in old])

    # --- shared steps ---

    def _check_new_blob(self, container: str, name: str, metadata: Mapping[str, str]) -> None:
        self._planned_container(container)
        names.check_blob(name)
        names.check_metadata(metadata)

    def _check_overwrite(
        self, container: str, name: str, conditions: RequestConditions, now_ms: int
    ) -> BlobRecord | None:
        current = self._catalog.planned_view.find_blob(self.name, container, name)
        if current is not None:
            leases.require_write(current, conditions.lease_id, now_ms)
        elif conditions.lease_id:
            raise BlobRefused(BlobErrorCode.LEASE_BLOB_NOT_PRESENT)
        check_write(current, conditions)
        return current

    def _new_record(
        self,
        container: str,
        name: str,
        size_bytes: int,
        headers: BlobHeaders,
        metadata: Mapping[str, str],
        now_ms: int,
    ) -> BlobRecord:
        record = BlobRecord(
            account=self.name,
            container=container,
            name=name,
            etag=self._next_etag(now_ms),
            created_ms=now_ms,
            modified_ms=now_ms,
            size_bytes=size_bytes,
            metadata=encode_metadata(metadata),
        )
        return with_headers(record, headers)

    def _write(
        self, record: BlobRecord, conditions: RequestConditions, now_ms: int, on_done: OnDone[BlobRecord]
    ) -> None:
        """Replace a blob: its lease continues, its staged blocks and its old body go."""
        self._planned_container(record.container)
        current = self._check_overwrite(record.container, record.name, conditions, now_ms)
        if current is not None:
            kept = leases.after_write(current, now_ms)
            record = replace(
                record,
                created_ms=current.created_ms,
                lease_id=kept.lease_id,
                lease_seconds=kept.lease_seconds,
                lease_until_ms=kept.lease_until_ms,
                is_lease_broken=kept.is_lease_broken,
            )
        blocks = self._catalog.planned_view.blocks(self.name, record.container, record.name)
        old = [*decode_parts("" if current is None else current.parts), *map(part_of, blocks)]
        used = {part.file for part in decode_parts(record.parts)}
        unused = [part for part in old if part.file not in used]
        self._owner_moves.record(current, record, now_ms)
        self._submit([Put(record), *map(Drop, blocks)], record, on_done, unused)

    def _update(
        self,
        container: str,
        name: str,
        conditions: RequestConditions,
        now_ms: int,
        change: Callable[[BlobRecord], BlobRecord],
        on_done: OnDone[BlobRecord],
    ) -> None:
        record = self._planned_blob(container, name)
        leases.require_write(record, conditions.lease_id, now_ms)
        check_write(record, conditions)
        fresh = replace(leases.after_write(change(record), now_ms), etag=self._next_etag(now_ms), modified_ms=now_ms)
        self._owner_moves.record(record, fresh, now_ms)
        self._submit([Put(fresh)], fresh, on_done)

    def _planned_container(self, name: str) -> ContainerRecord:
        return self._container(name, self._catalog.planned_view.find_container(self.name, name))

    def _is_planned_missing(self, name: str) -> bool:
        return self._catalog.planned_view.find_container(self.name, name) is None

    def _container(self, name: str, record: ContainerRecord | None) -> ContainerRecord:
        if record is None:
            names.check_container(name)
            raise BlobRefused(BlobErrorCode.CONTAINER_NOT_FOUND)
        return record

    def _planned_blob(self, container: str, name: str) -> BlobRecord:
        self._planned_container(container)
        return require_blob(self._catalog.planned_view.find_blob(self.name, container, name))

    def _next_etag(self, now_ms: int) -> str:
        self._last_etag = max(self._last_etag + 1, now_ms * _TICKS_PER_MS + _TICKS_AT_EPOCH)
        return f"0x{self._last_etag:X}"

    def _submit(self, steps: Iterable[Step], result: T, on_done: OnDone[T], unused: Sequence[BodyPart] = ()) -> None:
        def on_durable(refusal: Refusal | None) -> None:
            if refusal is None:
                self._bodies.delete(unused)
            if isinstance(refusal, Conflict):
                # Another gateway has changed the blob since this change was decided.
                refusal = BlobRefused(BlobErrorCode.CONDITION_NOT_MET)
            on_done(result if refusal is None else refusal)

        self._catalog.submit(*steps, callback=on_durable)

    def _decide(self, change: Callable[[], None], on_done: OnDone[T], saved: Sequence[BodyPart]) -> None:
        """Make a change whose body is saved; if it is refused, the body is deleted again."""
        try:
            change()
        except Refusal as refusal:
            self._bodies.delete(saved)
            on_done(refusal)


def _ignore(_: Refusal | None) -> None:
    """Blocks that could not be dropped now are dropped later."""
