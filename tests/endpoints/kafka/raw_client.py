"""A client for exact requests: our own engine on a blocking socket, and raw bytes."""

import select
import socket
import ssl
from types import TracebackType
from typing import Any, Self

from endpoints.kafka.kafka_node import KafkaNode
from hubmere.records.records import Record, encode_batch
from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

# Only a failing test waits this long.
_TIMEOUT_S = 240.0


class RawClient:
    """One connection. `call` sends a request and returns the body of its answer."""

    def __init__(
        self,
        node: KafkaNode,
        connection_string: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        client_id: str = "raw",
    ) -> None:
        plain = socket.create_connection(("127.0.0.1", node.port), _TIMEOUT_S)
        self.socket: socket.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self.engine = ClientConnection(client_id=client_id)
        self._answers: list[Any] = []
        self._connection_string = connection_string or node.connection_string()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def sign_in(self) -> Self:
        """Authenticate with SaslHandshake and SaslAuthenticate."""
        self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = self.call(SaslAuthenticateRequest(auth_bytes=self.plain_token()), 2)
        assert answer.error_code == 0, answer.error_message
        return self

    def plain_token(self) -> bytes:
        return b"\0$ConnectionString\0" + self._connection_string.encode()

    def send(self, body: Any, version: int) -> None:
        """Send a request without waiting."""
        self.engine.request(body, version)
        self.socket.sendall(b"".join(self.engine.data_to_send()))

    def answer(self) -> Any:
        """The body of the next answer."""
        while not self._answers:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the node has closed the connection")
            self._answers += self.engine.receive_data(data)
        return self._answers.pop(0).body

    def call(self, body: Any, version: int) -> Any:
        """Send a request and wait for its answer."""
        self.send(body, version)
        return self.answer()

    def has_answer(self, wait_s: float) -> bool:
        """Whether the node sends something within a time."""
        return bool(self._answers or select.select([self.socket], [], [], wait_s)[0])

    def is_closed_by_peer(self) -> bool:
        """Whether the node has closed the connection without another answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


# --- requests with valid defaults ------------------------------------------------------------------------------------


def a_batch(
    *values: bytes | None, key: bytes | None = None, timestamp_ms: int = 1_700_000_000_000, **more: Any
) -> bytes:
    """A closed batch of records."""
    records = [Record(index, timestamp_ms + index, key, value) for index, value in enumerate(values or (b"value",))]
    return bytes(encode_batch(records, **more))


def a_produce(
    batch: bytes | None,
    *,
    topic: str = "orders",
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One batch for one partition."""
    part = ProducePartition(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topics=(ProduceTopic(name=topic, partitions=(part,)),),
    )


def a_fetch(
    offset: int = 0,
    *,
    topic: str = "orders",
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    **more: Any,
) -> FetchRequest:
    """A fetch request for one partition."""
    part = FetchPartition(index=partition, fetch_offset=offset, max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=(FetchTopic(name=topic, partitions=(part,)),),
        **more,
    )


def only(response: Any) -> Any:
    """The only partition of an answer about one topic."""
    assert len(response.topics) == 1
    assert len(response.topics[0].partitions) == 1
    return response.topics[0].partitions[0]
