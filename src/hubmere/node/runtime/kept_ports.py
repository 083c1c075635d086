"""The ports of a node that runs in a child process: free ones at its first start, and the same at every later one.

While the node does not run, sockets keep its ports, because the system may otherwise give them to another program. The
sockets do not listen, so that clients are refused, and a node can listen on the same ports.
"""

import socket

from hubmere.node.ready import Ready

SERVICES = ("amqp", "amqps", "kafka", "kafkas", "http", "https")


class KeptPorts:
    """The port of each service; "0", any free port, until the node has been ready once."""

    def __init__(self) -> None:
        self.by_service: dict[str, str] = dict.fromkeys(SERVICES, "0")
        self._holders: list[socket.socket] = []

    def remember(self, ready: Ready) -> None:
        """Use the ports of a node that is ready at its next start, so that clients find it again."""
        for service in SERVICES:
            address: str | None = getattr(ready, service)
            if address is not None:
                self.by_service[service] = address.rstrip("/").rpartition(":")[2]

    def hold(self) -> None:
        """The node has ended: keep its ports until `release`."""
        for port in filter(int, self.by_service.values()):
            holder = socket.socket()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind(("127.0.0.1", int(port)))
            except OSError:  # it has another address, or a program has taken the port already
                holder.close()
            else:
                self._holders.append(holder)

    def release(self) -> None:
        """The node listens on its ports, or is not needed any more."""
        while self._holders:
            self._holders.pop().close()
