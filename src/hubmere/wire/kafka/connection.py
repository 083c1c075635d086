"""The engines: one end of a Kafka connection each, without I/O.

`ServerConnection` turns bytes into requests and sends responses in the order of the requests, in whatever order they
are produced; `ClientConnection` is the opposite end. Any split of the input gives the same requests. Authentication,
throttling and the meaning of a request belong to the caller (an endpoint or a client). Follows the Kafka protocol guide
("Request and Response Headers"), KIP-482 for flexible versions and KIP-511 for ApiVersions.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hubmere.wire.kafka.codegen import reader_of, writer_of
from hubmere.wire.kafka.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from hubmere.wire.kafka.framing import LENGTH, Frames, fill_length, join_small
from hubmere.wire.kafka.messages import API_OF_REQUEST
from hubmere.wire.kafka.messages.fetch import FETCH
from hubmere.wire.kafka.messages.groups import JOIN_GROUP, SYNC_GROUP
from hubmere.wire.kafka.messages.metadata import API_VERSIONS, ApiVersion, ApiVersionsResponse
from hubmere.wire.kafka.messages.offsets import OFFSET_COMMIT
from hubmere.wire.kafka.messages.produce import PRODUCE
from hubmere.wire.kafka.messages.sasl import SASL_AUTHENTICATE, SaslAuthenticateRequest
from hubmere.wire.kafka.messages.transactions import TXN_OFFSET_COMMIT
from hubmere.wire.kafka.primitives import Buffer, read_text, skip_tag_section
from hubmere.wire.kafka.repeats import Pattern, ProduceRun
from hubmere.wire.kafka.schema import Api
from hubmere.wire.kafka.served_apis import EVERYTHING, NO_TAGS, RESPONSE_HEADER, ServedApis, VersionPath, derive_path

# The service accepts publications of 1 MiB; the rest is for headers and for several partitions. A larger frame closes
# the connection, so that a peer cannot make us allocate more than this.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# Requests without payload are lists of names and numbers: this is enough for more than 50,000 partitions.
MAX_PLAIN_REQUEST_BYTES: Final = 1024 * 1024

# Limit for one response in our client: Kafka's default fetch.max.bytes of 50 MiB plus a margin.
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024

# The version of a SASL token in a frame without header, after a handshake of version 0.
BARE_TOKEN_VERSION: Final = -1

# API key, version, correlation id and the length of the client id; the last is negative for null.
_REQUEST_HEADER: Final = Struct(">hhih")
# Requests with payloads: records, positions of many partitions, assignments, metadata of offsets.
_LARGE_REQUESTS: Final = frozenset(
    api.key for api in (PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, OFFSET_COMMIT, TXN_OFFSET_COMMIT)
)
_MAX_CORRELATION_ID: Final = 0x7FFFFFFF
_MAX_CLIENT_ID_BYTES: Final = 0x7FFF  # its length is an int16
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
# Patterns that one connection may learn: a client that alternates between more topics keeps the last one.
_MAX_PATTERNS: Final = 16


# A consumer without events repeats its Fetch: one of up to this size is kept, and decoded once for all repeats.
MAX_REPEATED_FETCH_BYTES: Final = 2048
# Fetch requests that are kept for all connections: half a megabyte at most.
_MAX_SHARED_FETCHES: Final = 256
# Requests in flight that no limit of a caller forbids.
_FEW: Final = 64
# Where the correlation id of a request ends.
_CORRELATION_END: Final = 8
# The response of a request that the caller has answered itself.
_WRITTEN: Final[list[Buffer]] = []


class Request:
    """One request: its API, version and body, and whether a response is expected.

    `body` is the request's dataclass. Record batches inside it are views of the receive buffer: the caller must process
    or copy them before it reuses that buffer. With `can_receive_runs`, `body` may be a `ProduceRun`, which stands for
    several requests; `correlation_id` is then that of the first.
    """

    __slots__ = ("_path", "_response", "api", "body", "client_id", "correlation_id", "expects_response", "version")

    def __init__(self, path: VersionPath, correlation_id: int, client_id: str | None, body: Any) -> None:
        self._path = path
        self.api = path.api
        self.version = path.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        # Kafka protocol guide, Produce: with acks=0 the server sends no response at all.
        self.expects_response = path.api is not PRODUCE or body.acks != 0
        self._response: list[Buffer] | None = None

    def __repr__(self) -> str:
        return f"<{self.api.name} v{self.version} #{self.correlation_id}>"


class Response(NamedTuple):
    """One response to a request of ours; `body` is the response's dataclass."""

    api: Api
    version: int
    correlation_id: int
    body: Any


T = TypeVar("T")


class BrokenStream(RemoteProtocolError, Generic[T]):
    """The peer's bytes cannot be parsed any further; `complete` holds what was parsed before, in the same call."""

    def __init__(self, why: str, complete: Sequence[T]) -> None:
        super().__init__(why)
        self.complete = tuple(complete)


class _Connection(ABC, Generic[T]):
    """Common part of both ends: frames in, buffers out."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._frames = Frames(max_frame_bytes)
        self._out: list[Buffer] = []
        self._is_broken = False

    def receive_data(self, data: Buffer) -> list[T]:
        """The requests or responses that are complete now. After BrokenStream the caller must close the connection."""
        return self._read(self._frames.cut(data))

    def receive_buffer(self) -> memoryview | None:
        """The missing part of a partial frame: the caller may receive directly into it, then call `read_buffer`."""
        return self._frames.missing_part()

    def read_buffer(self, count: int) -> list[T]:
        """As `receive_data`, for `count` bytes that were received into `receive_buffer`."""
        return self._read(self._frames.add_received(count))

    def admit_frames(self, admits: Callable[[int], bool]) -> None:
        """Call `admits` before memory for a frame is allocated; a refused frame waits for `resume`."""
        self._frames.admits = admits

    @property
    def held_bytes(self) -> int:
        """Memory used by a partial frame."""
        return self._frames.held_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether a frame waits for memory: pass no data until `resume`."""
        return self._frames.is_waiting

    def discard_partial_frame(self) -> None:
        """The connection is closed: free the memory of a partial frame."""
        self._frames.discard_partial_frame()

    def resume(self) -> list[T]:
        """As `receive_data`, for the frame that waited for memory."""
        return self._read(self._frames.resume())

    def data_to_send(self) -> list[Buffer]:
        """Remove and return the queued buffers; adjacent small ones are joined."""
        if not self._out:
            return []
        out, self._out = self._out, []
        return join_small(out)

    def _read(self, frames: list[memoryview]) -> list[T]:
        complete: list[T] = []
        failure = RemoteProtocolError("the stream is broken") if self._is_broken else self._frames.failure
        try:
            if not self._is_broken:
                for frame in frames:
                    self._accept(frame, complete)
        except RemoteProtocolError as broken:
            failure = broken
        if failure is not None:
            self._is_broken = True
            raise BrokenStream(str(failure), complete)
        return complete

    @abstractmethod
    def _accept(self, frame: memoryview, complete: list[T]) -> None:
        """Decode one frame and append the result."""


class ServerConnection(_Connection[Request]):
    """The server's end of one connection.

    Thread rule: one owner; nothing here waits or locks. The number of requests without response (`in_flight`) grows
    only with `receive_data`: a caller that stops reading at some number bounds it.
    """

    def __init__(self, *, served: ServedApis = EVERYTHING, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        super().__init__(max_request_bytes)
        self._served = served
        self._waiting: deque[Request] = deque()
        self._in_flight = 0
        # Size of responses that wait for earlier ones.
        self.blocked_bytes = 0
        # Set by the caller after a SaslHandshake of version 0, until authentication is over: frames are tokens only.
        self.expects_bare_tokens = False
        # Set by the caller if it can handle a `ProduceRun`.
        self.can_receive_runs = False
        self._pattern: Pattern | None = None
        self._patterns_left = _MAX_PATTERNS
        # What `peek_run` found, with the position behind it.
        self._peeked: tuple[ProduceRun, int] | None = None
        # The last Fetch: its path, its bytes behind the correlation id, the client id and the body.
        self._repeated: tuple[VersionPath, bytes, str | None, Any] | None = None

    @property
    def max_request_bytes(self) -> int:
        """The largest accepted frame; callers keep it small until the peer has authenticated."""
        return self._frames.max_frame_bytes

    @max_request_bytes.setter
    def max_request_bytes(self, limit: int) -> None:
        self._frames.max_frame_bytes = limit

    @property
    def in_flight(self) -> int:
        """Requests whose response has not been queued, because it or an earlier one is missing."""
        return self._in_flight

    @property
    def is_small(self) -> bool:
        """Whether it holds no bytes of requests or responses, and few requests are in flight."""
        return not self.blocked_bytes and self._in_flight < _FEW and self._frames.is_empty

    @property
    def knows_runs(self) -> bool:
        """Whether a Produce request was read that others may repeat."""
        return self._pattern is not None

    def receive_data(self, data: Buffer) -> list[Request]:
        """As for any connection; similar requests may be returned as one run (see `can_receive_runs`)."""
        pattern, begin = self._pattern, self._frames.rest_bytes
        if pattern is None or not self.can_receive_runs or begin is None or isinstance(data, memoryview):
            return super().receive_data(data)
        complete = super().receive_data(data[:begin]) if begin else []
        peeked, self._peeked = self._peeked, None
        if peeked is not None and peeked[0].data is data:
            body, at = peeked
        else:
            body, at = pattern.take(data, begin)
        if body.batches:
            complete.append(self.accept_run(body))
        if at < len(data):
            try:
                complete += super().receive_data(memoryview(data)[at:])
            except BrokenStream as broken:
                raise BrokenStream(str(broken), [*complete, *broken.complete]) from None
        return complete

    def peek_run(self, data: bytearray) -> ProduceRun | None:
        """The requests in `data` if it holds nothing but a run of complete ones; else None. Nothing has changed.

        Only with `can_receive_runs`. The caller passes the run to `accept_run`, or the same data to `receive_data`,
        which does not compare it again.
        """
        pattern = self._pattern
        if pattern is None or self._frames.rest_bytes != 0:
            return None
        self._peeked = body, at = pattern.take(data, 0)
        return body if at == len(data) and body.batches else None

    def accept_run(self, body: ProduceRun) -> Request:
        """The request that stands for a run."""
        self._peeked = None
        path = self._served.path(PRODUCE.key, body.version)
        assert path is not None
        request = Request(path, body.correlation_ids[0], None, body)
        self._waiting.append(request)
        self._in_flight += len(body.correlation_ids)
        return request

    def split_run(self, request: Request) -> list[Request]:
        """The single requests of a run; they replace it in the queue of requests in flight."""
        position = self._waiting.index(request)
        self._in_flight -= len(request.body)
        later = [self._waiting.pop() for _ in range(len(self._waiting) - position)]
        single: list[Request] = []
        for frame in request.body.frames():
            self._accept(frame, single)
        self._waiting.extend(reversed(later[:-1]))
        return single

    def respond(self, request: Request, body: Any) -> None:
        """Answer a request with the response's dataclass; it is sent when all earlier requests are answered."""
        self._check_waiting(request, type(body))
        if request.version == BARE_TOKEN_VERSION:
            self._release(request, [LENGTH.pack(len(body.auth_bytes)), body.auth_bytes])
            return
        path = request._path
        parts = path.write_response(body, bytearray(path.response_head))
        self._release(request, _fill_response_head(parts, request.correlation_id))

    def respond_frames(self, request: Request, frames: Buffer) -> None:
        """Answer with an encoded frame, or with the frames of a run in its order, as `frame_response` returns them."""
        self.respond_buffers(request, [frames])

    def respond_buffers(self, request: Request, frame: list[Buffer]) -> None:
        """As `respond_frames`, with a frame in several buffers, so that large ones need not be copied."""
        self._check_waiting(request, request.api.response)
        self._release(request, frame)

    def complete(self, request: Request) -> bool:
        """Count a request as answered; the caller writes the response itself, now.

        False, and nothing has changed, unless it is the only request in flight and no response is queued.
        """
        waiting = self._waiting
        if len(waiting) != 1 or waiting[0] is not request or self._out:
            return False
        waiting.clear()
        self._in_flight = 0
        request._response = _WRITTEN
        return True

    def _check_waiting(self, request: Request, answer: type) -> None:
        if answer is not request.api.response:
            raise LocalProtocolError(f"{request!r} cannot be answered with {answer.__name__}")
        if not request.expects_response or request._response is not None:
            raise LocalProtocolError(f"{request!r} does not wait for a response")

    def _release(self, request: Request, response: list[Buffer]) -> None:
        request._response = response
        waiting = self._waiting
        if waiting[0] is not request:
            self.blocked_bytes += sum(map(len, response))
            return
        while waiting and (ready := waiting[0]._response) is not None:
            released = waiting.popleft()
            if released is not request:
                self.blocked_bytes -= sum(map(len, ready))
            self._in_flight -= len(released.body) if type(released.body) is ProduceRun else 1
            self._out += ready

    def _accept(self, frame: memoryview, complete: list[Request]) -> None:
        request = self._bare_token(frame) if self.expects_bare_tokens else self._request(frame)
        if request is None:
            return
        if request.expects_response:
            self._waiting.append(request)
            self._in_flight += 1
        complete.append(request)

    def _request(self, frame: memoryview) -> Request | None:
        if len(frame) < _REQUEST_HEADER.size:
            raise RemoteProtocolError(f"a request of {len(frame)} bytes has no header")
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        path = self._served.path(key, version)
        if path is None:
            self._refuse_version(key, version, correlation_id)
            return None
        if len(frame) > MAX_PLAIN_REQUEST_BYTES and key not in _LARGE_REQUESTS:
            raise RemoteProtocolError(f"{path.api.name} of {len(frame)} bytes; {MAX_PLAIN_REQUEST_BYTES} is the most")
        repeated = self._repeated
        if repeated is not None and repeated[0] is path and frame[_CORRELATION_END:] == repeated[1]:
            return Request(path, correlation_id, repeated[2], repeated[3])
        if path.api is FETCH and len(frame) <= MAX_REPEATED_FETCH_BYTES:
            return self._small_fetch(path, correlation_id, frame, length)
        return self._parsed_request(path, correlation_id, frame, length)

    def _small_fetch(self, path: VersionPath, correlation_id: int, frame: memoryview, length: int) -> Request:
        """A Fetch, which another connection may have sent before, or which this one may repeat."""
        content, fetches = bytes(frame[_CORRELATION_END:]), self._served.fetches
        known = fetches.get(content)
        if known is not None and known[0] is path:
            _, client_id, body = known
            request = Request(path, correlation_id, client_id, body)
        else:
            request = self._parsed_request(path, correlation_id, frame, length)
            if len(fetches) >= _MAX_SHARED_FETCHES:
                fetches.clear()
            fetches[content] = (path, request.client_id, request.body)
        self._repeated = (path, content, request.client_id, request.body)
        return request

    def _parsed_request(self, path: VersionPath, correlation_id: int, frame: memoryview, length: int) -> Request:
        buffer: Buffer = frame if path.keeps_views else bytes(frame)
        at = _REQUEST_HEADER.size
        # The client id stays a classic string even in the header of flexible versions (KIP-482).
        client_id = None if length < 0 else read_text(buffer, at, length)
        at += max(length, 0)
        if path.is_flexible:
            at = skip_tag_section(buffer, at)
        # Bytes after the body are ignored, as in Kafka.
        body, _ = path.read_request(buffer, at)
        if self.can_receive_runs and path.api is PRODUCE and self._patterns_left:
            self._remember_pattern(path.version, buffer, at, body)
        return Request(path, correlation_id, client_id, body)

    def _remember_pattern(self, version: int, frame: Buffer, body_at: int, body: Any) -> None:
        pattern = Pattern.of(version, frame, body_at, body)
        if pattern is not None:
            self._pattern = pattern
            self._patterns_left -= 1

    def _bare_token(self, frame: memoryview) -> Request:
        return Request(_BARE_TOKEN_PATH, 0, None, SaslAuthenticateRequest(auth_bytes=bytes(frame)))

    def _refuse_version(self, key: int, version: int, correlation_id: int) -> None:
        """KIP-511: ApiVersions always gets an answer that the client can read. For other APIs the stream is broken."""
        served = self._served.range_of(API_VERSIONS.key)
        if key != API_VERSIONS.key or served is None:
            raise RemoteProtocolError(f"version {version} of API {key} is not served")
        answer = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=(ApiVersion(api_key=key, min_version=served.low, max_version=served.high),),
        )
        request = Request(_REFUSED_VERSION_PATH, correlation_id, None, None)
        self._waiting.append(request)
        self._in_flight += 1
        self.respond(request, answer)


_REFUSED_VERSION_PATH: Final = derive_path(API_VERSIONS, 0)
_BARE_TOKEN_PATH: Final = replace(derive_path(SASL_AUTHENTICATE, 0), version=BARE_TOKEN_VERSION)


def _fill_response_head(parts: list[Buffer], correlation_id: int) -> list[Buffer]:
    """Write length and correlation id into the placeholder at the start of the first buffer."""
    head = parts[0]
    assert isinstance(head, bytearray)
    size_bytes = len(head) if len(parts) == 1 else sum(map(len, parts))
    RESPONSE_HEADER.pack_into(head, 0, size_bytes - LENGTH.size, correlation_id)
    return parts


class ClientConnection(_Connection[Response]):
    """The client's end of one connection. Thread rule: one owner; nothing here waits or locks."""

    def __init__(self, *, client_id: str | None, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        super().__init__(max_response_bytes)
        self._client_id = b"" if client_id is None else client_id.encode()
        if len(self._client_id) > _MAX_CLIENT_ID_BYTES:
            raise LocalProtocolError(f"a client id of {len(self._client_id)} bytes; {_MAX_CLIENT_ID_BYTES} is the most")
        self._client_id_length = -1 if client_id is None else len(self._client_id)
        self._sent: deque[tuple[Api, int, int]] = deque()
        self._next_id = 0

    @property
    def in_flight(self) -> int:
        """Requests whose response has not arrived yet."""
        return len(self._sent)

    def request(self, body: Any, version: int) -> int:
        """Queue a request; returns its correlation id."""
        api = API_OF_REQUEST.get(type(body))
        if api is None or version not in api.versions:
            raise LocalProtocolError(f"{type(body).__name__} cannot be sent in version {version}")
        correlation_id = self._next_id
        head = bytearray(LENGTH.size)
        head += _REQUEST_HEADER.pack(api.key, version, correlation_id, self._client_id_length)
        head += self._client_id
        flexible = api.is_flexible(version)
        if flexible:
            head += NO_TAGS
        self._out += fill_length(writer_of(api.request, version, flexible)(body, head))
        self._next_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        if api is not PRODUCE or body.acks != 0:
            self._sent.append((api, version, correlation_id))
        return correlation_id

    def _accept(self, frame: memoryview, complete: list[Response]) -> None:
        if len(frame) < LENGTH.size:
            raise RemoteProtocolError(f"a response of {len(frame)} bytes has no header")
        (correlation_id,) = LENGTH.unpack_from(frame)
        if not self._sent or self._sent[0][2] != correlation_id:
            raise RemoteProtocolError(f"response {correlation_id} is not the next one")
        api, version, _ = self._sent.popleft()
        at = LENGTH.size
        if api.response_header_version(version):
            at = skip_tag_section(frame, at)
        complete.append(Response(api, version, correlation_id, decode_response(api, version, frame[at:])))


# --- bodies ----------------------------------------------------------------------------------------------------------


def frame_response(api: Api, version: int, correlation_id: int, body: Any) -> bytes:
    """A complete encoded response, for `respond_frames`; a template for responses that differ in a few numbers."""
    path = derive_path(api, version)
    return b"".join(_fill_response_head(path.write_response(body, bytearray(path.response_head)), correlation_id))


def decode_response(api: Api, version: int, data: Buffer) -> Any:
    """Decode the body of a response; bytes after it are ignored, as in Kafka's clients."""
    if api is API_VERSIONS and data[:2] == _UNSUPPORTED_VERSION:
        # KIP-511: a server that does not support the version answers in version 0.
        version = 0
    return reader_of(api.response, version, api.is_flexible(version))(data, 0)[0]
