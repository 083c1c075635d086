"""Making, changing and removing entities, live: the surface under the management planes, the portal and the command.

Every change is checked against what is planned, written to the catalog, and only when it is durable do the live objects
follow and `done` is called with None; a change that fails later calls it with the refusal. Refusals known at once are
raised, and then nothing was changed and `done` is not called. Nothing here waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hubmere.broker.management import pairing
from hubmere.broker.management.auditing import Actor, Done, audited
from hubmere.broker.management.live_state import LiveState
from hubmere.model.capture import CaptureTargets
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
from hubmere.model.errors import AlreadyExists, Conflict, HubNotFound, NotFound, NotInTier, Refusal
from hubmere.model.names import AliasName, GroupName, HubName, NamespaceName, PublisherName, RuleName, fold
from hubmere.model.spec import (
    HubSpec,
    NamespaceSpec,
    apply_hub_spec,
    apply_namespace_spec,
    check_application_group,
    check_group_deletable,
    check_limit,
    new_group,
    new_hub,
    new_namespace,
    new_rule,
    root_rule,
    with_capture_start,
    with_network_rules,
    with_new_key,
    with_rights,
    with_user_metadata,
)
from hubmere.model.tier import LimitsBook
from hubmere.store.audit import AuditLog
from hubmere.store.catalog.view import Create, Delete, Replace, Step
from hubmere.store.engine import Catalog

__all__ = ["Actor", "Done", "Manager"]


class Manager:
    """Changes of entities.

    Thread rule: the owner's thread only.
    """

    def __init__(
        self,
        catalog: Catalog,
        book: LimitsBook,
        following: LiveState,
        *,
        default_partition_count: int,
        capture_targets: CaptureTargets,
        audit: AuditLog,
    ) -> None:
        self.audit = audit
        self._catalog = catalog
        self._book = book
        self._live_state = following
        self._default_partition_count = default_partition_count
        self._capture_targets = capture_targets
        self._watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Be told after every change of entities, once it is durable."""
        self._watchers.append(changed)

    # --- namespaces ---

    @audited(1)
    def create_namespace(self, name: NamespaceName, spec: NamespaceSpec, actor: Actor, done: Done) -> Namespace:
        """A namespace with its root rule."""
        tier = spec.tier or self._book.default_tier
        limits = self._book.of(tier)
        planned = self._catalog.planned
        if planned.find_namespace(name) is not None or planned.find_alias(name) is not None:
            raise AlreadyExists(name)
        check_limit("namespaces", len(planned.namespaces()), limits.namespaces)
        entity = new_namespace(name, spec, limits, tier=tier, now_ms=actor.now_ms)
        steps = [Create(entity), Create(root_rule(entity, now_ms=actor.now_ms))]
        self.carry_out(steps, actor, done)
        return entity

    @audited(1)
    def update_namespace(self, name: str, spec: NamespaceSpec, actor: Actor, done: Done) -> Namespace:
        """Replace a namespace's settings; throughput follows at once."""
        current = self._catalog.planned.namespace(name)
        entity = apply_namespace_spec(current, spec, self._book.of(current.tier), now_ms=actor.now_ms)
        self.carry_out([Replace(entity)], actor, done)
        return entity

    @audited(1)
    def update_network(self, name: str, rules: NetworkRuleSet, actor: Actor, done: Done) -> Namespace:
        """Replace a namespace's network rules."""
        current = self._catalog.planned.namespace(name)
        entity = with_network_rules(current, rules, self._book.of(current.tier), now_ms=actor.now_ms)
        self.carry_out([Replace(entity)], actor, done)
        return entity

    def scale(self, name: str, capacity: int, actor: Actor, done: Done) -> Namespace:
        """Change a namespace's throughput units and nothing else."""
        current = self._catalog.planned.namespace(name)
        return self.update_namespace(name, replace(NamespaceSpec.of(current), capacity=capacity), actor, done)

    @audited(1)
    def delete_namespace(self, name: str, actor: Actor, done: Done) -> None:
        """A namespace with everything in it."""
        entity = self._catalog.planned.namespace(name)
        if self._catalog.planned.aliases(name):
            raise Conflict(f"The namespace '{name}' is paired; break the pairing and delete the alias first.")
        self.carry_out([Delete(entity, actor.now_ms)], actor, done)

    # --- hubs ---

    @audited(2)
    def create_hub(self, namespace: str, name: HubName, spec: HubSpec, actor: Actor, done: Done) -> Hub:
        """A hub with its `$Default` group."""
        parent = self._writable(namespace)
        view = self._catalog.planned
        if view.find_hub(namespace, name) is not None:
            raise AlreadyExists(_resource(parent, name))
        if spec.partition_count is None:
            spec = replace(spec, partition_count=self._default_partition_count)
        limits = self._book.of(parent.tier)
        hub, group = new_hub(parent, name, spec, limits, existing=view.hubs(namespace), now_ms=actor.now_ms)
        hub = self._capturing(hub, None, actor)
        self.carry_out([Create(hub), Create(group)], actor, done)
        return hub

    @audited(2)
    def update_hub(self, namespace: str, name: str, spec: HubSpec, actor: Actor, done: Done) -> Hub:
        """Replace a hub's settings, effective on open links."""
        parent = self._writable(namespace)
        existing = self._catalog.planned.hubs(namespace)
        limits = self._book.of(parent.tier)
        current = self._hub(parent, name)
        hub = apply_hub_spec(parent, current, spec, limits, existing=existing, now_ms=actor.now_ms)
        hub = self._capturing(hub, current, actor)
        self.carry_out([Replace(hub)], actor, done)
        return hub

    @audited(2)
    def delete_hub(self, namespace: str, name: str, actor: Actor, done: Done) -> None:
        """A hub, its groups, rules and events; open links are let go and its files freed."""
        parent = self._writable(namespace)
        hub = self._hub(parent, name)
        self.carry_out([Delete(hub, actor.now_ms)], actor, done)

    def _capturing(self, hub: Hub, before: Hub | None, actor: Actor) -> Hub:
        """The hub with the place of its captured files checked, and with the start of its capture if that is now."""
        # A target that has left the settings since must not stand in the way of other changes.
        is_new = before is None or before.capture != hub.capture
        if is_new and hub.capture is not None and hub.capture.enabled:
            self._capture_targets.place_of(hub.capture.destination)
        return with_capture_start(hub, before, lambda: self._live_state.ends(hub), now_ms=actor.now_ms)

    # --- consumer groups ---

    @audited(3)
    def create_group(
        self, namespace: str, hub: str, name: GroupName, metadata: str, actor: Actor, done: Done
    ) -> ConsumerGroup:
        """A consumer group on a hub."""
        parent = self._writable(namespace)
        entity = self._hub(parent, hub)
        existing = self._catalog.planned.groups(entity)
        if self._catalog.planned.find_group(entity, name) is not None:
            raise AlreadyExists(_resource(parent, hub, name))
        limits = self._book.of(parent.tier)
        group = new_group(entity, name, limits, existing=existing, now_ms=actor.now_ms, user_metadata=metadata)
        self.carry_out([Create(group)], actor, done)
        return group

    @audited(3)
    def update_group(
        self, namespace: str, hub: str, name: str, metadata: str, actor: Actor, done: Done
    ) -> ConsumerGroup:
        """Replace a group's metadata."""
        parent = self._writable(namespace)
        current = self._catalog.planned.group(self._hub(parent, hub), name)
        group = with_user_metadata(current, user_metadata=metadata, now_ms=actor.now_ms)
        self.carry_out([Replace(group)], actor, done)
        return group

    @audited(3)
    def delete_group(self, namespace: str, hub: str, name: str, actor: Actor, done: Done) -> None:
        """A consumer group with its checkpoints; its readers are let go."""
        parent = self._writable(namespace)
        group = self._catalog.planned.group(self._hub(parent, hub), name)
        check_group_deletable(group)
        self.carry_out([Delete(group, actor.now_ms)], actor, done)

    # --- authorization rules ---

    @audited(3)
    def write_rule(
        self,
        namespace: str,
        hub: str | None,
        name: RuleName,
        rights: Rights,
        actor: Actor,
        done: Done,
        *,
        primary_key: str | None = None,
        secondary_key: str | None = None,
    ) -> AccessRule:
        """A rule on a namespace or a hub, or new rights and keys for one that is there."""
        scope = self._writable_scope(namespace, hub)
        current = self._catalog.planned.find_rule(scope, name)
        if current is None:
            rule = new_rule(
                scope,
                name,
                rights,
                self._book.of(self._catalog.planned.namespace(namespace).tier),
                existing=self._catalog.planned.rules(scope),
                now_ms=actor.now_ms,
                primary_key=primary_key,
                secondary_key=secondary_key,
            )
        else:
            rule = with_rights(current, rights, now_ms=actor.now_ms)
            for which, key in ((KeyKind.PRIMARY, primary_key), (KeyKind.SECONDARY, secondary_key)):
                if key is not None:
                    rule = with_new_key(rule, which, now_ms=actor.now_ms, key=key)
        step = Create(rule) if current is None else Replace(rule)
        self.carry_out([step], actor, done)
        return rule

    @audited(3)
    def regenerate_key(
        self,
        namespace: str,
        hub: str | None,
        name: str,
        which: KeyKind,
        key: str | None,
        actor: Actor,
        done: Done,
        *,
        revokes_open_links: bool = False,
    ) -> AccessRule:
        """A new primary or secondary key, random unless one is given.

        `revokes_open_links` ends what was opened with the old key at once; else it lives on for the grace time.
        """
        current = self._catalog.planned.rule(self._writable_scope(namespace, hub), name)
        rule = with_new_key(current, which, now_ms=actor.now_ms, key=key)

        def completed(refusal: Refusal | None) -> None:
            if refusal is None and revokes_open_links:
                self._live_state.end_rotated(rule)
            done(refusal)

        self.carry_out([Replace(rule)], actor, completed)
        return rule

    @audited(3)
    def delete_rule(self, namespace: str, hub: str | None, name: str, actor: Actor, done: Done) -> None:
        """A rule; what was opened with its keys is closed."""
        rule = self._catalog.planned.rule(self._writable_scope(namespace, hub), name)
        self.carry_out([Delete(rule, actor.now_ms)], actor, done)

    # --- publishers ---

    @audited(3)
    def revoke_publisher(
        self, namespace: str, hub: str, name: PublisherName, actor: Actor, done: Done
    ) -> RevokedPublisher:
        """Close a publisher's path, effective on open links at once."""
        parent = self._catalog.planned.namespace(namespace)
        entity = self._hub(parent, hub)
        resource = _resource(parent, hub, "revokedpublishers", name)
        if self._catalog.planned.find_revoked_publisher(entity, name) is not None:
            raise AlreadyExists(resource)
        revoked = RevokedPublisher(hub_uid=entity.uid, name=name, revoked_ms=actor.now_ms)
        self.carry_out([Create(revoked)], actor, done)
        return revoked

    @audited(3)
    def restore_publisher(self, namespace: str, hub: str, name: str, actor: Actor, done: Done) -> None:
        """Open a publisher's path again."""
        parent = self._catalog.planned.namespace(namespace)
        resource = _resource(parent, hub, "revokedpublishers", name)
        revoked = self._catalog.planned.find_revoked_publisher(self._hub(parent, hub), name)
        if revoked is None:
            raise NotFound(resource)
        self.carry_out([Delete(revoked, actor.now_ms)], actor, done)

    # --- application groups ---

    @audited(1)
    def write_application_group(self, group: ApplicationGroup, actor: Actor, done: Done) -> ApplicationGroup:
        """An application group, new or changed."""
        parent = self._catalog.planned.namespace(group.namespace)
        checked = check_application_group(group, self._book.of(parent.tier), tier=parent.tier)
        known = self._catalog.planned.find_application_group(parent.name, group.name)
        self._require_own_clients(parent, checked)
        step = Create(checked) if known is None else Replace(checked)
        self.carry_out([step], actor, done)
        return checked

    def _require_own_clients(self, parent: Namespace, group: ApplicationGroup) -> None:
        """A client is of one group: two groups cannot be known by the same credential."""
        for other in self._catalog.planned.application_groups(parent.name):
            if fold(other.client_id) == fold(group.client_id) and fold(other.name) != fold(group.name):
                raise Conflict(f"The application group '{other.name}' has the client identifier '{other.client_id}'.")

    @audited(1)
    def delete_application_group(self, group: ApplicationGroup, actor: Actor, done: Done) -> None:
        """An application group; its clients are limited no longer."""
        self._catalog.planned.namespace(group.namespace)
        self.carry_out([Delete(group, actor.now_ms)], actor, done)

    # --- geo-disaster recovery ---

    def _require_geo_recovery(self, namespace: Namespace) -> None:
        if not self._book.of(namespace.tier).has_geo_recovery:
            raise NotInTier("Geo-disaster recovery", namespace.tier)

    @audited(2)
    def pair(
        self, namespace: str, alias: AliasName, partner: str, alternate_name: str, actor: Actor, done: Done
    ) -> GeoAlias:
        """Give a namespace an alias, and pair it with an empty one of this node if a partner is named."""
        view = self._catalog.planned
        self._require_geo_recovery(view.namespace(namespace))
        entity, steps = pairing.pair(view, view.namespace(namespace), alias, partner, alternate_name)
        self.carry_out(steps, actor, done)
        return entity

    @audited(2)
    def pair_away(
        self,
        namespace: str,
        alias: AliasName,
        partner: str,
        alternate_name: str,
        pairing_id: str,
        actor: Actor,
        done: Done,
    ) -> GeoAlias:
        """Give a namespace an alias under which it replicates to one on another node, which has agreed."""
        view = self._catalog.planned
        self._require_geo_recovery(view.namespace(namespace))
        entity, steps = pairing.pair_away(view, view.namespace(namespace), alias, partner, alternate_name, pairing_id)
        self.carry_out(steps, actor, done)
        return entity

    @audited(2)
    def give_up_alias(self, namespace: str, alias: str, pairing_id: str, actor: Actor, done: Done) -> None:
        """Let an alias go that the partner on another node has taken."""
        steps = pairing.give_up(self._catalog.planned, namespace, alias, pairing_id)
        self.carry_out(steps, actor, done)

    @audited(2)
    def break_pairing(self, namespace: str, alias: str, actor: Actor, done: Done) -> None:
        """End the replication; the alias stays with the primary."""
        steps = pairing.break_pairing(self._catalog.planned, namespace, alias)
        self.carry_out(steps, actor, done)

    @audited(2)
    def fail_over(self, namespace: str, alias: str, actor: Actor, done: Done) -> None:
        """The alias moves to the secondary, on which this is asked, and the pairing ends."""
        steps = pairing.fail_over(self._catalog.planned, namespace, alias)
        self.carry_out(steps, actor, done)

    @audited(2)
    def delete_alias(self, namespace: str, alias: str, actor: Actor, done: Done) -> None:
        """An alias whose pairing is over."""
        steps = pairing.delete_alias(self._catalog.planned, namespace, alias)
        self.carry_out(steps, actor, done)

    # --- how ---

    def carry_out(self, steps: Sequence[Step], actor: Actor, done: Done) -> None:
        """Write checked steps, let the secondary of this node and the live objects follow, and tell who watches."""
        everything = [*steps, *pairing.mirrored(self._catalog.planned, steps)]

        def completed(refusal: Refusal | None) -> None:
            if refusal is None:
                for step in everything:
                    self._live_state.follow(step, actor.now)
                for changed in self._watchers:
                    changed()
            done(refusal)

        self._catalog.submit(*everything, callback=completed)

    def _writable(self, namespace: str) -> Namespace:
        parent = self._catalog.planned.namespace(namespace)
        pairing.require_writable(self._catalog.planned, parent)
        return parent

    def _writable_scope(self, namespace: str, hub: str | None) -> Namespace | Hub:
        parent = self._writable(namespace)
        return parent if hub is None else self._hub(parent, hub)

    def _hub(self, namespace: Namespace, name: str) -> Hub:
        hub = self._catalog.planned.find_hub(namespace.name, name)
        if hub is None:
            raise HubNotFound(_resource(namespace, name))
        return hub


def _resource(namespace: Namespace, *path: str) -> str:
    return "/".join((f"sb://{namespace.name}", *path))
