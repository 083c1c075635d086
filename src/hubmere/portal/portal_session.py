"""The broker as one signed-in person may see and use it.

Every query and every change checks the login first, so a page that is still open after a key was rotated shows and
changes nothing more. Hubs that the credential does not cover are hidden. Changes are awaited until they are durable.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hubmere.broker.access import Principal, Resource
from hubmere.broker.broker import Broker
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.broker.management.manager import Actor, Done
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import HubNotFound, NamespaceNotFound, Refusal
from hubmere.model.names import fold
from hubmere.portal.logins import Login
from hubmere.portal.sampler import Sampler

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalSession:
    """Access to the broker with the rights of one login. Thread rule: the owner's thread only."""

    broker: Broker
    clock: Clock
    addresses: Addresses
    sampler: Sampler
    login: Login
    peer: str = ""

    @property
    def principal(self) -> Principal:
        """The authenticated principal; raises SignedOut if the login has ended."""
        now_ms = self.clock.now_ms()
        return self.login.principal(self.broker.catalog.view.version, self.clock.monotonic(), now_ms / 1000)

    # --- queries ---

    def namespaces(self) -> list[LiveNamespace]:
        """The namespaces that the credential covers, sorted by name."""
        principal = self.principal
        return [
            live
            for name, live in sorted(self.broker.namespaces.items())
            if principal.is_admin or name == principal.namespace
        ]

    def namespace(self, name: str) -> LiveNamespace:
        """A namespace by name. A namespace that the credential does not cover is reported as missing."""
        found = next((live for live in self.namespaces() if fold(live.entity.name) == fold(name)), None)
        if found is None:
            raise NamespaceNotFound(f"sb://{name}")
        return found

    def hubs(self, namespace: LiveNamespace) -> list[LiveHub]:
        """The hubs that the credential covers, sorted by name."""
        principal, name = self.principal, namespace.entity.name
        hubs = [hub for _, hub in sorted(namespace.hubs.items())]
        # A credential of the namespace covers all hubs: skip the check of each of up to a thousand hubs every second.
        if principal.covers(Resource.of_namespace(name)):
            return hubs
        return [hub for hub in hubs if principal.covers(Resource.of_hub(name, hub.name))]

    def hub(self, namespace: LiveNamespace, name: str) -> LiveHub:
        """A hub by name. A hub that the credential does not cover is reported as missing."""
        hub = namespace.hubs.get(fold(name))
        if hub is None or not self.principal.covers(Resource.of_hub(namespace.entity.name, hub.name)):
            raise HubNotFound(namespace.resource(name))
        return hub

    def sees_all(self, namespace: LiveNamespace) -> bool:
        """Whether the credential covers the whole namespace rather than one hub or path."""
        return self.principal.covers(Resource.of_namespace(namespace.entity.name))

    # --- rights ---

    def may(self, right: Rights, namespace: LiveNamespace, hub: LiveHub | None = None) -> bool:
        """Whether the principal has a right on a namespace or on one of its hubs."""
        return self.principal.may(right, _resource(namespace, hub))

    def require(self, right: Rights, namespace: LiveNamespace, hub: LiveHub | None = None) -> None:
        """Raise a refusal unless the principal has a right on a namespace or on one of its hubs."""
        self.principal.require(right, _resource(namespace, hub))

    # --- changes ---

    def actor(self) -> Actor:
        """The actor of a change, with time and address, for the audit log."""
        return Actor(
            name=self.principal.rule,
            now_ms=self.clock.now_ms(),
            now=self.clock.monotonic(),
            peer=self.peer,
            tracking_id=str(uuid.uuid4()),
        )

    def write_audit(self, action: str, target: str) -> None:
        """Write an audit record for an action that changes no entity."""
        self.broker.audit.write(self.actor().line(action, target))

    async def submit(self, change: Callable[[Actor, Done], T]) -> T:
        """Submit a change and wait until it is durable. Raises the refusal if the broker refuses the change."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(refusal: Refusal | None) -> None:
            if waiting.done():
                return
            if refusal is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(refusal)

        result = change(self.actor(), done)
        await waiting
        return result


def _resource(namespace: LiveNamespace, hub: LiveHub | None) -> Resource:
    name = namespace.entity.name
    return Resource.of_namespace(name) if hub is None else Resource.of_hub(name, hub.name)
