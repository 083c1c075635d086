"""Accepts TLS connections one by one, so that those in their handshake are bounded too.

A server of the event loop tells about a TLS connection only when its handshake is done; until then it costs memory and
a file descriptor that nobody counts. Here a handshake has a deadline and a bounded number run at once: when there is
one too many, the oldest is given up, so that clients that never finish do not keep out those that do.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from hubmere.endpoints.connections import ConnectionLimits

log = logging.getLogger("hubmere.connection")

# Clients that connect faster than the loop accepts wait here; the kernel's own cap (somaxconn) usually rules.
BACKLOG = 4096
# Connections that are accepted in one turn of the loop.
_ACCEPTS_PER_TURN = 32
# Handshakes at once: a quarter of all connections, and enough for a few clients on a small node.
_HANDSHAKE_SHARE = 4
_MIN_HANDSHAKES = 16
# A process without free file descriptors tries again after this time.
_RETRY_SECONDS = 1.0


class TlsAcceptor:
    """One TLS port. `may_enter` says whether a peer's address could be served at all.

    Thread rule: the node's loop only.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext,
        *,
        limits: ConnectionLimits | None,
        may_enter: Callable[[str], bool],
        handshake_timeout_s: float,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._may_enter = may_enter
        self._handshake_timeout_s = handshake_timeout_s
        most = _MIN_HANDSHAKES if limits is None else limits.limit // _HANDSHAKE_SHARE
        self._most_at_once = max(most, _MIN_HANDSHAKES)
        self._loop = asyncio.get_running_loop()
        # In the order of their coming.
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more, and give up handshakes that are under way."""
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
                # Without a free file descriptor the port stays readable: wait instead of trying in every turn.
                log.error("cannot accept connections: %s", error)
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(_RETRY_SECONDS, self._accept_again)
                return
            if self._may_enter(str(address[0])):
                self._begin(accepted)
            else:
                accepted.close()

    def _accept_again(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _begin(self, accepted: socket.socket) -> None:
        if len(self._handshakes) >= self._most_at_once:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._shake_hands(accepted))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, accepted, ssl=self._tls, ssl_handshake_timeout=self._handshake_timeout_s
            )
        except OSError as error:
            log.debug("a TLS handshake failed: %s", error)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
