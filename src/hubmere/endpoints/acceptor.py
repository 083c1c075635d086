"""Accepts TLS connections, and bounds those that are still in their handshake.

A server of the event loop reports a TLS connection only after its handshake. Until then the connection uses memory and
a file descriptor that nothing counts. Here each handshake has a deadline, and a bounded number of them run at once. If
there are too many, the oldest is cancelled, so that clients that never finish do not block clients that do.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.refusal_log import REFUSALS

log = logging.getLogger("hubmere.connection")

# Queue for clients that connect faster than the loop accepts; the kernel's limit (somaxconn) is usually lower.
BACKLOG = 4096
# Connections to accept in one turn of the loop.
_ACCEPTS_PER_TURN = 32
# Concurrent handshakes: a quarter of all connections, but enough for a few clients on a small node.
_HANDSHAKE_SHARE = 4
_MIN_HANDSHAKES = 16
# Delay before the next attempt when the process has no free file descriptor.
_RETRY_SECONDS = 1.0

_NO_TRUST: Final = "the client does not trust the certificate; `hubmere cert` names the authority that it needs"
_NO_TLS: Final = "the client does not use TLS, which this port needs"
# What the errors of OpenSSL mean that clients with wrong settings cause.
_REASONS: Final[Mapping[str, str]] = {
    "TLSV1_ALERT_UNKNOWN_CA": _NO_TRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NO_TRUST,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
}


class TlsAcceptor:
    """One TLS port. `can_accept` says whether a connection from an address would be within the limits.

    Thread rule: the node's loop only.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext,
        *,
        limits: ConnectionLimits | None,
        can_accept: Callable[[str], bool],
        handshake_timeout_s: float,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._can_accept = can_accept
        self._handshake_timeout_s = handshake_timeout_s
        most = _MIN_HANDSHAKES if limits is None else limits.limit // _HANDSHAKE_SHARE
        self._max_handshakes = max(most, _MIN_HANDSHAKES)
        self._loop = asyncio.get_running_loop()
        # In the order in which they started.
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    def start(self) -> None:
        """Start to accept connections."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting, and cancel handshakes."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        for task in list(self._handshakes):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Without a free file descriptor the port stays readable: wait instead of retrying in every turn.
                log.error("cannot accept connections: %s", error)
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(_RETRY_SECONDS, self._resume)
                return
            if self._can_accept(str(address[0])):
                self._start_handshake(accepted, str(address[0]))
            else:
                accepted.close()

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _start_handshake(self, accepted: socket.socket, peer: str) -> None:
        if len(self._handshakes) >= self._max_handshakes:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._handshake(accepted, peer))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _handshake(self, accepted: socket.socket, peer: str) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, accepted, ssl=self._tls, ssl_handshake_timeout=self._handshake_timeout_s
            )
        except OSError as error:
            accepted.close()
            # A client that only went away is no mistake: load balancers probe a port like this.
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                self._log_failure(peer, error)
        except asyncio.CancelledError:
            accepted.close()

    def _log_failure(self, peer: str, error: ssl.SSLError) -> None:
        port = self._listening.getsockname()[1] if not self._is_closed else 0
        why = _REASONS.get(error.reason or "", str(error))
        REFUSALS.write_connection(log, "a TLS handshake from %s on port %s failed: %s", peer, port, why)
