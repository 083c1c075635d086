"""uvicorn's HTTP/1.1 connection with limits on size and time, which uvicorn does not have.

- The size of a request head is limited while its bytes arrive, and a request must arrive within a time limit.
- A client that sends nothing, or does not read its responses, is disconnected.
- Input is parsed in slices (`endpoints.fairness`), so that a client that sends without end does not delay others.
- The rest of a refused request's body is dropped up to a limit, so that the client can send its next request.

llhttp (httptools) parses in its strict mode: it refuses a request with both Content-Length and Transfer-Encoding and
everything else on which two parsers may disagree. `framing` checks what llhttp leaves out. Header names are also kept
as they were sent, because they become names of event properties.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hubmere.endpoints.fairness import SlicedInput
from hubmere.endpoints.http.context import HEADER_NAMES, log
from hubmere.endpoints.http.errors import (
    HeadTooLarge,
    MalformedRequest,
    MethodNotAllowed,
    NodeFull,
    RequestTooSlow,
    TargetTooLong,
    Tracking,
    row_of,
    xml_error,
)
from hubmere.endpoints.http.server.framing import check_encoding, check_host, is_readable_handshake, resolve_target
from hubmere.endpoints.refusal_log import REFUSALS
from hubmere.model.clock import SystemClock
from hubmere.model.errors import Refusal

# All headers of a request together: enough for a SAS token and dozens of properties, and the limit of common proxies.
MAX_HEAD_BYTES = 64 * 1024
# Each header costs a few objects whatever its size, so their number is limited too.
MAX_HEADERS = 256
# Chunk sizes, chunk extensions and trailers around a body: the smallest chunks have five bytes around each byte.
MAX_OVERHEAD_PER_BODY_BYTE = 16
# From accepting a connection to the first byte of a request.
FIRST_REQUEST_SECONDS = 30.0
# How long a client may leave its responses unread.
UNREAD_SECONDS = 60.0
# From the first to the last byte of a request: enough for 1 MB over a slow mobile link, and a bound for slow attacks.
REQUEST_SECONDS = 60.0
# Bytes of a refused body that are dropped so that the connection stays usable: a batch that is slightly too large.
MAX_DROPPED_BYTES = 32 * 1024 * 1024

# How long and how far the input of a refused client is still read. Closing a connection with unread input resets it,
# and the client would not see the response (RFC 9112, 9.6).
LINGER_SECONDS = 2.0
MAX_LINGER_BYTES = 4 * 1024 * 1024

# Headers that offer another protocol; the Connection header lists the same names.
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")
_REASONS = {
    400: b"Bad Request",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
# All methods that any route has.
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_CONNECT = b"CONNECT"
SERVER_NAME = b"Microsoft-HTTPAPI/2.0"


class BoundedProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn ships no types that we follow
    """uvicorn's connection, with limits on bytes, time and its share of the loop.

    Thread rule: the node's loop only.
    """

    parser: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]

    def __init__(self, *args: Any, first_request_s: float = FIRST_REQUEST_SECONDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._first_request_s = first_request_s
        self._last_request_at = self.loop.time()
        # uvicorn's access log contains the query, which may hold tokens.
        self.access_log = False
        # State of the request that is being read.
        self._request_number = 0
        self._is_in_head = False
        self._head_bytes = 0
        self._raw_head_bytes = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._dropped_bytes = 0
        self._names: list[bytes] = []
        self._is_in_request = False
        self._deadline: asyncio.Handle | None = None
        self._unread_deadline: asyncio.Handle | None = None
        self._refusal: Refusal | None = None
        self._is_refused = False
        self._input: SlicedInput | None = None
        # The request that is being answered. uvicorn's `cycle` is the last one received, which may be queued behind it.
        self._served: Any = None
        # Whether this is one of the connections that are reserved for health checks and management.
        self.is_reserved = False

    # --- asyncio calls these ---

    def connection_made(self, transport: Any) -> None:
        """Start the timeout for the first request of a new connection."""
        super().connection_made(transport)
        self._input = SlicedInput(transport, self._feed)
        self.flow = FlowControl(self._input)
        self._deadline = self.loop.call_later(self._first_request_s, self._on_deadline)

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client; those of a refused client are dropped until it has read the refusal."""
        if not self._is_refused and self._input is not None:
            self._input.receive(data)
            return
        self._dropped_bytes += len(data)
        if self._dropped_bytes > MAX_LINGER_BYTES:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read its responses: stop reading requests and start the timeout."""
        super().pause_writing()
        if self._input is not None:
            self._input.hold("answers")
        if self._unread_deadline is None:
            self._unread_deadline = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads its responses again."""
        self._cancel_unread_deadline()
        super().resume_writing()
        if self._input is not None:
            self._input.release("answers")

    def _cancel_unread_deadline(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None

    def _feed(self, data: bytes) -> None:
        """Parse one piece of input; the request timeout runs while a request is incomplete."""
        rest: bytes | None = data
        while rest and not self._is_refused:
            rest = self._parse(rest)
        self._on_fed()
        self._update_deadline()

    def _on_fed(self) -> None:
        """Called after each piece of input was parsed."""

    def _parse(self, data: bytes) -> bytes | None:
        """Parse a piece; returns input to parse again, if a request offered to upgrade the protocol."""
        serial, was_in_request, was_in_head = self._request_number, self._is_in_request, self._is_in_head
        body_bytes = self._body_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
            return None
        except httptools.HttpParserUpgrade as upgrade:
            return self._upgrade(data[upgrade.args[0] :])
        if self._is_in_request:
            if serial == self._request_number:
                self._count_overhead(
                    len(data) - (self._body_bytes - body_bytes), is_head=was_in_head and self._is_in_head
                )
            elif self._is_in_head and not was_in_request and serial + 1 == self._request_number:
                self._count_overhead(len(data), is_head=True)
        return None

    def _count_overhead(self, size_bytes: int, *, is_head: bool) -> None:
        """Count parsed bytes that are not part of a body: those of a head, or chunk sizes and trailers.

        Of a head that follows another request in the same piece only complete fields are counted. A piece is much
        smaller than the limit.
        """
        if is_head:
            self._raw_head_bytes += size_bytes
            is_over = self._raw_head_bytes > MAX_HEAD_BYTES
        else:
            self._framing_bytes += size_bytes
            is_over = self._framing_bytes > MAX_HEAD_BYTES + MAX_OVERHEAD_PER_BODY_BYTE * self._body_bytes
        if is_over:
            self._refuse(HeadTooLarge("request head", MAX_HEAD_BYTES))

    def _upgrade(self, rest: bytes) -> bytes | None:
        """Handle a head that asks for another protocol, after which the parser has stopped."""
        if self.parser.get_method() == _CONNECT:
            self._refuse(MethodNotAllowed("CONNECT", _METHODS))
            return None
        if not self._should_upgrade():
            return self._remove_upgrade(rest)
        if rest or (self._input is not None and self._input.has_rest):
            # RFC 6455, 4.1: a client sends nothing before the response to its handshake.
            self._refuse(MalformedRequest("data follows a WebSocket handshake before its response"))
        elif self.is_reserved:
            self._refuse(NodeFull())
        elif not is_readable_handshake(self.headers):
            self._refuse(MalformedRequest("a header of its WebSocket handshake is not ASCII text"))
        else:
            self.handle_websocket_upgrade()
        return None

    def _update_deadline(self) -> None:
        if self._is_in_request:
            if self._deadline is None and not self._is_refused:
                self._deadline = self.loop.call_later(REQUEST_SECONDS, self._on_deadline)
        elif self._request_number:
            self._cancel_deadline()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _remove_upgrade(self, rest: bytes) -> bytes:
        """The same request without its offer of a protocol other than WebSocket, to be parsed again (RFC 9110, 7.8).

        llhttp stops after the head of such a request, also if a body follows. Java's client sends such an offer (h2c)
        with the first request of each connection.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for sent, (name, value) in zip(self._names, self.headers, strict=True):
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE_HEADERS)
            if name not in _UPGRADE_HEADERS:
                lines.append(b"%b: %b" % (sent, value))
        self.parser = httptools.HttpRequestParser(self)
        return b"\r\n".join(lines) + b"\r\n\r\n" + rest

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeouts and drop what is queued."""
        self._cancel_deadline()
        self._cancel_unread_deadline()
        if self._input is not None:
            self._input.drop()
        self.pipeline.clear()
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)

    # --- the parser calls these ---

    def on_message_begin(self) -> None:
        """Reset the state for a new request."""
        super().on_message_begin()
        self._unset_keepalive_if_required()
        self._request_number += 1
        self._is_in_head = True
        self._head_bytes = self._raw_head_bytes = self._body_bytes = self._framing_bytes = 0
        self._last_request_at = self.loop.time()
        if not self._is_in_request:
            self._is_in_request = True
            self._cancel_deadline()
        self._names = []
        self.scope[HEADER_NAMES] = self._names

    def on_url(self, url: bytes) -> None:
        """Append a piece of the request target."""
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refusal = TargetTooLong("request target", MAX_HEAD_BYTES)
            raise self._refusal
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; its name is kept as sent beside uvicorn's lower-case name. A trailer is counted and dropped."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self._names) >= MAX_HEADERS:
            self._refusal = HeadTooLarge("request head", MAX_HEAD_BYTES)
            raise self._refusal
        if not self._is_in_head:
            # RFC 9110, 6.5.1: a trailer is not merged into the headers, where it would bypass their checks.
            return
        self._names.append(name)
        folded = name.lower()
        if folded == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((folded, value))

    def on_headers_complete(self) -> None:
        """Check the complete head; uvicorn then starts the application."""
        self._is_in_head = False
        if self.parser.get_method() == _CONNECT:
            return
        try:
            version = self.parser.get_http_version()
            check_host(self.headers, version)
            check_encoding(self.headers, version)
            self.url = resolve_target(self.url, self.headers)
        except MalformedRequest as refusal:
            self._refusal = refusal
            raise
        if self.parser.should_upgrade() and not self._should_upgrade():
            return
        self._unset_keepalive_if_required()
        super().on_headers_complete()

    def _should_upgrade_to_ws(self) -> bool:
        # uvicorn would check for a WebSocket class, which is loaded with the first WebSocket only.
        return True

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body; it is dropped if the request was answered already."""
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._dropped_bytes += len(body)
            if self._dropped_bytes > MAX_DROPPED_BYTES:
                self.transport.close()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._is_in_request = False
        self._dropped_bytes = 0

    def on_response_complete(self) -> None:
        """A response was sent. While pipelined requests are queued, no more input is read; uvicorn would read on."""
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():
            self.flow.pause_reading()

    # --- refusals below the application ---

    def send_400_response(self, msg: str) -> None:
        """Refuse input that cannot be parsed; uvicorn calls this while it handles the parser's error."""
        self._refuse(self._refusal or MalformedRequest("it is not valid HTTP/1.1"))

    def _on_deadline(self) -> None:
        """Refuse an incomplete request; close a connection on which no request has begun."""
        self._deadline = None
        if self._is_in_request:
            self._refuse(RequestTooSlow(REQUEST_SECONDS))
        elif not self._request_number:
            self.transport.close()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal, unless a response has begun, and close: the rest of the input cannot be trusted."""
        self._is_refused = True
        if self._input is not None:
            self._input.drop()
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(self._encode_refusal(refusal))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._close_lingering()

    def _close_lingering(self) -> None:
        """Close our side; close the connection once the client has closed its side or after a timeout."""
        self._cancel_deadline()
        self._dropped_bytes = 0
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.transport.resume_reading()
            self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        else:
            self.transport.close()

    def _encode_refusal(self, refusal: Refusal) -> bytes:
        tracking = Tracking.begin("gateway", SystemClock().now_ms())
        peer = self.client[0] if self.client else ""
        REFUSALS.write_connection(log, "refused a request from %s: %s TrackingId:%s", peer, refusal.text(), tracking.id)
        response = xml_error(refusal, tracking)
        status = row_of(type(refusal)).status
        return b"".join(
            (
                b"HTTP/1.1 %d %s\r\n" % (status, _REASONS[status]),
                *(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in response.headers.items()),
                b"server: %b\r\nconnection: close\r\n\r\n" % SERVER_NAME,
                bytes(response.body),
            )
        )
