"""The coordinators of a node: groups, committed offsets and transactions of each namespace, and one deadline for all.

Created on first use from the catalog's records; a namespace that is deleted and created again starts empty.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hubmere.broker.coordinator.administration import GroupAdministration
from hubmere.broker.coordinator.consumer_group.assignments import Topic
from hubmere.broker.coordinator.consumer_group.embedded import EmbeddedProtocol, NoEmbeddedProtocol
from hubmere.broker.coordinator.consumer_group.members import ConsumerGroupConfig
from hubmere.broker.coordinator.groups import INITIAL_DELAY_S, GroupDescription, Groups
from hubmere.broker.coordinator.hanging_transactions import EndedTransaction
from hubmere.broker.coordinator.membership import GroupState
from hubmere.broker.coordinator.offsets import Offsets
from hubmere.broker.coordinator.producer_ids import ProducerIds
from hubmere.broker.coordinator.transactions import Transactions
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.model.names import fold
from hubmere.store.audit import AuditLog
from hubmere.store.engine import Catalog

# Offsets and ids expire after days, so the check can be rare.
_TIDY_SECONDS = 600.0
# How long a transaction without end may block readers; each check visits every open log.
_HANGING_SECONDS = 5.0


class Coordinator(NamedTuple):
    """The coordinator of one namespace: groups, offsets, transactions, and the administration of groups."""

    groups: Groups
    offsets: Offsets
    transactions: Transactions
    administration: GroupAdministration


class HubDirectory:
    """The hubs of a namespace as topics. Thread rule: the owner's thread only."""

    __slots__ = ("_namespace",)

    def __init__(self, namespace: LiveNamespace) -> None:
        self._namespace = namespace

    @property
    def revision(self) -> int:
        """A number that changes whenever a hub is created, changed or deleted."""
        return self._namespace.hub_revision

    def find(self, name: str) -> Topic | None:
        """The hub of that exact name; topic names differ by case."""
        hub = self._namespace.hubs.get(fold(name))
        if hub is None or hub.name != name:
            return None
        return Topic(hub.entity.topic_id, hub.name, hub.entity.partition_count)

    def names(self) -> Iterable[str]:
        """The names of all hubs."""
        return [hub.name for hub in self._namespace.hubs.values()]


class Coordinators:
    """The coordinators of all namespaces. Thread rule: the owner's thread only."""

    def __init__(
        self, catalog: Catalog, namespaces: Mapping[str, LiveNamespace], audit: AuditLog | None = None
    ) -> None:
        self._catalog = catalog
        self._audit = AuditLog() if audit is None else audit
        self._namespaces = namespaces
        # By the folded name of the namespace, with the namespace that it belongs to: a namespace may be created again.
        self._coordinators: dict[str, tuple[LiveNamespace, Coordinator]] = {}
        self._tidied_at = 0.0
        self._looked_at = -_HANGING_SECONDS
        self.producer_ids = ProducerIds(catalog)
        # The initial rebalance delay of groups; set before the first member joins.
        self.initial_delay_s = INITIAL_DELAY_S
        # Timeouts of consumer groups, and how to read what classic consumers embed; set before the first member joins.
        self.consumer_groups = ConsumerGroupConfig()
        self.embedded: EmbeddedProtocol = NoEmbeddedProtocol()

    def of(self, namespace: LiveNamespace, now: float, now_ms: int) -> Coordinator:
        """The coordinator of a namespace."""
        key = namespace.entity.key[0]
        owner, made = self._coordinators.get(key, (None, None))
        if made is None or owner is not namespace:
            made = self._make(key, namespace, now, now_ms)
            self._coordinators[key] = (namespace, made)
        return made

    def _make(self, key: str, namespace: LiveNamespace, now: float, now_ms: int) -> Coordinator:
        groups = Groups(
            key,
            self._catalog,
            now=now,
            initial_delay_s=self.initial_delay_s,
            topics=HubDirectory(namespace),
            config=self.consumer_groups,
            embedded=self.embedded,
        )
        offsets = Offsets(namespace, self._catalog)
        return Coordinator(
            groups,
            offsets,
            Transactions(namespace, self._catalog, self.producer_ids, now=now, now_ms=now_ms),
            GroupAdministration(namespace, groups, offsets, embedded=self.embedded, audit=self._audit),
        )

    def describe_groups(self, namespace: str, limit: int) -> list[GroupDescription]:
        """Snapshots of at most `limit` Kafka groups of a namespace that have members or committed offsets."""
        key = fold(namespace)
        owner, made = self._coordinators.get(key, (None, None))
        if made is not None and owner is self._namespaces.get(key):
            return [made.groups.describe(group.group_id) for group in made.groups.list()[:limit]]
        # Nothing was coordinated since the node started: groups have offsets and no members.
        stored = list(self._catalog.view.groups_with_offsets(key))[:limit]
        return [GroupDescription(group_id, GroupState.EMPTY, "", "", ()) for group_id in stored]

    def open(self, now: float, now_ms: int) -> None:
        """Resume after a restart: complete decided transactions, and start the timeouts of open ones."""
        for namespace in self._namespaces.values():
            self.of(namespace, now, now_ms)

    def next_deadline(self) -> float | None:
        """When `advance` is due if no request arrives before."""
        due = [
            moment
            for made in self._live()
            for moment in (made.groups.next_deadline(), made.transactions.next_deadline())
        ]
        return min((moment for moment in due if moment is not None), default=None)

    def advance(self, now: float, now_ms: int) -> None:
        """Do what is due."""
        for made in self._live():
            made.groups.advance(now, now_ms)
            made.transactions.advance(now, now_ms)

    def tick(self, now: float, now_ms: int) -> list[EndedTransaction]:
        """Called every second. Every few seconds, hanging transactions are ended, and returned. Less often, groups,
        offsets and ids that were not used for days are deleted.
        """
        self._tidy(now, now_ms)
        if now < self._looked_at + _HANGING_SECONDS:
            return []
        self._looked_at = now
        return [each for made in self._live() for each in made.transactions.end_hanging(now_ms)]

    def _tidy(self, now: float, now_ms: int) -> None:
        if now < self._tidied_at + _TIDY_SECONDS:
            return
        self._tidied_at = now
        for made in self._live():
            made.offsets.expire(made.groups.is_empty, now_ms)
            made.groups.delete_unused()
            made.transactions.delete_unused(now_ms)

    def _live(self) -> list[Coordinator]:
        """The coordinators of existing namespaces; the others are dropped."""
        for key, (namespace, _) in list(self._coordinators.items()):
            if self._namespaces.get(key) is not namespace:
                del self._coordinators[key]
        return [made for _, made in self._coordinators.values()]
