"""Geo-disaster recovery of metadata: the catalog steps that create a pairing, replicate, break it and fail over.

Pure decisions on a catalog view; the manager submits the steps. Two namespaces are paired under an alias. The secondary
must be empty. It gets the primary's hubs, consumer groups and access rules (never events or offsets), follows all their
changes, and is read-only for managers until the pairing ends (reference: service 8). Rules are copied with their keys,
so a connection string with the alias works on either namespace. If both namespaces are on this node they change in one
transaction. Between two nodes each keeps its half under one pairing id, and `outbox` and `replica` decide what is sent.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hubmere.broker.management.entities import Entities
from hubmere.model.entity import AccessRule, ConsumerGroup, GeoAlias, GeoRole, Hub, Namespace
from hubmere.model.errors import AlreadyExists, Conflict
from hubmere.model.names import AliasName, fold
from hubmere.store.catalog.view import CatalogView, Create, Delete, Replace, Step


def is_secondary(view: CatalogView | Entities, namespace: str) -> bool:
    """Whether a namespace follows a primary, on this node or another."""
    return any(alias.role is GeoRole.SECONDARY for alias in view.aliases(namespace))


def require_writable(view: CatalogView, namespace: Namespace) -> None:
    """Refuse changes of a secondary: they come from its primary."""
    if is_secondary(view, namespace.name):
        raise Conflict(f"The namespace '{namespace.name}' is a secondary; change the primary instead.")


def pair(
    view: CatalogView, primary: Namespace, name: AliasName, partner: str, alternate_name: str
) -> tuple[GeoAlias, list[Step]]:
    """Create an alias of a namespace; it replicates to a partner on this node if one is named."""
    alias, steps = _alias(view, primary, name, partner, alternate_name)
    if partner:
        secondary = view.namespace(partner)
        if fold(secondary.name) == fold(primary.name):
            raise Conflict("A namespace cannot be paired with itself.")
        require_free(view, secondary)
        twin = replace(alias, namespace=secondary.name, partner_namespace=primary.name, role=GeoRole.SECONDARY)
        steps += [Create(twin), *_copies(view, primary, secondary)]
    return alias, steps


def pair_away(
    view: CatalogView, primary: Namespace, name: AliasName, partner: str, alternate_name: str, pairing: str
) -> tuple[GeoAlias, list[Step]]:
    """Create an alias of a namespace that replicates to a partner on another node, which has agreed to the pairing."""
    return _alias(view, primary, name, partner, alternate_name, pairing)


def _alias(
    view: CatalogView, primary: Namespace, name: AliasName, partner: str, alternate_name: str, pairing: str = ""
) -> tuple[GeoAlias, list[Step]]:
    known = view.find_alias(name)
    if view.find_namespace(name) is not None or (known is not None and fold(known.namespace) != fold(primary.name)):
        raise AlreadyExists(name)
    if known is not None and known.partner_namespace:
        raise Conflict(f"The alias '{name}' is replicating to '{known.partner_namespace}'; break the pairing first.")
    require_writable(view, primary)
    alias = GeoAlias(
        namespace=primary.name,
        name=name,
        partner_namespace=partner,
        alternate_name=alternate_name,
        role=GeoRole.PRIMARY if partner else GeoRole.PRIMARY_NOT_REPLICATING,
        pairing=pairing,
    )
    return alias, [Create(alias) if known is None else Replace(alias)]


def require_free(view: CatalogView, secondary: Namespace) -> None:
    """Refuse a secondary that has hubs or is already paired."""
    if view.hubs(secondary.name):
        raise Conflict(f"The secondary namespace '{secondary.name}' must be empty.")
    if view.aliases(secondary.name):
        raise Conflict(f"The namespace '{secondary.name}' is already part of a pairing.")


def _copies(view: CatalogView, primary: Namespace, secondary: Namespace) -> Iterator[Step]:
    for hub in view.hubs(primary.name):
        twin = _twin_of_hub(hub, secondary)
        yield Create(twin)
        for group in view.groups(hub):
            yield Create(replace(group, hub_uid=twin.uid))
        for rule in view.rules(hub):
            yield Create(replace(rule, namespace=secondary.name, hub_uid=twin.uid))
    for rule in view.rules(primary):
        twin_rule = replace(rule, namespace=secondary.name)
        yield Create(twin_rule) if view.find_rule(secondary, rule.name) is None else Replace(twin_rule)


def break_pairing(view: CatalogView, namespace: str, name: str) -> list[Step]:
    """End the replication; the primary keeps the alias."""
    alias = view.alias(namespace, name)
    if alias.role is GeoRole.SECONDARY:
        if alias.pairing:
            # The primary is on another node and may never come back: its secondary must be able to continue alone.
            return [Delete(alias)]
        raise Conflict("A pairing is broken on its primary namespace.")
    steps: list[Step] = [Replace(replace(_alone(alias), pairing=""))]
    if alias.partner_namespace and not alias.pairing:
        steps.append(Delete(view.alias(alias.partner_namespace, name)))
    return steps


def fail_over(view: CatalogView, namespace: str, name: str) -> list[Step]:
    """Move the alias to `namespace`, its secondary, and end the pairing."""
    alias = view.alias(namespace, name)
    if alias.role is not GeoRole.SECONDARY:
        raise Conflict("A failover is started on the secondary namespace.")
    if alias.pairing:
        # The id is kept: by it the old primary learns, when it asks, that it has lost the alias.
        return [Replace(_alone(alias))]
    return [Delete(view.alias(alias.partner_namespace, name)), Replace(_alone(alias))]


def give_up(view: CatalogView, namespace: str, name: str, pairing: str) -> list[Step]:
    """Delete the alias of an old primary whose partner has failed over; empty if that is already done."""
    alias = next((one for one in view.aliases(namespace) if fold(one.name) == fold(name)), None)
    return [Delete(alias)] if alias is not None and alias.pairing == pairing and alias.is_replicating_away else []


def delete_alias(view: CatalogView, namespace: str, name: str) -> list[Step]:
    """Delete an alias that has no pairing."""
    alias = view.alias(namespace, name)
    if alias.partner_namespace:
        raise Conflict("The alias is replicating; break the pairing first.")
    return [Delete(alias)]


def _alone(alias: GeoAlias) -> GeoAlias:
    return replace(alias, partner_namespace="", role=GeoRole.PRIMARY_NOT_REPLICATING)


def mirror_steps(view: CatalogView, steps: Sequence[Step]) -> list[Step]:
    """The steps that replicate a change of hubs, groups and rules to a secondary on this node; else empty."""
    twins: dict[str, str] = {}
    copies: list[Step] = []
    for step in steps:
        item = step.item
        if isinstance(item, Hub):
            copies += _mirror_hub(view, step, item, twins)
        elif isinstance(item, ConsumerGroup):
            copies += _mirror_group(view, step, item, twins)
        elif isinstance(item, AccessRule):
            copies += _mirror_rule(view, step, item)
    return copies


def _secondary_of(view: CatalogView, namespace: str) -> Namespace | None:
    for alias in view.aliases(namespace):
        if alias.role is GeoRole.PRIMARY and alias.partner_namespace and not alias.pairing:
            return view.find_namespace(alias.partner_namespace)
    return None


def _mirror_hub(view: CatalogView, step: Step, hub: Hub, twins: dict[str, str]) -> Iterator[Step]:
    secondary = _secondary_of(view, hub.namespace)
    if secondary is None:
        return
    if isinstance(step, Create):
        twin = _twin_of_hub(hub, secondary)
        twins[hub.uid] = twin.uid
        yield Create(twin)
        return
    current = view.find_hub(secondary.name, hub.name)
    if current is not None and isinstance(step, Replace):
        twin = replace(hub, namespace=secondary.name, uid=current.uid, topic_id=current.topic_id, capture_start=None)
        yield Replace(replace(twin, created_ms=current.created_ms))
    elif current is not None and isinstance(step, Delete):
        yield Delete(current, step.now_ms)


def _mirror_group(view: CatalogView, step: Step, group: ConsumerGroup, twins: dict[str, str]) -> Iterator[Step]:
    uid = twins.get(group.hub_uid) or _twin_uid(view, group.hub_uid)
    if uid is None:
        return
    twin = replace(group, hub_uid=uid)
    if isinstance(step, Create):
        yield Create(twin)
    elif isinstance(step, Replace):
        yield Replace(twin)
    elif isinstance(step, Delete):
        yield Delete(twin, step.now_ms)


def _mirror_rule(view: CatalogView, step: Step, rule: AccessRule) -> Iterator[Step]:
    secondary = _secondary_of(view, rule.namespace)
    scope = secondary if secondary is None or rule.hub is None else view.find_hub(secondary.name, rule.hub)
    if secondary is None or scope is None:
        return
    twin = replace(rule, namespace=secondary.name, hub_uid=scope.uid if isinstance(scope, Hub) else None)
    known = view.find_rule(scope, rule.name)
    if isinstance(step, Delete):
        if known is not None:
            yield Delete(known, step.now_ms)
    else:
        yield Create(twin) if known is None else Replace(twin)


def _twin_uid(view: CatalogView, hub_uid: str) -> str | None:
    hub = view.hub_of_uid(hub_uid)
    secondary = None if hub is None else _secondary_of(view, hub.namespace)
    if hub is None or secondary is None:
        return None
    twin = view.find_hub(secondary.name, hub.name)
    return None if twin is None else twin.uid


def _twin_of_hub(hub: Hub, secondary: Namespace) -> Hub:
    # The start of the primary's capture refers to its own logs; those of the twin are empty.
    return replace(hub, namespace=secondary.name, uid=uuid.uuid4().hex, topic_id=str(uuid.uuid4()), capture_start=None)
