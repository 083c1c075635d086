"""Creates, updates and deletes entities, for ARM, Atom, the portal and the command line.

A change takes these steps, and nothing here waits:

1. It is checked against the planned state of the catalog, which includes changes that are not durable yet. A refusal is
   raised; then nothing has changed and `on_done` is not called.
2. Its steps are submitted to the catalog, together with those of a secondary on this node (`pairing`).
3. Once they are durable the live objects are updated and `on_done` is called with None. If the catalog fails, it is
   called with the refusal.

Every change leaves one line in the audit log (`auditing`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hubmere.broker.cold.history import Histories
from hubmere.broker.management import grants, pairing
from hubmere.broker.management.auditing import Actor, AuditedChange, OnDone
from hubmere.broker.management.live_state import LiveState
from hubmere.model.capture.targets import CaptureTargets
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
    RoleAssignment,
)
from hubmere.model.errors import (
    AlreadyExists,
    Conflict,
    GroupNotFound,
    HubNotFound,
    NotFound,
    NotInTier,
    NotSupported,
    Refusal,
)
from hubmere.model.names import AliasName, GroupName, HubName, NamespaceName, PublisherName, RuleName
from hubmere.model.spec import (
    HubSpec,
    NamespaceSpec,
    apply_hub_spec,
    apply_namespace_spec,
    check_group_deletable,
    check_limit,
    new_group,
    new_hub,
    new_namespace,
    root_rule,
    with_capture_start,
    with_network_rules,
    with_new_key,
    with_user_metadata,
)
from hubmere.model.tier import LimitsBook
from hubmere.store.audit import AuditLog
from hubmere.store.catalog.view import Create, Delete, Replace, Step
from hubmere.store.engine import Catalog

__all__ = ["Actor", "OnDone", "Manager"]


class Manager:
    """Changes entities.

    Thread rule: the owner's thread only.
    """

    def __init__(
        self,
        catalog: Catalog,
        book: LimitsBook,
        live_state: LiveState,
        *,
        default_partition_count: int,
        capture_targets: CaptureTargets,
        audit: AuditLog,
        histories: Histories | None = None,
    ) -> None:
        self.audit = audit
        self._catalog = catalog
        self._book = book
        self._live_state = live_state
        self._default_partition_count = default_partition_count
        self._capture_targets = capture_targets
        self._histories = histories
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_change: Callable[[], None]) -> None:
        """Register a callback for every change of entities, called once the change is durable."""
        self._watchers.append(on_change)

    # --- namespaces ---

    def create_namespace(self, name: NamespaceName, spec: NamespaceSpec, actor: Actor, on_done: OnDone) -> Namespace:
        """Create a namespace with its root rule."""
        with self._begin_change("create namespace", actor, on_done, name) as change:
            tier = spec.tier or self._book.default_tier
            limits = self._book.of(tier)
            planned = self._catalog.planned_view
            if planned.find_namespace(name) is not None or planned.find_alias(name) is not None:
                raise AlreadyExists(name)
            check_limit("namespaces", len(planned.namespaces()), limits.namespaces, "namespaces")
            entity = new_namespace(name, spec, limits, tier=tier, now_ms=actor.now_ms)
            steps = [Create(entity), Create(root_rule(entity, now_ms=actor.now_ms))]
            change.submit(steps)
            return entity

    def update_namespace(self, name: str, spec: NamespaceSpec, actor: Actor, on_done: OnDone) -> Namespace:
        """Replace a namespace's settings; throughput limits change at once."""
        with self._begin_change("update namespace", actor, on_done, name) as change:
            current = self._catalog.planned_view.namespace(name)
            entity = apply_namespace_spec(current, spec, self._book.of(current.tier), now_ms=actor.now_ms)
            change.submit([Replace(entity)])
            return entity

    def update_network(self, name: str, rules: NetworkRuleSet, actor: Actor, on_done: OnDone) -> Namespace:
        """Replace a namespace's network rules."""
        with self._begin_change("update network", actor, on_done, name) as change:
            current = self._catalog.planned_view.namespace(name)
            entity = with_network_rules(current, rules, self._book.of(current.tier), now_ms=actor.now_ms)
            change.submit([Replace(entity)])
            return entity

    def scale(self, name: str, capacity: int, actor: Actor, on_done: OnDone) -> Namespace:
        """Change a namespace's throughput units and nothing else."""
        current = self._catalog.planned_view.namespace(name)
        return self.update_namespace(name, replace(NamespaceSpec.of(current), capacity=capacity), actor, on_done)

    def delete_namespace(self, name: str, actor: Actor, on_done: OnDone) -> None:
        """Delete a namespace with everything in it."""
        with self._begin_change("delete namespace", actor, on_done, name) as change:
            entity = self._catalog.planned_view.namespace(name)
            if self._catalog.planned_view.aliases(name):
                raise Conflict(f"The namespace '{name}' is paired; break the pairing and delete the alias first.")
            change.submit([Delete(entity, actor.now_ms)])

    # --- hubs ---

    def create_hub(self, namespace: str, name: HubName, spec: HubSpec, actor: Actor, on_done: OnDone) -> Hub:
        """Create a hub with its `$Default` consumer group."""
        with self._begin_change("create hub", actor, on_done, namespace, name) as change:
            hub, group = self._new_hub(namespace, name, spec, actor.now_ms)
            hub = self._with_capture(hub, None, actor)
            change.submit([Create(hub), Create(group)])
            return hub

    def check_create_hub(self, namespace: str, name: HubName, spec: HubSpec, now_ms: int) -> Hub:
        """The hub that `create_hub` would create; refuses what it would refuse, and changes nothing."""
        return self._new_hub(namespace, name, spec, now_ms)[0]

    def _new_hub(self, namespace: str, name: HubName, spec: HubSpec, now_ms: int) -> tuple[Hub, ConsumerGroup]:
        parent = self._writable(namespace)
        view = self._catalog.planned_view
        if view.find_hub(namespace, name) is not None:
            raise AlreadyExists(_resource(parent, name))
        if spec.partition_count is None:
            spec = replace(spec, partition_count=self._default_partition_count)
        limits = self._book.of(parent.tier)
        return new_hub(parent, name, spec, limits, existing=view.hubs(namespace), now_ms=now_ms)

    def update_hub(self, namespace: str, name: str, spec: HubSpec, actor: Actor, on_done: OnDone) -> Hub:
        """Replace a hub's settings, effective on open links too."""
        with self._begin_change("update hub", actor, on_done, namespace, name) as change:
            current, hub = self._changed_hub(namespace, name, spec, actor.now_ms)
            hub = self._with_capture(hub, current, actor)
            change.submit([Replace(hub)])
            return hub

    def check_update_hub(self, namespace: str, name: str, spec: HubSpec, now_ms: int) -> Hub:
        """The hub as `update_hub` would change it; refuses what it would refuse, and changes nothing."""
        return self._changed_hub(namespace, name, spec, now_ms)[1]

    def _changed_hub(self, namespace: str, name: str, spec: HubSpec, now_ms: int) -> tuple[Hub, Hub]:
        parent = self._writable(namespace)
        existing = self._catalog.planned_view.hubs(namespace)
        current = self._hub(parent, name)
        limits = self._book.of(parent.tier)
        return current, apply_hub_spec(parent, current, spec, limits, existing=existing, now_ms=now_ms)

    def delete_hub(self, namespace: str, name: str, actor: Actor, on_done: OnDone) -> None:
        """Delete a hub with its groups, rules and events; open links are closed and its files deleted."""
        with self._begin_change("delete hub", actor, on_done, namespace, name) as change:
            parent = self._writable(namespace)
            hub = self._hub(parent, name)
            change.submit([Delete(hub, actor.now_ms)])

    def _with_capture(self, hub: Hub, before: Hub | None, actor: Actor) -> Hub:
        """Check the capture destination of a hub, and record where its capture starts if it starts now."""
        # A destination that was since removed from the settings must not block other changes of the hub.
        is_new = before is None or before.capture != hub.capture
        if is_new and hub.capture is not None and hub.capture.enabled:
            self._capture_targets.place_of(hub.capture.destination)
        if is_new and hub.has_cold_reads:
            if self._histories is None:
                raise NotSupported("cold_reads on a gateway of a Kafka cluster")
            self._histories.check(hub)
        return with_capture_start(hub, before, lambda: self._live_state.ends(hub), now_ms=actor.now_ms)

    # --- consumer groups ---

    def create_group(
        self, namespace: str, hub: str, name: GroupName, metadata: str, actor: Actor, on_done: OnDone
    ) -> ConsumerGroup:
        """Create a consumer group on a hub."""
        with self._begin_change("create group", actor, on_done, namespace, hub, name) as change:
            parent = self._writable(namespace)
            entity = self._hub(parent, hub)
            existing = self._catalog.planned_view.groups(entity)
            if self._catalog.planned_view.find_group(entity, name) is not None:
                raise AlreadyExists(_resource(parent, hub, name))
            limits = self._book.of(parent.tier)
            group = new_group(entity, name, limits, existing=existing, now_ms=actor.now_ms, user_metadata=metadata)
            change.submit([Create(group)])
            return group

    def update_group(
        self, namespace: str, hub: str, name: str, metadata: str, actor: Actor, on_done: OnDone
    ) -> ConsumerGroup:
        """Replace the metadata of a consumer group."""
        with self._begin_change("update group", actor, on_done, namespace, hub, name) as change:
            parent = self._writable(namespace)
            current = self._catalog.planned_view.group(self._hub(parent, hub), name)
            group = with_user_metadata(current, user_metadata=metadata, now_ms=actor.now_ms)
            change.submit([Replace(group)])
            return group

    def delete_group(self, namespace: str, hub: str, name: str, actor: Actor, on_done: OnDone) -> None:
        """Delete a consumer group; its readers are disconnected."""
        with self._begin_change("delete group", actor, on_done, namespace, hub, name) as change:
            parent = self._writable(namespace)
            group = self._catalog.planned_view.group(self._hub(parent, hub), name)
            check_group_deletable(group)
            change.submit([Delete(group, actor.now_ms)])

    # --- authorization rules ---

    def write_rule(
        self,
        namespace: str,
        hub: str | None,
        name: RuleName,
        rights: Rights,
        actor: Actor,
        on_done: OnDone,
        *,
        primary_key: str | None = None,
        secondary_key: str | None = None,
    ) -> AccessRule:
        """Create a rule on a namespace or a hub, or change the rights and keys of an existing one."""
        with self._begin_change("write rule", actor, on_done, namespace, hub, name) as change:
            scope, view = self._writable_scope(namespace, hub), self._catalog.planned_view
            limits = self._book.of(view.namespace(namespace).tier)
            keys = {KeyKind.PRIMARY: primary_key, KeyKind.SECONDARY: secondary_key}
            rule, step = grants.write_rule(view, scope, name, rights, limits, keys=keys, now_ms=actor.now_ms)
            change.submit([step])
            return rule

    def regenerate_key(
        self,
        namespace: str,
        hub: str | None,
        name: str,
        which: KeyKind,
        key: str | None,
        actor: Actor,
        on_done: OnDone,
        *,
        revokes_open_links: bool = False,
    ) -> AccessRule:
        """Replace the primary or secondary key of a rule, by a random one unless `key` is given.

        Links that were opened with the old key are closed at once if `revokes_open_links`, else after the grace time.
        """

        def on_complete(refusal: Refusal | None) -> None:
            if refusal is None and revokes_open_links:
                self._live_state.end_rotated(rule)
            on_done(refusal)

        with self._begin_change("regenerate key", actor, on_complete, namespace, hub, name) as change:
            current = self._catalog.planned_view.rule(self._writable_scope(namespace, hub), name)
            rule = with_new_key(current, which, now_ms=actor.now_ms, key=key)
            change.submit([Replace(rule)])
            return rule

    def delete_rule(self, namespace: str, hub: str | None, name: str, actor: Actor, on_done: OnDone) -> None:
        """Delete a rule; links that were opened with its keys are closed."""
        with self._begin_change("delete rule", actor, on_done, namespace, hub, name) as change:
            rule = self._catalog.planned_view.rule(self._writable_scope(namespace, hub), name)
            change.submit([Delete(rule, actor.now_ms)])

    # --- publishers ---

    def revoke_publisher(
        self, namespace: str, hub: str, name: PublisherName, actor: Actor, on_done: OnDone
    ) -> RevokedPublisher:
        """Revoke a publisher, effective on open links at once."""
        with self._begin_change("revoke publisher", actor, on_done, namespace, hub, name) as change:
            parent = self._catalog.planned_view.namespace(namespace)
            entity = self._hub(parent, hub)
            resource = _resource(parent, hub, "revokedpublishers", name)
            if self._catalog.planned_view.find_revoked_publisher(entity, name) is not None:
                raise AlreadyExists(resource)
            revoked = RevokedPublisher(hub_uid=entity.uid, name=name, revoked_ms=actor.now_ms)
            change.submit([Create(revoked)])
            return revoked

    def restore_publisher(self, namespace: str, hub: str, name: str, actor: Actor, on_done: OnDone) -> None:
        """Allow a revoked publisher again."""
        with self._begin_change("restore publisher", actor, on_done, namespace, hub, name) as change:
            parent = self._catalog.planned_view.namespace(namespace)
            resource = _resource(parent, hub, "revokedpublishers", name)
            revoked = self._catalog.planned_view.find_revoked_publisher(self._hub(parent, hub), name)
            if revoked is None:
                raise NotFound(resource)
            change.submit([Delete(revoked, actor.now_ms)])

    # --- application groups ---

    def write_application_group(self, group: ApplicationGroup, actor: Actor, on_done: OnDone) -> ApplicationGroup:
        """Create or replace an application group."""
        with self._begin_change("write application group", actor, on_done, group.name) as change:
            view = self._catalog.planned_view
            parent = view.namespace(group.namespace)
            entity, step = grants.write_application_group(view, parent, group, self._book.of(parent.tier))
            change.submit([step])
            return entity

    def delete_application_group(self, group: ApplicationGroup, actor: Actor, on_done: OnDone) -> None:
        """Delete an application group; its clients are no longer limited."""
        with self._begin_change("delete application group", actor, on_done, group.name) as change:
            self._catalog.planned_view.namespace(group.namespace)
            change.submit([Delete(group, actor.now_ms)])

    # --- role assignments ---

    def assign_role(self, wanted: RoleAssignment, actor: Actor, on_done: OnDone) -> RoleAssignment:
        """Give an identity a role; repeating an assignment changes nothing, and another one must not have its id."""
        with self._begin_change("assign role", actor, on_done, *grants.assignment_names(wanted)) as change:
            planned = self._catalog.planned_view
            parent = planned.namespace(wanted.namespace)
            hub = None if wanted.hub is None else self._hub(parent, wanted.hub)
            if hub is not None and wanted.group is not None and planned.find_group(hub, wanted.group) is None:
                raise GroupNotFound(_resource(parent, hub.name, "ConsumerGroups", wanted.group))
            others = planned.role_assignments(parent.name)
            entity, step = grants.assign_role(wanted, others, hub, created_by=actor.name, now_ms=actor.now_ms)
            change.submit([step])
            return entity

    def delete_role_assignment(self, assignment: RoleAssignment, actor: Actor, on_done: OnDone) -> None:
        """Delete a role assignment; links that only this role allowed are closed."""
        names = grants.assignment_names(assignment)
        with self._begin_change("delete role assignment", actor, on_done, *names) as change:
            change.submit([Delete(assignment, actor.now_ms)])

    # --- geo-disaster recovery ---

    def _require_geo_recovery(self, namespace: Namespace) -> None:
        if not self._book.of(namespace.tier).has_geo_recovery:
            raise NotInTier("Geo-disaster recovery", namespace.tier, "has_geo_recovery")

    def pair(
        self, namespace: str, alias: AliasName, partner: str, alternate_name: str, actor: Actor, on_done: OnDone
    ) -> GeoAlias:
        """Give a namespace an alias, and pair it with an empty namespace of this node if `partner` is given."""
        with self._begin_change("pair", actor, on_done, namespace, alias) as change:
            view = self._catalog.planned_view
            self._require_geo_recovery(view.namespace(namespace))
            entity, steps = pairing.pair(view, view.namespace(namespace), alias, partner, alternate_name)
            change.submit(steps)
            return entity

    def pair_away(
        self,
        namespace: str,
        alias: AliasName,
        partner: str,
        alternate_name: str,
        pairing_id: str,
        actor: Actor,
        on_done: OnDone,
    ) -> GeoAlias:
        """Give a namespace an alias under which it replicates to a namespace on another node, which has agreed."""
        with self._begin_change("pair away", actor, on_done, namespace, alias) as change:
            view = self._catalog.planned_view
            self._require_geo_recovery(view.namespace(namespace))
            entity, steps = pairing.pair_away(
                view, view.namespace(namespace), alias, partner, alternate_name, pairing_id
            )
            change.submit(steps)
            return entity

    def give_up_alias(self, namespace: str, alias: str, pairing_id: str, actor: Actor, on_done: OnDone) -> None:
        """Delete an alias that the partner on another node has taken over."""
        with self._begin_change("give up alias", actor, on_done, namespace, alias) as change:
            steps = pairing.give_up(self._catalog.planned_view, namespace, alias, pairing_id)
            change.submit(steps)

    def break_pairing(self, namespace: str, alias: str, actor: Actor, on_done: OnDone) -> None:
        """End the replication; the primary keeps the alias."""
        with self._begin_change("break pairing", actor, on_done, namespace, alias) as change:
            steps = pairing.break_pairing(self._catalog.planned_view, namespace, alias)
            change.submit(steps)

    def fail_over(self, namespace: str, alias: str, actor: Actor, on_done: OnDone) -> None:
        """Move the alias to `namespace`, its secondary, and end the pairing."""
        with self._begin_change("fail over", actor, on_done, namespace, alias) as change:
            steps = pairing.fail_over(self._catalog.planned_view, namespace, alias)
            change.submit(steps)

    def delete_alias(self, namespace: str, alias: str, actor: Actor, on_done: OnDone) -> None:
        """Delete an alias that has no pairing."""
        with self._begin_change("delete alias", actor, on_done, namespace, alias) as change:
            steps = pairing.delete_alias(self._catalog.planned_view, namespace, alias)
            change.submit(steps)

    # --- submitting a change ---

    def _begin_change(self, action: str, actor: Actor, on_done: OnDone, *target: str | None) -> AuditedChange:
        """A change with its audit line. `target` names the entity from the namespace down; None is left out."""
        names = "/".join(name for name in target if name is not None)
        return AuditedChange(self.audit, self.submit, action=action, target=names, actor=actor, on_done=on_done)

    def submit(self, steps: Sequence[Step], actor: Actor, on_done: OnDone) -> None:
        """Write checked steps and those of a local secondary; then update the live objects and call the watchers."""
        everything = [*steps, *pairing.mirror_steps(self._catalog.planned_view, steps)]

        def on_complete(refusal: Refusal | None) -> None:
            if refusal is None:
                for step in everything:
                    self._live_state.follow(step, actor.now)
                for on_change in self._watchers:
                    on_change()
            on_done(refusal)

        self._catalog.submit(*everything, callback=on_complete)

    def follow(self, steps: Sequence[Step], now: float) -> None:
        """Update the live objects after a change that another gateway has made, and call the watchers."""
        for step in steps:
            self._live_state.follow(step, now)
        for on_change in self._watchers:
            on_change()

    def _writable(self, namespace: str) -> Namespace:
        parent = self._catalog.planned_view.namespace(namespace)
        pairing.require_writable(self._catalog.planned_view, parent)
        return parent

    def _writable_scope(self, namespace: str, hub: str | None) -> Namespace | Hub:
        parent = self._writable(namespace)
        return parent if hub is None else self._hub(parent, hub)

    def _hub(self, namespace: Namespace, name: str) -> Hub:
        hub = self._catalog.planned_view.find_hub(namespace.name, name)
        if hub is None:
            raise HubNotFound(_resource(namespace, name))
        return hub


def _resource(namespace: Namespace, *path: str) -> str:
    return "/".join((f"sb://{namespace.name}", *path))
