"""Listening ports with or without TLS, and the graceful stop of their connections."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial

from hubmere.endpoints.acceptor import BACKLOG, TlsAcceptor
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.fairness import LoopTurn
from hubmere.endpoints.stream import Stream, StreamSession

# Time for a client to complete its TLS handshake.
_HANDSHAKE_SECONDS = 30.0
# Time for clients of a stopping node to answer the close of their connection.
_CLOSE_SECONDS = 1.0


class PortInUse(Exception):
    """A configured port is in use, or may not be opened."""

    def __init__(
        self, service: str, host: str, port: int, why: str, *, is_taken: bool = False, is_bad_host: bool = False
    ) -> None:
        super().__init__(service, host, port, why)
        self.service = service
        self.host = host
        self.port = port
        self.why = why
        self.is_taken = is_taken
        # The host is no address of this machine: another port does not help.
        self.is_bad_host = is_bad_host

    def __str__(self) -> str:
        """Message for the terminal."""
        return f"cannot serve {self.service} on {self.host}:{self.port}: {self.why}"


def bind(service: str, host: str, port: int) -> tuple[socket.socket, int]:
    """Bind a socket (port 0: any free port); returns it with its actual port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # If the protocol is given, asyncio disables Nagle's algorithm on every accepted connection.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise PortInUse(
            service,
            host,
            port,
            error.strerror or str(error),
            is_taken=error.errno == errno.EADDRINUSE,
            is_bad_host=error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror),
        ) from error
    return listening, int(listening.getsockname()[1])


class Listener:
    """The ports of a node and their connections.

    Thread rule: the node's loop only.
    """

    def __init__(self, limits: ConnectionLimits, *, handshake_timeout_s: float = _HANDSHAKE_SECONDS) -> None:
        self._limits = limits
        self._handshake_timeout_s = handshake_timeout_s
        self._turn = LoopTurn()
        self._servers: list[asyncio.Server | TlsAcceptor] = []

    async def serve(
        self,
        listening: socket.socket,
        make_session: Callable[[], StreamSession],
        tls: ssl.SSLContext | None = None,
        *,
        protocol: str,
    ) -> None:
        """Accept connections on a bound socket; `protocol` is the one whose share of the connections they use."""

        def make_stream() -> Stream:
            return Stream(self._limits, make_session, self._turn, protocol)

        if tls is None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(make_stream, sock=listening, backlog=BACKLOG))
            return
        acceptor = TlsAcceptor(
            listening,
            make_stream,
            tls,
            limits=self._limits,
            can_accept=partial(self._limits.has_room, protocol),
            handshake_timeout_s=self._handshake_timeout_s,
        )
        acceptor.start()
        self._servers.append(acceptor)

    async def stop(self) -> None:
        """Stop accepting, close every connection in its protocol's way, and abort those that do not answer."""
        for server in self._servers:
            server.close()
        for stream in list(self._limits.streams):
            stream.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._limits.streams:
                    await asyncio.sleep(0.01)
        for stream in list(self._limits.streams):
            stream.abort()
        self._servers.clear()
