"""Role assignments page: which identity of an issuer has which role, and where; assign a role and take it away."""

import uuid

from fastapi import Request
from nicegui import ui

from hubmere.model.entity import RoleAssignment
from hubmere.model.errors import NotFound
from hubmere.model.names import group_name
from hubmere.model.security.roles import ROLES, Control, PrincipalType, find_role
from hubmere.portal import formatting, theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext

_DELETE = "Delete"
_NAMESPACE = "(namespace)"


@page("/roles", "Role assignments")
def roles(context: PageContext, _: Request) -> None:
    """The assignments on the namespace and on its hubs."""
    hub = None if context.covers_namespace else next(iter(context.hubs()), None)
    context.require_control(Control.READ, hub)

    async def on_action(_action: str, key: str) -> None:
        await _delete(context, key)

    with theme.card():
        theme.note("What identities of OAuth issuers may do. The id is that of a user, a group or an application.")
        with theme.row():
            search = ui.input(placeholder="Search assignments")
            search.props('dense outlined clearable debounce=200 aria-label="Search assignments"')
            ui.space()
            if _may_assign(context):
                ui.button("Assign role", on_click=theme.action_handler(lambda: _assign_dialog(context))).props(
                    "no-caps unelevated"
                )
        table = PagedTable[RoleAssignment](
            (
                Column("role", "Role", lambda one: one.role.name, lambda one: one.role.name),
                Column(
                    "principal", "Assigned to", lambda one: one.principal_id, lambda one: one.principal_id, wraps=True
                ),
                Column("type", "Type", lambda one: str(one.principal_type), lambda one: str(one.principal_type)),
                Column("scope", "Scope", _scope_text, _scope_text, wraps=True),
                Column("description", "Description", lambda one: one.description, wraps=True),
                Column(
                    "created",
                    "Assigned (UTC)",
                    lambda one: formatting.timestamp(one.created_ms),
                    lambda one: one.created_ms,
                ),
            ),
            key=lambda one: one.name,
            actions=lambda one: [_DELETE] if _controls(context, one) >= Control.ASSIGN_ROLES else [],
            on_act=on_action,
            sorted_by="role",
            empty_text="No role is assigned. Shared access policies, on the page Access, need no roles.",
        )

    def refresh() -> None:
        text = (search.value or "").strip().lower()
        table.show([one for one in _visible_assignments(context) if text in _search_text(one)])

    search.on_value_change(refresh)
    theme.refresh_regularly(refresh)


def _may_assign(context: PageContext) -> bool:
    return bool(_assignable_scopes(context))


def _assignable_scopes(context: PageContext) -> list[str]:
    """The namespace and the hubs on which the person may assign roles."""
    caller = context.caller
    if caller.controls() >= Control.ASSIGN_ROLES:
        return [_NAMESPACE, *(hub.name for hub in context.hubs())]
    return [hub.name for hub in context.hubs() if caller.controls(hub.name) >= Control.ASSIGN_ROLES]


def _controls(context: PageContext, assignment: RoleAssignment) -> Control:
    return context.caller.controls(assignment.hub)


def _visible_assignments(context: PageContext) -> list[RoleAssignment]:
    found = context.session.broker.entities.role_assignments(context.namespace_name)
    return [one for one in found if _controls(context, one) >= Control.READ]


def _scope_text(assignment: RoleAssignment) -> str:
    parts = (assignment.hub or _NAMESPACE, assignment.group)
    return " / ".join(part for part in parts if part)


def _search_text(assignment: RoleAssignment) -> str:
    texts = (assignment.role.name, assignment.principal_id, _scope_text(assignment), assignment.description)
    return " ".join(texts).lower()


async def _delete(context: PageContext, name: str) -> None:
    """Take a role away after a confirmation."""

    def find() -> RoleAssignment:
        found = context.session.broker.entities.find_role_assignment(context.namespace_name, name)
        if found is None:
            raise NotFound(f"sb://{context.namespace_name}/roleAssignments/{name}")
        if _controls(context, found) < Control.ASSIGN_ROLES:
            context.require_control(Control.ASSIGN_ROLES)
        return found

    one = find()
    question = (
        f"Take the role {one.role.name} on {_scope_text(one)} from {one.principal_id}? "
        "What was opened with this role alone is closed."
    )
    if await theme.confirm(question, _DELETE):
        current, manager = find(), context.session.broker.manager
        await context.session.submit(lambda actor, on_done: manager.delete_role_assignment(current, actor, on_done))
        ui.notify("The role assignment was deleted.", type="positive")


def _assign_dialog(context: PageContext) -> None:
    scopes = _assignable_scopes(context)
    if not scopes:
        context.require_control(Control.ASSIGN_ROLES)
    with theme.dialog("Assign role") as dialog:
        role = ui.select([each.name for each in ROLES.values()], value=next(iter(ROLES.values())).name, label="Role")
        principal = ui.input("Object id of the user, group or application").props("autofocus")
        kind = ui.select([str(each) for each in PrincipalType], value=str(PrincipalType.USER), label="Type")
        scope = theme.choice(scopes, scopes[0], "Scope")
        group = ui.input("Consumer group", placeholder="the whole event hub")
        group.bind_visibility_from(scope, "value", lambda chosen: chosen != _NAMESPACE)
        description = ui.input("Description")
        for field in (role, principal, kind, group, description):
            field.props("outlined dense")
        theme.note("Owner, Contributor and Reader manage; the Data roles send and receive events.")

        async def assign() -> None:
            hub = None if scope.value == _NAMESPACE else context.hub(str(scope.value))
            context.require_control(Control.ASSIGN_ROLES, hub)
            group_text = (group.value or "").strip()
            made = RoleAssignment(
                namespace=context.namespace.entity.name,
                hub=None if hub is None else hub.entity.name,
                group=group_name(group_text) if hub is not None and group_text else None,
                name=str(uuid.uuid4()),
                role_id=find_role(str(role.value)).id,
                principal_id=(principal.value or "").strip(),
                principal_type=PrincipalType(kind.value),
                description=(description.value or "").strip(),
            )
            manager = context.session.broker.manager
            await context.session.submit(lambda actor, on_done: manager.assign_role(made, actor, on_done))
            dialog.close()
            ui.notify(f"The role {role.value} was assigned.", type="positive")

        theme.dialog_buttons(dialog, "Assign", assign)
