"""Many producers with one event in flight each, driven by `lockstep.c`: Kafka, AMQP, and an echo server as baseline.

Python connects and signs in the sockets, one after the other; then the C code uses them.
"""

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load import raw_amqp, raw_kafka
from bench.load.library import BenchFailed, Library

from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

SOURCE: Final = Path(__file__).with_name("lockstep.c")
KAFKA, AMQP, ECHO = range(3)
_FETCH_VERSION: Final = 11
# Placeholder for a number in an encoded request; its position is found, and the number is replaced in each copy.
_MARK: Final = 0x5152_5354
_MAX_WAITS: Final = 1_000_000
_FAILURES: Final = {
    -1: "a connection was lost",
    -2: "the broker refused an event",
    -3: "the broker fell silent",
    -4: "the broker wrote an answer that the client does not read",
}


class _Template(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("id_places", ctypes.POINTER(ctypes.c_uint32)),
        ("id_count", ctypes.c_size_t),
        ("protocol", ctypes.c_int),
        ("error_place", ctypes.c_size_t),
    )


class _Outcome(ctypes.Structure):
    _fields_ = (("requests", ctypes.c_uint64), ("seconds", ctypes.c_double), ("waits", ctypes.c_uint64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Number of answered requests, duration, and the latency of each request."""

    count: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.count / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Sockets that are ready to produce, and the request that each of them sends."""

    fds: Sequence[int]
    next_ids: "ctypes.Array[ctypes.c_uint32]"
    request: bytes
    id_places: Sequence[int]
    protocol: int
    error_place: int = 0

    def run(self, library: Library, seconds: float, since_ns: "ctypes.c_uint64 | None" = None) -> Answers:
        """Run every connection: it sends its next request when the previous one is answered.

        The latency of an answer begins with its request, or at the time in `since_ns`, which a publisher writes.
        """
        template = _Template(
            bytes=self.request,
            size=len(self.request),
            id_places=(ctypes.c_uint32 * len(self.id_places))(*self.id_places),
            id_count=len(self.id_places),
            protocol=self.protocol,
            error_place=self.error_place,
        )
        count, outcome, waits = len(self.fds), _Outcome(), (ctypes.c_uint64 * _MAX_WAITS)()
        code: int = library.code.lockstep_run(
            (ctypes.c_int * count)(*self.fds),
            self.next_ids,
            ctypes.c_uint32(count),
            ctypes.byref(template),
            ctypes.c_double(seconds),
            None if since_ns is None else ctypes.byref(since_ns),
            waits,
            ctypes.c_uint64(_MAX_WAITS),
            ctypes.byref(outcome),
        )
        if code:
            raise BenchFailed(f"lockstep: {_FAILURES.get(code, code)}")
        found = sorted(waits[: outcome.waits])
        return Answers(
            count=outcome.requests,
            seconds=outcome.seconds,
            p50_ms=found[len(found) // 2] / 1e6,
            p99_ms=found[len(found) * 99 // 100] / 1e6,
        )


@contextlib.contextmanager
def kafka_crowd(
    address: tuple[str, int], password: str | None, topic: str, batch: bytes, count: int
) -> Iterator[Crowd]:
    """Producers of one batch to partition 0 of a topic."""
    template = raw_kafka.request_template(topic, batch, 1)
    request = bytearray(_bytes_of(template))
    request[template.partition_place : template.partition_place + 4] = bytes(4)
    with contextlib.ExitStack() as stack:
        fds = [stack.enter_context(raw_kafka.RawProducer(address, password)).fileno for _ in range(count)]
        yield Crowd(
            fds=fds,
            next_ids=(ctypes.c_uint32 * count)(),
            request=bytes(request),
            id_places=[template.id_place],
            protocol=KAFKA,
            error_place=template.error_place + 4,
        )


@contextlib.contextmanager
def fetch_crowd(
    address: tuple[str, int],
    password: str | None,
    topic: str,
    partitions: int,
    count: int,
    *,
    wait_ms: int,
    offset: int | None,
) -> Iterator[Crowd]:
    """Consumers without a session that wait for events of a topic.

    Each answer moves them by one event of partition 0, starting at `offset`. With None they wait at the beginning of
    all partitions, which are empty.
    """
    parts = tuple(
        FetchPartition(index=index, fetch_offset=0 if index or offset is None else _MARK, max_bytes=1 << 20)
        for index in range(partitions)
    )
    body = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(FetchTopic(name=topic, partitions=parts),),
    )
    engine = ClientConnection(client_id="bench")
    engine.request(body, _FETCH_VERSION)
    request = b"".join(engine.data_to_send())
    # Positions of the correlation id (after length, API key and version) and of the lower half of the offset.
    places = [8] if offset is None else [8, request.index(_MARK.to_bytes(8, "big")) + 4]
    with contextlib.ExitStack() as stack:
        fds = [stack.enter_context(raw_kafka.RawProducer(address, password)).fileno for _ in range(count)]
        next_ids = (ctypes.c_uint32 * count)(*[offset or 0] * count)
        yield Crowd(fds=fds, next_ids=next_ids, request=request, id_places=places, protocol=ECHO)


@contextlib.contextmanager
def amqp_crowd(address: raw_amqp.Address, target: str, event: bytes, count: int) -> Iterator[Crowd]:
    """AMQP senders of single events to an address, with one connection each."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(raw_amqp.Client(address)) for _ in range(count)]
        links = [client.sender(target) for client in clients]
        template = raw_amqp.delivery_template(links[0], event)
        yield Crowd(
            fds=[client.fileno for client in clients],
            next_ids=(ctypes.c_uint32 * count)(*(link.session.next_delivery_id for link in links)),
            request=_bytes_of(template),
            id_places=template.id_places[: template.id_count],
            protocol=AMQP,
        )


def _bytes_of(template: ctypes.Structure) -> bytes:
    """The bytes of a template of other C code, by its first two fields: `ctypes` would stop at the first zero byte."""
    address = ctypes.c_void_p.from_buffer(template).value
    return ctypes.string_at(address or 0, template.size)
