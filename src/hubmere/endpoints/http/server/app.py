"""The ASGI application of a node: finds the handler of a request, and answers requests that are refused.

Publish requests are recognized first, because thousands of them arrive each second. All others go through one table of
routes. A refusal is answered in the format of the interface that the request was for, with a tracking id that is also
in the log. An unexpected error is answered with 500 and without its details. Other applications (the portal) are
mounted under a first path segment.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from hubmere.broker import Broker, Coalescer, KeysPending, Principal
from hubmere.endpoints.coalescing import build_coalescer
from hubmere.endpoints.http.context import (
    CALLER,
    Disconnected,
    HttpContext,
    Receive,
    Scope,
    Send,
    await_audit,
    await_keys,
    log,
    path_for_log,
)
from hubmere.endpoints.http.errors import InternalFailure, MethodNotAllowed, PathNotFound, json_error, row_of, xml_error
from hubmere.endpoints.http.pairing.partners import Partners
from hubmere.endpoints.http.paths import RouteTable, split_path
from hubmere.endpoints.http.publish.handler import COUNTED, CachedRequestHead, PublishHandler
from hubmere.endpoints.http.publish.request_head import is_message_path, is_read_path
from hubmere.endpoints.http.publish.timeouts import OnDone
from hubmere.endpoints.http.request import Handler, Request
from hubmere.endpoints.http.server.websocket import PATH as WEBSOCKET_PATH
from hubmere.endpoints.http.server.websocket import WebSocketEndpoint, refuse
from hubmere.endpoints.memory import MemoryBudget
from hubmere.endpoints.opening import run_when_open
from hubmere.endpoints.stream import Session
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import AliasElsewhere, Refusal, ShuttingDown, Unauthorized

if TYPE_CHECKING:
    from starlette.responses import Response

# First segments, and one last segment, of paths whose refusals are answered in JSON.
_JSON_FIRST = ("subscriptions", "providers", "metrics", "openapi.json", "health", "ready", "$capture", "%24capture")
_JSON_LAST = "messages"
_SERVER_ERROR = 500
# Methods that change something, and the principal of a client that is not authenticated.
_CHANGING_METHODS = ("PUT", "PATCH", "POST", "DELETE")
_ANONYMOUS = Principal(namespace="", rule="(unknown)", rights=Rights.NONE)

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpTracer(Protocol):
    """Keeps spans of requests. Thread rule: the node's loop only."""

    async def trace_request(self, handler: Handler, request: Request) -> "Response":
        """Answer a management request within a span."""

    def trace_publish(self, scope: Scope, on_done: OnDone) -> OnDone:
        """Begin a span if a publish request has a trace context. Returns the callback that ends it."""


class HttpApp:
    """The ASGI application of a node.

    Thread rule: the node's loop only.
    """

    def __init__(self, context: HttpContext, amqp_session: Callable[[], Session] | None) -> None:
        self._context = context
        self._publisher = PublishHandler(context)
        self._routes: RouteTable[Handler] | None = None
        self._mounts: dict[str, Application] = {}
        self._home: str | None = None
        self._tracer: HttpTracer | None = None
        self._websockets = None if amqp_session is None else WebSocketEndpoint(amqp_session)

    def mount(self, first_segment: str, app: Application, *, is_home: bool = False) -> None:
        """Route everything below a first path segment to another application.

        With `is_home`, a browser that asks for `/` is sent there; clients that ask for anything but HTML get the feed.
        """
        self._mounts[first_segment.lower()] = app
        if is_home:
            self._home = f"/{first_segment}/"

    def mount_blobs(self, account: str, *, max_bytes: int) -> None:
        """Serve a storage account of the broker under its name. The handlers are loaded with the first request."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            from hubmere.endpoints.http.blob.app import BlobApp

            context = self._context
            await BlobApp(context, context.broker.blob_accounts, max_bytes=max_bytes)(scope, receive, send)

        self._mounts[account] = serve

    def trace(self, tracer: HttpTracer) -> None:
        """Keep spans of management requests, and of publish requests that carry a trace context."""
        self._tracer = tracer
        self._publisher.tracer = tracer.trace_publish

    def publish(
        self, scope: Scope, body: bytes, on_done: OnDone, cached: CachedRequestHead | None
    ) -> CachedRequestHead | None:
        """Publish a request whose body arrived with its head (`PublishHandler.publish`)."""
        return self._publisher.publish(scope, body, on_done, cached)

    def publish_again(
        self, scope: Scope, body: bytes, on_done: OnDone, head: CachedRequestHead
    ) -> CachedRequestHead | None:
        """Publish a request with the same head as the last one (`PublishHandler.publish_again`)."""
        return self._publisher.publish_again(scope, body, on_done, head)

    @property
    def memory(self) -> MemoryBudget:
        """The memory budget for the buffers of all connections."""
        return self._context.memory

    def stop(self) -> None:
        """Close the AMQP sessions on WebSockets in order: the node is stopping."""
        if self._websockets is not None:
            self._websockets.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        if scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)
            return
        try:
            try:
                await self._answer(scope, receive, send)
            except KeysPending as pending:
                # Every handler authenticates its client before it reads the body, so it can start again.
                await await_keys(pending)
                await self._answer(scope, receive, send)
        except Disconnected:
            return
        except Refusal as refusal:
            await self._refuse(refusal, scope, receive, send)
        except asyncio.CancelledError:
            # Only a stopping node cancels requests; the client may retry at another node.
            await self._refuse(ShuttingDown(), scope, receive, send)
        except Exception:  # noqa: BLE001 - the top of a request: log it and answer 500
            log.exception("a request failed")
            await self._refuse(InternalFailure(), scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if is_message_path(raw_path) and scope["method"] == "POST":
            await self._publisher.answer(scope, receive, send)
            return
        segments = split_path(raw_path)
        if is_message_path(raw_path) and not is_read_path(segments):
            raise MethodNotAllowed(scope["method"], "POST")
        mounted = self._mounts.get(segments[0].lower()) if segments else None
        if mounted is not None:
            await _serve_mounted(mounted, segments[0], scope, receive, send)
            return
        if not segments and self._home is not None and _is_browser(scope):
            await _redirect(send, self._home)
            return
        if self._routes is None:
            # The management handlers import pydantic, so they are loaded on first use, in a thread.
            self._routes = await asyncio.to_thread(_routes)
        match = self._routes.find(scope["method"], segments)
        if match is None:
            raise PathNotFound
        request, tracer = Request(self._context, scope, receive, match.names), self._tracer
        handler = match.handler

        async def handle() -> "Response":
            return await (handler(request) if tracer is None else tracer.trace_request(handler, request))

        response = await run_when_open(handle, self._context.clock)
        if _is_change(scope):
            await await_audit(self._context.broker.audit)
        await response(scope, receive, send)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            segments = tuple(segment.lower() for segment in split_path(scope["raw_path"]))
        except Refusal:
            segments = ()
        mounted = self._mounts.get(segments[0]) if segments else None
        if mounted is not None:
            await _serve_mounted(mounted, segments[0], scope, receive, send)
        elif self._websockets is not None and segments == WEBSOCKET_PATH:
            await self._websockets.serve(scope, receive, send)
        else:
            await refuse(send)

    async def fail(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a publish request that has no task and was refused."""
        if isinstance(error, Refusal):
            await self._refuse(error, scope, receive, send)
        else:
            log.error("a publication failed", exc_info=error)
            await self._refuse(InternalFailure(), scope, receive, send)

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("ascii", "replace").strip("/").lower().split("/")
        namespace = self._namespace_of(scope)
        if COUNTED not in scope:
            is_server_error = row_of(type(refusal)).status >= _SERVER_ERROR
            self._context.broker.count_refused_request(namespace, is_server_error=is_server_error)
        if _is_change(scope):
            self._audit_attempt(refusal, scope)
            await await_audit(self._context.broker.audit)
        tracking = self._context.track_refusal(refusal, scope, namespace, path)
        is_json = path[0] in _JSON_FIRST or (path[-1] == _JSON_LAST and scope["method"] != "POST")
        await (json_error if is_json else xml_error)(refusal, tracking)(scope, receive, send)

    def _namespace_of(self, scope: Scope) -> str:
        """Where a refusal is counted: the namespace that the Host header means, else the node's own."""
        broker = self._context.broker
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
        try:
            return broker.namespace_at(host).name
        except AliasElsewhere:
            return broker.namespace_at(None).name

    def _audit_attempt(self, refusal: Refusal, scope: Scope) -> None:
        """Write a change that was requested without the right to the audit log, as completed changes are."""
        if not isinstance(refusal, Unauthorized):
            return
        actor = self._context.actor(scope.get(CALLER) or _ANONYMOUS, scope)
        self._context.broker.audit.write(actor.line(scope["method"], path_for_log(scope), refusal))


def _is_change(scope: Scope) -> bool:
    """Whether the request may be audited: it asks for a change, or for keys, and does not publish events."""
    return scope["method"] in _CHANGING_METHODS and not is_message_path(scope["raw_path"])


def _is_browser(scope: Scope) -> bool:
    """Whether a browser sent the request: it accepts HTML by name, and no Atom feed."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept").lower()
    return scope["method"] in ("GET", "HEAD") and b"text/html" in accepted and b"atom" not in accepted


async def _redirect(send: Send, path: str) -> None:
    headers = [(b"location", path.encode()), (b"content-length", b"0"), (b"vary", b"Accept")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _serve_mounted(app: Application, segment: str, scope: Scope, receive: Receive, send: Send) -> None:
    await app({**scope, "root_path": f"{scope.get('root_path', '')}/{segment}"}, receive, send)


def _routes() -> RouteTable[Handler]:
    from hubmere.endpoints.http.server.routes import ALL

    return RouteTable(ALL)


def build_app(
    broker: Broker,
    clock: Clock,
    addresses: Addresses,
    *,
    body_limit_bytes: int,
    amqp_session: Callable[[], Session] | None = None,
    partners: Partners | None = None,
    memory: MemoryBudget | None = None,
    coalescer: Coalescer | None = None,
) -> HttpApp:
    """The application that the HTTP and HTTPS ports serve."""
    context = HttpContext(
        broker=broker,
        clock=clock,
        addresses=addresses,
        body_limit_bytes=body_limit_bytes,
        coalescer=coalescer or build_coalescer(clock),
        memory=memory or MemoryBudget(),
        partners=partners,
    )
    return HttpApp(context, amqp_session)
