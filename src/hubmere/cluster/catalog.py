"""ClusterCatalog: the Catalog over the control log. Entities of all gateways, read from memory.

A change takes these steps:

1. `submit` checks it against `planned`, as a catalog on a disk does, and queues it.
2. Changes of one gateway are appended one after the other, as rows with conditions: the versions of the rows that it
   writes and of their parents.
3. When the entry is read back, every gateway accepts it or refuses it by the same rule. If a condition does not hold,
   another gateway was faster: the change is planned again on the newer view, three times at most. A change that
   replaces an entity which another client has changed meanwhile is refused as a conflict.
4. Changes of other gateways are applied to `view` too, and reported to `on_foreign`.

Rows with keys are sealed with the cluster secret.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hubmere.cluster.control.entries import Change, Condition, Entry, UnreadableEntry, Write
from hubmere.cluster.control.places import Verdict
from hubmere.cluster.control.state import Outcome
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.sealing import Sealer
from hubmere.model.entity import AccessRule, Hub, Namespace
from hubmere.model.errors import AlreadyExists, ClusterBusy, Conflict, NotFound, Refusal, ShuttingDown
from hubmere.model.names import fold
from hubmere.store.catalog.blob_records import BlobStateRecord
from hubmere.store.catalog.rows import TABLES, Item
from hubmere.store.catalog.runtime_state import Deletion, Meta, StateRecord
from hubmere.store.catalog.view import CatalogView, Create, Delete, Drop, Put, Replace, RowChange, Step
from hubmere.store.engine import OnDurable

# A change whose conditions fail this often is refused; each time another gateway has changed something.
_MOST_ATTEMPTS: Final = 4
# How long a change waits for the control log before its caller gets a retriable refusal.
ANSWER_SECONDS: Final = 10.0
# Changes that may wait for the control log.
MAX_PENDING: Final = 1_000
# Rows that only have a version: it changes with every change of entities in a namespace.
_SCOPE: Final = "scope/"
_TABLES: Final = {table.name: table for table in TABLES.values()}
# Kinds whose rows contain keys.
_SEALED: Final[tuple[type[Item], ...]] = (AccessRule, Meta)

# Called with steps that were accepted, when `view` has them.
OnAccepted = Callable[[Sequence[Step]], None]
OnOwn = Callable[[Sequence[Step], Callable[[], None]], None]
CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


@dataclass(slots=True, eq=False)
class _Pending:
    """One submitted change."""

    steps: tuple[Step, ...]
    changes: list[RowChange]
    callback: OnDurable | None
    replaced: dict[str, int]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    attempts: int = 0
    overdue: asyncio.TimerHandle | None = None


class ClusterCatalog:
    """A Catalog over the control log. Thread rule: the loop's thread only."""

    def __init__(self, control: ControlLog, sealer: Sealer, *, call_later: CallLater | None = None) -> None:
        """`call_later` sets the timeout of changes that the control log does not answer; without it they have none."""
        self._call_later = call_later
        self._control = control
        self._sealer = sealer
        self._view = CatalogView()
        self._planned = CatalogView()
        self._items: dict[str, Item] = {}
        self._queue: deque[_Pending] = deque()
        self._is_sent = False
        self._is_closing = False
        # Called for changes of other gateways.
        self.on_foreign: OnAccepted | None = None
        # Called for changes of this one; the submitter gets its answer when the function that is passed is called.
        self.on_own: OnOwn | None = None
        control.listen(self._on_applied)
        control.on_reloaded = self._on_reloaded

    def load(self) -> None:
        """Load all rows of the state, after a snapshot was loaded or the log was read."""
        self._view = CatalogView()
        items: list[Item] = []
        for table in TABLES.values():
            prefix = f"{table.name}/"
            items += [
                self._decode(key, row[1]) for key, row in self._control.state.rows.items() if key.startswith(prefix)
            ]
        self._items = {}
        self._change_view(RowChange(item) for item in items)
        self._planned = self._view.copy()

    def _on_reloaded(self) -> None:
        """The state was loaded again: follow the difference as changes of another gateway."""
        before = self._items
        self.load()
        if self._is_sent:
            # The new state may begin behind its entry, which is then never read.
            self._refuse_sent()
        # Parents come before their children in the tables, and are removed after them.
        gone = [item for key, item in reversed(before.items()) if _identity(item) != _identity(self._items.get(key))]
        steps: list[Step] = [_removal(item) for item in gone]
        for key, item in self._items.items():
            known = before.get(key)
            if known != item:
                steps.append(_step(item, is_new=_identity(known) != _identity(item)))
        self._replan()
        if self.on_foreign is not None and steps:
            self.on_foreign(steps)
        self._send_next()

    # --- Catalog

    @property
    def view(self) -> CatalogView:
        """Everything that was accepted."""
        return self._view

    @property
    def planned_view(self) -> CatalogView:
        """Everything that was accepted or submitted here."""
        return self._planned

    def pending_deletions(self) -> Sequence[Deletion]:
        """Deleted hubs whose topics may still exist."""
        return self._view.deletions()

    def submit(self, *steps: Step, callback: OnDurable | None = None) -> None:
        """Submit a change, all or nothing; the callback runs when it is accepted or refused."""
        if self._is_closing:
            raise ShuttingDown
        if self._control.failure is not None:
            raise ClusterBusy(self._control.failure)
        if len(self._queue) >= MAX_PENDING:
            raise ClusterBusy("too many changes wait for the control log")
        changes = self._planned.plan(steps)
        pending = _Pending(steps, changes, callback, self._replaced_versions(steps))
        self._add(pending)

    def _add(self, pending: _Pending) -> None:
        if self._call_later is not None:
            pending.overdue = self._call_later(ANSWER_SECONDS, lambda: self._on_overdue(pending))
        self._queue.append(pending)
        self._send_next()

    def put_if_absent(self, *items: Meta, callback: OnDurable) -> None:
        """Write values that do not exist yet; refused with a Conflict if another gateway was faster."""
        steps = tuple(Put(item) for item in items)
        absent = {row_key(item): 0 for item in items}
        self._add(_Pending(steps, self._planned.plan(steps), callback, absent))

    def copy_if_changed(self) -> None:
        """Nothing to copy: the brokers keep the catalog."""

    def close(self) -> None:
        """Refuse all changes that are not decided."""
        self._is_closing = True
        while self._queue:
            self._finish(self._queue.popleft(), ShuttingDown())

    # --- own changes

    def _replaced_versions(self, steps: Sequence[Step]) -> dict[str, int]:
        state = self._control.state
        # Blobs are changed under conditions of their clients, so they count as replaced.
        decided = (step for step in steps if isinstance(step, Replace) or isinstance(step.item, BlobStateRecord))
        keys = [row_key(step.item) for step in decided]
        return {key: state.version_of(key) for key in keys}

    def _send_next(self) -> None:
        if self._is_sent or not self._queue:
            return
        pending = self._queue[0]
        if not pending.changes:
            self._queue.popleft()
            self._finish(pending, None)
            self._send_next()
            return
        self._is_sent = True
        pending.attempts += 1
        change = Change(
            id=f"{pending.id}.{pending.attempts}",
            session=self._control.lease.session,
            conditions=self._conditions(pending.changes),
            writes=(
                *(Write(key=key, value="") for key in self._scopes(pending.changes)),
                *(self._write(change) for change in pending.changes),
            ),
        )
        self._control.append(change, lambda: self._on_lost(pending))

    def _conditions(self, changes: Sequence[RowChange]) -> tuple[Condition, ...]:
        """The rows that a change writes, with their versions, and the scopes in which it writes them."""
        keys = dict.fromkeys((*self._scopes(changes), *(row_key(change.item) for change in changes)))
        return tuple(Condition(key=key, version=self._control.state.version_of(key)) for key in keys)

    def _scopes(self, changes: Sequence[RowChange]) -> list[str]:
        """Changes of entities of one namespace are ordered: no hub is created in one that is being deleted."""
        names: dict[str, None] = {}
        for change in changes:
            item = change.item
            if isinstance(item, StateRecord | BlobStateRecord):
                continue
            if isinstance(item, Namespace):
                names[fold(item.name)] = None
            elif (namespace := getattr(item, "namespace", None)) is not None:
                names[fold(namespace)] = None
            elif (hub := self._planned.hub_of_uid(getattr(item, "hub_uid", ""))) is not None:
                names[fold(hub.namespace)] = None
        return [f"{_SCOPE}{name}" for name in names]

    def _on_lost(self, pending: _Pending) -> None:
        """The entry was not appended, or its outcome is unknown."""
        if self._queue and self._queue[0] is pending:
            self._refuse_sent()
            self._replan()
            self._send_next()

    def _refuse_sent(self) -> None:
        self._is_sent = False
        self._finish(self._queue.popleft(), ClusterBusy("the control log does not answer"))

    def _on_overdue(self, pending: _Pending) -> None:
        """The caller gets a refusal. A change that was not sent is dropped; one that was sent may still be accepted."""
        refusal = ClusterBusy("the control log does not answer")
        callback, pending.callback = pending.callback, None
        if pending in self._queue and not (self._is_sent and self._queue[0] is pending):
            self._queue.remove(pending)
            self._replan()
        if callback is not None:
            callback(refusal)

    def _finish(self, pending: _Pending, refusal: Refusal | None) -> None:
        if pending.overdue is not None:
            pending.overdue.cancel()
        callback, pending.callback = pending.callback, None
        if callback is not None:
            callback(refusal)

    # --- entries that are read

    def _on_applied(self, offset: int, entry: Entry, outcome: Outcome) -> None:
        if not isinstance(entry, Change):
            return
        own = self._queue[0] if self._queue and self._is_sent else None
        is_own = own is not None and entry.id == f"{own.id}.{own.attempts}"
        if is_own:
            assert own is not None
            self._on_own(own, outcome)
        elif outcome.verdict is Verdict.ACCEPTED:
            self._on_foreign_change(entry)

    def _on_own(self, own: _Pending, outcome: Outcome) -> None:
        self._is_sent = False
        if outcome.verdict is Verdict.ACCEPTED:
            self._queue.popleft()
            self._change_view(own.changes)
            self._finish_accepted(own)
        elif own.attempts >= _MOST_ATTEMPTS:
            self._queue.popleft()
            self._finish(own, Conflict("Another gateway changes the same entities at the same time; try again."))
            self._replan()
        else:
            self._replan()
        self._send_next()

    def _finish_accepted(self, own: _Pending) -> None:
        if own.overdue is not None:
            own.overdue.cancel()
        if self.on_own is None:
            self._finish(own, None)
        else:
            self.on_own(own.steps, lambda: self._finish(own, None))

    def _on_foreign_change(self, change: Change) -> None:
        steps: list[Step] = []
        for write in change.writes:
            step = self._foreign_step(write)
            if step is not None:
                steps.append(step)
                self._change_view([RowChange(step.item, is_removal=isinstance(step, (Delete, Drop)))])
        self._replan()
        if self.on_foreign is not None:
            self.on_foreign(steps)

    def _foreign_step(self, write: Write) -> Step | None:
        if write.key.startswith(_SCOPE):
            return None
        before = self._items.get(write.key)
        if write.value is None:
            return None if before is None else _removal(before)
        return _step(self._decode(write.key, write.value), is_new=before is None)

    def _change_view(self, changes: Iterable[RowChange]) -> None:
        for change in changes:
            key = row_key(change.item)
            if change.is_removal:
                self._items.pop(key, None)
            else:
                self._items[key] = change.item
            self._view.apply_changes((change,))

    def _replan(self) -> None:
        """Plan the submitted changes again on the newer view; those that it does not allow are refused."""
        self._planned = self._view.copy()
        kept: deque[_Pending] = deque()
        refusals: list[tuple[_Pending, Refusal]] = []
        for number, pending in enumerate(self._queue):
            if self._is_sent and number == 0:
                # The log decides about it; it is planned again if it is refused there.
                self._planned.apply_changes(pending.changes)
                kept.append(pending)
                continue
            try:
                self._check_replaced(pending)
                pending.changes = self._planned.plan(pending.steps)
            except (NotFound, AlreadyExists, Conflict) as refused:
                refusals.append((pending, refused))
            else:
                kept.append(pending)
        self._queue = kept
        for pending, why in refusals:
            self._finish(pending, why)

    def _check_replaced(self, pending: _Pending) -> None:
        for key, version in pending.replaced.items():
            if self._control.state.version_of(key) != version:
                raise Conflict("The entity was changed by another gateway at the same time; read it again and retry.")

    # --- rows

    def _write(self, change: RowChange) -> Write:
        key = row_key(change.item)
        return Write(key=key, value=None if change.is_removal else self._encode(key, change.item))

    def _encode(self, key: str, item: Item) -> str:
        text = json.dumps(TABLES[type(item)].to_row(item), separators=(",", ":"))
        return self._sealer.seal(text, key) if isinstance(item, _SEALED) else text

    def _decode(self, key: str, value: str) -> Item:
        try:
            table = _TABLES[key.partition("/")[0]]
            text = self._sealer.open(value, key) if table.kind in _SEALED else value
            return table.from_row(tuple(json.loads(text)))
        except (KeyError, ValueError, TypeError) as error:
            raise UnreadableEntry(f"the row {key} is of another release, or not a row: {error!r}") from error


def _removal(item: Item) -> Step:
    return Drop(item) if isinstance(item, StateRecord | BlobStateRecord) else Delete(item)


def _step(item: Item, *, is_new: bool) -> Step:
    if isinstance(item, StateRecord | BlobStateRecord):
        return Put(item)
    return Create(item) if is_new else Replace(item)


def _identity(item: Item | None) -> object:
    """Items with the same key and different uids are two entities: a hub that was deleted and created again."""
    return item.uid if isinstance(item, Hub) else item is not None


def row_key(item: Item) -> str:
    """The key of a row: the table, and the key of the item."""
    table = TABLES[type(item)]
    # A hub is found by its name, which is unique; its uid is in the row.
    key = (fold(item.namespace), fold(item.name)) if isinstance(item, Hub) else item.key
    return f"{table.name}/{json.dumps(list(key), separators=(',', ':'))}"
