"""Many Kafka connections in one thread, each with one request in flight.

Requests are encoded once by the engine of `wire.kafka` and sent as bytes. Answers are only counted, unless a curve
decodes them. The client is Python, so compare the node's CPU time, not the client's rates.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from bench.load.library import BenchFailed

from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

_ANSWER_SECONDS: Final = 60.0
_RECEIVE_BYTES: Final = 1 << 18
# Connections that are opened at the same time: fewer than fit into the listener's backlog.
_STRIDE: Final = 100
PRODUCE_VERSION, FETCH_VERSION = 9, 11


@dataclass(slots=True)
class Member:
    """One connection. `buffer` holds an answer that has not arrived completely."""

    number: int
    socket: socket.socket
    engine: ClientConnection
    sent_at: float = 0.0
    answers: int = 0
    buffer: bytearray = field(default_factory=bytearray)

    def send(self, frame: bytes) -> None:
        """Send a request."""
        self.sent_at = time.perf_counter()
        self.socket.sendall(frame)

    def receive(self) -> list[bytes]:
        """The answers that have arrived completely, without their length prefix."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise BenchFailed("the node closed a connection")
        self.buffer += data
        frames = []
        while len(self.buffer) >= 4:
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < end:
                break
            frames.append(bytes(self.buffer[4:end]))
            del self.buffer[:end]
        self.answers += len(frames)
        return frames


# Called with a member and one of its answers; returns the next request of the member, or None.
OnAnswer = Callable[[Member, bytes], bytes | None]


class KafkaCrowd:
    """Connections that have signed in, for the length of a `with` block."""

    def __init__(self, address: tuple[str, int], password: str, count: int) -> None:
        self._address = address
        self._sign_in = f"\0$ConnectionString\0{password}".encode()
        self._count = count
        self._poll = select.epoll()
        self._by_file: dict[int, Member] = {}
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        for start in range(0, self._count, _STRIDE):
            some = [self._connect(number) for number in range(start, min(start + _STRIDE, self._count))]
            for request in (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=self._sign_in)):
                for member in some:
                    member.send(encode(member.engine, request, 1))
                for member in some:
                    if read_answer(member, _await_answer(member)).error_code:
                        raise BenchFailed("the node refused a sign-in")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.socket.close()
        self._poll.close()

    def _connect(self, number: int) -> Member:
        made = socket.create_connection(self._address, _ANSWER_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        member = Member(number, made, ClientConnection(client_id="bench"))
        self.members.append(member)
        self._by_file[made.fileno()] = member
        self._poll.register(made.fileno(), select.EPOLLIN)
        return member

    def run(self, seconds: float, on_answer: OnAnswer, is_done: Callable[[], bool] = lambda: False) -> None:
        """Send the next request after each answer, for `seconds` or until `is_done`."""
        end = time.perf_counter() + seconds
        while not is_done() and (left := end - time.perf_counter()) > 0:
            for file, _ in self._poll.poll(left):
                member = self._by_file[file]
                for answer in member.receive():
                    frame = on_answer(member, answer)
                    if frame is not None:
                        member.send(frame)

    def ask_all(self, frames: Sequence[bytes]) -> list[bytes]:
        """Send one request from every member; returns the answers in the order of the members."""
        answers: dict[int, bytes] = {}

        def keep(member: Member, answer: bytes) -> None:
            answers[member.number] = answer

        for member, frame in zip(self.members, frames, strict=True):
            member.send(frame)
        self.run(_ANSWER_SECONDS, keep, lambda: len(answers) == len(frames))
        if len(answers) < len(frames):
            raise BenchFailed("the node did not answer all members in time")
        return [answers[member.number] for member in self.members]


def encode(engine: ClientConnection, body: Any, version: int) -> bytes:
    """A framed request."""
    engine.request(body, version)
    return b"".join(engine.data_to_send())


def _await_answer(member: Member) -> bytes:
    while True:
        if frames := member.receive():
            return frames[0]


def read_answer(member: Member, answer: bytes) -> Any:
    """The body of an answer to a request that the member's engine encoded."""
    [response] = member.engine.receive_data(len(answer).to_bytes(4, "big") + answer)
    return response.body


def produce_frame(parts: Sequence[tuple[str, Iterable[int]]], batch: bytes) -> bytes:
    """A request that writes one batch to each of these partitions."""
    topics = tuple(
        ProduceTopic(name=name, partitions=tuple(ProducePartition(index=index, records=batch) for index in indexes))
        for name, indexes in parts
    )
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topics=topics)
    return encode(ClientConnection(client_id="bench"), request, PRODUCE_VERSION)


def fetch_frame(topic: str, positions: Sequence[tuple[int, int]], *, max_wait_ms: int = 500) -> bytes:
    """A fetch request for these partitions and offsets that waits for an event."""
    parts = tuple(FetchPartition(index=index, fetch_offset=offset, max_bytes=1 << 20) for index, offset in positions)
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 22, topics=(FetchTopic(name=topic, partitions=parts),)
    )
    return encode(ClientConnection(client_id="bench"), request, FETCH_VERSION)


@contextlib.contextmanager
def connected(address: tuple[str, int], password: str, count: int = 1) -> Iterator[KafkaCrowd]:
    """A `KafkaCrowd` as a context manager."""
    with KafkaCrowd(address, password, count) as crowd:
        yield crowd
