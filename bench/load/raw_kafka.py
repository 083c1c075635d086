"""A raw Kafka producer: the engine of `wire.kafka` connects and signs in, `produce.c` sends the requests.

A `RawProducer` is one connection, to Hubmere or to any other broker. After sign-in only the C code uses the socket; the
state of the engine is then out of date. Nothing is retried: a failure raises `BenchFailed`.
"""

import ctypes
import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.load.library import BenchFailed, Library

from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.connection import ClientConnection, frame_response
from hubmere.wire.kafka.messages.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

SOURCE: Final = Path(__file__).with_name("produce.c")
# A version that current brokers support, in the flexible format of current clients.
_VERSION: Final = 9
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_ANSWER_SECONDS: Final = 10.0
_RECEIVE_BYTES: Final = 1 << 16
# Placeholders for numbers in templates; their positions are found, and the numbers are replaced in each copy.
_MARK: Final = 0x5152_5354
_ERROR_MARK: Final = 0x7A7B
_FAILURES: Final = {
    -1: "the connection was lost",
    -2: "the broker refused a batch",
    -3: "the broker fell silent",
    -4: "the broker wrote an answer that the client does not read",
}


class _Outcome(ctypes.Structure):
    _fields_ = (("requests", ctypes.c_uint64), ("seconds", ctypes.c_double))


class _Template(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("id_place", ctypes.c_size_t),
        ("partition_place", ctypes.c_size_t),
        ("partitions", ctypes.c_uint32),
        ("error_place", ctypes.c_size_t),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Number of answered requests, and the duration."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.count / self.seconds if self.seconds else 0.0


class RawProducer:
    """One connection for the length of a `with` block; `password` is None for a broker without authentication."""

    def __init__(self, address: tuple[str, int], password: str | None) -> None:
        self._address = address
        self._password = password
        self._engine = ClientConnection(client_id="bench")
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(self._address, _ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._password is not None:
            self._ask(SaslHandshakeRequest(mechanism="PLAIN"))
            self._ask(SaslAuthenticateRequest(auth_bytes=f"\0$ConnectionString\0{self._password}".encode()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._socket is not None
        self._socket.close()

    @property
    def fileno(self) -> int:
        """The socket, for the C code."""
        assert self._socket is not None
        return self._socket.fileno()

    def produce(
        self, library: Library, topic: str, batch: bytes, *, partitions: int, in_flight: int, seconds: float
    ) -> Requests:
        """Produce one batch repeatedly, to the partitions in turn, with at most `in_flight` requests unanswered."""
        assert self._socket is not None
        outcome, template = _Outcome(), request_template(topic, batch, partitions)
        code: int = library.code.produce_run(
            self._socket.fileno(),
            ctypes.byref(template),
            ctypes.c_uint32(in_flight),
            ctypes.c_double(seconds),
            ctypes.byref(outcome),
        )
        if code:
            raise BenchFailed(f"produce: {_FAILURES.get(code, code)}")
        return Requests(count=outcome.requests, seconds=outcome.seconds)

    def _ask(self, body: Any) -> None:
        assert self._socket is not None
        self._engine.request(body, 1)
        for part in self._engine.data_to_send():
            self._socket.sendall(part)
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise BenchFailed("the broker closed the connection")
            for response in self._engine.receive_data(data):
                if response.body.error_code:
                    raise BenchFailed(f"the broker refused the sign-in with code {response.body.error_code}")
                return


def request_template(topic: str, batch: bytes, partitions: int) -> _Template:
    """The framed request, and the positions of the numbers that change."""
    engine = ClientConnection(client_id="bench")
    part = ProducePartition(index=_MARK, records=batch)
    topics = (ProduceTopic(name=topic, partitions=(part,)),)
    engine.request(ProduceRequest(acks=_ACKS_ALL, timeout_ms=_TIMEOUT_MS, topics=topics), _VERSION)
    data = b"".join(engine.data_to_send())
    return _Template(
        bytes=data,
        size=len(data),
        id_place=8,  # after the frame's length, the API's key and its version
        partition_place=data.index(_MARK.to_bytes(4, "big")),
        partitions=partitions,
        error_place=_error_place(topic),
    )


def _error_place(topic: str) -> int:
    """The position of the error code in a response for one batch, from the correlation id."""
    part = ProducePartitionResponse(index=0, error_code=_ERROR_MARK, base_offset=0)
    answer = ProduceResponse(topics=(ProduceTopicResponse(name=topic, partitions=(part,)),))
    frame = frame_response(PRODUCE, _VERSION, 0, answer)
    return frame.index(_ERROR_MARK.to_bytes(2, "big")) - 4  # the frame's length is before the correlation id


def a_batch(count: int, size_bytes: int, now_ms: int) -> bytes:
    """A batch of `count` records with values of `size_bytes`."""
    value = bytes(index % 251 for index in range(size_bytes))
    return bytes(encode_batch([Record(index, now_ms, None, value) for index in range(count)]))
