"""Publish over HTTPS: POST to a hub, one of its partitions, or a publisher's path of it (reference: service 2.5, 3).

The order is fixed: which hub, may this address, who is it, may they send there, then the body, read within the tier's
limit. 201 is answered when the group commit has the events, and not before. The success path allocates little: it is
the one request that comes thousands of times a second.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qs

from hubmere.broker.access import Principal, Resource
from hubmere.broker.live import LiveHub
from hubmere.broker.publish import Publisher
from hubmere.endpoints.http import publications
from hubmere.endpoints.http.errors import XML_TYPE, MethodNotAllowed, NotDurableInTime, PathNotFound
from hubmere.endpoints.http.paths import segments_of
from hubmere.endpoints.http.shares import Shares
from hubmere.endpoints.http.site import (
    ANSWER_CREATED,
    CALLER,
    HEADER_NAMES,
    Receive,
    Scope,
    Send,
    Site,
    declared_length,
    peer_of,
    read_body,
)
from hubmere.model.batch import Receipt
from hubmere.model.entity import Rights
from hubmere.model.errors import InvalidArgument, PublicationTooLarge
from hubmere.model.names import publisher_name
from hubmere.translate import HttpEvent, Publication, message_from_http, publication_from_http

# The `timeout` parameter in every example of the API; clients may ask for up to five minutes.
_DEFAULT_TIMEOUT = "60"
_LONGEST_TIMEOUT_S = 300.0
_COMMON_TIMEOUTS = {
    b"": 60.0,
    b"timeout=60": 60.0,
    b"api-version=2014-01": 60.0,
    b"timeout=60&api-version=2014-01": 60.0,
    b"api-version=2014-01&timeout=60": 60.0,
}

# Admissions that are remembered: a device comes from the same place to the same place with every event.
_REMEMBERED = 4096
# Set on the scope of a request that a hub has counted.
COUNTED = "hubmere.counted"

# Hub, `consumergroups`, a group, `partitions`, an id, `messages`.
_LOOK_SEGMENTS = 6
_PARTITIONS = "partitions"
# One page of the API writes the singular: both are taken.
_PUBLISHERS = ("publishers", "publisher")

_CREATED = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", XML_TYPE.encode()), (b"content-length", b"0")],
}
_EMPTY = {"type": "http.response.body", "body": b""}


class Target(NamedTuple):
    """Where a POST goes."""

    hub: str
    partition: str | None = None
    publisher: str | None = None


@dataclass(slots=True)
class Head:
    """The headers of a publication, sorted in one walk."""

    host: str | None = None
    authorization: str | None = None
    content_type: bytes = b""
    broker_properties: bytes | None = None
    partition_key: str | None = None
    length: int | None = None
    custom: list[tuple[bytes, bytes]] | None = None

    @property
    def custom_bytes(self) -> int:
        """What custom headers add to the size of an event."""
        return sum(len(name) + len(value) for name, value in self.custom or ())


def is_message_path(raw_path: bytes) -> bool:
    """Whether a path ends as those of the data plane do."""
    return raw_path[-9:].lower() == b"/messages"


def is_look_path(segments: Sequence[str]) -> bool:
    """Whether a path of messages is one that is read: of a partition as a consumer group sees it."""
    return len(segments) >= _LOOK_SEGMENTS and segments[-5].lower() == "consumergroups"


def target_of(raw_path: bytes) -> Target:
    """The hub, and the partition or publisher, that a path names."""
    segments = segments_of(raw_path)
    if is_look_path(segments):
        raise MethodNotAllowed("POST", "GET")
    if len(segments) >= 4:
        word = segments[-3].lower()
        if word == _PARTITIONS:
            return Target("/".join(segments[:-3]), partition=segments[-2])
        if word in _PUBLISHERS:
            return Target("/".join(segments[:-3]), publisher=publisher_name(segments[-2]))
    if len(segments) < 2:
        raise PathNotFound
    return Target("/".join(segments[:-1]))


def head_of(scope: Scope) -> Head:
    """Sort the headers. Names as they were sent come from our own server beside the lower-case ones of ASGI."""
    head = Head()
    custom: list[tuple[bytes, bytes]] = []
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    sent_names: list[bytes] | None = scope.get(HEADER_NAMES)
    for index, (name, value) in enumerate(headers):
        if name == b"host":
            head.host = value.decode("latin-1")
        elif name == b"authorization":
            head.authorization = publications.header_text(value)
        elif name == b"content-type":
            head.content_type = value
        elif name == b"content-length":
            head.length = declared_length({name: value})
        elif name == b"brokerproperties":
            head.broker_properties = value
        elif name == b"partitionkey":
            head.partition_key = publications.header_text(value)
        elif publications.is_property(name):
            custom.append((name if sent_names is None else sent_names[index], value))
    head.custom = custom
    return head


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admission:
    """Someone who may publish somewhere, found out at a version of the catalog."""

    version: int
    hub: LiveHub
    target: Target
    principal: Principal


class DataPlane:
    """Publishing over HTTPS.

    Thread rule: the node's loop only.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._shares = Shares(site.clock)
        # Who may publish where, by path, host, credential and address; good until an entity changes or a token expires.
        self._admissions: dict[tuple[bytes, str | None, str | None, str], _Admission] = {}

    async def publish(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST with 201, or raise what refuses it."""
        head = head_of(scope)
        admission = self._admission(scope, head)
        scope[CALLER] = admission.principal
        body = await self._body(admission.hub, head, receive)
        timeout_s = _timeout_s(scope["query_string"])
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._begin(scope, admission, _events(head, body), len(body) + head.custom_bytes, waiting)
        timer = loop.call_later(timeout_s, _give_up, waiting, timeout_s)
        try:
            await waiting
        finally:
            timer.cancel()
        answer: Callable[[], bool] | None = scope.get(ANSWER_CREATED)
        if answer is None or not answer():
            await send(_CREATED)
            await send(_EMPTY)

    def _begin(
        self,
        scope: Scope,
        admission: "_Admission",
        events: list[HttpEvent],
        size_bytes: int,
        waiting: "asyncio.Future[None]",
    ) -> None:
        """Hand events to the log; the future is done when they are durable."""
        hub, target = admission.hub, admission.target
        if size_bytes > hub.namespace.limits.publication_bytes:
            raise PublicationTooLarge(size_bytes, hub.namespace.limits.publication_bytes)
        publisher = self._site.broker.open_publisher(hub, partition=target.partition, publisher=target.publisher)
        if len(events) == 1 and _is_shareable(publisher, events[0]):
            message = message_from_http(events[0])
            scope[COUNTED] = True
            self._shares.add(publisher, message, size_bytes, waiting)
            return
        publication = publication_from_http(events, publisher=target.publisher)
        # From here on the hub's own counters know of the request, whatever becomes of it.
        scope[COUNTED] = True
        self._publish(publisher, publication, size_bytes, waiting)

    def _admission(self, scope: Scope, head: Head) -> "_Admission":
        site = self._site
        version = site.broker.catalog.view.version
        key = (scope["raw_path"], head.host, head.authorization, peer_of(scope))
        known = self._admissions.get(key)
        if (
            known is not None
            and known.version == version
            and not known.principal.is_expired(site.clock.now_ms() / 1000)
        ):
            return known
        admission = self._admitted(scope, head, target_of(scope["raw_path"]), version)
        if len(self._admissions) >= _REMEMBERED:
            self._admissions.pop(next(iter(self._admissions)))
        self._admissions[key] = admission
        return admission

    def _admitted(self, scope: Scope, head: Head, target: Target, version: int) -> "_Admission":
        """The hub, for callers whose address, credential and right to send are good."""
        site = self._site
        named = site.find_hub(head.host, target.hub)
        namespace = site.namespace_at(head.host) if named is None else named.namespace
        principal = site.identity.of_data(namespace, peer_of(scope), head.authorization)
        name = target.hub if named is None else named.name
        principal.require(Rights.SEND, _resource(namespace.entity.name, name, target))
        # A missing hub is told only to those who may send there.
        hub = site.hub_at(head.host, target.hub) if named is None else named
        return _Admission(version=version, hub=hub, target=target, principal=principal)

    async def _body(self, hub: LiveHub, head: Head, receive: Receive) -> bytes:
        limit = min(hub.namespace.limits.publication_bytes, self._site.body_limit_bytes)
        return await read_body(receive, head.length, limit, PublicationTooLarge)

    def _publish(
        self, publisher: Publisher, publication: Publication, size_bytes: int, waiting: "asyncio.Future[None]"
    ) -> None:
        def settled(receipt: Receipt) -> None:
            if not waiting.done():
                if receipt.error is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(receipt.error)

        site = self._site
        publisher.publish(
            publication.batch,
            count=publication.count,
            size_bytes=size_bytes,
            key=publication.partition_key,
            now=site.clock.monotonic(),
            now_ms=site.clock.now_ms(),
            callback=settled,
        )


def _is_shareable(publisher: Publisher, event: HttpEvent) -> bool:
    return publisher.name is None and event.partition_key is None and publisher.hub.namespace.throughput is None


def _resource(namespace: str, hub: str, target: Target) -> Resource:
    if target.publisher is not None:
        return Resource.of_publisher(namespace, hub, target.publisher)
    if target.partition is not None:
        return Resource.of_hub(namespace, hub, _PARTITIONS, target.partition)
    return Resource.of_hub(namespace, hub)


def _events(head: Head, body: bytes) -> list[HttpEvent]:
    if publications.is_batch(head.content_type):
        # Headers of the request say nothing about the events of a batch (reference: service 3).
        head.custom = None
        return publications.batch_events(body)
    broker = None if head.broker_properties is None else publications.header_text(head.broker_properties)
    properties = publications.header_properties(head.custom) if head.custom else {}
    content_type = publications.header_text(head.content_type)
    return [publications.single_event(body, content_type, broker, head.partition_key, properties)]


def _give_up(waiting: asyncio.Future[None], timeout_s: float) -> None:
    if not waiting.done():
        waiting.set_exception(NotDurableInTime(timeout_s))


def _timeout_s(query: bytes) -> float:
    """How long the client lets the node try: the one query that every example shows is not parsed again and again."""
    return _COMMON_TIMEOUTS.get(query) or _parsed_timeout_s(query)


def _parsed_timeout_s(query: bytes) -> float:
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("timeout", [_DEFAULT_TIMEOUT])[0]
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) == 0:
        raise InvalidArgument("timeout", text, "a number of seconds")
    return min(float(text), _LONGEST_TIMEOUT_S)
