"""Who may do what: the checks and catalog steps for access rules, role assignments and application groups.

Pure decisions on a catalog view, which includes changes that are not durable yet; the manager submits the steps.
"""

from collections.abc import Sequence
from dataclasses import replace

from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    Hub,
    KeyKind,
    Namespace,
    Rights,
    RoleAssignment,
)
from hubmere.model.errors import Conflict
from hubmere.model.names import RuleName, fold
from hubmere.model.security.roles import check_assignment
from hubmere.model.spec import check_application_group, check_limit, new_rule, with_new_key, with_rights
from hubmere.model.tier import Limits
from hubmere.store.catalog.view import CatalogView, Create, Replace, Step

# What Azure allows in a subscription.
MAX_ROLE_ASSIGNMENTS = 4000


def write_rule(
    view: CatalogView,
    scope: Namespace | Hub,
    name: RuleName,
    rights: Rights,
    limits: Limits,
    *,
    keys: dict[KeyKind, str | None],
    now_ms: int,
) -> tuple[AccessRule, Step]:
    """Create a rule, or change the rights of an existing one, and those of its keys that are given."""
    current = view.find_rule(scope, name)
    if current is None:
        rule = new_rule(
            scope,
            name,
            rights,
            limits,
            existing=view.rules(scope),
            now_ms=now_ms,
            primary_key=keys[KeyKind.PRIMARY],
            secondary_key=keys[KeyKind.SECONDARY],
        )
        return rule, Create(rule)
    rule = with_rights(current, rights, now_ms=now_ms)
    for which, key in keys.items():
        if key is not None:
            rule = with_new_key(rule, which, now_ms=now_ms, key=key)
    return rule, Replace(rule)


def assign_role(
    wanted: RoleAssignment, others: Sequence[RoleAssignment], hub: Hub | None, *, created_by: str, now_ms: int
) -> tuple[RoleAssignment, Step]:
    """Give an identity a role on a namespace or a hub. `others` are the assignments of the namespace.

    An assignment that exists already stays as it is. An id that another assignment has is refused.
    """
    complete = replace(wanted, hub_uid=None if hub is None else hub.uid, created_ms=now_ms, created_by=created_by)
    entity = check_assignment(complete)
    for other in others:
        is_same = other.is_same_grant(entity)
        if is_same != (other.name == entity.name):
            raise Conflict(f"The role assignment '{other.name}' exists, and assignments cannot be changed.")
        if is_same:
            return other, Replace(other)
    check_limit("role assignments", len(others), MAX_ROLE_ASSIGNMENTS)
    return entity, Create(entity)


def assignment_names(assignment: RoleAssignment) -> tuple[str | None, ...]:
    """The names of an assignment in the audit log: scope, role and identity."""
    where = (assignment.namespace, assignment.hub, assignment.group)
    return (*where, assignment.role.name, assignment.principal_id)


def write_application_group(
    view: CatalogView, parent: Namespace, group: ApplicationGroup, limits: Limits
) -> tuple[ApplicationGroup, Step]:
    """Create or replace an application group. A client belongs to one group: another one must not have its id."""
    checked = check_application_group(group, limits, tier=parent.tier)
    for other in view.application_groups(parent.name):
        if fold(other.client_id) == fold(group.client_id) and fold(other.name) != fold(group.name):
            raise Conflict(f"The application group '{other.name}' has the client identifier '{other.client_id}'.")
    is_new = view.find_application_group(parent.name, group.name) is None
    return checked, Create(checked) if is_new else Replace(checked)
