"""Roles and their assignments: what an identity of an OAuth issuer may do, and where (Azure RBAC).

The roles are built in and have the names and ids of Azure. `rights` are the data plane's, the same that authorization
rules give; `control` is the management plane's. Values only: `store.catalog` keeps assignments, and `broker.identity`
applies them.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from hubmere.model.errors import InvalidArgument
from hubmere.model.names import GroupName, HubName, NamespaceName, fold
from hubmere.model.security.rights import Rights

# Ids of users, groups and applications are GUIDs in Entra ID, and other short texts in other issuers.
_MAX_PRINCIPAL_CHARACTERS = 256
_MAX_DESCRIPTION_CHARACTERS = 1024
_PRINCIPAL = re.compile(r"[!-~]+")


class Control(IntEnum):
    """How far an identity may use the management plane; a higher value includes the lower ones."""

    NONE = 0
    READ = 1
    WRITE = 2
    ASSIGN_ROLES = 3


class PrincipalType(StrEnum):
    """What the id of an assignment means; for information, since ids are unique over all types."""

    USER = "User"
    GROUP = "Group"
    SERVICE_PRINCIPAL = "ServicePrincipal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A built-in role; the lists of actions are those of Azure."""

    id: str
    name: str
    description: str
    rights: Rights
    control: Control
    actions: tuple[str, ...] = ()
    not_actions: tuple[str, ...] = ()
    data_actions: tuple[str, ...] = ()


DATA_OWNER = Role(
    id="f526a384-b230-433a-b45c-95f59c4a2dec",
    name="Azure Event Hubs Data Owner",
    description="Allows for full access to Azure Event Hubs resources.",
    rights=Rights.ALL,
    control=Control.WRITE,
    actions=("Microsoft.EventHub/*",),
    data_actions=("Microsoft.EventHub/*",),
)
DATA_RECEIVER = Role(
    id="a638d3c7-ab3a-418d-83e6-5f17a39d4fde",
    name="Azure Event Hubs Data Receiver",
    description="Allows receive access to Azure Event Hubs resources.",
    rights=Rights.LISTEN,
    control=Control.NONE,
    actions=("Microsoft.EventHub/*/eventhubs/consumergroups/read",),
    data_actions=("Microsoft.EventHub/*/receive/action",),
)
DATA_SENDER = Role(
    id="2b629674-e913-4c01-ae53-ef4638d8f975",
    name="Azure Event Hubs Data Sender",
    description="Allows send access to Azure Event Hubs resources.",
    rights=Rights.SEND,
    control=Control.NONE,
    actions=("Microsoft.EventHub/*/eventhubs/read",),
    data_actions=("Microsoft.EventHub/*/send/action",),
)
OWNER = Role(
    id="8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
    name="Owner",
    description="Grants full access to manage all resources, including the ability to assign roles.",
    rights=Rights.NONE,
    control=Control.ASSIGN_ROLES,
    actions=("*",),
)
CONTRIBUTOR = Role(
    id="b24988ac-6180-42a0-ab88-20f7382dd24c",
    name="Contributor",
    description="Grants full access to manage all resources, but does not allow you to assign roles.",
    rights=Rights.NONE,
    control=Control.WRITE,
    actions=("*",),
    not_actions=("Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write"),
)
READER = Role(
    id="acdd72a7-3385-48ef-bd42-f606fba81ae7",
    name="Reader",
    description="View all resources, but does not allow you to make any changes.",
    rights=Rights.NONE,
    control=Control.READ,
    actions=("*/read",),
)

ROLES: Mapping[str, Role] = MappingProxyType(
    {role.id: role for role in (DATA_OWNER, DATA_SENDER, DATA_RECEIVER, OWNER, CONTRIBUTOR, READER)}
)
_BY_NAME = {fold(role.name): role for role in ROLES.values()}


def find_role(text: str) -> Role:
    """A role by its id, by a resource id that ends in it, or by its name."""
    role = ROLES.get(fold(text.rstrip("/").rpartition("/")[2])) or _BY_NAME.get(fold(text.strip()))
    if role is None:
        raise InvalidArgument("role definition", text, ", ".join(role.name for role in ROLES.values()))
    return role


def assignment_id(text: str) -> str:
    """The name of a role assignment, which is a GUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise InvalidArgument("name of the role assignment", text, "a GUID") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAssignment:
    """A role that an identity has on a namespace, on a hub (`hub`) or on one of its consumer groups (`group`)."""

    namespace: NamespaceName
    hub: HubName | None = None
    hub_uid: str | None = None
    group: GroupName | None = None
    name: str
    role_id: str
    principal_id: str
    principal_type: PrincipalType = PrincipalType.SERVICE_PRINCIPAL
    description: str = ""
    created_ms: int = 0
    created_by: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Primary key."""
        return (fold(self.namespace), self.name)

    @property
    def parent(self) -> tuple[str, ...]:
        """Parent key: the namespace, whatever the scope."""
        return (fold(self.namespace),)

    @property
    def role(self) -> Role:
        """The role that is assigned."""
        return ROLES[self.role_id]

    @property
    def scope(self) -> tuple[str, str]:
        """Hub and consumer group, folded; empty for the levels above."""
        return fold(self.hub or ""), fold(self.group or "")

    def is_same_grant(self, other: "RoleAssignment") -> bool:
        """Whether both give the same role on the same scope to the same identity."""
        own, others = (self.scope, self.role_id), (other.scope, other.role_id)
        return own == others and fold(self.principal_id) == fold(other.principal_id)


def check_assignment(assignment: RoleAssignment) -> RoleAssignment:
    """Return the assignment if its texts are valid; raises otherwise."""
    principal = assignment.principal_id
    if len(principal) > _MAX_PRINCIPAL_CHARACTERS or not _PRINCIPAL.fullmatch(principal):
        allowed = (
            f"1 to {_MAX_PRINCIPAL_CHARACTERS} visible ASCII characters: the object id of a user, group or application"
        )
        raise InvalidArgument("principal id", principal, allowed)
    if len(assignment.description) > _MAX_DESCRIPTION_CHARACTERS:
        raise InvalidArgument("description", "(too long)", f"at most {_MAX_DESCRIPTION_CHARACTERS} characters")
    return assignment
