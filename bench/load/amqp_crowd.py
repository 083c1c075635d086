"""Many AMQP connections with a link each, in one thread.

The engine of `wire.amqp` opens connections and links. After that, transfers are prepared bytes in which the delivery id
is replaced, and only the type of incoming frames is read (AMQP 1.0, 2.3.1 and 2.8.14).
"""

import contextlib
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from bench.load.library import BenchFailed
from bench.load.raw_amqp import Address, Client, event, from_now

from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.frames import frame
from hubmere.wire.amqp.codec.performatives import Flow, Transfer

_TRANSFER, _DISPOSITION, _FLOW = 0x14, 0x15, 0x13
_RECEIVE_BYTES: Final = 1 << 18
_CREDIT: Final = 100_000
_PATIENCE_S: Final = 10.0


@dataclass(slots=True)
class _Member:
    client: Client
    link: Link
    next_id: int = 0
    sent_at: float = 0.0
    buffer: bytearray = field(default_factory=bytearray)

    def send_transfer(self, payload: bytes) -> None:
        head = Transfer(
            handle=self.link.handle,
            delivery_id=self.next_id,
            delivery_tag=self.next_id.to_bytes(4, "big"),
            message_format=0,
            settled=False,
        )
        self.next_id += 1
        head_bytes = frame(head, self.link.channel)
        size = (len(head_bytes) + len(payload)).to_bytes(4, "big")
        self.sent_at = time.perf_counter()
        self.client.send(size + head_bytes[4:] + payload)

    def received_kinds(self) -> list[int]:
        """The kinds of the frames that have arrived completely."""
        self.buffer += self.client.receive(_RECEIVE_BYTES)
        kinds = []
        while len(self.buffer) >= 8:
            end = int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < end:
                break
            if end > 11:
                kinds.append(self.buffer[10])
            del self.buffer[:end]
        return kinds


class AmqpCrowd:
    """Connections for the length of a `with` block; each has one link once `attach_...` was called."""

    def __init__(self, address: Address, count: int) -> None:
        self._address = address
        self._count = count
        self._stack = contextlib.ExitStack()
        self._poll = select.epoll()
        self._clients: list[Client] = []
        self._members: dict[int, _Member] = {}

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._clients.append(self._stack.enter_context(Client(self._address)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._poll.close()

    def attach_senders(self, target: str) -> None:
        """A link to publish on, for each connection."""
        for client in self._clients:
            link = client.sender(target)
            self._add(client, link).next_id = link.session.next_delivery_id

    def attach_receivers(self, source: str) -> None:
        """A link for each connection that reads new events, with credit."""
        for client in self._clients:
            link = client.receiver(source, from_now())
            flow = Flow(
                next_incoming_id=link.session.next_incoming_id or 0,
                incoming_window=1 << 20,
                next_outgoing_id=link.session.next_outgoing_id,
                outgoing_window=1 << 20,
                handle=link.handle,
                delivery_count=link.delivery_count,
                link_credit=_CREDIT,
            )
            client.send(frame(flow, link.channel))
            self._add(client, link)
        time.sleep(0.3)

    def _add(self, client: Client, link: Link) -> _Member:
        member = self._members[client.fileno] = _Member(client, link)
        self._poll.register(client.fileno, select.EPOLLIN)
        return member

    def send_singles(self, size_bytes: int, seconds: float) -> list[float]:
        """Each connection sends an event whenever its last one was accepted; returns the waits in seconds."""
        payload, waits = event(size_bytes), list[float]()
        end = time.perf_counter() + seconds
        for member in self._members.values():
            member.send_transfer(payload)

        def on_frame(member: _Member, kind: int) -> bool:
            if kind != _DISPOSITION:
                return False
            waits.append(time.perf_counter() - member.sent_at)
            if time.perf_counter() < end:
                member.send_transfer(payload)
                return False
            return True

        self._run(on_frame)
        return waits

    def send_one(self, size_bytes: int) -> None:
        """Send one event on the first connection; its disposition is read by the next call of `send_singles`."""
        next(iter(self._members.values())).send_transfer(event(size_bytes))

    def receive_one_each(self, due: float, delays: list[float]) -> None:
        """Wait until each connection has received one event, and record the delays since it was due."""

        def on_frame(_member: _Member, kind: int) -> bool:
            if kind != _TRANSFER:
                return False
            delays.append(time.perf_counter() - due)
            return True

        self._run(on_frame)

    def _run(self, on_frame: Callable[[_Member, int], bool]) -> None:
        """Read until `on_frame` has returned True for every member."""
        left, deadline = len(self._members), time.perf_counter() + _PATIENCE_S
        while left:
            ready = self._poll.poll(1.0)
            if ready:
                deadline = time.perf_counter() + _PATIENCE_S
            elif time.perf_counter() > deadline:
                raise BenchFailed("the node fell silent")
            for file, _ in ready:
                member = self._members[file]
                left -= sum(on_frame(member, kind) for kind in member.received_kinds())
