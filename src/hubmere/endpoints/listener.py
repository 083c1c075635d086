"""Ports, TLS and graceful stop: binds what the settings name, counts connections, and lets them go in order."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from hubmere.endpoints.stream import Stream, StreamSession

# Clients that connect faster than the loop accepts wait here; the kernel's own cap (somaxconn) usually rules.
_BACKLOG = 4096
# How long a stopping node lets its clients answer their good-byes.
_GOODBYE_SECONDS = 1.0


class PortInUse(Exception):
    """A port that the settings name is taken or not ours to open."""

    def __init__(self, service: str, host: str, port: int, why: str) -> None:
        super().__init__(service, host, port, why)
        self.service = service
        self.host = host
        self.port = port
        self.why = why

    def __str__(self) -> str:
        """One line for the terminal."""
        return f"cannot serve {self.service} on {self.host}:{self.port}: {self.why}"


@dataclass(slots=True)
class Connections:
    """Every open connection of the node, and the most that it serves at once.

    Streams are known one by one, for whoever ends them; those of the HTTP server, which ends its own, are counted.
    """

    limit: int
    on_open: Callable[[], None] = lambda: None
    on_close: Callable[[], None] = lambda: None
    streams: set[Stream] = field(default_factory=set)
    others: int = 0

    def admit(self, stream: Stream) -> bool:
        """Count a connection in; False when the node is full."""
        if self._is_full:
            return False
        self.streams.add(stream)
        self.on_open()
        return True

    def forget(self, stream: Stream) -> None:
        """Count a connection out."""
        if stream in self.streams:
            self.streams.discard(stream)
            self.on_close()

    def enter(self) -> bool:
        """Count one of the HTTP server's in; False when the node is full."""
        if self._is_full:
            return False
        self.others += 1
        self.on_open()
        return True

    def leave(self) -> None:
        """Count one of the HTTP server's out."""
        self.others -= 1
        self.on_close()

    @property
    def _is_full(self) -> bool:
        return len(self.streams) + self.others >= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port that is served."""

    service: str
    host: str
    port: int


def bind(service: str, host: str, port: int) -> tuple[socket.socket, Port]:
    """A bound socket (port 0: any free one), and the port that it got."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio switches Nagle's delay off on every accepted connection.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise PortInUse(service, host, port, error.strerror or str(error)) from error
    return listening, Port(service=service, host=host, port=listening.getsockname()[1])


class Listener:
    """The ports of a node and their connections.

    Thread rule: the node's loop only.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._servers: list[asyncio.Server] = []

    async def serve(
        self, listening: socket.socket, make_session: Callable[[], StreamSession], tls: ssl.SSLContext | None = None
    ) -> None:
        """Accept connections on a bound socket."""
        server = await asyncio.get_running_loop().create_server(
            lambda: Stream(self._connections, make_session), sock=listening, ssl=tls, backlog=_BACKLOG
        )
        self._servers.append(server)

    async def stop(self) -> None:
        """Stop accepting, say good-bye on every connection, and end those that do not answer."""
        for server in self._servers:
            server.close()
        for stream in list(self._connections.streams):
            stream.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                while self._connections.streams:
                    await asyncio.sleep(0.01)
        for stream in list(self._connections.streams):
            stream.abort()
        self._servers.clear()
