"""The test identities of the local issuer: applications and users, and the checks of their secrets.

Object ids and client ids are derived from the names unless the settings give them, so that they stay the same.
"""

import hmac
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from hubmere.model.names import fold

# The name space of ids that are derived from names.
_IDS = uuid.UUID("5c3d3a7e-6a55-4c8e-9d0b-3b7b6a2f4e10")


def derived_id(kind: str, name: str) -> str:
    """The id of an identity that the settings give none."""
    return str(uuid.uuid5(_IDS, f"{kind}/{name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application that signs in as itself."""

    name: str
    client_id: str
    object_id: str
    secret: str = field(repr=False)
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person who signs in on the page for device codes."""

    name: str
    object_id: str
    password: str = field(repr=False)
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class Directory:
    """Applications by client id and users by name; the first application is the one of managed identities."""

    def __init__(self, applications: Iterable[Application], users: Iterable[User] = ()) -> None:
        self.applications = tuple(applications)
        self.users = tuple(users)
        self._by_client_id = {fold(one.client_id): one for one in self.applications}
        self._by_name = {fold(one.name): one for one in self.users}

    @property
    def owner(self) -> Application:
        """The built-in application, which has the role Data Owner."""
        return self.applications[0]

    def application(self, client_id: str) -> Application | None:
        """An application by its client id."""
        return self._by_client_id.get(fold(client_id))

    def application_with_secret(self, client_id: str, secret: str) -> Application | None:
        """The application, if the secret is right."""
        found = self.application(client_id)
        return found if found is not None and _is_equal(found.secret, secret) else None

    def user_with_password(self, name: str, password: str) -> User | None:
        """The user, if the password is right."""
        found = self._by_name.get(fold(name))
        return found if found is not None and _is_equal(found.password, password) else None


def _is_equal(kept: str, given: str) -> bool:
    return hmac.compare_digest(kept.encode(), given.encode(errors="replace"))
