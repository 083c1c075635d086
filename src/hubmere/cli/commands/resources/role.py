"""`hubmere role assignment`: which identity of an OAuth issuer has which role, and where; named as in `az role`."""

import uuid
from dataclasses import replace

import typer

from hubmere.cli.arm.client import GROUPS, HUBS, NAMESPACES, Arm, Json, Resource
from hubmere.cli.arm.steps import IN_NAMESPACE
from hubmere.cli.arm.verbs import Field, Verb, a_group, add
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.model.errors import InvalidArgument
from hubmere.model.security.roles import ROLES, PrincipalType, Role, find_role

_BELOW: Resource = ("providers", "Microsoft.Authorization", "roleAssignments")
_KINDS = {kind.lower(): kind for kind in (NAMESPACES, HUBS, GROUPS)}
_ROLES = ", ".join(role.name for role in ROLES.values())

_HUB = Field(
    flags=("--eventhub-name",), path=("hub",), metavar="NAME", help="Event hub, instead of the whole namespace."
)
_GROUP = Field(
    flags=("--consumer-group-name",), path=("group",), metavar="NAME", help="Consumer group of the event hub."
)
_SCOPE = Field(
    flags=("--scope",), path=("scope",), metavar="ID", help="Resource id of the scope, instead of the names above."
)
_ROLE = Field(flags=("--role",), path=("role",), metavar="NAME", help=f"Name or id of the role: {_ROLES}.")
_ASSIGNEE = Field(
    flags=("--assignee", "--assignee-object-id"),
    path=("assignee",),
    metavar="ID",
    help="Object id of the user, group or application, as its issuer puts it into tokens.",
)
_TYPE = Field(
    flags=("--assignee-principal-type",),
    path=("type",),
    type=PrincipalType,
    metavar="User|Group|ServicePrincipal",
    help="What the id means, for information. Default: ServicePrincipal.",
)
_NAME = Field(flags=("--name", "-n"), path=("name",), metavar="GUID", help="Id of the assignment. Default: a new one.")
_DESCRIPTION = Field(flags=("--description",), path=("description",), metavar="TEXT", help="A text of your own.")
_COLUMNS = (
    ("Principal", "properties.principalId"),
    ("Type", "properties.principalType"),
    ("Role", "properties.roleDefinitionName"),
    ("Scope", "properties.scope"),
)
_PLACE = (_HUB, _GROUP, _SCOPE)


def _scope(at: Resource, body: Json) -> Resource:
    """The scope that the options name: a resource id, or names from the namespace down."""
    if "scope" in body:
        return _parse_scope(str(body["scope"]))
    if "group" in body and "hub" not in body:
        raise CommandFailed(Exit.USAGE, "--consumer-group-name needs --eventhub-name")
    hub = (HUBS, str(body["hub"])) if "hub" in body else ()
    group = (GROUPS, str(body["group"])) if "group" in body else ()
    return (*at, *hub, *group)


def _parse_scope(text: str) -> Resource:
    segments = [segment for segment in text.split("/") if segment]
    start = next((index for index, segment in enumerate(segments) if segment.lower() == NAMESPACES), None)
    parts = [] if start is None else segments[start:]
    kinds = [_KINDS.get(kind.lower()) for kind in parts[::2]]
    if len(parts) not in (2, 4, 6) or kinds != [NAMESPACES, HUBS, GROUPS][: len(kinds)]:
        raise CommandFailed(Exit.USAGE, "a scope is the resource id of a namespace, an event hub or a consumer group")
    return tuple(part if index % 2 else kinds[index // 2] or "" for index, part in enumerate(parts))


def _role(body: Json) -> Role:
    try:
        return find_role(str(body["role"]))
    except InvalidArgument:
        raise CommandFailed(Exit.USAGE, f"there is no role '{body['role']}'; there are {_ROLES}") from None


def create(arm: Arm, at: Resource, body: Json) -> Json:
    """Assign a role; repeating an assignment is no error."""
    scope = _scope(at, body)
    properties = {
        "roleDefinitionId": _role(body).id,
        "principalId": body["assignee"],
        "principalType": body.get("type", PrincipalType.SERVICE_PRINCIPAL),
        "description": body.get("description", ""),
    }
    for one in arm.list((*scope, *_BELOW)):
        if _is_same(one, scope, properties):
            return _with_role_name(one)
    name = str(body.get("name") or uuid.uuid4())
    return _with_role_name(arm.put((*scope, *_BELOW, name), {"properties": properties}))


def _is_same(one: Json, scope: Resource, properties: Json) -> bool:
    own = one["properties"]
    return (
        str(own["roleDefinitionId"]).rpartition("/")[2] == properties["roleDefinitionId"]
        and str(own["principalId"]).lower() == str(properties["principalId"]).lower()
        and [part.lower() for part in _parse_scope(own["scope"])] == [part.lower() for part in scope]
    )


def list_(arm: Arm, at: Resource, body: Json) -> list[Json]:
    """The assignments that apply to a scope."""
    return [_with_role_name(one) for one in _matching(arm, _scope(at, body), body)]


def delete(arm: Arm, at: Resource, body: Json) -> None:
    """Delete role assignments: one by its id, or those of an identity."""
    if not {"name", "assignee"} & set(body):
        raise CommandFailed(Exit.USAGE, "which assignment? Give --name, or --assignee with or without --role")
    scope = _scope(at, body)
    found = [
        one for one in _matching(arm, scope, body) if "name" not in body or one["name"] == str(body["name"]).lower()
    ]
    if not found:
        typer.echo("hubmere: there is no such role assignment", err=True)
    for one in found:
        arm.delete((*_parse_scope(one["properties"]["scope"]), *_BELOW, one["name"]))


def _matching(arm: Arm, scope: Resource, body: Json) -> list[Json]:
    role = _role(body).id if "role" in body else None
    assignee = str(body["assignee"]).lower() if "assignee" in body else None
    return [
        one
        for one in arm.list((*scope, *_BELOW))
        if (role is None or str(one["properties"]["roleDefinitionId"]).endswith(role))
        and (assignee is None or str(one["properties"]["principalId"]).lower() == assignee)
    ]


def _with_role_name(one: Json) -> Json:
    """An assignment with the name of its role, as `az` shows it."""
    properties = one["properties"]
    role = ROLES[str(properties["roleDefinitionId"]).rpartition("/")[2]].name
    return one | {"properties": properties | {"roleDefinitionName": role}}


def roles_group() -> typer.Typer:
    """The group `role`, with `assignment` below it."""
    app = a_group("Roles of users, groups and applications that sign in with OAuth tokens.")
    assignments = a_group("Role assignments: who has which role, and where.")
    at = (IN_NAMESPACE,)
    given = (replace(_ASSIGNEE, is_required=True), replace(_ROLE, is_required=True))
    create_fields = (*_PLACE, *given, _TYPE, _NAME, _DESCRIPTION)
    verbs = [
        Verb(name="create", help="Assign a role.", run=create, at=at, fields=create_fields, columns=_COLUMNS),
        Verb(
            name="list",
            help="List assignments.",
            run=list_,
            at=at,
            fields=(*_PLACE, _ASSIGNEE, _ROLE),
            columns=_COLUMNS,
        ),
        Verb(
            name="delete",
            help="Delete a role assignment; connections that depend on it are closed.",
            run=delete,
            at=at,
            fields=(*_PLACE, _ASSIGNEE, _ROLE, _NAME),
        ),
    ]
    add(assignments, verbs)
    app.add_typer(assignments, name="assignment")
    return app


app = roles_group()
