"""One engine on one blocking socket: connect, sign in, ask and be answered.

`Connection` is one socket; whatever goes wrong on it is `Unreachable` and ends it. `Client` makes connections anew with
a growing pause and repeats what may be repeated, for a bounded time. Nothing here knows hubs. Sign-in is SASL PLAIN
with a whole connection string (KIP-43, KIP-152); versions are negotiated (KIP-511).
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hubmere.client.failures import ClientFailure, Refused, SignInRefused, Unreachable
from hubmere.model.connection_string import ConnectionString
from hubmere.wire.kafka.connection import BrokenStream, ClientConnection, Response
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import API_OF_REQUEST
from hubmere.wire.kafka.messages.metadata import API_VERSIONS, ApiVersionsRequest
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

T = TypeVar("T")

# Where Kafka clients find the service, and where they find the official emulator.
TLS_PORT: Final = 9093
PLAIN_PORT: Final = 9092
# A node tells clients whose id begins so where batches lie in the log (`FetchPartitionResponse.log_position`).
CLIENT_ID_PREFIX: Final = "hubmere-"

_USER: Final = "$ConnectionString"
_MECHANISM: Final = "PLAIN"
_SOFTWARE: Final = "hubmere"
_SOFTWARE_VERSION: Final = "1"
# Large enough for most answers; what is larger is received straight into its own frame.
_RECEIVE_BYTES: Final = 64 * 1024
# Pauses between attempts: short at first, since a node restarts within a second, never longer than a person waits.
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a Kafka endpoint is, and how the way to it is protected."""

    host: str
    port: int
    is_secure: bool
    ca_file: str | None = None  # None: the certificates that the system trusts

    @classmethod
    def of(cls, connection: ConnectionString, *, ca_file: str | None = None) -> "Place":
        """Where clients of a connection string look: its port is that of AMQP, so Kafka's usual ones are taken."""
        if connection.is_emulator:
            return cls(host=connection.host, port=PLAIN_PORT, is_secure=False)
        return cls(host=connection.host, port=TLS_PORT, is_secure=True, ca_file=ca_file)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Everything that a client needs to be let in; travels to executors, and keeps its secret out of texts."""

    place: Place
    connection_string: str = field(repr=False)
    client_id: str = CLIENT_ID_PREFIX + "client"
    answer_timeout_s: float = 60.0  # one answer
    patience_s: float = 300.0  # one call, with all its attempts


class Connection:
    """One socket, signed in. Thread rule: one owner."""

    def __init__(self, account: Account, sock: socket.socket) -> None:
        self._account = account
        self._socket = sock
        self._engine = ClientConnection(client_id=account.client_id)
        self._versions: dict[int, int] = {}
        self._arrived: list[Response] = []

    @classmethod
    def open(cls, account: Account) -> "Connection":
        """Connect, learn what is served, sign in."""
        connection = cls(account, _connected_socket(account))
        try:
            connection._negotiate()
            connection._sign_in()
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Let the socket go; what was not answered never will be."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def is_stale(self) -> bool:
        """Whether the peer has ended it: where nothing is asked, nothing else can arrive."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(timeout=0))

    def version_of(self, request: type) -> int:
        """The version in which a request is sent: the newest that both sides know."""
        api = API_OF_REQUEST[request]
        if api.key not in self._versions:
            raise Refused(f"{api.name} on {self._account.place}", ErrorCode.UNSUPPORTED_VERSION)
        return self._versions[api.key]

    def ask(self, body: object) -> Any:
        """Send a request and wait for its answer, which is the response's dataclass."""
        self.send(body)
        return self.receive()

    def send(self, body: object) -> None:
        """Send a request; its answer comes after those to the requests before it."""
        self._send(body, self.version_of(type(body)))

    def receive(self) -> Any:
        """The next answer."""
        while not self._arrived:
            self._arrived += self._receive_some()
        return self._arrived.pop(0).body

    def _send(self, body: object, version: int) -> None:
        self._engine.request(body, version)
        try:
            for part in self._engine.data_to_send():
                self._socket.sendall(part)
        except OSError as error:
            raise self._lost(error) from error

    def _receive_some(self) -> list[Response]:
        room = self._engine.receive_buffer()
        try:
            if room is None:
                data = self._socket.recv(_RECEIVE_BYTES)
                count = len(data)
            else:
                count = self._socket.recv_into(room)
        except OSError as error:
            raise self._lost(error) from error
        if not count:
            raise Unreachable(str(self._account.place), "the connection was closed")
        try:
            return self._engine.receive_data(data) if room is None else self._engine.read_buffer(count)
        except BrokenStream as broken:
            raise Unreachable(str(self._account.place), str(broken)) from broken

    def _lost(self, error: OSError) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(str(self._account.place), f"no answer within {self._account.answer_timeout_s:g} s")
        return Unreachable(str(self._account.place), str(error))

    def _negotiate(self) -> None:
        versions = API_VERSIONS.versions
        self._send(
            ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_SOFTWARE_VERSION),
            versions.high,
        )
        answer = self.receive()
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: the answer names the versions that are understood.
            self._send(ApiVersionsRequest(), versions.low)
            answer = self.receive()
        if answer.error_code:
            raise Refused(f"ApiVersions on {self._account.place}", answer.error_code)
        served = {found.api_key: found for found in answer.api_keys}
        for api in API_OF_REQUEST.values():
            if (found := served.get(api.key)) is not None:
                newest = min(api.versions.high, found.max_version)
                if newest >= max(api.versions.low, found.min_version):
                    self._versions[api.key] = newest

    def _sign_in(self) -> None:
        answer = self.ask(SaslHandshakeRequest(mechanism=_MECHANISM))
        if answer.error_code:
            raise SignInRefused(str(self._account.place), f"it offers {', '.join(answer.mechanisms)}, not {_MECHANISM}")
        token = f"\0{_USER}\0{self._account.connection_string}".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            raise SignInRefused(str(self._account.place), answer.error_message or f"code {answer.error_code}")


def _connected_socket(account: Account) -> socket.socket:
    place = account.place
    try:
        sock = socket.create_connection((place.host, place.port), timeout=account.answer_timeout_s)
    except OSError as error:
        raise Unreachable(str(place), str(error)) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not place.is_secure:
            return sock
        return _tls_context(place.ca_file).wrap_socket(sock, server_hostname=place.host)
    except OSError as error:
        sock.close()
        raise Unreachable(str(place), str(error)) from error


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Client:
    """A connection that is made when it is needed and made again when it broke. Thread rule: one owner."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._connection: Connection | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the connection go; the next call makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close_if_stale(self) -> None:
        """Let a connection go that the peer has ended while nobody used it, rather than fail and pause on it."""
        if self._connection is not None and self._connection.is_stale():
            self.close()

    def call(self, attempt: Callable[[Connection], T]) -> T:
        """What an attempt gives; one that fails in a passing way is made again until patience is at its end."""
        deadline = time.monotonic() + self._account.patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self.call_once(attempt)
            except ClientFailure as failure:
                if not failure.is_transient or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def call_once(self, attempt: Callable[[Connection], T]) -> T:
        """What one attempt gives; a failure ends the connection, since answers may still be on their way on it."""
        try:
            return attempt(self._connected())
        except ClientFailure:
            self.close()
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection.open(self._account)
        return self._connection
