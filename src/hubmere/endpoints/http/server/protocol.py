"""One connection of the HTTP and HTTPS ports: counts itself, reports to monitoring and publishes complete requests.

A publish request whose body arrives with its head is published from the parser's callback (`publish.handler`). One that
has the same head as the request before it is published without the parser (`repeated`). Limits and timeouts are in
`bounded.BoundedProtocol`.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from hubmere.broker import Connections, ConnectionView, Judge, LinkRole, LinkView, Principal, display_text
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.http.context import CALLER, WRITE_CREATED, Scope, log, path_for_log
from hubmere.endpoints.http.errors import XML_TYPE, NodeFull
from hubmere.endpoints.http.publish.handler import CachedRequestHead, send_created
from hubmere.endpoints.http.publish.request_head import is_message_path
from hubmere.endpoints.http.server.app import HttpApp
from hubmere.endpoints.http.server.bounded import BoundedProtocol
from hubmere.endpoints.http.server.repeated import RepeatedHead, remember_head
from hubmere.model.clock import SystemClock
from hubmere.model.errors import ShuttingDown

# HTTP, HTTPS and WebSockets share one limit of connections.
PROTOCOL = "HTTP"
# Time for a request on a connection that is reserved for health checks and management; shorter than on others.
_RESERVED_SECONDS = 5.0
_CREATED_LINES = b"HTTP/1.1 201 Created\r\n%bcontent-type: " + XML_TYPE.encode() + b"\r\ncontent-length: 0\r\n\r\n"


class _CreatedResponse:
    """Cached `201 Created` response; rebuilt when the server refreshes its default headers, once a second."""

    __slots__ = ("_data", "_headers")

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._data = b""

    def with_headers(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The response with these headers."""
        if headers is not self._headers:
            self._headers = headers
            self._data = _CREATED_LINES % b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._data


_CREATED = _CreatedResponse()


class HttpConnection(BoundedProtocol):
    """One connection of the HTTP or HTTPS port.

    Thread rule: the node's loop only.
    """

    def __init__(
        self,
        *args: Any,
        connections: Connections | None = None,
        registry: ConnectionLimits | None = None,
        app: HttpApp | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        # Counts this connection once it is admitted.
        self._registry = registry
        self._is_counted = False
        # None for another application than the node's, which does not publish.
        self._node_app = app
        self._memory = None if app is None else app.memory
        self._is_at_head = False
        # The application of a publish request whose body has not arrived yet.
        self._deferred_app: Any = None
        # The request that was published without a task and is not answered yet.
        self._pending_cycle: Any = None
        self._cached_head: CachedRequestHead | None = None
        # The bytes of that head, if the last two requests had the same one.
        self._repeated_head: RepeatedHead | None = None
        self._is_head_repeated = False
        # The last request that was published and answered without a task.
        self._created_cycle: Any = None

    # --- asyncio calls these ---

    def connection_made(self, transport: Any) -> None:
        """Admit a new connection; one beyond the limit is closed, unless a reserved connection is free."""
        super().connection_made(transport)
        if self._registry is not None and not self._admit(self._registry):
            self._is_refused = True
            transport.abort()
            return
        if self._connections is not None:
            self._connections.add(self, SystemClock().now_ms())

    def _admit(self, registry: ConnectionLimits) -> bool:
        self._is_counted = registry.enter(PROTOCOL, self._address)
        if self._is_counted:
            return True
        self.is_reserved = registry.enter_reserve(self)
        if self.is_reserved:
            self._cancel_deadline()
            self._deadline = self.loop.call_later(_RESERVED_SECONDS, self._on_deadline)
        return self.is_reserved

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's count."""
        self._release()
        if self._connections is not None:
            self._connections.remove(self)
        super().connection_lost(exc)

    def _release(self) -> None:
        if self._is_counted and self._registry is not None:
            self._is_counted = False
            self._registry.leave(PROTOCOL, self._address)
        elif self.is_reserved and self._registry is not None:
            self._registry.leave_reserve(self)

    def _feed(self, data: bytes) -> None:
        """Publish a request with the head of the last one at once; parse everything else."""
        repeated = self._repeated_head
        if repeated is not None:
            body = repeated.body_of(data) if self._can_publish_again else None
            if body is not None:
                self._publish_again(body)
                return
            self._repeated_head = None
        is_first, number = not self._is_in_request, self._request_number
        self._is_head_repeated = False
        super()._feed(data)
        if self._is_head_repeated and is_first and number + 1 == self._request_number and not self._is_in_request:
            self._repeated_head = remember_head(data, self._body_bytes)

    @property
    def _can_publish_again(self) -> bool:
        """Whether the last request is answered, and nothing keeps the next one from being published."""
        return (
            self._created_cycle is self.cycle
            and self._cached_head is not None
            and not (self._is_in_request or self._is_refused or self.pipeline or self.flow.write_paused)
            and not (self._memory is not None and self._memory.is_tight)
            and not self.transport.is_closing()
        )

    def _publish_again(self, body: bytes) -> None:
        """Publish a request with the head of the last one, whose state it takes over.

        Does what the callbacks of the parser do for any request.
        """
        app, cycle, cached = self._node_app, self.cycle, self._cached_head
        assert app is not None
        assert cached is not None
        self._unset_keepalive_if_required()
        self._request_number += 1
        self._last_request_at = self.loop.time()
        self._created_cycle = None
        cycle.response_started = cycle.response_complete = False
        self._pending_cycle = cycle
        self._cached_head = app.publish_again(self.scope, body, partial(self._on_published, cycle), cached)

    def _on_fed(self) -> None:
        """A piece of input was parsed: a publish request whose body did not arrive with its head gets a task."""
        if self._deferred_app is not None:
            self._start_deferred_task()

    # --- the parser calls these ---

    def on_headers_complete(self) -> None:
        """The head is complete: uvicorn starts the application, which is deferred for a publish request."""
        self._is_at_head = True
        super().on_headers_complete()
        self._is_at_head = False

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Override of uvicorn's method: the task of a publish request is deferred until its body turns out missing."""
        self._served = cycle
        scope = cycle.scope
        if self.is_reserved:
            # One response per reserved connection, so that others can use it. Events need an ordinary connection.
            cycle.keep_alive = False
            if self._node_app is not None and is_message_path(scope["raw_path"]):
                app = partial(self._node_app.fail, NodeFull())
            super()._start_asgi_task(cycle, app)
        elif (
            self._is_at_head
            and self._node_app is not None
            and scope["method"] == "POST"
            and is_message_path(scope["raw_path"])
        ):
            self._deferred_app = app
        else:
            super()._start_asgi_task(cycle, app)

    def _start_deferred_task(self) -> None:
        """Start the task of a publish request, which reads the rest of the body."""
        app, self._deferred_app = self._deferred_app, None
        if not self._is_refused:
            self.scope[WRITE_CREATED] = partial(self._write_created, self.cycle)
            super()._start_asgi_task(self.cycle, app)

    def _publish_complete(self) -> None:
        """Publish a request whose body arrived with its head; it needs no task."""
        app, cycle = self._node_app, self.cycle
        assert app is not None
        self._deferred_app = None
        self._pending_cycle = cycle
        body, cycle.body = bytes(cycle.body), bytearray()
        last = self._cached_head
        self._cached_head = app.publish(self.scope, body, partial(self._on_published, cycle), last)
        self._is_head_repeated = last is not None and last is self._cached_head

    def _on_published(self, cycle: Any, error: Exception | None) -> None:
        """Answer a request that was published without a task: most answers are one write."""
        if self._pending_cycle is not cycle:
            return
        self._pending_cycle = None
        if cycle.disconnected:
            return
        if error is None and self._write_created(cycle):
            self._created_cycle = cycle
            return
        assert self._node_app is not None
        super()._start_asgi_task(cycle, send_created if error is None else partial(self._node_app.fail, error))

    def abandon_publish(self) -> None:
        """The node stops and waits no longer: refuse a publication that is not durable yet."""
        if self._pending_cycle is not None:
            self._on_published(self._pending_cycle, ShuttingDown())

    def _write_created(self, cycle: Any) -> bool:
        """Answer 201 without a body in one write; False if the ordinary response must be sent.

        Does what uvicorn's `send` does in two calls for any response.
        """
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(_CREATED.with_headers(self.server_state.default_headers))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body; reading stops while the node's memory budget is used up."""
        super().on_body(body)
        if self._memory is not None and self._memory.is_tight:
            # `read_body` waits for memory, and then resumes reading.
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """The request is complete."""
        super().on_message_complete()
        if self._deferred_app is not None:
            self._publish_complete()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a WebSocket, which has its own limits."""
        self._is_in_request = False
        if self._connections is not None:
            self._connections.remove(self)
        # The connection stays counted until the WebSocket is closed.
        from hubmere.endpoints.http.server.upgrade import WebSocketProtocol

        self.ws_protocol_class = partial(WebSocketProtocol, on_lost=self._release)
        super().handle_websocket_upgrade()

    # --- the reserve calls these (connections.ReservedConnection) ---

    @property
    def is_silent(self) -> bool:
        """Whether no request has arrived on this connection yet."""
        return self.cycle is None

    def give_way(self) -> None:
        """Close at once in favour of a newer connection."""
        self.transport.abort()

    # --- monitoring (broker.LiveConnection) ---

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """Snapshot of the connection for monitoring, described by its last request."""
        scope: Scope = self.scope or {}
        headers: Mapping[bytes, bytes] = dict(scope.get("headers", ()))
        caller: Principal | None = scope.get(CALLER)
        return ConnectionView(
            number=number,
            protocol="HTTP",
            client="",
            software=display_text(headers.get(b"user-agent", b"").decode("latin-1")),
            rule="" if caller is None else caller.rule,
            peer=self.client[0] if self.client else "",
            namespace="" if caller is None else caller.namespace,
            is_secure=self.scheme == "https",
            opened_ms=opened_ms,
            idle_s=max(self.loop.time() - self._last_request_at, 0.0),
            links=() if "raw_path" not in scope else (_request_view(scope),),
        )

    def callers(self) -> Iterable[Principal]:
        """None: a client is authenticated for each request."""
        return ()

    def review(self, judge: Judge) -> None:
        """Nothing to do: each request is authorized by the rules in force."""

    def disconnect(self, why: str) -> None:
        """Close the connection; a response that is being sent is lost."""
        log.info("closing the connection from %s: %s", self.client[0] if self.client else "", why)
        self.transport.close()


def _request_view(scope: Scope) -> LinkView:
    """The last request in the form of a link: its path, and the hub if it was a publish request."""
    path = path_for_log(scope)
    parent, slash, last = path.strip("/").rpartition("/")
    is_publication = scope["method"] == "POST" and slash and last.lower() == "messages"
    role = LinkRole.PUBLISHES if is_publication else LinkRole.ASKS
    return LinkView(
        role=role, name=scope["method"], address=path, hub=parent.partition("/")[0] if is_publication else ""
    )
