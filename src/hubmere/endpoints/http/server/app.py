"""The HTTP surface of a node: which part answers a request, and what happens to one that nobody can answer.

Publishing is recognised first, since it is what comes thousands of times a second; everything else goes through one
table of path shapes. A refusal becomes an answer in the dialect of the plane it was meant for, with a tracking id that
is also in the log; a bug of ours becomes a 500 without its details. Other applications (the portal) are mounted under a
first path segment.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from hubmere.broker.access import Principal
from hubmere.broker.broker import Broker
from hubmere.broker.metrics import Counters
from hubmere.endpoints.http.context import CALLER, Disconnected, HttpContext, Receive, Scope, Send, log, shown_path
from hubmere.endpoints.http.errors import InternalFailure, MethodNotAllowed, PathNotFound, json_error, row_of, xml_error
from hubmere.endpoints.http.identity import Identity
from hubmere.endpoints.http.pairing.partners import Partners
from hubmere.endpoints.http.paths import Shapes, segments_of
from hubmere.endpoints.http.publish.heads import is_look_path, is_message_path
from hubmere.endpoints.http.publish.quick import Door
from hubmere.endpoints.http.publish.send import COUNTED, DataPlane
from hubmere.endpoints.http.request import Handler, Request
from hubmere.endpoints.http.server.websocket import PATH as WEBSOCKET_PATH
from hubmere.endpoints.http.server.websocket import WebSocketDoor, refuse
from hubmere.endpoints.memory import MemoryBudget
from hubmere.endpoints.stream import Session
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal, ShuttingDown, Unauthorized

if TYPE_CHECKING:
    from starlette.responses import Response

# First segments, and one last one, whose clients expect refusals as JSON.
_JSON_FIRST = ("subscriptions", "providers", "metrics", "openapi.json", "health", "ready", "$capture", "%24capture")
_JSON_LAST = "messages"
_SERVER_ERROR = 500
# Methods that ask for a change, and who asks for one without saying so.
_CHANGES = ("PUT", "PATCH", "POST", "DELETE")
_STRANGER = Principal(namespace="", rule="(unknown)", rights=Rights.NONE)

Traced = Callable[[Handler, Request], Awaitable["Response"]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Publish = Application


class HttpApp:
    """The ASGI application of a node.

    Thread rule: the node's loop only.
    """

    def __init__(self, context: HttpContext, amqp_session: Callable[[], Session] | None) -> None:
        self._site = context
        self._data = DataPlane(context)
        self._shapes: Shapes[Handler] | None = None
        self._mounts: dict[str, Application] = {}
        self._publish: Publish = self._data.publish
        self._traced: Traced | None = None
        self._websockets = None if amqp_session is None else WebSocketDoor(amqp_session)

    def mount(self, first_segment: str, app: Application) -> None:
        """Let another application answer everything below a first path segment."""
        self._mounts[first_segment.lower()] = app

    def trace(self, traced: Traced, publishing: Callable[[Publish], Publish]) -> None:
        """Have management requests, and publications that carry a trace, answered through calls that keep spans."""
        self._traced = traced
        self._publish = publishing(self._data.publish)

    @property
    def door(self) -> Door | None:
        """The short way in for publications that are whole; none where spans are kept, since it keeps none."""
        return self._data.publish_at_once if self._traced is None else None

    @property
    def memory(self) -> MemoryBudget:
        """What buffers of all connections may hold."""
        return self._site.memory

    def stop(self) -> None:
        """The node is stopping: AMQP sessions on WebSockets say good-bye."""
        if self._websockets is not None:
            self._websockets.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        if scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, send)
        except Disconnected:
            return
        except Refusal as refusal:
            await self._refuse(refusal, scope, receive, send)
        except asyncio.CancelledError:
            # Only a stopping node cancels requests: whoever waits here is sent to its successor.
            await self._refuse(ShuttingDown(), scope, receive, send)
        except Exception:  # noqa: BLE001 - the top of a request: log, tell that it was us, and go on with the next
            log.exception("a request failed")
            await self._refuse(InternalFailure(), scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if is_message_path(raw_path) and scope["method"] == "POST":
            await self._publish(scope, receive, send)
            return
        segments = segments_of(raw_path)
        if is_message_path(raw_path) and not is_look_path(segments):
            raise MethodNotAllowed(scope["method"], "POST")
        mounted = self._mounts.get(segments[0].lower()) if segments else None
        if mounted is not None:
            await _mounted(mounted, segments[0], scope, receive, send)
            return
        if self._shapes is None:
            # The management planes bring pydantic along: loaded when first asked for, beside the loop.
            self._shapes = await asyncio.to_thread(_shapes)
        match = self._shapes.find(scope["method"], segments)
        if match is None:
            raise PathNotFound
        call = Request(self._site, scope, receive, match.names)
        traced = self._traced
        response = await (match.handler(call) if traced is None else traced(match.handler, call))
        await response(scope, receive, send)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            segments = tuple(segment.lower() for segment in segments_of(scope["raw_path"]))
        except Refusal:
            segments = ()
        mounted = self._mounts.get(segments[0]) if segments else None
        if mounted is not None:
            await _mounted(mounted, segments[0], scope, receive, send)
        elif self._websockets is not None and segments == WEBSOCKET_PATH:
            await self._websockets.serve(scope, receive, send)
        else:
            await refuse(send)

    async def fail(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell what became of a publication that went the short way in and was not taken."""
        if isinstance(error, Refusal):
            await self._refuse(error, scope, receive, send)
        else:
            log.error("a publication failed", exc_info=error)
            await self._refuse(InternalFailure(), scope, receive, send)

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("ascii", "replace").strip("/").lower().split("/")
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
        namespace = self._site.counted_at(host)
        if COUNTED not in scope:
            _count(namespace.counters, refusal)
        self._note_attempt(refusal, scope)
        tracking = self._site.refused(refusal, scope, f"{namespace.entity.name}:{path[0]}")
        is_json = path[0] in _JSON_FIRST or (path[-1] == _JSON_LAST and scope["method"] != "POST")
        await (json_error if is_json else xml_error)(refusal, tracking)(scope, receive, send)

    def _note_attempt(self, refusal: Refusal, scope: Scope) -> None:
        """A change that somebody asked for without the right leaves a line in the audit log, as done ones do."""
        if (
            not isinstance(refusal, Unauthorized)
            or scope["method"] not in _CHANGES
            or is_message_path(scope["raw_path"])
        ):
            return
        actor = self._site.actor(scope.get(CALLER) or _STRANGER, scope)
        self._site.broker.audit.write(actor.line(scope["method"], shown_path(scope), refusal))


def _count(counters: Counters, refusal: Refusal) -> None:
    counters.incoming_requests += 1
    counters.refused_requests += 1
    if row_of(type(refusal)).status >= _SERVER_ERROR:
        counters.server_errors += 1
    else:
        counters.user_errors += 1


async def _mounted(app: Application, segment: str, scope: Scope, receive: Receive, send: Send) -> None:
    await app({**scope, "root_path": f"{scope.get('root_path', '')}/{segment}"}, receive, send)


def _shapes() -> Shapes[Handler]:
    from hubmere.endpoints.http.server.routes import ALL

    return Shapes(ALL)


def build_app(
    broker: Broker,
    clock: Clock,
    addresses: Addresses,
    *,
    admin_token: str,
    body_limit_bytes: int,
    amqp_session: Callable[[], Session] | None = None,
    partners: Partners | None = None,
    memory: MemoryBudget | None = None,
) -> HttpApp:
    """The application that the HTTP and HTTPS ports serve."""
    context = HttpContext(
        broker=broker,
        clock=clock,
        addresses=addresses,
        identity=Identity(broker, clock, admin_token),
        body_limit_bytes=body_limit_bytes,
        memory=memory or MemoryBudget(),
        partners=partners,
    )
    return HttpApp(context, amqp_session)
