"""ARM management of role assignments and role definitions (`Microsoft.Authorization`, API version 2022-04-01).

A scope is a namespace, a hub or a consumer group. A list has the assignments at the scope, above it and below it; with
the filter `atScope()` those below are left out. Who may assign roles is decided by `Broker.sign_in_manager`.
"""

import re
from collections.abc import Mapping

from starlette.responses import Response

from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.paths import HUB, NAMESPACE
from hubmere.endpoints.http.arm.request import ArmRequest, delete_response, json_response, page_response
from hubmere.endpoints.http.arm.serializer import DEFAULT_SUBSCRIPTION, Json, iso_time
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Handler, Request, Routes
from hubmere.model.entity import Namespace, RoleAssignment
from hubmere.model.errors import InvalidArgument, NotFound
from hubmere.model.names import fold
from hubmere.model.security.roles import ROLES, Control, Role, assignment_id, find_role

_AUTHORIZATION = "Microsoft.Authorization"
_SCOPES = (NAMESPACE, HUB, HUB + "/consumergroups/{group}")
_PROVIDER = f"providers/{_AUTHORIZATION}"
_FILTER = re.compile(
    r"\s*(?:(?P<at>atScope\(\s*\))|principalId\s+eq\s+'(?P<principal>[^']{1,256})'|assignedTo\('(?P<to>[^']{1,256})'\))"
    r"(?:\s+and\s+(?P<more>atScope\(\s*\)))?\s*",
    re.IGNORECASE,
)


class RoleHandlers:
    """The handlers of role assignments and role definitions."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        found: dict[str, Mapping[str, Handler]] = {}
        for scope in _SCOPES:
            found |= {
                f"{scope}/{_PROVIDER}/roleAssignments": {"GET": self.list_role_assignments},
                f"{scope}/{_PROVIDER}/roleAssignments/{{assignment}}": {
                    "PUT": self.put_role_assignment,
                    "GET": self.get_role_assignment,
                    "DELETE": self.delete_role_assignment,
                },
                f"{scope}/{_PROVIDER}/roleDefinitions": {"GET": self.list_role_definitions},
                f"{scope}/{_PROVIDER}/roleDefinitions/{{role}}": {"GET": self.get_role_definition},
            }
        return found

    async def list_role_assignments(self, request: Request) -> Response:
        """The role assignments that apply to a scope."""
        scope = _Scope(request, Control.READ)
        wanted = [one for one in scope.assignments() if scope.is_listed(one)]
        return page_response(request, wanted, scope.to_json)

    async def put_role_assignment(self, request: Request) -> Response:
        """Assign a role at a scope."""
        scope = _Scope(request, Control.ASSIGN_ROLES)
        body = models.parse_body(models.RoleAssignmentBody, await request.body())
        wanted = scope.new_assignment(assignment_id(request.names["assignment"]), body)
        arm = scope.arm
        made = await await_change(lambda on_done: arm.manager.assign_role(wanted, arm.actor, on_done))
        return json_response(scope.to_json(made), 201)

    async def get_role_assignment(self, request: Request) -> Response:
        """One role assignment."""
        scope = _Scope(request, Control.READ)
        found = scope.find(request.names["assignment"])
        if found is None:
            raise NotFound(f"sb://{scope.arm.namespace.name}/roleAssignments/{request.names['assignment'][:64]}")
        return json_response(scope.to_json(found))

    async def delete_role_assignment(self, request: Request) -> Response:
        """Delete a role assignment."""
        scope = _Scope(request, Control.ASSIGN_ROLES)
        arm = scope.arm
        return await delete_response(
            scope.find(request.names["assignment"]),
            lambda found, on_done: arm.manager.delete_role_assignment(found, arm.actor, on_done),
        )

    async def list_role_definitions(self, request: Request) -> Response:
        """The roles that can be assigned."""
        scope = _Scope(request, Control.READ)
        name = re.fullmatch(r"\s*roleName\s+eq\s+'([^']*)'\s*", request.query.get("$filter", ""), re.IGNORECASE)
        wanted = [role for role in ROLES.values() if name is None or fold(role.name) == fold(name[1])]
        return page_response(request, wanted, scope.role_json)

    async def get_role_definition(self, request: Request) -> Response:
        """One role that can be assigned."""
        scope = _Scope(request, Control.READ)
        role = ROLES.get(fold(request.names["role"]))
        if role is None:
            raise NotFound(f"sb://{scope.arm.namespace.name}/roleDefinitions/{request.names['role'][:64]}")
        return json_response(scope.role_json(role))


class _Scope:
    """The scope that the path of a request names, for a caller with enough control of it."""

    def __init__(self, request: Request, control: Control) -> None:
        self.arm = arm = ArmRequest(request, control)
        self._hub = arm.hub if "hub" in request.names else None
        group = request.names.get("group")
        self._group = None if group is None or self._hub is None else arm.entities.group(self._hub, group)
        self._filter = request.query.get("$filter", "")

    @property
    def _names(self) -> tuple[str, str]:
        return fold(self._hub.name if self._hub else ""), fold(self._group.name if self._group else "")

    def new_assignment(self, name: str, body: "models.RoleAssignmentBody") -> RoleAssignment:
        """The assignment at this scope that a request asks for."""
        properties = body.properties
        if properties.condition:
            raise InvalidArgument("condition", properties.condition, "no condition: they are not supported")
        return RoleAssignment(
            namespace=self.arm.namespace.name,
            hub=None if self._hub is None else self._hub.name,
            group=None if self._group is None else self._group.name,
            name=name,
            role_id=find_role(properties.role_definition_id).id,
            principal_id=properties.principal_id,
            principal_type=properties.kind,
            description=properties.description or "",
        )

    def assignments(self) -> list[RoleAssignment]:
        """The assignments at the scope, above it and below it."""
        own = self._names
        found = []
        for one in self.arm.entities.role_assignments(self.arm.namespace.name):
            pairs = [(mine, theirs) for mine, theirs in zip(own, one.scope, strict=True) if mine and theirs]
            if all(mine == theirs for mine, theirs in pairs):
                found.append(one)
        return found

    def is_listed(self, assignment: RoleAssignment) -> bool:
        """Whether the filter of the request keeps an assignment."""
        if not self._filter:
            return True
        match = _FILTER.fullmatch(self._filter)
        if match is None:
            raise InvalidArgument("$filter", self._filter, "atScope(), principalId eq 'ID' or assignedTo('ID')")
        if (match["at"] or match["more"]) and any(
            theirs and not mine for mine, theirs in zip(self._names, assignment.scope, strict=True)
        ):
            return False
        principal = match["principal"] or match["to"]
        return principal is None or fold(principal) == fold(assignment.principal_id)

    def find(self, name: str) -> RoleAssignment | None:
        """The assignment of that id at exactly this scope."""
        found = self.arm.entities.find_role_assignment(self.arm.namespace.name, name)
        return found if found is not None and found.scope == self._names else None

    def to_json(self, assignment: RoleAssignment) -> Json:
        """A role assignment."""
        scope = self._scope_id(self.arm.namespace, assignment)
        properties: Json = {
            "roleDefinitionId": self._role_id(assignment.role),
            "principalId": assignment.principal_id,
            "principalType": assignment.principal_type.value,
            "scope": scope,
            "condition": None,
            "conditionVersion": None,
            "createdOn": iso_time(assignment.created_ms),
            "updatedOn": iso_time(assignment.created_ms),
            "createdBy": assignment.created_by,
            "updatedBy": assignment.created_by,
            "delegatedManagedIdentityResourceId": None,
            "description": assignment.description or None,
        }
        return {
            "id": f"{scope}/{_PROVIDER}/roleAssignments/{assignment.name}",
            "name": assignment.name,
            "type": f"{_AUTHORIZATION}/roleAssignments",
            "properties": properties,
        }

    def role_json(self, role: Role) -> Json:
        """A role definition."""
        permissions: Json = {
            "actions": list(role.actions),
            "notActions": list(role.not_actions),
            "dataActions": list(role.data_actions),
            "notDataActions": [],
        }
        properties: Json = {
            "roleName": role.name,
            "type": "BuiltInRole",
            "description": role.description,
            "assignableScopes": ["/"],
            "permissions": [permissions],
        }
        return {
            "id": self._role_id(role),
            "name": role.id,
            "type": f"{_AUTHORIZATION}/roleDefinitions",
            "properties": properties,
        }

    def _role_id(self, role: Role) -> str:
        subscription = self.arm.serializer.subscription or DEFAULT_SUBSCRIPTION
        return f"/subscriptions/{subscription}/{_PROVIDER}/roleDefinitions/{role.id}"

    def _scope_id(self, namespace: Namespace, assignment: RoleAssignment) -> str:
        below = ""
        if assignment.hub is not None:
            below += f"/eventhubs/{assignment.hub}"
        if assignment.group is not None:
            below += f"/consumergroups/{assignment.group}"
        return self.arm.serializer.namespace_id(namespace) + below
