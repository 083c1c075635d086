"""One HTTP/1.1 connection: uvicorn's protocol with the limits that it leaves to others.

A request head has a size limit and a whole request a time limit; a body that nobody wants any more is dropped up to a
limit, so that a refused client can go on with its next request. Parsing is llhttp's (httptools) in its strict mode,
which refuses a request with both Content-Length and Transfer-Encoding and everything else on which two parsers may
disagree. Header names are also kept as they were sent, since they become names of event properties.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from hubmere.broker.access import Principal
from hubmere.broker.roster import ConnectionView, LinkView, Role, Roster, shown
from hubmere.endpoints.http.errors import (
    XML_TYPE,
    HeadTooLarge,
    MalformedRequest,
    RequestTooSlow,
    Tracking,
    row_of,
    xml_error,
)
from hubmere.endpoints.http.site import ANSWER_CREATED, CALLER, HEADER_NAMES, Scope, log, shown_path
from hubmere.endpoints.listener import Connections
from hubmere.model.clock import SystemClock
from hubmere.model.errors import Refusal

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
_CREATED = b"HTTP/1.1 201 Created\r\n%bcontent-type: " + XML_TYPE.encode() + b"\r\ncontent-length: 0\r\n\r\n"


class _WebSocketProtocol(WSProtocol):  # type: ignore[misc]  # as above
    """uvicorn's WebSocket, which tells when it is gone."""

    def __init__(self, *args: Any, on_lost: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self._on_lost()


class BoundedProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn ships no types that we follow
    """uvicorn's connection, bounded.

    Thread rule: the node's loop only.
    """

    parser: Any

    def __init__(
        self, *args: Any, roster: Roster | None = None, registry: Connections | None = None, **kwargs: Any
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
        self._deadline: asyncio.TimerHandle | None = None
        self._is_refused = False

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
        super().on_headers_complete()
        self.scope[ANSWER_CREATED] = partial(self._answer_created, self.cycle)

    def _answer_created(self, cycle: Any) -> bool:
        """Answer 201 without a body in one write; False when the ordinary way must be taken.

        What uvicorn's `send` does in two calls for any answer, done once for the one that comes by the thousand.
        """
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        head = b"".join(b"%b: %b\r\n" % header for header in self.server_state.default_headers)
        self.transport.write(_CREATED % head)
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

    def handle_websocket_upgrade(self) -> None:
        """The connection is handed over: from here on the WebSocket side has its own limits."""
        self._is_in_request = False
        if self._roster is not None:
            self._roster.drop(self)
        # It goes on as another protocol, and keeps its place until that is over.
        self.ws_protocol_class = partial(_WebSocketProtocol, on_lost=self._leave)
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
