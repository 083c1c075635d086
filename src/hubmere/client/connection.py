"""A blocking Kafka connection: connect, negotiate versions, sign in, send requests and receive responses.

`Connection` is one socket; any failure on it raises `Unreachable` and ends it. `Client` reconnects with exponential
back-off and retries transient failures, for a bounded time. In front of a cluster it is given the addresses of several
gateways, which all serve the same: after a failure it goes on with the next one. Nothing here knows hubs. Sign-in is
SASL PLAIN with a whole connection string (KIP-43, KIP-152); versions are negotiated (KIP-511).
"""

import contextlib
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hubmere.client.failures import ClientFailure, Refused, SignInRefused, Unreachable
from hubmere.model.security.connection_string import ConnectionString
from hubmere.wire.kafka.connection import BrokenStream, ClientConnection, Response
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import API_OF_REQUEST
from hubmere.wire.kafka.messages.metadata import API_VERSIONS, ApiVersionsRequest
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

T = TypeVar("T")

# Kafka ports of the service and of the official emulator.
TLS_PORT: Final = 9093
PLAIN_PORT: Final = 9092
# Client ids of this package begin with this, so that an operator recognises them in the list of connections.
CLIENT_ID_PREFIX: Final = "hubmere-"

_USER: Final = "$ConnectionString"
_MECHANISM: Final = "PLAIN"
_SOFTWARE: Final = "hubmere"
_SOFTWARE_VERSION: Final = "1"
# Large enough for most responses; a larger one is received directly into its own frame.
_RECEIVE_BYTES: Final = 64 * 1024
# Back-off between attempts: short at first, because a node restarts within a second.
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
# How long an address may take to accept a connection if there is another one: a machine that is down does not answer.
_OTHER_ADDRESS_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAddress:
    """Host and port of a Kafka endpoint, and whether it uses TLS."""

    host: str
    port: int
    is_secure: bool
    ca_file: str | None = None  # None: the system's trust store

    @classmethod
    def of(cls, connection: ConnectionString, *, ca_file: str | None = None) -> "KafkaAddress":
        """The Kafka endpoint of a connection string, on the default port: the port in the string is that of AMQP."""
        if connection.is_emulator:
            return cls(host=connection.host, port=PLAIN_PORT, is_secure=False)
        return cls(host=connection.host, port=TLS_PORT, is_secure=True, ca_file=ca_file)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Addresses and credential of a client. It is pickled to executors; its repr hides the secret.

    `other_addresses` are further gateways of the same cluster.
    """

    address: KafkaAddress
    other_addresses: tuple[KafkaAddress, ...] = ()
    connection_string: str = field(repr=False)
    client_id: str = CLIENT_ID_PREFIX + "client"
    answer_timeout_s: float = 60.0  # one response
    patience_s: float = 300.0  # one call, including all retries

    @property
    def addresses(self) -> tuple[KafkaAddress, ...]:
        """All addresses."""
        return (self.address, *self.other_addresses)


class Connection:
    """One socket, signed in. Thread rule: one owner."""

    def __init__(self, account: Account, address: KafkaAddress, sock: socket.socket) -> None:
        self._account = account
        self._address = address
        self._socket = sock
        self._engine = ClientConnection(client_id=account.client_id)
        self._versions: dict[int, int] = {}
        self._arrived: list[Response] = []
        # Whether the server has said that it is a Hubmere node.
        self.is_hubmere = False

    @classmethod
    def open(cls, account: Account, address: KafkaAddress | None = None) -> "Connection":
        """Connect to one of the account's addresses, the first by default, negotiate versions, sign in."""
        chosen = address or account.address
        connection = cls(account, chosen, _open_socket(account, chosen))
        try:
            connection._negotiate()
            connection._sign_in()
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the socket; pending responses are dropped."""
        with contextlib.suppress(OSError):
            self._socket.close()

    @property
    def is_local(self) -> bool:
        """Whether the peer has the address of this machine. It may be a tunnel to another one."""
        try:
            return bool(self._socket.getpeername()[0] == self._socket.getsockname()[0])
        except OSError:
            return False

    def is_stale(self) -> bool:
        """Whether the peer closed the connection. Only valid while no request is pending."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(timeout=0))

    def version_of(self, request: type) -> int:
        """The newest version of a request that both sides support."""
        api = API_OF_REQUEST[request]
        if api.key not in self._versions:
            raise Refused(f"{api.name} on {self._address}", ErrorCode.UNSUPPORTED_VERSION)
        return self._versions[api.key]

    def ask(self, body: object) -> Any:
        """Send a request and wait for its response, a dataclass."""
        self.send(body)
        return self.receive()

    def send(self, body: object) -> None:
        """Send a request; responses arrive in the order of the requests."""
        self._send(body, self.version_of(type(body)))

    def receive(self) -> Any:
        """Wait for the next response."""
        while not self._arrived:
            self._arrived += self._receive_some()
        return self._arrived.pop(0).body

    def _send(self, body: object, version: int) -> None:
        self._engine.request(body, version)
        try:
            for part in self._engine.data_to_send():
                self._socket.sendall(part)
        except OSError as error:
            raise self._unreachable(error) from error

    def _receive_some(self) -> list[Response]:
        buffer = self._engine.receive_buffer()
        try:
            if buffer is None:
                data = self._socket.recv(_RECEIVE_BYTES)
                count = len(data)
            else:
                count = self._socket.recv_into(buffer)
        except OSError as error:
            raise self._unreachable(error) from error
        if not count:
            raise Unreachable(str(self._address), "the connection was closed")
        try:
            return self._engine.receive_data(data) if buffer is None else self._engine.read_buffer(count)
        except BrokenStream as broken:
            raise Unreachable(str(self._address), str(broken)) from broken

    def _unreachable(self, error: OSError) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(str(self._address), f"no response within {self._account.answer_timeout_s:g} s")
        return Unreachable(str(self._address), str(error))

    def _negotiate(self) -> None:
        versions = API_VERSIONS.versions
        self._send(
            ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_SOFTWARE_VERSION),
            versions.high,
        )
        answer = self.receive()
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: the response lists the supported versions.
            self._send(ApiVersionsRequest(), versions.low)
            answer = self.receive()
        if answer.error_code:
            raise Refused(f"ApiVersions on {self._address}", answer.error_code)
        self.is_hubmere = answer.is_hubmere
        served = {found.api_key: found for found in answer.api_keys}
        for api in API_OF_REQUEST.values():
            if (found := served.get(api.key)) is not None:
                newest = min(api.versions.high, found.max_version)
                if newest >= max(api.versions.low, found.min_version):
                    self._versions[api.key] = newest

    def _sign_in(self) -> None:
        answer = self.ask(SaslHandshakeRequest(mechanism=_MECHANISM))
        if answer.error_code:
            raise SignInRefused(str(self._address), f"it offers {', '.join(answer.mechanisms)}, but not {_MECHANISM}")
        token = f"\0{_USER}\0{self._account.connection_string}".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            raise SignInRefused(str(self._address), answer.error_message or f"code {answer.error_code}")


def _open_socket(account: Account, address: KafkaAddress) -> socket.socket:
    limit_s = account.answer_timeout_s
    try:
        connect_s = min(limit_s, _OTHER_ADDRESS_S) if account.other_addresses else limit_s
        sock = socket.create_connection((address.host, address.port), timeout=connect_s)
        sock.settimeout(limit_s)
    except OSError as error:
        raise Unreachable(str(address), str(error)) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.is_secure:
            return sock
        return _tls_context(address.ca_file).wrap_socket(sock, server_hostname=address.host)
    except OSError as error:
        sock.close()
        raise Unreachable(str(address), str(error)) from error


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Client:
    """Connects on first use and reconnects after a failure, to the next address if there are several.

    Processes begin with different addresses, so that the workers of a query spread over the gateways. Thread rule: one
    owner.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._connection: Connection | None = None
        self._turn = os.getpid()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close_if_stale(self) -> None:
        """Close the connection if the peer closed it while idle, so that the next call does not fail and back off."""
        if self._connection is not None and self._connection.is_stale():
            self.close()

    def call(self, attempt: Callable[[Connection], T]) -> T:
        """Run an attempt and return its result; transient failures are retried until `patience_s` is over."""
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
        """Run an attempt once. A failure closes the connection, because responses may still be in flight on it."""
        try:
            return attempt(self._open_connection())
        except ClientFailure as failure:
            self.close()
            if isinstance(failure, Unreachable):
                self._turn += 1
            raise

    def _open_connection(self) -> Connection:
        if self._connection is None:
            self._connection = self._open_any()
        return self._connection

    def _open_any(self) -> Connection:
        """A connection to the first address in turn that can be reached; raises the failure of the last one."""
        addresses = self._account.addresses
        for remaining in reversed(range(len(addresses))):
            try:
                return Connection.open(self._account, addresses[self._turn % len(addresses)])
            except Unreachable:
                if not remaining:
                    raise
                self._turn += 1
        raise AssertionError("an account has at least one address")
