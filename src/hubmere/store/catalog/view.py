"""The catalog in memory: every entity and state record by its key, so that reads never wait for SQLite.

`plan` checks a change against this view, applies it, and returns the row changes, which another view or the database
then applies. A change that is refused leaves no trace.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    ConsumerGroup,
    Entity,
    GeoAlias,
    GeoRole,
    Hub,
    Namespace,
    RevokedPublisher,
    RoleAssignment,
)
from hubmere.model.errors import (
    AliasNotFound,
    AlreadyExists,
    GroupNotFound,
    HubNotFound,
    NamespaceNotFound,
    NotFound,
    RuleNotFound,
)
from hubmere.model.names import fold
from hubmere.store.catalog.blob_records import BlobRecord, BlobStateRecord, BlockRecord, ContainerRecord
from hubmere.store.catalog.name_index import NameIndexes
from hubmere.store.catalog.rows import TABLES, Item
from hubmere.store.catalog.runtime_state import (
    CaptureState,
    Counter,
    Deletion,
    GroupMetadata,
    GroupOffset,
    ItemKey,
    Meta,
    StateRecord,
    TransactionState,
)

T = TypeVar("T", bound=Item)


@dataclass(frozen=True, slots=True)
class Create:
    """Add an entity; refused if its name is taken."""

    item: Entity


@dataclass(frozen=True, slots=True)
class Replace:
    """Overwrite an existing entity."""

    item: Entity


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an existing entity and its children; a hub leaves a Deletion until its logs are deleted."""

    item: Entity
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """Insert or overwrite a state record."""

    item: StateRecord | BlobStateRecord


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove a state record if it exists."""

    item: StateRecord | BlobStateRecord


Step = Create | Replace | Delete | Put | Drop


class RowChange(NamedTuple):
    """Write or remove one row; the database does `is_implied` ones itself, by foreign keys."""

    item: Item
    is_removal: bool = False
    is_implied: bool = False


# Items that are removed with a hub or a namespace, found by the field that refers to it.
_OF_HUB: tuple[type[Item], ...] = (
    ConsumerGroup, AccessRule, RevokedPublisher, RoleAssignment, GroupOffset, CaptureState,
)  # fmt: skip
_OF_NAMESPACE: tuple[type[Item], ...] = (
    AccessRule, GeoAlias, ApplicationGroup, RoleAssignment, GroupOffset, GroupMetadata, TransactionState,
)  # fmt: skip


class CatalogView:
    """Entities and state records by key and by parent.

    Thread rule: the owner's thread only. Values are immutable, so the result of a look-up may be kept.
    """

    __slots__ = ("_hubs_by_uid", "_indexes", "_items", "_listed", "version")

    def __init__(self) -> None:
        self._items: dict[type[Any], dict[ItemKey, Any]] = {kind: {} for kind in TABLES}
        self._listed: dict[type[Any], dict[ItemKey, dict[ItemKey, Any]]] = {kind: {} for kind in TABLES}
        self._hubs_by_uid: dict[str, Hub] = {}
        self._indexes = NameIndexes(ContainerRecord, BlobRecord)
        # Increases with every change of an entity: values derived from an older version are stale.
        self.version = 0

    def copy(self) -> "CatalogView":
        """A copy of this view."""
        twin = CatalogView()
        twin.apply_changes(RowChange(item) for item in self.items())
        twin.version = self.version
        return twin

    def items(self) -> Iterator[Item]:
        """All items, parents before children."""
        for kind in self._items.values():
            yield from kind.values()

    # --- namespaces and hubs -----------------------------------------------------------------------------------------

    def namespaces(self) -> Sequence[Namespace]:
        """All namespaces of the node."""
        return self._list(Namespace, ())

    def find_namespace(self, name: str) -> Namespace | None:
        """A namespace by name, ignoring case; None if there is none."""
        return self._find(Namespace, (fold(name),))

    def namespace(self, name: str) -> Namespace:
        """A namespace by name; raises NamespaceNotFound."""
        return self._require(self.find_namespace(name), NamespaceNotFound, name)

    def find_alias(self, name: str) -> GeoAlias | None:
        """The primary's side of an alias."""
        for alias in self._items[GeoAlias].values():
            if fold(alias.name) == fold(name) and alias.role is not GeoRole.SECONDARY:
                found: GeoAlias = alias
                return found
        return None

    def find_secondary(self, name: str) -> GeoAlias | None:
        """The secondary's side of an alias, if the secondary is on this node."""
        for alias in self._items[GeoAlias].values():
            if fold(alias.name) == fold(name) and alias.role is GeoRole.SECONDARY:
                found: GeoAlias = alias
                return found
        return None

    def all_aliases(self) -> Sequence[GeoAlias]:
        """The aliases of all namespaces."""
        return list(self._items[GeoAlias].values())

    def aliases(self, namespace: str) -> Sequence[GeoAlias]:
        """The aliases of a namespace."""
        return self._list(GeoAlias, (fold(namespace),))

    def alias(self, namespace: str, name: str) -> GeoAlias:
        """An alias by name; raises AliasNotFound."""
        return self._require(self._find(GeoAlias, (fold(namespace), fold(name))), AliasNotFound, name)

    def hubs(self, namespace: str) -> Sequence[Hub]:
        """The hubs of a namespace."""
        return self._list(Hub, (fold(namespace),))

    def find_hub(self, namespace: str, name: str) -> Hub | None:
        """A hub by name, ignoring case; None if there is none."""
        return self._find(Hub, (fold(namespace), fold(name)))

    def hub(self, namespace: str, name: str) -> Hub:
        """A hub by name; raises HubNotFound."""
        return self._require(self.find_hub(namespace, name), HubNotFound, f"{namespace}/{name}")

    def hub_of_uid(self, uid: str) -> Hub | None:
        """A hub by uid."""
        return self._hubs_by_uid.get(uid)

    def deletions(self) -> Sequence[Deletion]:
        """Deleted hubs whose logs may still exist."""
        return self._list(Deletion, ())

    # --- children of hubs -------------------------------------------------------------------------------------------

    def groups(self, hub: Hub) -> Sequence[ConsumerGroup]:
        """The consumer groups of a hub."""
        return self._list(ConsumerGroup, (hub.uid,))

    def find_group(self, hub: Hub, name: str) -> ConsumerGroup | None:
        """A consumer group by name, ignoring case; None if there is none."""
        return self._find(ConsumerGroup, (hub.uid, fold(name)))

    def group(self, hub: Hub, name: str) -> ConsumerGroup:
        """A consumer group by name; raises GroupNotFound."""
        return self._require(self.find_group(hub, name), GroupNotFound, f"{hub.namespace}/{hub.name}/{name}")

    def rules(self, scope: Namespace | Hub) -> Sequence[AccessRule]:
        """The authorization rules on a namespace or on a hub."""
        return self._list(AccessRule, _rule_parent(scope))

    def find_rule(self, scope: Namespace | Hub, name: str) -> AccessRule | None:
        """A rule of exactly this scope by name, ignoring case; None if there is none."""
        return self._find(AccessRule, (*_rule_parent(scope), fold(name)))

    def rule(self, scope: Namespace | Hub, name: str) -> AccessRule:
        """A rule by name; raises RuleNotFound."""
        return self._require(self.find_rule(scope, name), RuleNotFound, f"{scope.name}/{name}")

    def rules_named(self, namespace: Namespace, name: str) -> Sequence[AccessRule]:
        """All rules of that name in a namespace: its own first, then those of its hubs."""
        scopes: list[Namespace | Hub] = [namespace, *self.hubs(namespace.name)]
        return [rule for scope in scopes if (rule := self.find_rule(scope, name)) is not None]

    def revoked_publishers(self, hub: Hub) -> Sequence[RevokedPublisher]:
        """The revoked publishers of a hub."""
        return self._list(RevokedPublisher, (hub.uid,))

    def find_revoked_publisher(self, hub: Hub, name: str) -> RevokedPublisher | None:
        """The revocation of a publisher; None if it is not revoked."""
        return self._find(RevokedPublisher, (hub.uid, fold(name)))

    def application_groups(self, namespace: str) -> Sequence[ApplicationGroup]:
        """The application groups of a namespace."""
        return self._list(ApplicationGroup, (fold(namespace),))

    def find_application_group(self, namespace: str, name: str) -> ApplicationGroup | None:
        """An application group by name, ignoring case; None if there is none."""
        return self._find(ApplicationGroup, (fold(namespace), fold(name)))

    def role_assignments(self, namespace: str) -> Sequence[RoleAssignment]:
        """The role assignments on a namespace, its hubs and their consumer groups."""
        return self._list(RoleAssignment, (fold(namespace),))

    def find_role_assignment(self, namespace: str, name: str) -> RoleAssignment | None:
        """A role assignment by its id; None if there is none."""
        return self._find(RoleAssignment, (fold(namespace), fold(name)))

    # --- runtime state -----------------------------------------------------------------------------------------------

    def group_offset(self, namespace: str, group_id: str, hub_uid: str, partition: int) -> GroupOffset | None:
        """The offset that a Kafka group committed for a partition."""
        return self._find(GroupOffset, (fold(namespace), group_id, hub_uid, partition))

    def group_offsets(self, namespace: str, group_id: str) -> Sequence[GroupOffset]:
        """All committed offsets of a Kafka group."""
        return self._list(GroupOffset, (fold(namespace), group_id))

    def groups_with_offsets(self, namespace: str) -> Sequence[str]:
        """The Kafka groups of a namespace that have committed offsets."""
        return [str(parent[1]) for parent in self._listed[GroupOffset] if parent[0] == fold(namespace)]

    def group_metadata(self, namespace: str) -> Sequence[GroupMetadata]:
        """The coordinator's state of each Kafka group."""
        return self._list(GroupMetadata, (fold(namespace),))

    def transactions(self, namespace: str) -> Sequence[TransactionState]:
        """The state of each transactional producer of a namespace."""
        return self._list(TransactionState, (fold(namespace),))

    def find_capture_state(self, hub_uid: str, partition: int) -> CaptureState | None:
        """Progress of capture on one partition."""
        return self._find(CaptureState, (hub_uid, partition))

    def capture_states(self, hub_uid: str) -> Sequence[CaptureState]:
        """Progress of capture on each partition of a hub."""
        return self._list(CaptureState, (hub_uid,))

    def counter(self, name: str) -> int:
        """The first unused number of a counter."""
        counter = self._find(Counter, (name,))
        return 0 if counter is None else counter.next_value

    def meta(self, name: str) -> str | None:
        """A named value of the node."""
        return None if (meta := self._find(Meta, (name,))) is None else meta.text

    # --- blobs -------------------------------------------------------------------------------------------------------

    def containers_from(self, account: str, first: str) -> Iterator[ContainerRecord]:
        """The containers of a storage account from a name on, in order."""
        return self._list_from(ContainerRecord, (account,), first)

    def find_container(self, account: str, name: str) -> ContainerRecord | None:
        """A container by name; None if there is none."""
        return self._find(ContainerRecord, (account, name))

    def blobs(self, account: str, container: str) -> Sequence[BlobRecord]:
        """The blobs of a container, by name."""
        return self._list(BlobRecord, (account, container))

    def blobs_from(self, account: str, container: str, first: str) -> Iterator[BlobRecord]:
        """The blobs of a container from a name on, in order."""
        return self._list_from(BlobRecord, (account, container), first)

    def find_blob(self, account: str, container: str, name: str) -> BlobRecord | None:
        """A blob by name; None if there is none."""
        return self._find(BlobRecord, (account, container, name))

    def blocks(self, account: str, container: str, blob: str) -> Sequence[BlockRecord]:
        """The staged blocks of a blob."""
        return self._list(BlockRecord, (account, container, blob))

    def find_block(self, account: str, container: str, blob: str, block_id: str) -> BlockRecord | None:
        """A staged block by its id; None if there is none."""
        return self._find(BlockRecord, (account, container, blob, block_id))

    def container_blocks(self, account: str, container: str) -> Sequence[BlockRecord]:
        """The staged blocks of all blobs in a container."""
        return [block for block in self.all_blocks() if (block.account, block.container) == (account, container)]

    def all_blocks(self) -> Sequence[BlockRecord]:
        """The staged blocks of all accounts."""
        return list(self._items[BlockRecord].values())

    def all_blobs(self) -> Sequence[BlobRecord]:
        """The blobs of all accounts."""
        return list(self._items[BlobRecord].values())

    # --- changing ----------------------------------------------------------------------------------------------------

    def plan(self, steps: Iterable[Step]) -> list[RowChange]:
        """Apply a change and return its row changes; if a step is refused, nothing has changed."""
        changes: list[RowChange] = []
        undo: list[RowChange] = []
        try:
            for step in steps:
                fresh = self._changes_of(step)
                undo.extend(self._inverse(change) for change in fresh)
                self.apply_changes(fresh)
                changes.extend(fresh)
        except (NotFound, AlreadyExists):
            self.apply_changes(reversed(undo))
            raise
        return changes

    def apply_changes(self, changes: Iterable[RowChange]) -> None:
        """Apply row changes that were planned on another view or read from the database."""
        for change in changes:
            if change.is_removal:
                self._remove(change.item)
            else:
                self._put(change.item)

    def _changes_of(self, step: Step) -> list[RowChange]:
        current = self._items[type(step.item)].get(step.item.key)
        if isinstance(step, Create) and current is not None:
            raise AlreadyExists(_display_name(step.item))
        if isinstance(step, (Replace, Delete)) and not _is_same(current, step.item):
            raise _MISSING.get(type(step.item), NotFound)(_display_name(step.item))
        if isinstance(step, Delete):
            return self._deletion_changes(step)
        if isinstance(step, Drop):
            return [] if current is None else [RowChange(current, is_removal=True)]
        self._check_parents(step.item)
        return [RowChange(step.item)]

    def _deletion_changes(self, step: Delete) -> list[RowChange]:
        target = self._items[type(step.item)][step.item.key]
        if isinstance(target, Namespace):
            removed = [change for hub in self.hubs(target.name) for change in self._hub_changes(hub, step.now_ms, True)]
            removed_items = {id(change.item) for change in removed}
            of_namespace = self._items_of(_OF_NAMESPACE, "namespace", fold(target.name))
            removed += [RowChange(item, True, True) for item in of_namespace if id(item) not in removed_items]
            return [*removed, RowChange(target, is_removal=True)]
        if isinstance(target, Hub):
            return self._hub_changes(target, step.now_ms, False)
        changes = [RowChange(target, is_removal=True)]
        if isinstance(target, ConsumerGroup):
            changes += [RowChange(item, is_removal=True) for item in self._assignments_of(target)]
        return changes

    def _assignments_of(self, group: ConsumerGroup) -> Iterator[RoleAssignment]:
        for assignment in self._items[RoleAssignment].values():
            if assignment.hub_uid == group.hub_uid and assignment.scope[1] == fold(group.name):
                yield assignment

    def _hub_changes(self, hub: Hub, now_ms: int, is_implied: bool) -> list[RowChange]:
        tombstone = Deletion(
            hub_uid=hub.uid,
            namespace=hub.namespace,
            hub=hub.name,
            partition_count=hub.partition_count,
            since_ms=now_ms,
        )
        removed = [RowChange(item, True, True) for item in self._items_of(_OF_HUB, "hub_uid", hub.uid)]
        return [RowChange(tombstone), *removed, RowChange(hub, True, is_implied)]

    def _items_of(self, kinds: Iterable[type[Item]], field: str, key: str) -> Iterator[Item]:
        for kind in kinds:
            for item in self._items[kind].values():
                if (name := getattr(item, field)) is not None and (name == key or fold(name) == key):
                    yield item

    def _inverse(self, change: RowChange) -> RowChange:
        before = self._items[type(change.item)].get(change.item.key)
        return RowChange(change.item, is_removal=True) if before is None else RowChange(before)

    def _check_parents(self, item: Item) -> None:
        if isinstance(item, (Namespace, Deletion)):
            return
        namespace = getattr(item, "namespace", None)
        if namespace is not None and self.find_namespace(namespace) is None:
            raise NamespaceNotFound(namespace)
        hub_uid = None if isinstance(item, Hub) else getattr(item, "hub_uid", None)
        if hub_uid is not None and hub_uid not in self._hubs_by_uid:
            raise HubNotFound(getattr(item, "hub", None) or hub_uid)

    def _put(self, item: Item) -> None:
        kind = type(item)
        self._items[kind][item.key] = item
        self._indexes.add(item)
        self._listed[kind].setdefault(item.parent, {})[item.key] = item
        if isinstance(item, Hub):
            self._hubs_by_uid[item.uid] = item
        self.version += kind in _ENTITY_KINDS

    def _remove(self, item: Item) -> None:
        kind = type(item)
        if self._items[kind].pop(item.key, None) is not None:
            self._indexes.remove(item)
        siblings = self._listed[kind].get(item.parent, {})
        siblings.pop(item.key, None)
        if not siblings:
            self._listed[kind].pop(item.parent, None)
            self._indexes.drop(item)
        if isinstance(item, Hub):
            self._hubs_by_uid.pop(item.uid, None)
        self.version += kind in _ENTITY_KINDS

    def _find(self, kind: type[T], key: ItemKey) -> T | None:
        return self._items[kind].get(key)

    def _list(self, kind: type[T], parent: ItemKey) -> list[T]:
        siblings = self._listed[kind].get(parent, {})
        return [siblings[key] for key in sorted(siblings)]

    def _list_from(self, kind: type[T], parent: ItemKey, first: str) -> Iterator[T]:
        siblings = self._listed[kind].get(parent, {})
        return map(siblings.__getitem__, self._indexes.keys_from(kind, parent, siblings, first))

    @staticmethod
    def _require(item: T | None, missing: type[NotFound], name: str) -> T:
        if item is None:
            raise missing(name)
        return item


_ENTITY_KINDS = frozenset(
    {Namespace, Hub, ConsumerGroup, AccessRule, RevokedPublisher, GeoAlias, ApplicationGroup, RoleAssignment}
)

_MISSING: dict[type[Item], type[NotFound]] = {
    Namespace: NamespaceNotFound,
    Hub: HubNotFound,
    ConsumerGroup: GroupNotFound,
    AccessRule: RuleNotFound,
    GeoAlias: AliasNotFound,
}


def _rule_parent(scope: Namespace | Hub) -> ItemKey:
    return (fold(scope.namespace), scope.uid) if isinstance(scope, Hub) else (fold(scope.name), "")


def _is_same(current: Item | None, item: Entity) -> bool:
    # A hub created again under an old name is another hub: a change to the old one must not affect it.
    return current is not None and (not isinstance(item, Hub) or getattr(current, "uid", None) == item.uid)


def _display_name(item: Item) -> str:
    return str(getattr(item, "name", "/".join(map(str, item.key))))
