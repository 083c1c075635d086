"""What a page has at hand: the broker as one signed-in person may see and use it.

Every question and every change asks the session first, so a page that stays open after a key was rotated shows and does
nothing more. Hubs that the credential does not cover are not there. Changes are awaited until they are durable.
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
from hubmere.portal.sampler import Sampler
from hubmere.portal.sessions import Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One person's way to the broker. Thread rule: the owner's thread only."""

    broker: Broker
    clock: Clock
    addresses: Addresses
    sampler: Sampler
    session: Session
    peer: str = ""

    @property
    def principal(self) -> Principal:
        """Who sits here; raises SignedOut when the session has ended."""
        now_ms = self.clock.now_ms()
        return self.session.principal(self.broker.catalog.view.version, self.clock.monotonic(), now_ms / 1000)

    # --- seeing ---

    def namespaces(self) -> list[LiveNamespace]:
        """The namespaces that this person reaches, by name."""
        principal = self.principal
        return [
            live
            for name, live in sorted(self.broker.namespaces.items())
            if principal.is_admin or name == principal.namespace
        ]

    def namespace(self, name: str) -> LiveNamespace:
        """A namespace that this person reaches; one of others is told from a missing one by nobody."""
        found = next((live for live in self.namespaces() if fold(live.entity.name) == fold(name)), None)
        if found is None:
            raise NamespaceNotFound(f"sb://{name}")
        return found

    def hubs(self, namespace: LiveNamespace) -> list[LiveHub]:
        """The hubs that this person's credential covers, by name."""
        principal, name = self.principal, namespace.entity.name
        hubs = [hub for _, hub in sorted(namespace.hubs.items())]
        # Whoever holds the namespace holds all of it; asking for each of a thousand hubs every second would be felt.
        if principal.covers(Resource.of_namespace(name)):
            return hubs
        return [hub for hub in hubs if principal.covers(Resource.of_hub(name, hub.name))]

    def hub(self, namespace: LiveNamespace, name: str) -> LiveHub:
        """A hub that this person's credential covers."""
        hub = namespace.hubs.get(fold(name))
        if hub is None or not self.principal.covers(Resource.of_hub(namespace.entity.name, hub.name)):
            raise HubNotFound(namespace.resource(name))
        return hub

    def sees_all(self, namespace: LiveNamespace) -> bool:
        """Whether the credential is one of the namespace, not of a single hub or path."""
        return self.principal.covers(Resource.of_namespace(namespace.entity.name))

    # --- rights ---

    def may(self, right: Rights, namespace: LiveNamespace, hub: LiveHub | None = None) -> bool:
        """Whether a right is held on a namespace or one of its hubs."""
        return self.principal.may(right, _resource(namespace, hub))

    def require(self, right: Rights, namespace: LiveNamespace, hub: LiveHub | None = None) -> None:
        """Refuse unless a right is held."""
        self.principal.require(right, _resource(namespace, hub))

    # --- doing ---

    def actor(self) -> Actor:
        """Who asks for a change, when and from where, for the audit log."""
        return Actor(
            name=self.principal.rule,
            now_ms=self.clock.now_ms(),
            now=self.clock.monotonic(),
            peer=self.peer,
            tracking_id=str(uuid.uuid4()),
        )

    def note(self, action: str, target: str) -> None:
        """Leave a line in the audit log about something that was done and changes no entity."""
        self.broker.audit.write(self.actor().line(action, target))

    async def carry_out(self, change: Callable[[Actor, Done], T]) -> T:
        """Ask for a change and wait until it is durable; raises what refused it."""
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
