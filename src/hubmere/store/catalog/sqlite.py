"""SqliteCatalog: entities, rules, blobs and group offsets in one SQLite file, read from memory.

Reading: `view` has everything that is durable and never touches the disk. `planned` also has submitted changes, so that
a decision (is the name free, is there capacity for one more) takes them into account.

Writing:

1. `submit` checks a change against `planned`, queues it for the writer thread, and returns.
2. The writer thread writes all queued changes in one SQLite transaction (WAL, synchronous=FULL): a round.
3. When the round is on disk, `view` changes and the callbacks run, on the owner's thread through `post`.

So nothing is visible or acknowledged before it is durable, and many changes share one flush. If a round fails, its
changes and all changes planned on top of them are refused, and `planned` becomes a copy of `view`.

Hubs and their logs: a hub exists when its row does. Its logs are created on first use, under the row's uid, which is
never reused; a crash in between leaves a hub with empty logs, as if it were new. Deleting a hub takes three steps, so
that half a hub never exists:

1. One transaction replaces the row by a Deletion: the name is free, and the logs are not opened again.
2. The broker deletes the logs.
3. The broker removes the Deletion.

After a crash, `pending_deletions` lists the hubs for which steps 2 and 3 must be repeated.

Essential data is mirrored beside the file (see mirror), and a node checks the catalog at start (see guard).
"""

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from hubmere.model.errors import Refusal, ShuttingDown, StorageFull
from hubmere.store.catalog.migrations import CatalogUnusable, migrate
from hubmere.store.catalog.mirror import EntityChecksum, HubDescriptions, Revision, make_copy, write_revision
from hubmere.store.catalog.rows import TABLES, Item
from hubmere.store.catalog.runtime_state import Deletion
from hubmere.store.catalog.view import CatalogView, Replace, RowChange, Step
from hubmere.store.engine import OnDurable

_LOGGER = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], None]

MEMORY = ":memory:"
# Name in the data folder.
CATALOG_FILE = "catalog.sqlite3"
# The folder of the logs, which also has the descriptions of hubs.
LOGS_FOLDER = "log"

# Changes that may be queued: some seconds of a busy disk; beyond that, callers are refused.
MAX_PENDING_CHANGES = 100_000
# Changes in one transaction: bounds the time until its callbacks run.
MAX_ROUND_CHANGES = 10_000
# Changes that are completed in one turn of the owner's loop: a callback takes 10 to 100 microseconds.
MAX_COMPLETED_CHANGES = 50
# Rounds while the catalog closes, because callbacks may submit further changes; usually two or three.
MAX_CLOSING_ROUNDS = 100
# Another process (doctor, a backup) may lock the file this long before a write is refused.
_BUSY_TIMEOUT_S = 5.0

# Errors of a write: the disk, or a value that SQLite cannot store (64-bit integers, well-formed text).
_WRITE_ERRORS = (sqlite3.Error, OverflowError, UnicodeError)

# WAL with a full sync: a commit is on disk when it returns, and readers such as the doctor never block it.
_PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")

# Must be the first pragma. SQLite then needs no shared-memory file.
EXCLUSIVE_LOCKING = "PRAGMA locking_mode = EXCLUSIVE"
# SQLite's extended error codes have the primary code in their lowest byte.
_PRIMARY_CODE = 0xFF

_PUT_REVISION = (
    "INSERT INTO revision (id, number, checksum) VALUES (1, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET number = excluded.number, checksum = excluded.checksum"
)


class _PendingChange:
    """One submitted change."""

    __slots__ = ("callback", "changes", "error", "generation", "is_finished")

    def __init__(self, changes: list[RowChange], callback: OnDurable | None, generation: int) -> None:
        self.changes = changes
        self.callback = callback
        self.generation = generation
        self.error: Refusal | None = None
        self.is_finished = False


class SqliteCatalog:
    """A Catalog in one SQLite file, or in memory for `:memory:`.

    Thread rule: as in Catalog. After opening, the writer thread owns the connection; `_lock` protects the queue and the
    list of finished changes.
    """

    def __init__(self, connection: sqlite3.Connection, post: Post) -> None:
        self._connection = connection
        self._post = post
        self._view = CatalogView()
        self._planned = CatalogView()
        self._sum = EntityChecksum()
        self._number = 0
        self._data: Path | None = None
        self._descriptions: HubDescriptions | None = None
        self._copied_number = self._uncopied_number = -1
        self._copy_lock = threading.Lock()
        self.stored_sum: int | None = None  # the checksum in the file on opening; None if it had none
        self._generation = 0
        self._failed_generation = -1
        self._lock = threading.Condition()
        self._queue: deque[_PendingChange] = deque()
        self._pending_count = 0
        self._unfinished = 0
        self._finished: deque[_PendingChange] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._write_rounds, name="hubmere-catalog", daemon=True)

    @classmethod
    def open(
        cls,
        path: Path | str = MEMORY,
        post: Post | None = None,
        *,
        connection_class: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> "SqliteCatalog":
        """Open or create a catalog file, migrate it to the current schema and load it. Raises CatalogUnusable.

        `post` runs a call on the owner's thread and must work until `close` has returned. Without it, callbacks run
        only inside `apply` and `close`.
        """
        connection = open_connection(path, connection_class)
        catalog = cls(connection, post or _never)
        try:
            migrate(connection, str(path))
            catalog._load()
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            connection.close()
            raise CatalogUnusable(str(path), str(error)) from error
        except CatalogUnusable:
            connection.close()
            raise
        catalog._thread.start()
        return catalog

    def _load(self) -> None:
        for table in TABLES.values():
            rows = self._connection.execute(table.load_sql)
            self._view.apply_changes(RowChange(table.from_row(row)) for row in rows)
        self._planned = self._view.copy()
        self._load_revision()

    def _load_revision(self) -> None:
        self._sum = EntityChecksum()
        for table in TABLES.values():
            self._sum.apply(RowChange(table.from_row(row)) for row in self._connection.execute(table.load_sql))
        found = self._connection.execute("SELECT number, checksum FROM revision").fetchone()
        if found is not None:
            self._number, self.stored_sum = int(found[0]), int(found[1], 16)

    @property
    def revision(self) -> Revision:
        """The number of entity changes so far, and the checksum over all entities."""
        return Revision(self._number, self._sum.value)

    def continue_after(self, number: int) -> None:
        """Continue the revision number of a catalog which this one replaces; waits."""
        self._number = max(self._number, number)
        namespaces = self._view.namespaces()
        if namespaces:
            self.apply(Replace(namespaces[0]))

    def mirror_to(self, data: Path) -> None:
        """Mirror hub descriptions and the revision in a data folder from now on; call it before the first change."""
        self._data = data
        self._descriptions = HubDescriptions(data / LOGS_FOLDER)
        try:
            self._descriptions.load(self._view.items())
            write_revision(data, self.revision)
        except OSError as error:
            _LOGGER.warning("cannot mirror the catalog: %s", error)

    def copy_if_changed(self) -> None:
        """Copy the whole file if entities have changed since the last copy; may run on any thread.

        One copy at a time: a node may stop while its background thread makes one, and both write the same new file.
        """
        with self._copy_lock:
            number = self._number
            if self._data is None or number == self._copied_number:
                return
            try:
                make_copy(self._data / CATALOG_FILE)
            except (OSError, sqlite3.Error) as error:
                if number != self._uncopied_number:
                    _LOGGER.warning("cannot copy the catalog yet: %s", error)
                self._uncopied_number = number
            else:
                self._copied_number = number

    # --- owner's thread ----------------------------------------------------------------------------------------------

    @property
    def view(self) -> CatalogView:
        """Everything that is durable."""
        return self._view

    @property
    def planned_view(self) -> CatalogView:
        """Everything that is durable or submitted: check a change against this view."""
        return self._planned

    def pending_deletions(self) -> Sequence[Deletion]:
        """Deleted hubs whose logs may still exist."""
        return self._view.deletions()

    def submit(self, *steps: Step, callback: OnDurable | None = None) -> None:
        """Submit a change, all or nothing; the callback runs when it is durable or has failed."""
        self._enqueue(steps, callback)

    def apply(self, *steps: Step) -> None:
        """Submit a change and wait until it is durable; earlier changes complete first, in order."""
        pending = self._enqueue(steps, None)
        with self._lock:
            self._lock.wait_for(lambda: pending.is_finished)
        self._complete_finished()
        if pending.error is not None:
            raise pending.error

    def close(self) -> None:
        """Write and complete all submitted changes, also those that callbacks submit, then close. Idempotent."""
        for _ in range(MAX_CLOSING_ROUNDS):
            if not self._is_busy():
                break
            self.apply()
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._connection.close()
        self.copy_if_changed()

    def _is_busy(self) -> bool:
        with self._lock:
            return not self._is_closing and self._unfinished > 0

    def _enqueue(self, steps: Sequence[Step], callback: OnDurable | None) -> _PendingChange:
        with self._lock:
            if self._is_closing:
                raise ShuttingDown
            if steps and self._pending_count >= MAX_PENDING_CHANGES:
                raise StorageFull("the catalog's queue is full")
        pending = _PendingChange(self._planned.plan(steps), callback, self._generation)
        with self._lock:
            self._queue.append(pending)
            self._pending_count += len(pending.changes)
            self._unfinished += 1
            self._lock.notify_all()
        return pending

    def _complete_finished(self, max_changes: int | None = None) -> None:
        try:
            for _ in count() if max_changes is None else range(max_changes):
                pending = self._next_finished()
                if pending is None:
                    break
                self._complete(pending)
        finally:
            # The rest in the next turn of the loop. If a callback raises, the loop reports its error.
            if self._finished:
                self._post(self._complete_some)

    def _complete_some(self) -> None:
        self._complete_finished(MAX_COMPLETED_CHANGES)

    def _next_finished(self) -> _PendingChange | None:
        with self._lock:
            if not self._finished:
                return None
            self._unfinished -= 1
            return self._finished.popleft()

    def _complete(self, pending: _PendingChange) -> None:
        if pending.error is None:
            self._view.apply_changes(pending.changes)
        elif pending.generation == self._generation:
            # Everything planned since then depends on a change that failed: the writer refuses all of it.
            self._generation += 1
            self._planned = self._view.copy()
        if pending.callback is not None:
            pending.callback(pending.error)

    # --- writer thread ------------------------------------------------------------------------------------------------

    def _write_rounds(self) -> None:
        while (batch := self._next_round()) is not None:
            self._write_round(batch)
            with self._lock:
                for pending in batch:
                    pending.is_finished = True
                self._finished.extend(batch)
                self._lock.notify_all()
            self._post(self._complete_some)

    def _next_round(self) -> list[_PendingChange] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._queue or self._is_closing)
            batch: list[_PendingChange] = []
            taken = 0
            while self._queue and taken < MAX_ROUND_CHANGES:
                batch.append(self._queue.popleft())
                taken += len(batch[-1].changes)
            self._pending_count -= taken
            return batch or None

    def _write_round(self, batch: list[_PendingChange]) -> None:
        sound = [pending for pending in batch if pending.generation > self._failed_generation]
        for pending in batch:
            if pending.generation <= self._failed_generation:
                pending.error = StorageFull("an earlier change of the catalog failed")
        try:
            if sound:
                self._write_transaction(sound)
        except _WRITE_ERRORS as error:
            self._failed_generation = sound[-1].generation
            for pending in sound:
                pending.error = StorageFull(f"catalog: {error}")
            self._roll_back()
            with suppress(sqlite3.Error):
                self._load_revision()

    def _write_transaction(self, batch: list[_PendingChange]) -> None:
        changes = [change for pending in batch for change in pending.changes]
        self._connection.execute("BEGIN IMMEDIATE")
        _write_changes(self._connection, changes)
        has_changed = self._sum.apply(changes)
        if has_changed:
            self._number += 1
            self._connection.execute(_PUT_REVISION, (self._number, f"{self._sum.value:016x}"))
        self._connection.execute("COMMIT")
        if has_changed:
            self._mirror(changes)

    def _mirror(self, changes: list[RowChange]) -> None:
        """Update the mirror after a round; a failure is only logged."""
        if self._data is None or self._descriptions is None:
            return
        try:
            self._descriptions.update(changes)
            write_revision(self._data, self.revision)
        except OSError as error:
            _LOGGER.warning("cannot mirror the catalog: %s", error)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def open_connection(
    path: Path | str, connection_class: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Connect with the catalog's settings. Only the owner of the file can read it, because it contains keys.

    On a full disk SQLite cannot create the file that connections share (`-shm`). The catalog is then opened with
    exclusive locking, which needs no such file, so that a node starts and serves reads.
    """
    try:
        if str(path) != MEMORY:
            Path(path).touch(mode=0o600)
        return _connect(path, connection_class, _PRAGMAS)
    except (sqlite3.Error, OSError) as error:
        if not isinstance(error, sqlite3.Error) or not is_out_of_space(error):
            raise CatalogUnusable(str(path), str(error)) from error
    try:
        return _connect(path, connection_class, (EXCLUSIVE_LOCKING, *_PRAGMAS))
    except sqlite3.Error as error:
        raise CatalogUnusable(str(path), str(error)) from error


def _connect(
    path: Path | str, connection_class: type[sqlite3.Connection], pragmas: Sequence[str]
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=connection_class,
    )
    try:
        for pragma in pragmas:
            connection.execute(pragma)
        connection.execute("SELECT count(*) FROM sqlite_schema")  # the first read creates the shared file
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_out_of_space(error: sqlite3.Error) -> bool:
    """Whether SQLite could not write or create a file, which a full disk explains."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def _never(_: Callable[[], None]) -> None:
    """Callbacks wait for the next `apply` or `close`."""


def _write_changes(connection: sqlite3.Connection, changes: Iterable[RowChange]) -> None:
    """Write changes in order; consecutive writes of one kind share a statement, with the last row of each key."""
    run: dict[Any, Item] = {}
    kind: type[Item] | None = None
    for change in changes:
        if change.is_implied:
            continue
        if change.is_removal or type(change.item) is not kind:
            _write_run(connection, kind, run)
            run, kind = {}, type(change.item)
        if change.is_removal:
            table = TABLES[type(change.item)]
            connection.execute(table.remove_sql, table.key_of(change.item))
        else:
            run[change.item.key] = change.item
    _write_run(connection, kind, run)


def _write_run(connection: sqlite3.Connection, kind: type[Item] | None, run: dict[Any, Item]) -> None:
    if kind is not None and run:
        table = TABLES[kind]
        connection.executemany(table.put_sql, [table.to_row(item) for item in run.values()])
