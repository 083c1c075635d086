"""Serves one ASGI application on the HTTP and HTTPS ports, in the node's own event loop.

Uses uvicorn's connections without uvicorn's server: the node owns ports, signals and the loop. `bounded` has the limits
of a connection, the application those of a request.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from email.utils import formatdate
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from hubmere.broker import Connections
from hubmere.endpoints.acceptor import BACKLOG, TlsAcceptor
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.http.server.app import HttpApp
from hubmere.endpoints.http.server.bounded import SERVER_NAME
from hubmere.endpoints.http.server.protocol import HttpConnection
from hubmere.endpoints.http.server.uvicorn_internals import check_internals

# How long requests may take to finish when the node stops.
_GRACE_SECONDS = 1.0
_GRACE_POLL_SECONDS = 0.005
# From accepting a connection to the end of the TLS handshake, and from there to the first byte of a request.
_HANDSHAKE_SECONDS = 30.0
# A closed connection whose client does not read the rest of its response is aborted by the third of these sweeps.
_SWEEP_SECONDS = 10.0
_MAX_SWEEPS = 3
# The Date header has a resolution of one second.
_DATE_SECONDS = 1.0
# The largest WebSocket message: clients send one AMQP frame in each, and no frame is larger than a publication.
_MAX_WEBSOCKET_BYTES = 2 * 1024 * 1024


class HttpServers:
    """The HTTP and HTTPS ports of a node.

    Thread rule: the node's loop only.
    """

    def __init__(
        self,
        app: Any,
        *,
        keep_alive_s: float = 120.0,
        handshake_timeout_s: float = _HANDSHAKE_SECONDS,
        connections: Connections | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        check_internals()
        self._app = app
        self._connections = connections
        self._limits = limits
        self._keep_alive_s = keep_alive_s
        self._handshake_timeout_s = handshake_timeout_s
        self._state = ServerState()
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        self._header_timer: asyncio.Handle | None = None
        self._sweep_timer: asyncio.Handle | None = None
        # Closed connections that still exist, and how many sweeps have seen them.
        self._lingering: dict[Any, int] = {}
        # uvicorn's log contains queries, which may hold tokens; the application logs refusals.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

    async def serve(self, service: str, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Start to accept requests on a bound socket."""
        config = self._config()
        config.load()
        app = self._app if isinstance(self._app, HttpApp) else None
        if self._header_timer is None:
            self._refresh_headers()
            self._abort_lingering()
        # Inherited by accepted connections. A response is written in two pieces, which Nagle's algorithm would delay.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        make = partial(self._make_connection, config, app)
        if tls is None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(make, sock=listening, backlog=BACKLOG))
            return
        acceptor = TlsAcceptor(
            listening,
            make,
            tls,
            limits=self._limits,
            # A connection beyond the limit may still use a reserved one, which is decided once it is established.
            can_accept=lambda _address: True,
            handshake_timeout_s=self._handshake_timeout_s,
        )
        acceptor.start()
        self._servers.append(acceptor)

    def _make_connection(self, config: uvicorn.Config, app: HttpApp | None) -> HttpConnection:
        return HttpConnection(
            config,
            self._state,
            {},
            connections=self._connections,
            registry=self._limits,
            app=app,
            first_request_s=self._handshake_timeout_s,
        )

    def _http_connections(self) -> list[HttpConnection]:
        """The connections that have not become WebSockets."""
        return [one for one in self._state.connections if isinstance(one, HttpConnection)]

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app,
            loop="none",
            http=HttpConnection,
            # The connection loads its own class with the first WebSocket.
            ws="none",
            ws_max_size=_MAX_WEBSOCKET_BYTES,
            ws_per_message_deflate=False,
            # AMQP has its own heartbeat.
            ws_ping_interval=None,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(self._keep_alive_s),
        )

    def _refresh_headers(self) -> None:
        """Rebuild the headers of all responses, once a second."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode()), (b"server", SERVER_NAME)]
        self._header_timer = asyncio.get_running_loop().call_later(_DATE_SECONDS, self._refresh_headers)

    def _abort_lingering(self) -> None:
        """Abort closed connections whose clients do not read the rest of their responses."""
        previous, self._lingering = self._lingering, {}
        for connection in list(self._state.connections):
            if connection.transport is not None and connection.transport.is_closing():
                sweeps = previous.get(connection, 0) + 1
                self._lingering[connection] = sweeps
                if sweeps >= _MAX_SWEEPS:
                    connection.transport.abort()
        self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._abort_lingering)

    async def stop(self) -> None:
        """Stop accepting, let requests and sessions finish within a grace period, then close."""
        for server in self._servers:
            server.close()
        if isinstance(self._app, HttpApp):
            self._app.stop()
            await asyncio.sleep(0)
        for connection in list(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                while self._state.connections or self._state.tasks:
                    await asyncio.sleep(_GRACE_POLL_SECONDS)
        await self._cancel_remaining()
        for timer in (self._header_timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._sweep_timer = None
        self._servers.clear()

    async def _cancel_remaining(self) -> None:
        """Cancel what did not finish in time; a cancelled request is still answered."""
        for task in list(self._state.tasks):
            task.cancel()
        for connection in self._http_connections():
            connection.abandon_publish()
        if late := list(self._state.tasks):
            await asyncio.wait(late, timeout=_GRACE_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.close()
