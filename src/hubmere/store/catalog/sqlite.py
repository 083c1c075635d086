"""The catalog: entities, rules, checkpoints and group offsets in one SQLite file, read from memory, written behind.

Reading: `view` holds what is durable and never touches the disk; `planned` also holds what was submitted and is on its
way, so that a decision (is the name free, is there room for one more) takes it into account.
Writing: `submit` checks a change against `planned`, hands it to the one writer thread and returns. The writer puts all
that waits into one SQLite transaction (WAL, synchronous=FULL); when that is on disk `view` moves and the callback is
called, on the owner's thread by `post`. So nothing is seen or acknowledged before it is durable, and many commits share
one flush. When a round fails, every change of it and every change planned on top of it is refused, and `planned` is
`view` again.

Hubs and their logs. A hub is there when its row is; its logs are made on first use, under the row's uid, which is never
used again: a crash in between leaves a hub with empty logs, which is what a new hub is. Deleting (1) replaces the row
by a Deletion in one transaction, so that the name is free and nobody opens the logs, (2) the broker deletes the logs,
and (3) drops the Deletion. After a crash `pending_deletions` says for which hubs (2) and (3) are to be done again; both
can be repeated. So there is no moment at which half a hub exists.

What must not be lost is mirrored beside the file (`mirror`), and a node checks it at start (`guard`).
"""

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hubmere.model.errors import Refusal, ShuttingDown, StorageFull
from hubmere.store.catalog.migrations import CatalogUnusable, migrate
from hubmere.store.catalog.mirror import EntitySum, HubDescriptions, Revision, make_copy, write_revision
from hubmere.store.catalog.rows import TABLES, Item
from hubmere.store.catalog.runtime_state import Deletion
from hubmere.store.catalog.view import Move, Replace, Step, View
from hubmere.store.engine import OnDurable

_LOGGER = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], None]

MEMORY = ":memory:"
# Its name in the data folder.
CATALOG_FILE = "catalog.sqlite3"
# The folder of the logs beside it, which also holds the descriptions of hubs.
LOGS_FOLDER = "log"

# Steps that may wait for the writer: some seconds of a busy disk; beyond that the callers must slow down.
MAX_WAITING_MOVES = 100_000
# Steps that one transaction takes: bounds the time until its callers hear of it.
MAX_ROUND_MOVES = 10_000
# Rounds in which callbacks may begin further changes while the catalog closes: a chain has two or three.
MAX_CLOSING_ROUNDS = 100
# Another process (doctor, a backup) may hold the file this long before a write is refused.
_BUSY_TIMEOUT_S = 5.0

# What a write can meet: the disk, and a value that no SQLite column holds (64-bit integers, well-formed text).
_WRITE_ERRORS = (sqlite3.Error, OverflowError, UnicodeError)

# WAL with a full sync: a commit is on disk when it returns, and readers such as doctor never block it.
_PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")

# Before any other: no file is shared with other connections then.
EXCLUSIVELY = "PRAGMA locking_mode = EXCLUSIVE"
# SQLite's extended error codes have the kind of error in their lowest byte.
_PRIMARY_CODE = 0xFF

_PUT_REVISION = (
    "INSERT INTO revision (id, number, checksum) VALUES (1, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET number = excluded.number, checksum = excluded.checksum"
)


class _Waiting:
    """One submitted change on its way through the writer."""

    __slots__ = ("callback", "error", "generation", "is_finished", "moves")

    def __init__(self, moves: list[Move], callback: OnDurable | None, generation: int) -> None:
        self.moves = moves
        self.callback = callback
        self.generation = generation
        self.error: Refusal | None = None
        self.is_finished = False


class SqliteCatalog:
    """A Catalog in one SQLite file, or in memory for `:memory:`.

    Thread rule: as Catalog says. The writer thread owns the connection after opening; the queue and the list of
    finished changes are shared under `_lock`.
    """

    def __init__(self, connection: sqlite3.Connection, post: Post) -> None:
        self._connection = connection
        self._post = post
        self._view = View()
        self._planned = View()
        self._sum = EntitySum()
        self._number = 0
        self._data: Path | None = None
        self._descriptions: HubDescriptions | None = None
        self._copied_number = self._uncopied_number = -1
        self.stored_sum: int | None = None  # what the file said on opening, None when it said nothing
        self._generation = 0
        self._failed_generation = -1
        self._lock = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._waiting_moves = 0
        self._unfinished = 0
        self._finished: deque[_Waiting] = deque()
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
        """Open or create a catalog file, bring it to this version's shape and load it. Raises CatalogUnusable.

        `post` hands a call to the owner's thread and must do so until `close` has returned; without it callbacks come
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
            self._view.repeat(Move(table.from_row(row)) for row in rows)
        self._planned = self._view.copy()
        self._load_revision()

    def _load_revision(self) -> None:
        self._sum = EntitySum()
        for table in TABLES.values():
            self._sum.apply(Move(table.from_row(row)) for row in self._connection.execute(table.load_sql))
        found = self._connection.execute("SELECT number, checksum FROM revision").fetchone()
        if found is not None:
            self._number, self.stored_sum = int(found[0]), int(found[1], 16)

    @property
    def revision(self) -> Revision:
        """How often entities have changed, and the sum over them."""
        return Revision(self._number, self._sum.value)

    def continue_after(self, number: int) -> None:
        """Number the next change behind that of a catalog which this one replaces; waits."""
        self._number = max(self._number, number)
        namespaces = self._view.namespaces()
        if namespaces:
            self.apply(Replace(namespaces[0]))

    def mirror_to(self, data: Path) -> None:
        """Keep descriptions of hubs and the revision in a data folder from now on; call it before the first change."""
        self._data = data
        self._descriptions = HubDescriptions(data / LOGS_FOLDER)
        try:
            self._descriptions.load(self._view.items())
            write_revision(data, self.revision)
        except OSError as error:
            _LOGGER.warning("what the catalog can be rebuilt from is not complete: %s", error)

    def copy_if_changed(self) -> None:
        """Make another copy of the whole file if entities have changed since the last; may run on any thread."""
        number = self._number
        if self._data is None or number == self._copied_number:
            return
        try:
            make_copy(self._data / CATALOG_FILE)
        except (OSError, sqlite3.Error) as error:
            if number != self._uncopied_number:
                _LOGGER.warning("the catalog cannot be copied yet: %s", error)
            self._uncopied_number = number
        else:
            self._copied_number = number

    # --- the owner's side --------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What is durable."""
        return self._view

    @property
    def planned(self) -> View:
        """What is durable or on its way: for checks before a change."""
        return self._planned

    def pending_deletions(self) -> Sequence[Deletion]:
        """Deleted hubs whose logs may still be there."""
        return self._view.deletions()

    def submit(self, *steps: Step, callback: OnDurable | None = None) -> None:
        """Begin a change, all or nothing; the callback comes when it is durable or refused."""
        self._enqueue(steps, callback)

    def apply(self, *steps: Step) -> None:
        """The same, but wait until it is durable; changes submitted before are completed on the way, in order."""
        waiting = self._enqueue(steps, None)
        with self._lock:
            self._lock.wait_for(lambda: waiting.is_finished)
        self._complete_finished()
        if waiting.error is not None:
            raise waiting.error

    def close(self) -> None:
        """Write and complete what waits, and what its callbacks begin in turn, then close; closing twice is fine."""
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

    def _enqueue(self, steps: Sequence[Step], callback: OnDurable | None) -> _Waiting:
        with self._lock:
            if self._is_closing:
                raise ShuttingDown
            if steps and self._waiting_moves >= MAX_WAITING_MOVES:
                raise StorageFull("the catalog's queue is full")
        waiting = _Waiting(self._planned.plan(steps), callback, self._generation)
        with self._lock:
            self._queue.append(waiting)
            self._waiting_moves += len(waiting.moves)
            self._unfinished += 1
            self._lock.notify_all()
        return waiting

    def _complete_finished(self) -> None:
        try:
            while (waiting := self._next_finished()) is not None:
                self._complete(waiting)
        finally:
            # Should a callback raise, its error is the loop's to report, and the others still get their turn.
            if self._finished:
                self._post(self._complete_finished)

    def _next_finished(self) -> _Waiting | None:
        with self._lock:
            if not self._finished:
                return None
            self._unfinished -= 1
            return self._finished.popleft()

    def _complete(self, waiting: _Waiting) -> None:
        if waiting.error is None:
            self._view.repeat(waiting.moves)
        elif waiting.generation == self._generation:
            # Whatever was planned since then stood on a change that is not there: the writer refuses all of it.
            self._generation += 1
            self._planned = self._view.copy()
        if waiting.callback is not None:
            waiting.callback(waiting.error)

    # --- the writer's side -------------------------------------------------------------------------------------------

    def _write_rounds(self) -> None:
        while (batch := self._next_round()) is not None:
            self._write_round(batch)
            with self._lock:
                for waiting in batch:
                    waiting.is_finished = True
                self._finished.extend(batch)
                self._lock.notify_all()
            self._post(self._complete_finished)

    def _next_round(self) -> list[_Waiting] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._queue or self._is_closing)
            batch: list[_Waiting] = []
            taken = 0
            while self._queue and taken < MAX_ROUND_MOVES:
                batch.append(self._queue.popleft())
                taken += len(batch[-1].moves)
            self._waiting_moves -= taken
            return batch or None

    def _write_round(self, batch: list[_Waiting]) -> None:
        sound = [waiting for waiting in batch if waiting.generation > self._failed_generation]
        for waiting in batch:
            if waiting.generation <= self._failed_generation:
                waiting.error = StorageFull("an earlier change of the catalog failed")
        try:
            if sound:
                self._write_transaction(sound)
        except _WRITE_ERRORS as error:
            self._failed_generation = sound[-1].generation
            for waiting in sound:
                waiting.error = StorageFull(f"catalog: {error}")
            self._roll_back()
            with suppress(sqlite3.Error):
                self._load_revision()

    def _write_transaction(self, batch: list[_Waiting]) -> None:
        moves = [move for waiting in batch for move in waiting.moves]
        self._connection.execute("BEGIN IMMEDIATE")
        _write_moves(self._connection, moves)
        has_changed = self._sum.apply(moves)
        if has_changed:
            self._number += 1
            self._connection.execute(_PUT_REVISION, (self._number, f"{self._sum.value:016x}"))
        self._connection.execute("COMMIT")
        if has_changed:
            self._mirror(moves)

    def _mirror(self, moves: list[Move]) -> None:
        """What the catalog can be rebuilt from follows what is durable; a failure is told and changes nothing."""
        if self._data is None or self._descriptions is None:
            return
        try:
            self._descriptions.follow(moves)
            write_revision(self._data, self.revision)
        except OSError as error:
            _LOGGER.warning("what the catalog can be rebuilt from is not complete: %s", error)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def open_connection(
    path: Path | str, connection_class: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection with the catalog's settings; the file is made readable by its owner alone, for it holds keys.

    On a full disk SQLite cannot make the file that connections share (`-shm`). The catalog is then opened for this
    process alone, which needs no such file, so that a node starts and serves what it has.
    """
    try:
        if str(path) != MEMORY:
            Path(path).touch(mode=0o600)
        return _connected(path, connection_class, _PRAGMAS)
    except (sqlite3.Error, OSError) as error:
        if not isinstance(error, sqlite3.Error) or not is_short_of_room(error):
            raise CatalogUnusable(str(path), str(error)) from error
    try:
        return _connected(path, connection_class, (EXCLUSIVELY, *_PRAGMAS))
    except sqlite3.Error as error:
        raise CatalogUnusable(str(path), str(error)) from error


def _connected(
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
        connection.execute("SELECT count(*) FROM sqlite_schema")  # the shared file is made at the first look
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_short_of_room(error: sqlite3.Error) -> bool:
    """Whether SQLite could not write or make a file, which a full disk explains."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def _never(_: Callable[[], None]) -> None:
    """Callbacks wait for the next `apply` or `close`."""


def _write_moves(connection: sqlite3.Connection, moves: Iterable[Move]) -> None:
    """Carry out moves in order; writes of one kind in a row go together, the last of each key alone."""
    run: dict[Any, Item] = {}
    kind: type[Item] | None = None
    for move in moves:
        if move.is_implied:
            continue
        if move.is_removal or type(move.item) is not kind:
            _put_run(connection, kind, run)
            run, kind = {}, type(move.item)
        if move.is_removal:
            table = TABLES[type(move.item)]
            connection.execute(table.remove_sql, table.key_of(move.item))
        else:
            run[move.item.key] = move.item
    _put_run(connection, kind, run)


def _put_run(connection: sqlite3.Connection, kind: type[Item] | None, run: dict[Any, Item]) -> None:
    if kind is not None and run:
        table = TABLES[kind]
        connection.executemany(table.put_sql, [table.to_row(item) for item in run.values()])
