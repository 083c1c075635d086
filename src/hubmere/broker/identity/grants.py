"""Who the holder of a token is, and what the role assignments of a namespace grant to it."""

from collections.abc import Iterable
from dataclasses import dataclass

from hubmere.model.entity import RoleAssignment
from hubmere.model.names import fold
from hubmere.model.security.rights import Rights
from hubmere.model.security.roles import Control

_GROUPS_SEGMENT = "consumergroups"
# The node below a hub that answers questions about it (AMQP).
_MANAGEMENT_NODE = "$management"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The holder of a verified token, as its issuer describes it.

    `id` is the object id of the user or application. `ids` are all ids whose role assignments apply: that one, those of
    its groups, and the application id if the application itself signed in. `application` is the id of the
    application through which a user or the application itself signed in.
    """

    issuer: str
    id: str
    ids: frozenset[str]
    application: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on a namespace (`hub` is empty), on a hub, or on a consumer group of a hub; names are folded."""

    hub: str
    group: str
    rights: Rights
    control: Control

    def reaches(self, hub: str, path: str) -> bool:
        """Whether the grant applies to a path: that of its scope, or one below."""
        if not self.hub:
            return True
        if self.hub != hub:
            return False
        if not self.group:
            return True
        own = f"{self.hub}/{_GROUPS_SEGMENT}/{self.group}"
        # A reader of one consumer group asks its hub for the partitions before it reads.
        return path == own or path.startswith(own + "/") or path == f"{self.hub}/{_MANAGEMENT_NODE}"


def grants_of(identity: Identity, assignments: Iterable[RoleAssignment]) -> tuple[Grant, ...]:
    """What the assignments of a namespace grant to an identity, in a fixed order."""
    found = {
        Grant(*assignment.scope, assignment.role.rights, assignment.role.control)
        for assignment in assignments
        if fold(assignment.principal_id) in identity.ids
    }
    return tuple(sorted(found, key=lambda one: (one.hub, one.group, one.rights.value, one.control)))


def all_rights(grants: Iterable[Grant]) -> Rights:
    """The rights that the grants give anywhere."""
    rights = Rights.NONE
    for grant in grants:
        rights |= grant.rights
    return rights
