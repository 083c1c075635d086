"""A broker with a memory store and the parts of a portal."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from broker.builders import ADMIN_TOKEN, BrokerHarness
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.read import Reader
from hubmere.capture.browse import CapturedFolders
from hubmere.model.addresses import Addresses
from hubmere.model.entity import Rights
from hubmere.model.names import ROOT_RULE, rule_name
from hubmere.model.position import Position
from hubmere.model.tier import Profile
from hubmere.portal.app import SESSION_KEY, Pages, Portal, Receive, Scope, Send
from hubmere.portal.history.recorder import Recorder
from hubmere.portal.history.sampler import Sampler
from hubmere.portal.node_facts import NodeFacts
from hubmere.portal.sign_in.logins import Login, Logins
from hubmere.portal.sign_in.portal_session import PageContext, PortalSession
from hubmere.records.header import seal
from hubmere.store.history import MemoryHistory
from hubmere.translate import HttpEvent, publication_from_http
from manual_clock import ManualClock

ADDRESSES = Addresses(namespace="hubmere", amqp=5672, amqps=5671, kafka=9092, kafkas=9093, http=8080, https=8443)
ORIGIN = "http://localhost:8080"


class EchoPages:
    """Pages that respond with the rule of the authenticated principal."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        session: PortalSession = scope[SESSION_KEY]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"public")]})
        await send({"type": "http.response.body", "body": session.caller.principal.rule.encode()})

    async def stop(self) -> None:
        """No page is open."""


class PortalHarness(BrokerHarness):
    """A broker with logins, a sampler and a manual clock."""

    def __init__(self, *, profile: Profile = Profile.DEVELOPER) -> None:
        super().__init__(profile=profile)
        self.clock = ManualClock()
        self.sampler = Sampler(self.clock)
        self.history = MemoryHistory()
        self.recorder = Recorder(self.broker, self.clock, self.sampler, self.history)
        self.logins = Logins(self.broker)

    def portal(self) -> Portal:
        """The portal with `EchoPages`."""

        async def load() -> Pages:
            return EchoPages()

        return Portal(self.broker, self.clock, ADDRESSES, self.history, NodeFacts(), CapturedFolders, load=load)

    def a_rule(self, name: str, *rights: str, hub: str | None = None) -> str:
        """Create a rule. Returns the connection string of its primary key."""
        parsed = Rights.parse(rights)
        self.do(lambda done: self.manager.write_rule("hubmere", hub, rule_name(name), parsed, self.actor(), done))
        return self.connection_string(name, hub)

    def connection_string(self, rule: str = ROOT_RULE, hub: str | None = None) -> str:
        """The connection string of a rule."""
        view = self.catalog.view
        scope = view.namespace("hubmere") if hub is None else view.hub("hubmere", hub)
        found = view.rule(scope, rule)
        return ADDRESSES.connection_string(found, found.primary_key)

    def a_login(self, credential: str = ADMIN_TOKEN) -> Login:
        """A login."""
        cookie = self.logins.sign_in(credential, "127.0.0.1", self.clock.monotonic(), self.clock.now_ms() / 1000)
        login = self.logins.find(cookie, self.clock.monotonic())
        assert login is not None
        return login

    def a_portal_session(self, credential: str = ADMIN_TOKEN) -> PortalSession:
        """The session of a login."""
        return PortalSession(
            broker=self.broker,
            clock=self.clock,
            addresses=ADDRESSES,
            sampler=self.sampler,
            recorder=self.recorder,
            facts=NodeFacts(),
            captured=CapturedFolders(),
            login=self.a_login(credential),
        )

    def a_page_context(self, credential: str = ADMIN_TOKEN) -> PageContext:
        """What a page of the namespace is built with."""
        return PageContext(self.a_portal_session(credential), "hubmere", "/portal")

    def publish(
        self, *bodies: bytes, partition: str | None = "0", key: str | None = None, hub: LiveHub | None = None
    ) -> None:
        """Publish events in one publication."""
        publication = publication_from_http([HttpEvent(body=body, partition_key=key) for body in bodies])
        seal(publication.batch)
        publisher = self.broker.open_publisher(hub or self.hub, partition=None if key else partition)
        publisher.publish(
            publication.batch,
            count=publication.count,
            size_bytes=sum(map(len, bodies)),
            key=publication.partition_key,
            now=self.clock.monotonic(),
            now_ms=self.clock.now_ms(),
        )
        self.turn.run()

    def a_reader(self, partition: str = "0", *, epoch: int | None = None, name: str = "reader") -> Reader:
        """A reader of the hub from its beginning."""
        return self.broker.subscribe(
            self.hub,
            group="$Default",
            partition=partition,
            position=Position.first(),
            epoch=epoch,
            name=name,
            wake=lambda: None,
            evict=lambda _: None,
        )


class Answer:
    """The response of an ASGI application."""

    def __init__(self, messages: list[MutableMapping[str, Any]]) -> None:
        self.messages = messages

    @property
    def status(self) -> int:
        """The status code; of a WebSocket 101, or its close code."""
        first = self.messages[0]
        return int(first.get("status", first.get("code", 101)))

    @property
    def body(self) -> str:
        """The whole body."""
        return b"".join(message.get("body", b"") for message in self.messages).decode()

    def header(self, name: str) -> str | None:
        """One header."""
        headers: list[tuple[bytes, bytes]] = self.messages[0]["headers"]
        return next((value.decode() for key, value in headers if key == name.encode()), None)


def ask(
    portal: Portal,
    path: str,
    *,
    method: str = "GET",
    query: str = "",
    body: bytes = b"",
    kind: str = "http",
    scheme: str = "http",
    **headers: str | None,
) -> Answer:
    """Send one request to the portal, as the HTTP server of the node does."""
    sent: list[MutableMapping[str, Any]] = []
    given: dict[str, str | None] = {"host": "localhost:8080", **headers}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": kind,
        "method": method,
        "scheme": scheme,
        "path": f"/portal{path}",
        "root_path": "/portal",
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items() if value],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 50000),
    }

    async def run() -> None:
        await portal(scope, receive, send)
        await portal.stop()

    asyncio.run(run())
    return Answer(sent)
