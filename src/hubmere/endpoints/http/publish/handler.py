"""Publish over HTTPS: POST to a hub, one of its partitions, or a publisher's path of it (reference: service 2.5, 3).

All requests reach the log through `PublishHandler.publish`. It takes a complete request and a callback:

1. Authorize the head: find the hub, check the client's address, its credential and its right to send, then open a
   publisher. The result is a `CachedRequestHead`. A connection passes that of its last request again. It is reused if
   the next request has the same head, no entity has changed and the token has not expired.
2. Decode the events. For a single event the head already determines every byte of the encoded message but the body.
3. Give the events to the broker. Single events without key, publisher or quota share a batch with those of other
   requests that arrive in the same turn of the loop; everything else is a publication of its own.
4. Call the callback once: with None when the events are durable, else with the reason. A client's timeout
   ends the wait; the events may still become durable later.

A request whose body arrives together with its head is published from the parser's callback, without a task
(`server.protocol`). For all others the ASGI application runs `PublishHandler.answer`: it authorizes the head before it
reads the body, within the limit of the hub, and then calls the same `publish`.

The broker owns the size limit of a publication. The limit here only stops the body of a request while it arrives.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hubmere.broker import Caller, KeysPending, Publisher
from hubmere.endpoints.http.context import (
    CALLER,
    HEADER_NAMES,
    WRITE_CREATED,
    HttpContext,
    Receive,
    Scope,
    Send,
    client_address,
    content_length,
    read_body,
)
from hubmere.endpoints.http.errors import XML_TYPE
from hubmere.endpoints.http.publish import event_decoder
from hubmere.endpoints.http.publish.request_head import (
    RequestHead,
    Target,
    parse_head,
    parse_target,
    parse_timeout_s,
)
from hubmere.endpoints.http.publish.timeouts import OnDone, Timeouts
from hubmere.model.errors import PublicationTooLarge, Refusal, setting_hint
from hubmere.translate import HttpEvent, message_from_http, publication_from_http

# Set on the scope of a request that the hub's counters include.
COUNTED = "hubmere.counted"

_CREATED = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", XML_TYPE.encode()), (b"content-length", b"0")],
}
_EMPTY = {"type": "http.response.body", "body": b""}
# The body is the last section of an encoded message, so every encoded event without a body ends with these bytes.
_EMPTY_BODY_SECTION = message_from_http(HttpEvent(b""))

# Begins a span for a request, if it carries a trace context. Returns the callback to use in place of the given one.
PublishTracer = Callable[[Scope, OnDone], OnDone]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRequestHead:
    """A parsed and authorized head, reused for the next request with the same head.

    Devices send the same headers with every event; only Content-Length varies.
    """

    path: bytes
    query: bytes
    names: list[bytes] | None
    headers: list[tuple[bytes, bytes]]
    length_index: int
    caller: Caller
    publisher: Publisher
    timeout_s: float
    # The event without its body and the encoding of that without the body section; None and empty for a batch.
    event: HttpEvent | None
    message_prefix: bytes
    custom_bytes: int

    def matches(self, scope: Scope) -> bool:
        """Whether another request has the same head, except for the length of its body."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        at = self.length_index
        return (
            (scope["raw_path"], scope["query_string"], scope.get(HEADER_NAMES)) == (self.path, self.query, self.names)
            and headers[:at] == self.headers[:at]
            and headers[at + 1 :] == self.headers[at + 1 :]
        )

    @property
    def is_coalescable(self) -> bool:
        """Whether the event may share a batch with others."""
        return self.event is not None and self.event.partition_key is None and self.publisher.can_coalesce


class PublishHandler:
    """Publishes requests, complete ones at once and others as their bodies arrive.

    Thread rule: the node's loop only.
    """

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._timeouts = Timeouts()
        self.tracer: PublishTracer | None = None

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST with 201, or raise the refusal."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        on_done = self._with_span(scope, lambda error: _complete(waiting, error))
        try:
            head = self._authorize(scope, None)
            body = await self._read_body(scope, head, receive)
        except Exception as error:
            on_done(error)
            waiting.exception()  # the same error is raised here
            raise
        self._publish(scope, body, on_done, head)
        await waiting
        write_created: Callable[[], bool] | None = scope.pop(WRITE_CREATED, None)
        if write_created is None or not write_created():
            await send_created(scope, receive, send)

    def publish(
        self, scope: Scope, body: bytes, on_done: OnDone, cached: CachedRequestHead | None
    ) -> CachedRequestHead | None:
        """Publish one complete request and call `on_done` once: with None on commit, else with the error.

        Returns the head to pass as `cached` with the connection's next request, None if it was refused before.
        """
        return self._publish(scope, body, self._with_span(scope, on_done), cached)

    def publish_again(
        self, scope: Scope, body: bytes, on_done: OnDone, head: CachedRequestHead
    ) -> CachedRequestHead | None:
        """As `publish`, for a request whose head has the same bytes as that of `head`, except for the length."""
        scope.pop(COUNTED, None)
        on_done = self._with_span(scope, on_done)
        if not head.caller.is_current(self._context.now_s):
            return self._publish(scope, body, on_done, None)
        try:
            self._submit(scope, head, body, on_done)
        except Exception as error:  # noqa: BLE001 - the top of a request without a task: its callback reports it
            on_done(error)
            return None
        return head

    def _with_span(self, scope: Scope, on_done: OnDone) -> OnDone:
        return on_done if self.tracer is None else self.tracer(scope, on_done)

    def _publish(
        self,
        scope: Scope,
        body: bytes,
        on_done: OnDone,
        cached: CachedRequestHead | None,
        *,
        can_wait: bool = True,
    ) -> CachedRequestHead | None:
        try:
            # Also for a head that was authorized before its body arrived: rules may have changed meanwhile.
            head = self._authorize(scope, cached)
            self._submit(scope, head, body, on_done)
        except KeysPending as pending:
            if can_wait:
                pending.wait(partial(self._publish_later, scope, body, on_done))
            else:
                on_done(pending)
            return None
        except Exception as error:  # noqa: BLE001 - the top of a request that may have no task: its callback reports it
            on_done(error)
            return None
        return head

    def _publish_later(self, scope: Scope, body: bytes, on_done: OnDone) -> None:
        """Publish a request that waited for the keys of its token's issuer."""
        self._publish(scope, body, on_done, None, can_wait=False)

    def _authorize(self, scope: Scope, cached: CachedRequestHead | None) -> CachedRequestHead:
        """The authorized head of a request: the cached one if it matches and still holds."""
        if cached is not None and cached.matches(scope) and cached.caller.is_current(self._context.now_s):
            scope[CALLER] = cached.caller.principal
            return cached
        return self._authorize_head(scope, parse_head(scope))

    def _authorize_head(self, scope: Scope, head: RequestHead) -> CachedRequestHead:
        caller, publisher = self._open_publisher(scope, head, parse_target(scope["raw_path"]))
        event = None if head.is_batch else head.event_without_body()
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        return CachedRequestHead(
            path=scope["raw_path"],
            query=scope["query_string"],
            names=scope.get(HEADER_NAMES),
            headers=headers,
            length_index=next((at for at, (name, _) in enumerate(headers) if name == b"content-length"), len(headers)),
            caller=caller,
            publisher=publisher,
            timeout_s=parse_timeout_s(scope["query_string"]),
            event=event,
            message_prefix=b"" if event is None else message_from_http(event)[: -len(_EMPTY_BODY_SECTION)],
            # The headers of a batch are not properties of its events (reference: service 3).
            custom_bytes=0 if event is None else head.custom_bytes,
        )

    def _open_publisher(self, scope: Scope, head: RequestHead, target: Target) -> tuple[Caller, Publisher]:
        """A publisher, for callers whose address, credential and right to send are accepted."""
        context = self._context
        caller, hub = context.sign_in_to_hub(head.host, target.hub, client_address(scope), head.authorization)
        scope[CALLER] = caller.principal
        publisher = caller.open_publisher(hub, context.now_s, partition=target.partition, publisher=target.publisher)
        return caller, publisher

    async def _read_body(self, scope: Scope, head: CachedRequestHead, receive: Receive) -> bytes:
        context = self._context
        length = content_length(dict(scope["headers"]))
        limit_bytes = min(head.publisher.limit_bytes, context.body_limit_bytes)
        return await read_body(receive, length, limit_bytes, context.memory, partial(_too_large, head.publisher))

    def _submit(self, scope: Scope, head: CachedRequestHead, body: bytes, on_done: OnDone) -> None:
        """Hand the events of a request to the broker, alone or together with those of other requests."""
        context, publisher, size_bytes = self._context, head.publisher, len(body) + head.custom_bytes
        now, now_ms = context.clock.monotonic(), context.clock.now_ms()
        if head.is_coalescable:
            scope[COUNTED] = True
            context.coalescer.add(
                publisher,
                (head.message_prefix + message_from_http(HttpEvent(body)),),
                size_bytes=size_bytes,
                on_settled=self._timeouts.watch(on_done, head.timeout_s),
                now=now,
                now_ms=now_ms,
            )
            return
        events = event_decoder.parse_batch(body) if head.event is None else [head.event._replace(body=body)]
        publication = publication_from_http(events, publisher=publisher.name, resolve_key=publisher.resolve_key)
        # From here on the hub counts the request, also if the broker refuses it.
        scope[COUNTED] = True
        finish = self._timeouts.watch(on_done, head.timeout_s)
        try:
            publisher.publish(
                publication.batch,
                count=publication.count,
                size_bytes=size_bytes,
                key=publication.partition_key,
                now=now,
                now_ms=now_ms,
                callback=lambda receipt: finish(receipt.error),
            )
        except Refusal as refusal:
            finish(refusal)


def _too_large(publisher: Publisher, size_bytes: int, limit_bytes: int) -> PublicationTooLarge:
    """The refusal of a body; the limit is the hub's, unless that of the endpoint is lower."""
    hint = publisher.limit_hint if publisher.limit_bytes <= limit_bytes else setting_hint("http_body_bytes")
    return PublicationTooLarge(size_bytes, limit_bytes, hint)


async def send_created(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer 201: the events are durable."""
    await send(_CREATED)
    await send(_EMPTY)


def _complete(waiting: "asyncio.Future[None]", error: Exception | None) -> None:
    """Complete a request's future, unless the request was cancelled."""
    if waiting.done():
        return
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
