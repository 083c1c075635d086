"""Memory of a node for many idle connections, and for many links on a few connections.

The whole handshake of a connection is one block of bytes that never changes, so that opening thousands costs the client
next to nothing (AMQP 1.0, 2.4.5 and 5.3.2, allows a client to continue before it is answered).
"""

import contextlib
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from bench.load.library import BenchFailed
from bench.load.machine import private_bytes
from bench.load.raw_amqp import Address

from hubmere.wire.amqp import ClientCredentials
from hubmere.wire.amqp.codec.frames import FRAME_TYPE_SASL, HEADER_AMQP, HEADER_SASL, frame
from hubmere.wire.amqp.codec.performatives import ROLE_SENDER, Attach, Begin, Open, Source, Target

CONNECTIONS = 10_000
LINKED_CONNECTIONS = 4
FURTHER_LINKS = 1_000
# File descriptors that a process needs for other purposes than these connections.
_SPARE_FILES = 500
_FLOW = b"\x00\x53\x13"
_ANSWER_SECONDS = 20.0
# Connections that are opened at the same time: fewer than fit into the listener's backlog.
_STRIDE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory that idle clients cost a node."""

    connections: int
    bytes_per_connection: float
    bytes_per_further_link: float


def footprint(address: Address, pid: int, hub: str) -> Footprint:
    """Open idle connections with a session and a link each, then many more links on a few of them."""
    count = _allowed_connections()
    with contextlib.ExitStack() as stack:
        # The first connections are not measured, because they include the cost of shared objects.
        first = [stack.enter_context(each) for each in _opened(address, hub, LINKED_CONNECTIONS)]
        base = private_bytes(pid)
        for each in _opened(address, hub, count):
            stack.enter_context(each)
        crowded = private_bytes(pid)
        for each in first:
            _attach_more(each, hub, FURTHER_LINKS)
        linked = private_bytes(pid)
    links = LINKED_CONNECTIONS * FURTHER_LINKS
    return Footprint(
        connections=count,
        bytes_per_connection=(crowded - base) / count,
        bytes_per_further_link=(linked - crowded) / links,
    )


def _allowed_connections() -> int:
    """As many as the limit on open files allows, which the node inherits from this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, hard - _SPARE_FILES)


def _opened(address: Address, hub: str, count: int) -> Iterator[socket.socket]:
    hello = _handshake(address, hub)
    for start in range(0, count, _STRIDE):
        some = []
        for _ in range(min(_STRIDE, count - start)):
            made = socket.create_connection((address.host, address.port), _ANSWER_SECONDS)
            made.sendall(hello)
            some.append(made)
        for made in some:
            _await_flows(made, 1)
        yield from some


def _handshake(address: Address, hub: str) -> bytes:
    credentials = ClientCredentials.plain(address.user, address.password)
    init = credentials.init((credentials.mechanism,), address.host)
    return b"".join(
        (
            HEADER_SASL,
            frame(init, 0, FRAME_TYPE_SASL),
            HEADER_AMQP,
            frame(Open(container_id="idle", hostname=address.host)),
            frame(Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=2048)),
            _attach(hub, 0),
        )
    )


def _attach(hub: str, handle: int) -> bytes:
    attach = Attach(
        name=f"idle-{handle}",
        handle=handle,
        role=ROLE_SENDER,
        source=Source(),
        target=Target(address=hub),
        initial_delivery_count=0,
    )
    return frame(attach)


def _attach_more(made: socket.socket, hub: str, count: int) -> None:
    for start in range(1, count + 1, 100):
        handles = range(start, min(start + 100, count + 1))
        made.sendall(b"".join(_attach(hub, handle) for handle in handles))
        _await_flows(made, len(handles))


def _await_flows(made: socket.socket, count: int) -> None:
    """Wait until a number of links have credit, which means that they are attached."""
    data = b""
    while data.count(_FLOW) < count:
        more = made.recv(1 << 16)
        if not more:
            raise BenchFailed("an idle connection was refused")
        data += more
