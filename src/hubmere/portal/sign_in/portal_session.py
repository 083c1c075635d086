"""The broker as one signed-in person may see and use it.

Every query and every change asks the login for its `Caller` first, so a page that is still open after a key was rotated
shows and changes nothing more. The caller hides hubs and namespaces that the credential does not cover. Changes are
awaited until they are durable.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from hubmere.broker import Actor, Broker, Caller, HubView, NamespaceView, OnDone, Reader
from hubmere.model.addresses import Addresses
from hubmere.model.capture.files import CapturedFiles
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal, RoleMissing
from hubmere.model.names import fold
from hubmere.model.security.roles import Control
from hubmere.portal import formatting
from hubmere.portal.history.reader_names import reader_names
from hubmere.portal.history.recorder import Recorder
from hubmere.portal.history.sampler import Sampler
from hubmere.portal.node_facts import NodeFacts
from hubmere.portal.sign_in.logins import Login

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalSession:
    """Access to the broker with the rights of one login. Thread rule: the owner's thread only."""

    broker: Broker
    clock: Clock
    addresses: Addresses
    sampler: Sampler
    recorder: Recorder
    facts: NodeFacts
    captured: CapturedFiles
    login: Login
    peer: str = ""

    @property
    def caller(self) -> Caller:
        """The authenticated caller; raises SignedOut if the login has ended."""
        return self.login.caller(self.clock.monotonic(), self.now_s)

    @property
    def now_s(self) -> float:
        """The time of day in seconds, by which credentials expire."""
        return self.clock.now_ms() / 1000

    def actor(self) -> Actor:
        """The actor of a change, with time and address, for the audit log."""
        return Actor(
            name=self.caller.principal.rule,
            now_ms=self.clock.now_ms(),
            now=self.clock.monotonic(),
            peer=self.peer,
            tracking_id=str(uuid.uuid4()),
        )

    async def write_audit(self, action: str, target: str) -> None:
        """Write an audit record for an action that changes no entity, and wait until it is in the file."""
        self.broker.audit.write(self.actor().line(action, target))
        await self._await_audit()

    async def _await_audit(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broker.audit.when_written(lambda: None if waiting.done() else waiting.set_result(None))
        await waiting

    async def submit(self, change: Callable[[Actor, OnDone], T]) -> T:
        """Submit a change and wait until it is durable. Raises the refusal if the broker refuses the change."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(refusal: Refusal | None) -> None:
            if waiting.done():
                return
            if refusal is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(refusal)

        try:
            result = change(self.actor(), on_done)
        except Refusal:
            await self._await_audit()
            raise
        await waiting
        return result


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page is built with: the session, the namespace, and the URL prefix of the portal."""

    session: PortalSession
    namespace_name: str
    prefix: str

    @property
    def caller(self) -> Caller:
        """The caller in this namespace; raises if the login has ended or the namespace is not visible to it."""
        return self.session.caller.at(self.namespace_name)

    @property
    def namespace(self) -> NamespaceView:
        """The namespace; raises if it was deleted."""
        return self.caller.namespace

    def hubs(self) -> list[HubView]:
        """The hubs that the credential covers, sorted by name."""
        return self.caller.hubs()

    def hub(self, name: str) -> HubView:
        """A hub; raises if it was deleted or is not covered. Look it up for each use."""
        return self.caller.visible_hub(name)

    @property
    def covers_namespace(self) -> bool:
        """Whether the credential covers the whole namespace rather than one hub or path."""
        return self.caller.covers()

    def may(self, right: Rights, hub: HubView | None = None) -> bool:
        """Whether the person has a right on the namespace or on one of its hubs.

        Roles of the management plane count: one that may write includes Manage, and one that may read is any right.
        """
        caller, name = self.caller, None if hub is None else hub.name
        if caller.may(right, name):
            return True
        needed = Control.READ if right == Rights.ALL else Control.WRITE
        return bool(right & Rights.MANAGE) and caller.controls(name) >= needed

    def may_view(self, hub: HubView | None = None) -> bool:
        """Whether the person may see readers, groups and lag, but no events: by Listen or by a role that reads."""
        name = None if hub is None else hub.name
        return self.caller.may(Rights.LISTEN, name) or self.caller.controls(name) >= Control.READ

    def reader_names(self, hub: HubView) -> dict[Reader, str]:
        """The names of the readers of a hub, as far as the person may see connections."""
        if not hub.readers() or not self.may(Rights.MANAGE):
            return {}
        return reader_names(self.session.broker.connections.snapshots(fold(self.namespace_name)))

    def require(self, right: Rights, hub: HubView | None = None) -> None:
        """Raise a refusal unless the person has a right on the namespace or on one of its hubs."""
        caller = self.caller
        if not self.may(right, hub):
            caller.require(right, caller.resource() if hub is None else caller.resource(hub.name), self.session.now_s)

    def require_view(self, hub: HubView | None = None) -> None:
        """Raise a refusal unless the person may see readers, groups and lag."""
        if not self.may_view(hub):
            self.require(Rights.LISTEN, hub)

    def require_control(self, control: Control, hub: HubView | None = None) -> None:
        """Raise a refusal unless a role or the Manage right gives so much control of the namespace or a hub."""
        caller, name = self.caller, None if hub is None else hub.name
        if caller.controls(name) < control:
            raise RoleMissing(control.name, str(caller.resource() if name is None else caller.resource(name)))

    def stored_size_text(self, size_bytes: int) -> str:
        """The size of stored events. The brokers of a cluster do not report it."""
        return "not known" if self.session.facts.kafka_brokers else formatting.size(size_bytes)

    def url(self, page: str, **query: str) -> str:
        """The URL of a page of this namespace, relative to the portal."""
        parameters = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"/n/{quote(self.namespace_name)}{page}{'?' if parameters else ''}{parameters}"
