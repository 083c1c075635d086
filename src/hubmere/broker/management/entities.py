"""Read-only queries over the entities of a node, for management interfaces and the portal.

The answers are model entities, which are immutable. Whether a client may see them is checked before, by its `Caller`.
`committed` entities are durable; `planned` ones include changes that are being written, which is what a check for a
free name needs. Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Sequence

from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    ConsumerGroup,
    GeoAlias,
    Hub,
    Namespace,
    RevokedPublisher,
    RoleAssignment,
)
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.catalog.view import CatalogView

Scope = Namespace | Hub


class Entities:
    """Queries over one version of the catalog, always the latest."""

    __slots__ = ("_view",)

    def __init__(self, view: Callable[[], CatalogView]) -> None:
        self._view = view

    # --- namespaces, aliases and application groups

    def namespaces(self) -> Sequence[Namespace]:
        """All namespaces."""
        return self._view().namespaces()

    def namespace(self, name: str) -> Namespace:
        """A namespace that must exist."""
        return self._view().namespace(name)

    def find_namespace(self, name: str) -> Namespace | None:
        """A namespace by its name in any case."""
        return self._view().find_namespace(name)

    def aliases(self, namespace: str) -> Sequence[GeoAlias]:
        """The geo-disaster recovery aliases of a namespace."""
        return self._view().aliases(namespace)

    def all_aliases(self) -> Sequence[GeoAlias]:
        """The aliases of all namespaces."""
        return self._view().all_aliases()

    def alias(self, namespace: str, name: str) -> GeoAlias:
        """An alias that must exist."""
        return self._view().alias(namespace, name)

    def find_alias(self, name: str) -> GeoAlias | None:
        """An alias by its name in any case."""
        return self._view().find_alias(name)

    def application_groups(self, namespace: str) -> Sequence[ApplicationGroup]:
        """The application groups of a namespace."""
        return self._view().application_groups(namespace)

    def find_application_group(self, namespace: str, name: str) -> ApplicationGroup | None:
        """An application group by its name in any case."""
        return self._view().find_application_group(namespace, name)

    def role_assignments(self, namespace: str) -> Sequence[RoleAssignment]:
        """The role assignments on a namespace and everything in it."""
        return self._view().role_assignments(namespace)

    def find_role_assignment(self, namespace: str, name: str) -> RoleAssignment | None:
        """A role assignment by its id."""
        return self._view().find_role_assignment(namespace, name)

    # --- hubs, consumer groups, rules and publishers

    def hubs(self, namespace: str) -> Sequence[Hub]:
        """The hubs of a namespace."""
        return self._view().hubs(namespace)

    def hub(self, namespace: str, name: str) -> Hub:
        """A hub that must exist."""
        return self._view().hub(namespace, name)

    def find_hub(self, namespace: str, name: str) -> Hub | None:
        """A hub by its name in any case."""
        return self._view().find_hub(namespace, name)

    def groups(self, hub: Hub) -> Sequence[ConsumerGroup]:
        """The consumer groups of a hub."""
        return self._view().groups(hub)

    def group(self, hub: Hub, name: str) -> ConsumerGroup:
        """A consumer group that must exist."""
        return self._view().group(hub, name)

    def find_group(self, hub: Hub, name: str) -> ConsumerGroup | None:
        """A consumer group by its name in any case."""
        return self._view().find_group(hub, name)

    def rules(self, scope: Scope) -> Sequence[AccessRule]:
        """The authorization rules of a namespace or of a hub."""
        return self._view().rules(scope)

    def rule(self, scope: Scope, name: str) -> AccessRule:
        """A rule that must exist."""
        return self._view().rule(scope, name)

    def find_rule(self, scope: Scope, name: str) -> AccessRule | None:
        """A rule by its name in any case."""
        return self._view().find_rule(scope, name)

    def revoked_publishers(self, hub: Hub) -> Sequence[RevokedPublisher]:
        """The publishers that were revoked on a hub."""
        return self._view().revoked_publishers(hub)

    def find_revoked_publisher(self, hub: Hub, name: str) -> RevokedPublisher | None:
        """The revocation of a publisher, if there is one."""
        return self._view().find_revoked_publisher(hub, name)

    # --- committed positions

    def group_offsets(self, namespace: str, group_id: str) -> Sequence[GroupOffset]:
        """Everything that a Kafka group has committed."""
        return self._view().group_offsets(namespace, group_id)

    def groups_with_offsets(self, namespace: str) -> Sequence[str]:
        """The Kafka groups of a namespace that have committed something."""
        return self._view().groups_with_offsets(namespace)
