"""One HTTP/1.1 connection: uvicorn's protocol with the limits that it leaves to others.

A request head has a size limit and a whole request a time limit; a body that nobody wants any more is dropped up to a
limit, so that a refused client can go on with its next request. Parsing is llhttp's (httptools) in its strict mode,
which refuses a request with both Content-Length and Transfer-Encoding and everything else on which two parsers may
disagree. Header names are also kept as they were sent, since they become names of event properties.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hubmere.broker.access import Principal
from hubmere.broker.revocation import Judge
from hubmere.broker.roster import ConnectionView, LinkView, Role, Roster, shown
from hubmere.endpoints.http.app import HttpApp
from hubmere.endpoints.http.errors import (
    XML_TYPE,
    HeadTooLarge,
    MalformedRequest,
    RequestTooSlow,
    Tracking,
    row_of,
    xml_error,
)
from hubmere.endpoints.http.heads import is_message_path
from hubmere.endpoints.http.quick import Waiting
from hubmere.endpoints.http.send import Repeat, created
from hubmere.endpoints.http.site import ANSWER_CREATED, CALLER, HEADER_NAMES, Scope, log, shown_path
from hubmere.endpoints.listener import Connections
from hubmere.model.clock import SystemClock
from hubmere.model.errors import Refusal, ShuttingDown

# Headers of one request together: more than a SAS token and some dozen properties, as large as the usual proxies pass.
MAX_HEAD_BYTES = 64 * 1024
# A count bound beside the byte bound: each header costs a few objects whatever its size.
MAX_HEADERS = 256
# First byte to last byte of a request: 1 MB over a bad mobile link, yet an end for those who send a byte a minute.
REQUEST_SECONDS = 60.0
# Unwanted bytes that are dropped so that the connection stays usable: a batch somewhat over the largest limit.
MAX_DROPPED_BYTES = 32 * 1024 * 1024

# What belongs to an offer to speak another protocol, and what it writes into Connection.
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}
SERVER_NAME = b"Microsoft-HTTPAPI/2.0"
_CREATED_LINES = b"HTTP/1.1 201 Created\r\n%bcontent-type: " + XML_TYPE.encode() + b"\r\ncontent-length: 0\r\n\r\n"


class _Created:
    """The one answer that comes by the thousand: written anew when the headers of every answer are, once a second."""

    __slots__ = ("_data", "_headers")

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._data = b""

    def with_headers(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The whole answer."""
        if headers is not self._headers:
            self._headers = headers
            self._data = _CREATED_LINES % b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._data


_CREATED = _Created()


class BoundedProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn ships no types that we follow
    """uvicorn's connection, bounded.

    Thread rule: the node's loop only.
    """

    parser: Any

    def __init__(
        self,
        *args: Any,
        roster: Roster | None = None,
        registry: Connections | None = None,
        app: HttpApp | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._roster = roster
        # Who counts this connection, once it was let in.
        self._registry = registry
        self._is_counted = False
        self._heard_at = self.loop.time()
        # uvicorn writes an access line with the query, where people put tokens, wherever a handler is found.
        self.access_log = False
        self._head_bytes = 0
        self._dropped_bytes = 0
        self._names: list[bytes] = []
        self._is_in_request = False
        self._deadline: asyncio.Handle | None = None
        self._is_refused = False
        # The short way in for publications: the node's application has one.
        self._node_app = app
        self._door = None if app is None else app.door
        self._is_at_head = False
        self._put_off: Any = None
        self._waiting: Waiting | None = None
        self._repeat: Repeat | None = None

    # --- asyncio calls these ---

    def connection_made(self, transport: Any) -> None:
        """A client is there; an overfull node closes it before it costs anything."""
        super().connection_made(transport)
        if self._registry is not None:
            self._is_counted = self._registry.enter()
            if not self._is_counted:
                self._is_refused = True
                transport.abort()
                return
        if self._roster is not None:
            self._roster.add(self, SystemClock().now_ms())

    def data_received(self, data: bytes) -> None:
        """Parse, and keep the clock running while a request is only half there."""
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._read_without_upgrade(data[upgrade.args[0] :])
        if self._put_off is not None:
            self._start_put_off()
        self._watch_the_clock()

    def _watch_the_clock(self) -> None:
        if self._is_in_request:
            if self._deadline is None and not self._is_refused:
                self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_slow)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Take a request that offers another protocol than WebSocket as if it did not (RFC 9110, 7.8).

        llhttp stops behind the head of such a request, body or not: the head is read again without its offer. Java's
        client sends one (h2c) with every first request.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for sent, (name, value) in zip(self._names, self.headers, strict=True):
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE_HEADERS)
            if name not in _UPGRADE_HEADERS:
                lines.append(b"%b: %b" % (sent, value))
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back and forget the deadline."""
        self._leave()
        if self._roster is not None:
            self._roster.drop(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().connection_lost(exc)

    def _leave(self) -> None:
        if self._is_counted and self._registry is not None:
            self._is_counted = False
            self._registry.leave()

    # --- the parser calls these ---

    def on_message_begin(self) -> None:
        """A new request."""
        super().on_message_begin()
        self._head_bytes = 0
        self._heard_at = self.loop.time()
        self._is_in_request = True
        self._names = []
        self.scope[HEADER_NAMES] = self._names

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge("request head", MAX_HEAD_BYTES)
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; its name is kept as sent beside uvicorn's lower-case one."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self._names) >= MAX_HEADERS:
            raise HeadTooLarge("request head", MAX_HEAD_BYTES)
        self._names.append(name)
        folded = name.lower()
        if folded == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((folded, value))

    def on_headers_complete(self) -> None:
        """The head is whole: uvicorn starts the application, which may answer the short way."""
        if self.parser.should_upgrade() and not self._should_upgrade():
            return
        self._is_at_head = True
        super().on_headers_complete()
        self._is_at_head = False

    def _should_upgrade_to_ws(self) -> bool:
        # uvicorn would look for a class, which is loaded with the first WebSocket.
        return True

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """uvicorn's own; for a publication it is put off until it is known whether its body came with its head."""
        scope = cycle.scope
        if (
            self._is_at_head
            and self._door is not None
            and scope["method"] == "POST"
            and is_message_path(scope["raw_path"])
        ):
            self._put_off = app
        else:
            super()._start_asgi_task(cycle, app)

    def _start_put_off(self) -> None:
        """The common way for a publication that was put off."""
        app, self._put_off = self._put_off, None
        if not self._is_refused:
            self.scope[ANSWER_CREATED] = partial(self._answer_created, self.cycle)
            super()._start_asgi_task(self.cycle, app)

    def _publish_at_once(self) -> None:
        """Take a publication the short way in, if that is open to it."""
        cycle = self.cycle
        assert self._door is not None
        waiting = Waiting(self._answer_waiting, cycle)
        repeat = self._door(self.scope, bytes(cycle.body), waiting, self._repeat)
        if repeat is not None:
            self._repeat = repeat
            self._put_off = None
            self._waiting = waiting
            cycle.body = bytearray()
        else:
            self._start_put_off()

    def _answer_waiting(self, cycle: Any, error: Exception | None) -> None:
        """What became of a publication that went the short way; few answers need more than one write."""
        self._waiting = None
        if cycle.disconnected or (error is None and self._answer_created(cycle)):
            return
        assert self._node_app is not None
        super()._start_asgi_task(cycle, created if error is None else partial(self._node_app.fail, error))

    @property
    def is_waiting(self) -> bool:
        """Whether a publication that went the short way is not answered yet."""
        return self._waiting is not None

    def give_up(self) -> None:
        """The node stops and waits no longer: a publication that is not durable yet is refused."""
        if self._waiting is not None:
            self._waiting.set_exception(ShuttingDown())

    def _answer_created(self, cycle: Any) -> bool:
        """Answer 201 without a body in one write; False when the ordinary way must be taken.

        What uvicorn's `send` does in two calls for any answer, done once for the one that comes by the thousand.
        """
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(_CREATED.with_headers(self.server_state.default_headers))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_body(self, body: bytes) -> None:
        """A piece of the body; what comes after the answer is dropped."""
        if self.cycle.response_complete:
            self._dropped_bytes += len(body)
            if self._dropped_bytes > MAX_DROPPED_BYTES:
                self.transport.close()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._is_in_request = False
        self._dropped_bytes = 0
        if self._put_off is not None:
            self._publish_at_once()

    def handle_websocket_upgrade(self) -> None:
        """The connection is handed over: from here on the WebSocket side has its own limits."""
        self._is_in_request = False
        if self._roster is not None:
            self._roster.drop(self)
        # It goes on as another protocol, and keeps its place until that is over.
        from hubmere.endpoints.http.upgrade import WebSocketProtocol

        self.ws_protocol_class = partial(WebSocketProtocol, on_lost=self._leave)
        super().handle_websocket_upgrade()

    # --- those who look call these (roster.LiveConnection) ---

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """The connection as it is now, known by the last request on it."""
        scope: Scope = self.scope or {}
        headers: Mapping[bytes, bytes] = dict(scope.get("headers", ()))
        caller: Principal | None = scope.get(CALLER)
        return ConnectionView(
            number=number,
            protocol="HTTP",
            client="",
            software=shown(headers.get(b"user-agent", b"").decode("latin-1")),
            rule="" if caller is None else caller.rule,
            peer=self.client[0] if self.client else "",
            namespace="" if caller is None else caller.namespace,
            is_secure=self.scheme == "https",
            opened_ms=opened_ms,
            idle_s=max(self.loop.time() - self._heard_at, 0.0),
            links=() if "raw_path" not in scope else (_request_view(scope),),
        )

    def callers(self) -> Iterable[Principal]:
        """Nobody for longer than a request, and each is asked anew."""
        return ()

    def review(self, judge: Judge) -> None:
        """Nothing to do: each request is judged by the rules in force."""

    def cut(self, why: str) -> None:
        """Close the connection; an answer that is on its way is lost."""
        log.info("a connection from %s is closed: %s", self.client[0] if self.client else "", why)
        self.transport.close()

    # --- refusals below the application ---

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed, in the service's words; uvicorn calls it while handling the parser's error."""
        too_large = self._head_bytes > MAX_HEAD_BYTES or len(self._names) >= MAX_HEADERS
        self._refuse(
            HeadTooLarge("request head", MAX_HEAD_BYTES) if too_large else MalformedRequest("it is not valid HTTP/1.1")
        )

    def _too_slow(self) -> None:
        self._deadline = None
        if self._is_in_request:
            self._refuse(RequestTooSlow(REQUEST_SECONDS))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer, unless an answer is on its way, and close: what follows on this connection cannot be trusted."""
        self._is_refused = True
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(self._answer(refusal))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _answer(self, refusal: Refusal) -> bytes:
        tracking = Tracking.begin("gateway", SystemClock().now_ms())
        peer = self.client[0] if self.client else ""
        log.info("refused a request: %s TrackingId:%s", refusal.text(), tracking.id, extra={"peer": peer})
        response = xml_error(refusal, tracking)
        status = row_of(type(refusal)).status
        return b"".join(
            (
                b"HTTP/1.1 %d %s\r\n" % (status, _REASONS[status]),
                b"content-type: %s\r\n" % response.headers["content-type"].encode(),
                b"content-length: %d\r\nserver: %s\r\nconnection: close\r\n\r\n" % (len(response.body), SERVER_NAME),
                bytes(response.body),
            )
        )


def _request_view(scope: Scope) -> LinkView:
    """The last request as a link: what was asked for, and on which hub if it was published there."""
    path = shown_path(scope)
    place, slash, last = path.strip("/").rpartition("/")
    is_publication = scope["method"] == "POST" and slash and last.lower() == "messages"
    role = Role.PUBLISHES if is_publication else Role.ASKS
    return LinkView(
        role=role, name=scope["method"], address=path, hub=place.partition("/")[0] if is_publication else ""
    )
