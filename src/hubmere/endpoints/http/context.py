"""What all HTTP handlers share: the broker, the clock, the node's addresses, sign-in, tracking ids and reading bodies.

Nothing here depends on an API. The size of a body is checked while it arrives, and a change of entities is awaited
until it is durable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hubmere.broker import Actor, AuditLine, AuditLog, Broker, Caller, Coalescer, KeysPending, OnDone, Principal
from hubmere.endpoints.http import authorization as authorization_header
from hubmere.endpoints.http.errors import MalformedRequest, OutOfMemory, RequestTooLarge, Tracking
from hubmere.endpoints.memory import MemoryBudget
from hubmere.endpoints.refusal_log import REFUSALS
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal

if TYPE_CHECKING:
    from hubmere.endpoints.http.pairing.partners import Partners

log = logging.getLogger("hubmere.http")

# Parts of an ARM path.
_ARM_FIRST, _ARM_HUBS = "subscriptions", "eventhubs"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
TooLarge = Callable[[int, int], Refusal]

# On the scope: header names as they were sent, in the order of ASGI's lower-case ones.
HEADER_NAMES = "hubmere.header_names"
# On the scope: writes the 201 response in one piece, if the server offers that; returns False if it could not.
WRITE_CREATED = "hubmere.write_created"
# On the scope: the authenticated Principal, for monitoring and the audit log.
CALLER = "hubmere.caller"
# On the scope: the Tracking of the request, once it is used.
TRACKING = "hubmere.tracking"
# What the HTTP server buffers of a body: one read, and uvicorn's flow control limit.
_SERVER_BUFFER_BYTES = 320 * 1024
# Digits of a plausible Content-Length.
_LENGTH_DIGITS = 15

T = TypeVar("T")


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpContext:
    """What HTTP handlers need of a node."""

    broker: Broker
    clock: Clock
    addresses: Addresses
    body_limit_bytes: int
    coalescer: Coalescer
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    # None on a node without configured partners.
    partners: "Partners | None" = None

    @property
    def now_s(self) -> float:
        """The time now, in Unix seconds."""
        return self.clock.now_ms() / 1000

    def sign_in(self, host: str | None, address: str, authorization: str | None) -> Caller:
        """A client of the namespace that a Host header means."""
        return authorization_header.sign_in(
            authorization,
            lambda credential: self.broker.sign_in(host, credential, address=address, now_s=self.now_s),
        )

    def sign_in_to_hub(
        self, host: str | None, path: str, address: str, authorization: str | None
    ) -> tuple[Caller, str]:
        """A client of the namespace that a Host header and a path mean, and the name of the hub at the path."""
        host, hub = self.broker.split_hub_path(host, path)
        return self.sign_in(host, address, authorization), hub

    def actor(self, principal: Principal, scope: Scope) -> Actor:
        """The author of a change: principal, time, address and tracking id."""
        return Actor(
            name=principal.rule,
            now_ms=self.clock.now_ms(),
            now=self.clock.monotonic(),
            peer=client_address(scope),
            tracking_id=self._tracking_of(scope, "").id,
        )

    def track_refusal(self, refusal: Refusal, scope: Scope, namespace: str, path: Sequence[str]) -> Tracking:
        """Log a refusal with the tracking id that the client gets; `path` are the parts of the request's path."""
        tracking = self._tracking_of(scope, f"{namespace}:{path[0]}")
        REFUSALS.write(
            log,
            f"{scope.get('method', 'GET')} {path_for_log(scope)}",
            refusal,
            namespace=namespace,
            hub=_hub_in(path),
            peer=client_address(scope),
            tracking_id=tracking.id,
        )
        return tracking

    def _tracking_of(self, scope: Scope, system: str) -> Tracking:
        """The tracking of a request; its id is the same in the log, in the audit log and in the response."""
        begun: Tracking = scope.setdefault(TRACKING, Tracking.begin(system, self.clock.now_ms()))
        return replace(begun, system=system)


def _hub_in(path: Sequence[str]) -> str:
    """The hub that the path of a request names, for the log; empty if it names none."""
    if path[0] == _ARM_FIRST:
        return path[path.index(_ARM_HUBS) + 1] if _ARM_HUBS in path[:-1] else ""
    return path[0]


async def await_change(change: Callable[[OnDone], T]) -> T:
    """Start a change and wait until it is durable; raises the refusal."""
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(refusal: Refusal | None) -> None:
        if waiting.done():
            return
        if refusal is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(refusal)

    result = change(on_done)
    await waiting
    return result


async def await_audit(audit: AuditLog) -> None:
    """Wait until the audit lines of all changes so far are written; responses about them are sent after that."""
    if not audit.is_written:
        await _call_back(audit.when_written)


async def await_audit_lines(audit: AuditLog) -> list[AuditLine]:
    """The latest audit lines, also of earlier runs of the node."""
    await _call_back(audit.load)
    return audit.latest()


async def _call_back(start: Callable[[Callable[[], None]], None]) -> None:
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(lambda: None if waiting.done() else waiting.set_result(None))
    await waiting


class PendingResult(Generic[T]):
    """The callback of an operation, to be awaited for its result; raises the refusal.

    Thread rule: the node's loop only.
    """

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def __call__(self, result: T | Refusal) -> None:
        """The operation is complete, or was refused."""
        if self._future.done():
            return
        if isinstance(result, Refusal):
            self._future.set_exception(result)
        else:
            self._future.set_result(result)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result."""
        return self._future.__await__()


async def await_keys(pending: KeysPending) -> None:
    """Wait until the keys of an issuer have been fetched, or could not be."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pending.wait(lambda: None if ready.done() else ready.set_result(None))
    await ready


def client_address(scope: Scope) -> str:
    """The client's network address."""
    client = scope.get("client")
    return client[0] if client else ""


def path_for_log(scope: Scope) -> str:
    """The path for a log line: still encoded, and without the query, which may hold tokens."""
    raw: bytes = scope.get("raw_path") or b""
    return raw[:256].decode("ascii", "replace")


def content_length(headers: Mapping[bytes, bytes]) -> int | None:
    """The Content-Length of a request, if it has one."""
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > _LENGTH_DIGITS:
        raise MalformedRequest("Content-Length is not a number")
    return int(text)


class _BodyReader:
    """Reads a body that arrives in pieces, within the memory budget (memory.Holder).

    Thread rule: the node's loop only.
    """

    __slots__ = ("_account", "_refused", "_size_bytes")

    def __init__(self, memory: MemoryBudget) -> None:
        self._size_bytes = 0
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._account = memory.account(self)

    def held_bytes(self) -> int:
        """The size of the pieces so far, and what the server buffers of the next one."""
        return self._size_bytes + _SERVER_BUFFER_BYTES

    def refuse_memory(self, why: str) -> None:
        """Refuse the request."""
        if not self._refused.done():
            self._refused.set_exception(OutOfMemory(why))

    async def read_next(self, receive: Receive, size_bytes: int) -> MutableMapping[str, Any]:
        """The next piece; waits while the memory budget is used up."""
        self._size_bytes = size_bytes
        self._account.set(self.held_bytes())
        if self._account.is_tight:
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._account.wait(lambda: None if free.done() else free.set_result(None))
            await self._unless_refused(free)
        return await self._unless_refused(asyncio.ensure_future(receive()))

    async def _unless_refused(self, future: "asyncio.Future[T]") -> T:
        """The result of a future, unless the body is refused first."""
        try:
            await asyncio.wait((future, self._refused), return_when=asyncio.FIRST_COMPLETED)
            if self._refused.done():
                self._refused.result()
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Release the memory: the body is complete, or not needed any more."""
        self._account.close()
        if not self._refused.cancel() and not self._refused.cancelled():
            self._refused.exception()  # marks the exception as retrieved


async def read_body(
    receive: Receive,
    declared: int | None,
    limit_bytes: int,
    memory: MemoryBudget,
    too_large: TooLarge | None = None,
) -> bytes:
    """The complete body of a request; refused as soon as its declared or received length exceeds the limit."""
    if declared is not None and declared > limit_bytes:
        raise _size_refusal(declared, limit_bytes, too_large)
    message = await receive()
    body: bytes = _body_bytes(message)
    if not message.get("more_body"):
        if len(body) > limit_bytes:
            raise _size_refusal(len(body), limit_bytes, too_large)
        return body
    parts = [body]
    size_bytes = len(body)
    pieces = _BodyReader(memory)
    try:
        while message.get("more_body"):
            message = await pieces.read_next(receive, size_bytes)
            parts.append(_body_bytes(message))
            size_bytes += len(parts[-1])
            if size_bytes > limit_bytes:
                raise _size_refusal(size_bytes, limit_bytes, too_large)
        return b"".join(parts)
    finally:
        pieces.close()


def _body_bytes(message: MutableMapping[str, Any]) -> bytes:
    if message["type"] != "http.request":
        raise Disconnected
    body: bytes = message.get("body", b"")
    return body


def _size_refusal(size_bytes: int, limit_bytes: int, too_large: TooLarge | None) -> Refusal:
    return RequestTooLarge("body", limit_bytes) if too_large is None else too_large(size_bytes, limit_bytes)
