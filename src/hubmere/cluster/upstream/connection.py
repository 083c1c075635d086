"""One connection to one broker: requests in order, answers as futures.

A broker works on one request per connection at a time and answers in order, so a request that waits (a long poll)
delays those behind it: callers choose connections by purpose. Any failure ends the connection, and every request on it
fails with BrokerUnreachable, although it may have been executed.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from hubmere.cluster.upstream.failures import ApiMissing, BrokerUnreachable, CredentialsRefused
from hubmere.cluster.upstream.scram import MECHANISMS, ScramClient, ScramFailed
from hubmere.wire.kafka.connection import BrokenStream, ClientConnection, Response
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import API_OF_REQUEST
from hubmere.wire.kafka.messages.admin import CREATE_TOPICS
from hubmere.wire.kafka.messages.fetch import FETCH, LIST_OFFSETS
from hubmere.wire.kafka.messages.metadata import API_VERSIONS, METADATA, ApiVersionsRequest
from hubmere.wire.kafka.messages.offsets import FIND_COORDINATOR, OFFSET_COMMIT
from hubmere.wire.kafka.messages.produce import PRODUCE
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from hubmere.wire.kafka.messages.transactions import INIT_PRODUCER_ID
from hubmere.wire.kafka.schema import Api

_CONNECT_SECONDS: Final = 10.0
_SCRATCH_BYTES: Final = 256 * 1024
_SOFTWARE: Final = "hubmere-gateway"
# Timeout of the first answer: the kernel accepts connections even if the broker is frozen.
_NEGOTIATE_SECONDS: Final = 5.0
# A broker authenticates in milliseconds, and answers a SASL token that it refuses only after a pause of some seconds.
_SIGN_IN_SECONDS: Final = 30.0

# APIs that a gateway needs, and the release of Apache Kafka that introduced each. ApiVersions 4 means release 3.9.
REQUIRED_APIS: Final[tuple[tuple[Api, int, str], ...]] = (
    (PRODUCE, 9, "3.9"),
    (FETCH, 12, "3.9"),
    (LIST_OFFSETS, 7, "3.9"),
    (METADATA, 12, "3.9"),
    (FIND_COORDINATOR, 4, "3.9"),
    (CREATE_TOPICS, 7, "3.9"),
    (INIT_PRODUCER_ID, 4, "3.9"),
    (OFFSET_COMMIT, 9, "3.9"),
    (API_VERSIONS, 4, "3.9"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Credentials of a gateway for the brokers. Without a mechanism there is no sign-in."""

    mechanism: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection, signed in. Thread rule: the loop's thread only."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self._engine = ClientConnection(client_id=client_id)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._is_direct = False
        self._versions: dict[int, int] = {}
        self._oldest: dict[int, int] = {}
        # The levels of the features that the cluster uses.
        self.features: Mapping[str, int] = {}
        self._failure: BrokerUnreachable | None = None

    @classmethod
    async def open(cls, host: str, port: int, access: Access, *, client_id: str) -> "BrokerConnection":
        """Connect, check what the broker serves, and sign in."""
        address = f"{host}:{port}"
        connection = cls(address, client_id)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(
                    lambda: connection, host, port, ssl=access.tls, server_hostname=host if access.tls else None
                )
        except (OSError, TimeoutError) as error:
            raise BrokerUnreachable(address, str(error) or type(error).__name__) from error
        limit_s = _NEGOTIATE_SECONDS
        try:
            async with asyncio.timeout(limit_s):
                await connection._negotiate()
            if access.mechanism is not None:
                limit_s = _SIGN_IN_SECONDS
                async with asyncio.timeout(limit_s):
                    await connection._sign_in(access)
        except TimeoutError as error:
            connection.close()
            raise BrokerUnreachable(address, f"no answer within {limit_s:g} s") from error
        except BaseException:
            connection.close()
            raise
        return connection

    # --- requests

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._failure is None and self._transport is not None

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._waiting)

    def version_of(self, api: Api) -> int | None:
        """The newest version of an API that both sides know; None if there is none."""
        return self._versions.get(api.key)

    def nearest_version(self, request: type, version: int) -> int:
        """The version of a request that the broker knows and that is nearest to a client's."""
        key = API_OF_REQUEST[request].key
        newest = self._versions.get(key)
        if newest is None:
            raise ApiMissing(self.address, API_OF_REQUEST[request].name, version, "3.9")
        return min(max(version, self._oldest[key]), newest)

    def send(self, body: object, version: int | None = None) -> "asyncio.Future[Any]":
        """Send a request; the future gets the response, or BrokerUnreachable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._failure is not None or self._transport is None:
            future.set_exception(self._failure or BrokerUnreachable(self.address, "the connection is closed"))
            return future
        if version is None:
            api = API_OF_REQUEST[type(body)]
            known = self._versions.get(api.key)
            if known is None:
                future.set_exception(ApiMissing(self.address, api.name, api.versions.low, "3.9"))
                return future
            version = known
        self._engine.request(body, version)
        self._waiting.append(future)
        self._transport.writelines(cast("list[bytes]", self._engine.data_to_send()))
        return future

    async def ask(self, body: object, version: int | None = None) -> Any:
        """Send a request and wait for its answer."""
        return await self.send(body, version)

    def close(self, why: str = "the connection was closed") -> None:
        """End the connection; requests without an answer fail."""
        if self._failure is None:
            self._failure = BrokerUnreachable(self.address, why)
        if self._transport is not None:
            self._transport.abort()
        self._fail_waiting()

    # --- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        """Buffer for the next read: the frame itself if it is large."""
        room = self._engine.receive_buffer()
        self._is_direct = room is not None
        return self._scratch if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        try:
            if self._is_direct:
                answers = self._engine.read_buffer(nbytes)
            else:
                answers = self._engine.receive_data(bytearray(memoryview(self._scratch)[:nbytes]))
        except BrokenStream as broken:
            self._deliver(broken.complete)
            self.close(str(broken))
        else:
            self._deliver(answers)

    def _deliver(self, answers: Sequence[Response]) -> None:
        for answer in answers:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer.body)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._failure is None:
            self._failure = BrokerUnreachable(self.address, str(exc) if exc else "the broker closed the connection")
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(self._failure or BrokerUnreachable(self.address, "closed"))
                # A caller that has given up does not read the result.
                future.exception()

    # --- signing in

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="1")
        answer = await self.ask(request, API_VERSIONS.versions.high)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: the answer names the versions that are understood.
            answer = await self.ask(ApiVersionsRequest(), API_VERSIONS.versions.low)
        self.features = {found.name: found.max_version_level for found in answer.finalized_features}
        served: Mapping[int, Any] = {found.api_key: found for found in answer.api_keys}
        for api in API_OF_REQUEST.values():
            if (found := served.get(api.key)) is not None:
                newest = min(api.versions.high, found.max_version)
                if newest >= max(api.versions.low, found.min_version):
                    self._versions[api.key] = newest
                    self._oldest[api.key] = max(api.versions.low, found.min_version)
        for api, version, release in REQUIRED_APIS:
            if self._versions.get(api.key, -1) < version:
                raise ApiMissing(self.address, api.name, version, release)

    async def _sign_in(self, access: Access) -> None:
        assert access.mechanism is not None
        answer = await self.ask(SaslHandshakeRequest(mechanism=access.mechanism))
        if answer.error_code:
            raise CredentialsRefused(self.address, f"it offers {', '.join(answer.mechanisms)}, not {access.mechanism}")
        if access.mechanism in MECHANISMS:
            exchange = ScramClient(access.mechanism, access.user, access.password)
            try:
                challenge = await self._authenticate(exchange.first())
                exchange.verify(await self._authenticate(exchange.final(challenge)))
            except ScramFailed as failed:
                raise CredentialsRefused(self.address, str(failed)) from failed
        else:
            await self._authenticate(f"\0{access.user}\0{access.password}".encode())

    async def _authenticate(self, token: bytes) -> bytes:
        answer = await self.ask(SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            raise CredentialsRefused(self.address, answer.error_message or f"code {answer.error_code}")
        return bytes(answer.auth_bytes)
