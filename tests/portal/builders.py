"""A broker on memory with a portal's parts over it, and valid defaults for everything."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from broker.builders import ADMIN_TOKEN, Bench
from hubmere.broker.live import LiveHub
from hubmere.broker.read import Subscription
from hubmere.model.addresses import Addresses
from hubmere.model.entity import Rights
from hubmere.model.names import ROOT_RULE, rule_name
from hubmere.model.position import Position
from hubmere.model.tier import Profile
from hubmere.portal.app import DESK, Pages, Portal, Receive, Scope, Send
from hubmere.portal.desk import Desk
from hubmere.portal.sampler import Sampler
from hubmere.portal.sessions import Session, Sessions
from hubmere.records.header import seal
from hubmere.testing import ManualClock
from hubmere.translate import HttpEvent, publication_from_http

ADDRESSES = Addresses(namespace="hubmere", amqp=5672, amqps=5671, kafka=9092, kafkas=9093, http=8080, https=8443)
ORIGIN = "http://localhost:8080"


class Vestibule:
    """What is behind the door: answers with the name of whoever was let in."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        desk: Desk = scope[DESK]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"public")]})
        await send({"type": "http.response.body", "body": desk.principal.rule.encode()})

    async def stop(self) -> None:
        """Nothing is open."""


class Desktop(Bench):
    """A bench with sessions, a sampler and a clock that stands still."""

    def __init__(self, *, profile: Profile = Profile.DEVELOPER) -> None:
        super().__init__(profile=profile)
        self.clock = ManualClock()
        self.sampler = Sampler(self.broker, self.clock)
        self.sessions = Sessions(self.broker, ADMIN_TOKEN)

    def portal(self) -> Portal:
        """The portal's door, with pages behind it that only say who came in."""

        async def load() -> Pages:
            return Vestibule()

        return Portal(self.broker, self.clock, ADDRESSES, admin_token=ADMIN_TOKEN, load=load)

    def a_rule(self, name: str, *rights: str, hub: str | None = None) -> str:
        """A rule, and the connection string of its primary key."""
        parsed = Rights.parse(rights)
        self.do(lambda done: self.manager.write_rule("hubmere", hub, rule_name(name), parsed, self.actor(), done))
        return self.connection_string(name, hub)

    def connection_string(self, rule: str = ROOT_RULE, hub: str | None = None) -> str:
        """What somebody pastes."""
        view = self.catalog.view
        scope = view.namespace("hubmere") if hub is None else view.hub("hubmere", hub)
        found = view.rule(scope, rule)
        return ADDRESSES.connection_string(found, found.primary_key)

    def a_session(self, credential: str = ADMIN_TOKEN) -> Session:
        """Somebody who has signed in."""
        cookie = self.sessions.sign_in(credential, "127.0.0.1", self.clock.monotonic(), self.clock.now_ms() / 1000)
        session = self.sessions.find(cookie, self.clock.monotonic())
        assert session is not None
        return session

    def a_desk(self, credential: str = ADMIN_TOKEN) -> Desk:
        """What somebody who has signed in has at hand."""
        return Desk(
            broker=self.broker,
            clock=self.clock,
            addresses=ADDRESSES,
            sampler=self.sampler,
            session=self.a_session(credential),
        )

    def publish(
        self, *bodies: bytes, partition: str | None = "0", key: str | None = None, hub: LiveHub | None = None
    ) -> None:
        """Events in one publication."""
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

    def a_reader(self, partition: str = "0", *, epoch: int | None = None, name: str = "reader") -> Subscription:
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
    """What an ASGI application answered."""

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
    """One request to the portal, as the node's server would hand it over."""
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

    async def asked() -> None:
        await portal(scope, receive, send)
        await portal.stop()

    asyncio.run(asked())
    return Answer(sent)
