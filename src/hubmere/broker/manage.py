"""Making, changing and removing entities, live: the surface under the management planes, the portal and the command.

Every change is checked against what is planned, written to the catalog, and only when it is durable do the live objects
follow and `done` is called with None; a change that fails later calls it with the refusal. Refusals known at once are
raised, and then nothing was changed and `done` is not called. Nothing here waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hubmere.broker import pairing
from hubmere.broker.following import Following
from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    ConsumerGroup,
    GeoAlias,
    Hub,
    KeyKind,
    Namespace,
    NetworkRuleSet,
    RevokedPublisher,
    Rights,
)
from hubmere.model.errors import AlreadyExists, Conflict, HubNotFound, NotFound, Refusal
from hubmere.model.names import AliasName, GroupName, HubName, NamespaceName, PublisherName, RuleName
from hubmere.model.spec import (
    HubSpec,
    NamespaceSpec,
    changed_group,
    changed_hub,
    changed_namespace,
    changed_network,
    changed_rule,
    check_group_deletable,
    check_room,
    checked_application_group,
    new_group,
    new_hub,
    new_namespace,
    new_rule,
    root_rule,
    with_new_key,
)
from hubmere.model.tier import LimitsBook
from hubmere.store.catalog import Catalog
from hubmere.store.progress import AuditEntry
from hubmere.store.view import Create, Delete, Replace, Step

Done = Callable[[Refusal | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who asks for a change and when: for the audit trail and for times."""

    actor: str
    now_ms: int
    now: float

    def entry(self, action: str, resource: str) -> AuditEntry:
        """A line of the audit trail."""
        return AuditEntry(at_ms=self.now_ms, actor=self.actor, action=action, resource=resource)


class Manager:
    """Changes of entities.

    Thread rule: the owner's thread only.
    """

    def __init__(
        self, catalog: Catalog, book: LimitsBook, following: Following, *, default_partition_count: int
    ) -> None:
        self._catalog = catalog
        self._book = book
        self._following = following
        self._default_partition_count = default_partition_count

    # --- namespaces ---

    def create_namespace(self, name: NamespaceName, spec: NamespaceSpec, by: By, done: Done) -> Namespace:
        """A namespace with its root rule."""
        tier = spec.tier or self._book.default_tier
        limits = self._book.of(tier)
        planned = self._catalog.planned
        if planned.find_namespace(name) is not None or planned.find_alias(name) is not None:
            raise AlreadyExists(name)
        check_room("namespaces", len(planned.namespaces()), limits.namespaces)
        entity = new_namespace(name, spec, limits, tier=tier, now_ms=by.now_ms)
        steps = [Create(entity), Create(root_rule(entity, now_ms=by.now_ms))]
        self._submit(steps, "create namespace", name, by, done)
        return entity

    def update_namespace(self, name: str, spec: NamespaceSpec, by: By, done: Done) -> Namespace:
        """Replace a namespace's settings; throughput follows at once."""
        current = self._catalog.planned.namespace(name)
        entity = changed_namespace(current, spec, self._book.of(current.tier), now_ms=by.now_ms)
        self._submit([Replace(entity)], "update namespace", entity.name, by, done)
        return entity

    def update_network(self, name: str, rules: NetworkRuleSet, by: By, done: Done) -> Namespace:
        """Replace a namespace's network rules."""
        current = self._catalog.planned.namespace(name)
        entity = changed_network(current, rules, self._book.of(current.tier), now_ms=by.now_ms)
        self._submit([Replace(entity)], "update network rules", entity.name, by, done)
        return entity

    def scale(self, name: str, capacity: int, by: By, done: Done) -> Namespace:
        """Change a namespace's throughput units and nothing else."""
        current = self._catalog.planned.namespace(name)
        return self.update_namespace(name, replace(NamespaceSpec.of(current), capacity=capacity), by, done)

    def delete_namespace(self, name: str, by: By, done: Done) -> None:
        """A namespace with everything in it."""
        entity = self._catalog.planned.namespace(name)
        if self._catalog.planned.aliases(name):
            raise Conflict(f"The namespace '{name}' is paired; break the pairing and delete the alias first.")
        self._submit([Delete(entity, by.now_ms)], "delete namespace", entity.name, by, done)

    # --- hubs ---

    def create_hub(self, namespace: str, name: HubName, spec: HubSpec, by: By, done: Done) -> Hub:
        """A hub with its `$Default` group."""
        parent = self._writable(namespace)
        view = self._catalog.planned
        if view.find_hub(namespace, name) is not None:
            raise AlreadyExists(_resource(parent, name))
        if spec.partition_count is None:
            spec = replace(spec, partition_count=self._default_partition_count)
        limits = self._book.of(parent.tier)
        hub, group = new_hub(parent, name, spec, limits, existing=view.hubs(namespace), now_ms=by.now_ms)
        self._submit([Create(hub), Create(group)], "create event hub", _resource(parent, name), by, done)
        return hub

    def update_hub(self, namespace: str, name: str, spec: HubSpec, by: By, done: Done) -> Hub:
        """Replace a hub's settings, effective on open links."""
        parent = self._writable(namespace)
        existing = self._catalog.planned.hubs(namespace)
        limits = self._book.of(parent.tier)
        hub = changed_hub(parent, self._hub(parent, name), spec, limits, existing=existing, now_ms=by.now_ms)
        self._submit([Replace(hub)], "update event hub", _resource(parent, hub.name), by, done)
        return hub

    def delete_hub(self, namespace: str, name: str, by: By, done: Done) -> None:
        """A hub, its groups, rules and events; open links are let go and its files freed."""
        parent = self._writable(namespace)
        hub = self._hub(parent, name)
        self._submit([Delete(hub, by.now_ms)], "delete event hub", _resource(parent, hub.name), by, done)

    # --- consumer groups ---

    def create_group(
        self, namespace: str, hub: str, name: GroupName, metadata: str, by: By, done: Done
    ) -> ConsumerGroup:
        """A consumer group on a hub."""
        parent = self._writable(namespace)
        entity = self._hub(parent, hub)
        existing = self._catalog.planned.groups(entity)
        if self._catalog.planned.find_group(entity, name) is not None:
            raise AlreadyExists(_resource(parent, hub, name))
        limits = self._book.of(parent.tier)
        group = new_group(entity, name, limits, existing=existing, now_ms=by.now_ms, user_metadata=metadata)
        self._submit([Create(group)], "create consumer group", _resource(parent, hub, name), by, done)
        return group

    def update_group(self, namespace: str, hub: str, name: str, metadata: str, by: By, done: Done) -> ConsumerGroup:
        """Replace a group's metadata."""
        parent = self._writable(namespace)
        current = self._catalog.planned.group(self._hub(parent, hub), name)
        group = changed_group(current, user_metadata=metadata, now_ms=by.now_ms)
        self._submit([Replace(group)], "update consumer group", _resource(parent, hub, name), by, done)
        return group

    def delete_group(self, namespace: str, hub: str, name: str, by: By, done: Done) -> None:
        """A consumer group with its checkpoints; its readers are let go."""
        parent = self._writable(namespace)
        group = self._catalog.planned.group(self._hub(parent, hub), name)
        check_group_deletable(group)
        resource = _resource(parent, hub, group.name)
        self._submit([Delete(group, by.now_ms)], "delete consumer group", resource, by, done)

    # --- authorization rules ---

    def write_rule(
        self,
        namespace: str,
        hub: str | None,
        name: RuleName,
        rights: Rights,
        by: By,
        done: Done,
        *,
        primary_key: str | None = None,
        secondary_key: str | None = None,
    ) -> AccessRule:
        """A rule on a namespace or a hub, or new rights and keys for one that is there."""
        scope = self._scope(namespace, hub)
        current = self._catalog.planned.find_rule(scope, name)
        if current is None:
            rule = new_rule(
                scope,
                name,
                rights,
                self._book.of(self._catalog.planned.namespace(namespace).tier),
                existing=self._catalog.planned.rules(scope),
                now_ms=by.now_ms,
                primary_key=primary_key,
                secondary_key=secondary_key,
            )
        else:
            rule = changed_rule(current, rights, now_ms=by.now_ms)
            for which, key in ((KeyKind.PRIMARY, primary_key), (KeyKind.SECONDARY, secondary_key)):
                if key is not None:
                    rule = with_new_key(rule, which, now_ms=by.now_ms, key=key)
        step = Create(rule) if current is None else Replace(rule)
        self._submit([step], "write authorization rule", _rule_resource(namespace, hub, name), by, done)
        return rule

    def regenerate_key(
        self, namespace: str, hub: str | None, name: str, which: KeyKind, key: str | None, by: By, done: Done
    ) -> AccessRule:
        """A new primary or secondary key, random unless one is given."""
        current = self._catalog.planned.rule(self._scope(namespace, hub), name)
        rule = with_new_key(current, which, now_ms=by.now_ms, key=key)
        self._submit([Replace(rule)], "regenerate key", _rule_resource(namespace, hub, name), by, done)
        return rule

    def delete_rule(self, namespace: str, hub: str | None, name: str, by: By, done: Done) -> None:
        """A rule; its tokens are good for nothing new."""
        rule = self._catalog.planned.rule(self._scope(namespace, hub), name)
        resource = _rule_resource(namespace, hub, name)
        self._submit([Delete(rule, by.now_ms)], "delete authorization rule", resource, by, done)

    # --- publishers ---

    def revoke_publisher(self, namespace: str, hub: str, name: PublisherName, by: By, done: Done) -> RevokedPublisher:
        """Close a publisher's path, effective on open links at once."""
        parent = self._catalog.planned.namespace(namespace)
        entity = self._hub(parent, hub)
        resource = _resource(parent, hub, "revokedpublishers", name)
        if self._catalog.planned.find_revoked_publisher(entity, name) is not None:
            raise AlreadyExists(resource)
        revoked = RevokedPublisher(hub_uid=entity.uid, name=name, revoked_ms=by.now_ms)
        self._submit([Create(revoked)], "revoke publisher", resource, by, done)
        return revoked

    def restore_publisher(self, namespace: str, hub: str, name: str, by: By, done: Done) -> None:
        """Open a publisher's path again."""
        parent = self._catalog.planned.namespace(namespace)
        resource = _resource(parent, hub, "revokedpublishers", name)
        revoked = self._catalog.planned.find_revoked_publisher(self._hub(parent, hub), name)
        if revoked is None:
            raise NotFound(resource)
        self._submit([Delete(revoked, by.now_ms)], "restore publisher", resource, by, done)

    # --- application groups ---

    def write_application_group(self, group: ApplicationGroup, by: By, done: Done) -> ApplicationGroup:
        """An application group, new or changed."""
        parent = self._catalog.planned.namespace(group.namespace)
        checked = checked_application_group(group, self._book.of(parent.tier), tier=parent.tier)
        known = self._catalog.planned.find_application_group(parent.name, group.name)
        step = Create(checked) if known is None else Replace(checked)
        self._submit([step], "write application group", _resource(parent, "applicationGroups", group.name), by, done)
        return checked

    def delete_application_group(self, group: ApplicationGroup, by: By, done: Done) -> None:
        """An application group; its clients are limited no longer."""
        parent = self._catalog.planned.namespace(group.namespace)
        resource = _resource(parent, "applicationGroups", group.name)
        self._submit([Delete(group, by.now_ms)], "delete application group", resource, by, done)

    # --- geo-disaster recovery ---

    def pair(self, namespace: str, alias: AliasName, partner: str, alternate_name: str, by: By, done: Done) -> GeoAlias:
        """Give a namespace an alias, and pair it with an empty one of this node if a partner is named."""
        view = self._catalog.planned
        entity, steps = pairing.pair(view, view.namespace(namespace), alias, partner, alternate_name)
        self._submit(steps, "pair namespaces", f"{namespace}/{alias}", by, done)
        return entity

    def break_pairing(self, namespace: str, alias: str, by: By, done: Done) -> None:
        """End the replication; the alias stays with the primary."""
        steps = pairing.break_pairing(self._catalog.planned, namespace, alias)
        self._submit(steps, "break pairing", f"{namespace}/{alias}", by, done)

    def fail_over(self, namespace: str, alias: str, by: By, done: Done) -> None:
        """The alias moves to the secondary, on which this is asked, and the pairing ends."""
        steps = pairing.fail_over(self._catalog.planned, namespace, alias)
        self._submit(steps, "fail over", f"{namespace}/{alias}", by, done)

    def delete_alias(self, namespace: str, alias: str, by: By, done: Done) -> None:
        """An alias whose pairing is over."""
        steps = pairing.delete_alias(self._catalog.planned, namespace, alias)
        self._submit(steps, "delete alias", f"{namespace}/{alias}", by, done)

    # --- how ---

    def _submit(self, steps: Sequence[Step], action: str, resource: str, by: By, done: Done) -> None:
        everything = [*steps, *pairing.mirrored(self._catalog.planned, steps)]

        def completed(refusal: Refusal | None) -> None:
            if refusal is None:
                for step in everything:
                    self._following.follow(step, by.now)
            done(refusal)

        self._catalog.submit(*everything, callback=completed, audit=by.entry(action, resource))

    def _writable(self, namespace: str) -> Namespace:
        parent = self._catalog.planned.namespace(namespace)
        pairing.require_writable(self._catalog.planned, parent)
        return parent

    def _scope(self, namespace: str, hub: str | None) -> Namespace | Hub:
        parent = self._catalog.planned.namespace(namespace)
        return parent if hub is None else self._hub(parent, hub)

    def _hub(self, namespace: Namespace, name: str) -> Hub:
        hub = self._catalog.planned.find_hub(namespace.name, name)
        if hub is None:
            raise HubNotFound(_resource(namespace, name))
        return hub


def _resource(namespace: Namespace, *path: str) -> str:
    return "/".join((f"sb://{namespace.name}", *path))


def _rule_resource(namespace: str, hub: str | None, name: str) -> str:
    return "/".join((f"sb://{namespace}", *([hub] if hub else []), "authorizationRules", name))
