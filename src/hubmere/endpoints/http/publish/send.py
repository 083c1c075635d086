"""Publish over HTTPS: POST to a hub, one of its partitions, or a publisher's path of it (reference: service 2.5, 3).

The order is fixed: which hub, may this address, who is it, may they send there, then the body, read within the tier's
limit. 201 is answered when the group commit has the events, and not before. The success path allocates little: it is
the one request that comes thousands of times a second.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hubmere.broker.access import Principal
from hubmere.broker.live import LiveHub
from hubmere.broker.publish import Publisher
from hubmere.endpoints.http.context import (
    ANSWER_CREATED,
    CALLER,
    HEADER_NAMES,
    HttpContext,
    Receive,
    Scope,
    Send,
    peer_of,
    read_body,
)
from hubmere.endpoints.http.errors import XML_TYPE, NotDurableInTime
from hubmere.endpoints.http.publish.heads import (
    COMMON_TIMEOUTS,
    Head,
    Target,
    event_of,
    events_of,
    head_of,
    resource_of,
    target_of,
    timeout_of,
)
from hubmere.endpoints.http.publish.shares import Coalescer, Waiter, settle
from hubmere.model.entity import Rights
from hubmere.model.errors import PublicationTooLarge, Refusal
from hubmere.model.receipt import Receipt
from hubmere.translate import HttpEvent, Publication, message_from_http, publication_from_http

# Admissions that are remembered: a device comes from the same place to the same place with every event.
_REMEMBERED = 4096
# Path, host, credential and address of who asks.
_Key = tuple[bytes, str | None, str | None, str]
# Set on the scope of a request that a hub has counted.
COUNTED = "hubmere.counted"

_CREATED = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", XML_TYPE.encode()), (b"content-length", b"0")],
}
_EMPTY = {"type": "http.response.body", "body": b""}
# What an encoded event ends with when its body is empty: the body is always its last section.
_NO_BODY = message_from_http(HttpEvent(b""))


class _Publication(NamedTuple):
    """One request: its head, its body, and how long its client waits."""

    head: Head
    body: bytes
    timeout_s: float


@dataclass(slots=True, kw_only=True)
class _Admission:
    """Someone who may publish somewhere, found out at a version of the catalog.

    `shared` is the way in by which an event of theirs has shared a batch.
    """

    version: int
    hub: LiveHub
    target: Target
    principal: Principal
    shared: Publisher | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRequestHead:
    """The head of an event that went the short way, and what follows from it for the next one with the same head.

    Devices send the same headers with every event; what may differ is how long the event is.
    """

    path: bytes
    query: bytes
    names: list[bytes]
    headers: list[tuple[bytes, bytes]]
    length_at: int
    admission: _Admission
    publisher: Publisher
    before: bytes  # what stands before the body in the encoded event
    custom_bytes: int
    timeout_s: float

    @classmethod
    def of(
        cls,
        scope: Scope,
        admission: _Admission,
        publisher: Publisher,
        before: bytes,
        custom_bytes: int,
        timeout_s: float,
    ) -> "CachedRequestHead":
        """The head of a request."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        return cls(
            path=scope["raw_path"],
            query=scope["query_string"],
            names=scope[HEADER_NAMES],
            headers=headers,
            length_at=next((at for at, (name, _) in enumerate(headers) if name == b"content-length"), len(headers)),
            admission=admission,
            publisher=publisher,
            before=before,
            custom_bytes=custom_bytes,
            timeout_s=timeout_s,
        )

    def fits(self, scope: Scope) -> bool:
        """Whether another request has the same head, but for the length of its body."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        at = self.length_at
        return (
            (scope["raw_path"], scope["query_string"], scope[HEADER_NAMES]) == (self.path, self.query, self.names)
            and headers[:at] == self.headers[:at]
            and headers[at + 1 :] == self.headers[at + 1 :]
        )


class DataPlane:
    """Publishing over HTTPS.

    Thread rule: the node's loop only.
    """

    def __init__(self, context: HttpContext) -> None:
        self._site = context
        self._shares = Coalescer(context.clock)
        # Who may publish where, by path, host, credential and address; good until an entity changes or a token expires.
        self._admissions: dict[_Key, _Admission] = {}

    async def publish(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST with 201, or raise what refuses it."""
        head = head_of(scope)
        admission = self._admission(scope, head)
        scope[CALLER] = admission.principal
        body = await self._body(admission.hub, head, receive)
        if admission.version != self._site.broker.catalog.view.version:
            # Rules may have changed while the body was on its way.
            admission = self._admission(scope, head)
        timeout_s = timeout_of(scope["query_string"])
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin(scope, admission, _Publication(head, body, timeout_s), waiting)
        await waiting
        answer: Callable[[], bool] | None = scope.pop(ANSWER_CREATED, None)
        if answer is None or not answer():
            await created(scope, receive, send)

    def publish_at_once(
        self, scope: Scope, body: bytes, waiting: Waiter, last: CachedRequestHead | None
    ) -> CachedRequestHead | None:
        """Publish an event that is whole and that nothing speaks against; None when nothing has happened.

        Only what was admitted before, by the common way, and can share a batch; whoever refuses is asked there. What is
        given back makes the next event of the connection cheaper, if it comes with the same head.
        """
        if last is not None and last.fits(scope) and self._is_current(last.admission):
            repeat = last
        else:
            found = self._repeat(scope)
            if found is None:
                return None
            repeat = found
        publisher, size_bytes = repeat.publisher, len(body) + repeat.custom_bytes
        if size_bytes > self._limit_bytes(publisher.hub) or not _is_unmetered(publisher):
            return None
        scope[CALLER] = repeat.admission.principal
        scope[COUNTED] = True
        message = repeat.before + message_from_http(HttpEvent(body))
        self._shares.add(publisher, message, size_bytes, waiting, repeat.timeout_s)
        return repeat

    def _repeat(self, scope: Scope) -> CachedRequestHead | None:
        """All that follows from a head, if its events can go the short way."""
        timeout_s = COMMON_TIMEOUTS.get(scope["query_string"])
        try:
            head = head_of(scope)
            admission = self._known_admission(_key(scope, head))
            if timeout_s is None or admission is None or admission.shared is None or head.is_batch:
                return None
            event = event_of(head, b"")
            if event.partition_key is not None:
                return None
            before = message_from_http(event)[: -len(_NO_BODY)]
        except Refusal:
            return None
        return CachedRequestHead.of(scope, admission, admission.shared, before, head.custom_bytes, timeout_s)

    def _begin(self, scope: Scope, admission: _Admission, given: _Publication, waiting: "asyncio.Future[None]") -> None:
        """Hand events to the log; the future is done when they are durable."""
        hub, target = admission.hub, admission.target
        events, size_bytes = events_of(given.head, given.body), len(given.body) + given.head.custom_bytes
        if size_bytes > hub.publication_bytes:
            raise PublicationTooLarge(size_bytes, hub.publication_bytes)
        publisher = self._site.broker.open_publisher(
            hub, partition=target.partition, publisher=target.publisher, principal=admission.principal
        )
        if len(events) == 1 and _is_shareable(publisher, events[0]):
            message = message_from_http(events[0])
            scope[COUNTED] = True
            admission.shared = publisher
            self._shares.add(publisher, message, size_bytes, waiting, given.timeout_s)
            return
        publication = publication_from_http(events, publisher=target.publisher)
        # From here on the hub's own counters know of the request, whatever becomes of it.
        scope[COUNTED] = True
        self._publish(publisher, publication, size_bytes, waiting)
        timer = asyncio.get_running_loop().call_later(given.timeout_s, _give_up, waiting, given.timeout_s)
        waiting.add_done_callback(lambda _: timer.cancel())

    def _admission(self, scope: Scope, head: Head) -> _Admission:
        key = _key(scope, head)
        known = self._known_admission(key)
        if known is not None:
            return known
        version = self._site.broker.catalog.view.version
        admission = self._admitted(scope, head, target_of(scope["raw_path"]), version)
        if len(self._admissions) >= _REMEMBERED:
            self._admissions.pop(next(iter(self._admissions)))
        self._admissions[key] = admission
        return admission

    def _known_admission(self, key: _Key) -> _Admission | None:
        """What was found out before, if that is still so."""
        known = self._admissions.get(key)
        return known if known is not None and self._is_current(known) else None

    def _is_current(self, admission: _Admission) -> bool:
        """Whether no entity has changed and the credential has not expired since."""
        context = self._site
        return admission.version == context.broker.catalog.view.version and not admission.principal.is_expired(
            context.clock.now_ms() / 1000
        )

    def _admitted(self, scope: Scope, head: Head, target: Target, version: int) -> _Admission:
        """The hub, for callers whose address, credential and right to send are good."""
        context = self._site
        named = context.find_hub(head.host, target.hub)
        namespace = context.namespace_at(head.host) if named is None else named.namespace
        principal = context.identity.of_data(namespace, peer_of(scope), head.authorization)
        name = target.hub if named is None else named.name
        principal.require(Rights.SEND, resource_of(namespace.entity.name, name, target))
        # A missing hub is told only to those who may send there.
        hub = context.hub_at(head.host, target.hub) if named is None else named
        return _Admission(version=version, hub=hub, target=target, principal=principal)

    async def _body(self, hub: LiveHub, head: Head, receive: Receive) -> bytes:
        return await read_body(receive, head.length, self._limit_bytes(hub), self._site.memory, PublicationTooLarge)

    def _limit_bytes(self, hub: LiveHub) -> int:
        return min(hub.publication_bytes, self._site.body_limit_bytes)

    def _publish(
        self, publisher: Publisher, publication: Publication, size_bytes: int, waiting: "asyncio.Future[None]"
    ) -> None:
        def settled(receipt: Receipt) -> None:
            settle(waiting, receipt.error)

        context = self._site
        publisher.publish(
            publication.batch,
            count=publication.count,
            size_bytes=size_bytes,
            key=publication.partition_key,
            now=context.clock.monotonic(),
            now_ms=context.clock.now_ms(),
            callback=settled,
        )


async def created(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer that events are durable."""
    await send(_CREATED)
    await send(_EMPTY)


def _key(scope: Scope, head: Head) -> _Key:
    return scope["raw_path"], head.host, head.authorization, peer_of(scope)


def _is_shareable(publisher: Publisher, event: HttpEvent) -> bool:
    return event.partition_key is None and _is_unmetered(publisher)


def _is_unmetered(publisher: Publisher) -> bool:
    return (
        publisher.name is None and publisher.hub.namespace.throughput is None and publisher.client_quota.limits is None
    )


def _give_up(waiting: asyncio.Future[None], timeout_s: float) -> None:
    if not waiting.done():
        waiting.set_exception(NotDurableInTime(timeout_s))
