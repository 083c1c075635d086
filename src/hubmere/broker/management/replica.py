"""The secondary's side of a pairing between two nodes: turns copies from the primary into catalog steps.

The primary sends complete copies (`outbox`). Each is compared with the entities of this node and only the difference is
applied, so a copy that arrives twice changes nothing. What the secondary's tier does not allow is refused, and the
primary shows the reason. Every call names the id of the pairing: after a failover the old primary learns that it has
lost the alias.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hubmere.broker.management import pairing
from hubmere.broker.management.auditing import Actor, OnDone, Submit
from hubmere.model.entity import AccessRule, ConsumerGroup, GeoAlias, GeoRole, Hub, Namespace, Rights
from hubmere.model.errors import AliasNotFound, AlreadyExists, FailedOver
from hubmere.model.names import DEFAULT_GROUP, AliasName, GroupName, HubName, RuleName, fold
from hubmere.model.spec import HubSpec, apply_hub_spec, new_group, new_hub, new_rule, with_user_metadata
from hubmere.model.tier import Limits, LimitsBook
from hubmere.store.catalog.view import CatalogView, Create, Delete, Replace, Step
from hubmere.store.engine import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReplica:
    """A rule as the primary has it, keys included."""

    name: RuleName
    rights: Rights
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReplica:
    """A consumer group as the primary has it."""

    name: GroupName
    user_metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReplica:
    """A hub as the primary has it."""

    name: HubName
    spec: HubSpec
    groups: tuple[GroupReplica, ...] = ()
    rules: tuple[RuleReplica, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingClaim:
    """Identifies the pairing that a primary means."""

    namespace: str
    alias: str
    pairing: str


class Replicas:
    """Namespaces of this node whose primaries are on others.

    Thread rule: the owner's thread only.
    """

    def __init__(self, catalog: Catalog, book: LimitsBook, submit: Submit) -> None:
        self._catalog = catalog
        self._book = book
        self._submit_steps = submit

    def begin(
        self, namespace: str, name: AliasName, primary: str, pairing_id: str, actor: Actor, on_done: OnDone
    ) -> GeoAlias:
        """Make an empty namespace the secondary of one on another node; idempotent."""
        view = self._catalog.planned_view
        secondary = view.namespace(namespace)
        alias = GeoAlias(
            namespace=secondary.name,
            name=name,
            partner_namespace=primary,
            role=GeoRole.SECONDARY,
            pairing=pairing_id,
        )
        if alias in view.aliases(namespace):
            self._submit([], actor, on_done)
            return alias
        if view.find_namespace(name) is not None or view.find_alias(name) is not None:
            raise AlreadyExists(name)
        pairing.require_free(view, secondary)
        self._submit([Create(alias)], actor, on_done)
        return alias

    def apply_namespace(
        self, claim: PairingClaim, rules: Sequence[RuleReplica], hubs: Sequence[str], actor: Actor, on_done: OnDone
    ) -> None:
        """Replace the namespace's rules by the primary's, and delete hubs that the primary does not have."""
        view, _, namespace = self._check_claim(claim)
        wanted = {fold(hub) for hub in hubs}
        gone = [hub for hub in view.hubs(namespace.name) if fold(hub.name) not in wanted]
        steps: list[Step] = [Delete(hub, actor.now_ms) for hub in gone]
        steps += _rule_steps(namespace, view.rules(namespace), rules, self._book.of(namespace.tier), actor.now_ms)
        self._submit(steps, actor, on_done)

    def apply_hub(self, claim: PairingClaim, replica: HubReplica, actor: Actor, on_done: OnDone) -> None:
        """Make one hub, its groups and its rules the same as on the primary."""
        view, _, namespace = self._check_claim(claim)
        steps = list(_hub_steps(view, namespace, replica, self._book.of(namespace.tier), actor.now_ms))
        self._submit(steps, actor, on_done)

    def end(self, claim: PairingClaim, actor: Actor, on_done: OnDone) -> None:
        """End the pairing, as the primary asks; the namespace keeps its entities and becomes writable."""
        _, alias, _ = self._check_claim(claim)
        self._submit([Delete(alias)], actor, on_done)

    def _check_claim(self, claim: PairingClaim) -> tuple[CatalogView, GeoAlias, Namespace]:
        view = self._catalog.planned_view
        alias = view.alias(claim.namespace, claim.alias)
        if alias.pairing != claim.pairing:
            raise AliasNotFound(claim.alias)
        if alias.role is not GeoRole.SECONDARY:
            raise FailedOver(alias.name)
        return view, alias, view.namespace(claim.namespace)

    def _submit(self, steps: Sequence[Step], actor: Actor, on_done: OnDone) -> None:
        if steps:
            self._submit_steps(steps, actor, on_done)
        else:
            on_done(None)


# --- differences -----------------------------------------------------------------------------------------------------


def _hub_steps(
    view: CatalogView, namespace: Namespace, replica: HubReplica, limits: Limits, now_ms: int
) -> Iterator[Step]:
    known = view.find_hub(namespace.name, replica.name)
    others = [hub for hub in view.hubs(namespace.name) if hub != known]
    if known is not None and _must_be_recreated(known, replica.spec, limits):
        yield Delete(known, now_ms)
        known = None
    if known is None:
        hub, default = new_hub(namespace, replica.name, replica.spec, limits, existing=others, now_ms=now_ms)
        yield from (Create(hub), Create(default))
        yield from _group_steps(hub, [default], replica.groups, limits, now_ms)
        yield from _rule_steps(hub, [], replica.rules, limits, now_ms)
        return
    hub = apply_hub_spec(namespace, known, replica.spec, limits, existing=[*others, known], now_ms=now_ms)
    if replace(hub, updated_ms=known.updated_ms) != known:
        yield Replace(hub)
    yield from _group_steps(hub, view.groups(hub), replica.groups, limits, now_ms)
    yield from _rule_steps(hub, view.rules(hub), replica.rules, limits, now_ms)


def _must_be_recreated(hub: Hub, spec: HubSpec, limits: Limits) -> bool:
    """Whether the primary's hub was re-created with properties to which this one cannot be changed."""
    count = hub.partition_count if spec.partition_count is None else spec.partition_count
    is_fixed = count < hub.partition_count or (count > hub.partition_count and not limits.partitions_may_grow)
    return is_fixed or spec.cleanup_policy not in (None, hub.retention.policy)


def _group_steps(
    hub: Hub, present: Sequence[ConsumerGroup], replicas: Sequence[GroupReplica], limits: Limits, now_ms: int
) -> Iterator[Step]:
    known = {fold(group.name): group for group in present}
    # Part of every hub, whatever the primary sends.
    wanted = {fold(DEFAULT_GROUP), *(fold(replica.name) for replica in replicas)}
    kept = [group for group in present if fold(group.name) in wanted]
    yield from (Delete(group, now_ms) for group in present if group not in kept)
    for replica in replicas:
        group = known.get(fold(replica.name))
        if group is None:
            group = new_group(
                hub, replica.name, limits, existing=kept, now_ms=now_ms, user_metadata=replica.user_metadata
            )
            kept.append(group)
            yield Create(group)
        elif group.user_metadata != replica.user_metadata:
            yield Replace(with_user_metadata(group, user_metadata=replica.user_metadata, now_ms=now_ms))


def _rule_steps(
    scope: Namespace | Hub, present: Sequence[AccessRule], replicas: Sequence[RuleReplica], limits: Limits, now_ms: int
) -> Iterator[Step]:
    known = {fold(rule.name): rule for rule in present}
    wanted = {fold(replica.name) for replica in replicas}
    kept = [rule for rule in present if fold(rule.name) in wanted]
    yield from (Delete(rule, now_ms) for rule in present if rule not in kept)
    for replica in replicas:
        rule = known.get(fold(replica.name))
        others = [one for one in kept if one is not rule]
        fresh = new_rule(
            scope,
            replica.name,
            replica.rights,
            limits,
            existing=others,
            now_ms=now_ms,
            primary_key=replica.primary_key,
            secondary_key=replica.secondary_key,
        )
        if rule is None:
            kept.append(fresh)
            yield Create(fresh)
        elif replace(fresh, name=rule.name, created_ms=rule.created_ms, updated_ms=rule.updated_ms) != rule:
            yield Replace(replace(fresh, created_ms=rule.created_ms))
