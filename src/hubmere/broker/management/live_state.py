"""Applies durable changes of the catalog to the live namespaces and hubs.

One table maps (kind of step, kind of entity) to a handler. Kinds without a row need none, because they are read from
the catalog each time.
"""

from collections.abc import Callable
from functools import partial

from hubmere.broker.access.revocation import Revocation
from hubmere.broker.cold.history import Histories
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.opening import LogOpening, WaitingRequests
from hubmere.broker.management.connections import Connections
from hubmere.broker.places import Places
from hubmere.broker.quotas.application_groups import names_client
from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    ConsumerGroup,
    Hub,
    Namespace,
    RevokedPublisher,
    RoleAssignment,
)
from hubmere.model.errors import ApplicationGroupDisabled, GroupNotFound, HubNotFound, NamespaceNotFound, Refusal
from hubmere.model.names import fold
from hubmere.model.tier import LimitsBook
from hubmere.store.catalog.runtime_state import Deletion
from hubmere.store.catalog.view import Create, Delete, Drop, Replace, Step
from hubmere.store.engine import Catalog, LogEngine, log_id


class LiveState:
    """Keeps the live namespaces and hubs in sync with the catalog.

    Thread rule: the owner's thread only.
    """

    def __init__(
        self,
        catalog: Catalog,
        engine: LogEngine,
        book: LimitsBook,
        namespaces: dict[str, LiveNamespace],
        segment_bytes: int,
        connections: Connections,
        revocation: Revocation,
        places: Places | None = None,
        *,
        is_shared: bool = False,
        histories: Histories | None = None,
    ) -> None:
        """`places` decides on a cluster who reads a partition; `is_shared`: gateways share throughput units.

        `histories` is given where cold reads are possible.
        """
        self._places = places
        self._is_shared = is_shared
        self._histories = histories
        self._connections = connections
        self._revocation = revocation
        self._catalog = catalog
        self._engine = engine
        self._book = book
        self._namespaces = namespaces
        self._segment_bytes = segment_bytes
        self._requests = WaitingRequests()
        # Deleted hubs whose logs are being deleted, by their uid.
        self._deletions: set[str] = set()
        self._handlers: dict[tuple[type, type], Callable[..., None]] = {
            (Create, Namespace): self._serve_namespace,
            (Replace, Namespace): self._update_namespace,
            (Delete, Namespace): self._retire_namespace,
            (Create, Hub): self._serve_hub,
            (Replace, Hub): self._update_hub,
            (Delete, Hub): self._retire_hub,
            (Delete, ConsumerGroup): self._retire_group,
            (Create, RevokedPublisher): self._revoke,
            (Delete, RevokedPublisher): self._restore,
            (Create, ApplicationGroup): self._apply_group,
            (Replace, ApplicationGroup): self._apply_group,
            (Delete, ApplicationGroup): self._update_quotas,
            (Replace, AccessRule): self._review_rule,
            (Delete, AccessRule): self._review_rule,
            (Delete, RoleAssignment): self._review_rule,
        }

    def follow(self, step: Step, now: float) -> None:
        """Apply a durable step to the live objects."""
        handler = self._handlers.get((type(step), type(step.item)))
        if handler is not None:
            handler(step.item, now)

    def ends(self, hub: Hub) -> tuple[int, ...]:
        """The end of each partition's log; empty if the hub is not live."""
        live = self._live(hub.uid)
        if live is None:
            return ()
        # A log on a cluster has to be asked: an old end would be captured from the past. All are asked at once.
        ends: list[int] = []
        waiting: LogOpening | None = None
        for partition, _ in enumerate(live.logs()):
            try:
                ends.append(live.current_log(partition).state.committed)
            except LogOpening as opening:
                waiting = opening
        if waiting is not None:
            raise waiting
        return tuple(ends)

    def finish_deletions(self) -> None:
        """Delete the logs of deleted hubs; also called at start, for logs that a crash left behind."""
        for deletion in self._catalog.pending_deletions():
            if deletion.hub_uid not in self._deletions:
                self._deletions.add(deletion.hub_uid)
                self._delete_logs(deletion)

    def _delete_logs(self, deletion: Deletion) -> None:
        """Delete the logs of a hub; forget the deletion when no crash can bring them back."""
        remaining = set(range(deletion.partition_count))

        def on_deleted(partition: int) -> None:
            remaining.remove(partition)
            if not remaining:
                self._forget_deletion(deletion)

        for partition in range(deletion.partition_count):
            self._engine.delete(log_id(deletion.hub_uid, partition), partial(on_deleted, partition))

    def _forget_deletion(self, deletion: Deletion) -> None:
        """Forget a deletion that is done; if the catalog refuses it now, with the next deletion or start."""
        try:
            self._catalog.submit(Drop(deletion), callback=lambda _: self._deletions.discard(deletion.hub_uid))
        except Refusal:
            self._deletions.discard(deletion.hub_uid)

    def _serve_namespace(self, entity: Namespace, now: float) -> None:
        limits = self._book.of(entity.tier)
        live = self._namespaces[fold(entity.name)] = LiveNamespace(entity, limits, now, is_shared=self._is_shared)
        live.application_groups.follow(self._catalog.view.application_groups(entity.name), now)

    def _update_namespace(self, entity: Namespace, now: float) -> None:
        live = self._namespaces[fold(entity.name)]
        before = live.entity
        live.update(entity, self._book.of(entity.tier), now)
        if _access_settings(before) != _access_settings(entity):
            self._revocation.review()

    def _review_rule(self, _rule: AccessRule | RoleAssignment, _now: float) -> None:
        self._revocation.review()

    def end_rotated(self, rule: AccessRule) -> None:
        """Close links at once that were opened with an earlier key of a rule."""
        self._revocation.end_rotated(fold(rule.namespace), fold(rule.hub or ""), fold(rule.name))

    def _retire_namespace(self, entity: Namespace, _now: float) -> None:
        live = self._namespaces.pop(fold(entity.name))
        for hub in live.hubs.values():
            hub.retire(NamespaceNotFound(live.resource()))
        self.finish_deletions()
        self._revocation.review()

    def _serve_hub(self, hub: Hub, _now: float) -> None:
        namespace = self._namespaces[fold(hub.namespace)]
        live = LiveHub(namespace, hub, self._engine, self._segment_bytes, self._requests, self._places, self._histories)
        live.revoked.update(fold(publisher.name) for publisher in self._catalog.view.revoked_publishers(hub))
        namespace.hubs[fold(hub.name)] = live
        namespace.hub_revision += 1

    def _update_hub(self, hub: Hub, _now: float) -> None:
        live = self._live(hub.uid)
        if live is not None:
            live.update(hub)
            live.namespace.hub_revision += 1

    def _retire_hub(self, hub: Hub, _now: float) -> None:
        live = self._namespaces[fold(hub.namespace)].hubs.pop(fold(hub.name), None)
        if live is not None:
            live.retire(HubNotFound(live.resource))
            live.namespace.hub_revision += 1
        self.finish_deletions()
        # The hub's own rules are deleted with it.
        self._revocation.review()

    def _retire_group(self, group: ConsumerGroup, _now: float) -> None:
        live = self._live(group.hub_uid)
        if live is not None:
            gone = GroupNotFound(live.namespace.resource(live.name, "ConsumerGroups", group.name))
            live.readers.evict_all(gone, fold(group.name))

    def _revoke(self, publisher: RevokedPublisher, _now: float) -> None:
        live = self._live(publisher.hub_uid)
        if live is not None:
            live.revoke(publisher.name)

    def _restore(self, publisher: RevokedPublisher, _now: float) -> None:
        live = self._live(publisher.hub_uid)
        if live is not None:
            live.restore(publisher.name)

    def _apply_group(self, group: ApplicationGroup, now: float) -> None:
        self._update_quotas(group, now)
        if not group.is_enabled:
            # Clients that connect again are refused when they authenticate.
            namespace = fold(group.namespace)
            why = ApplicationGroupDisabled(group.name).text()
            self._connections.disconnect_callers(
                lambda caller: (
                    caller.namespace == namespace and names_client(group.client_id, caller.client, caller.client_kind)
                ),
                why,
            )

    def _update_quotas(self, group: ApplicationGroup, now: float) -> None:
        """Apply the current groups to connected clients."""
        live = self._namespaces[fold(group.namespace)]
        live.application_groups.follow(self._catalog.view.application_groups(group.namespace), now)

    def _live(self, hub_uid: str) -> LiveHub | None:
        hub = self._catalog.view.hub_of_uid(hub_uid)
        if hub is None:
            return None
        return self._namespaces[fold(hub.namespace)].hubs.get(fold(hub.name))


def _access_settings(namespace: Namespace) -> tuple[object, ...]:
    """The settings of a namespace that decide who may connect."""
    return namespace.network, namespace.public_network_access, namespace.disable_local_auth, namespace.kafka_enabled
