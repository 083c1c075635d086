"""librdkafka as a client that customers use, called from C (`rdkafka.c`) so that no Python code is measured.

The library is the one that the confluent-kafka wheel carries. Settings are librdkafka's own, by name, with its
defaults. Nothing here retries: a failure raises `BenchFailed`.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import confluent_kafka
from bench.load.library import BenchFailed, Library

_SOURCE: Final = Path(__file__).with_name("rdkafka.c")
_FAILURES: Final = {
    -1: "the client could not be made",
    -2: "an event was not taken by the client",
    -3: "an event was not delivered",
    -4: "the broker fell silent",
}


class _Outcome(ctypes.Structure):
    _fields_ = (("messages", ctypes.c_uint64), ("seconds", ctypes.c_double))


class _Settings(ctypes.Structure):
    _fields_ = (("pairs", ctypes.POINTER(ctypes.c_char_p)), ("count", ctypes.c_size_t))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Number of messages, and the duration."""

    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of a broker, and the client settings to reach it.

    `relays` has ports of brokers, and those of the relays that are used in their place.
    """

    name: str
    partitions: int
    settings: Mapping[str, str]
    relays: Mapping[int, int] = field(default_factory=dict)


class RdKafka:
    """The library and the C code around it, for the length of a `with` block."""

    def __init__(self) -> None:
        self._library = Library(_SOURCE)

    def __enter__(self) -> Self:
        carried = sorted(Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*"))
        if not carried:
            raise BenchFailed("this confluent-kafka carries no librdkafka")
        ctypes.CDLL(str(carried[0]), mode=ctypes.RTLD_GLOBAL)
        self._library.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.__exit__(kind, error, trace)

    def produce(self, topic: Topic, size_bytes: int, seconds: float) -> Flow:
        """Produce messages of one size for `seconds`, with acks=all and librdkafka's defaults."""
        outcome = _Outcome()
        ports = ctypes.c_uint16 * len(topic.relays)
        self._call(
            "set_relays", ports(*topic.relays), ports(*topic.relays.values()), ctypes.c_size_t(len(topic.relays))
        )
        self._call(
            "produce_for",
            ctypes.byref(_settings(topic, {"acks": "all"})),
            topic.name.encode(),
            ctypes.c_uint32(topic.partitions),
            ctypes.c_size_t(size_bytes),
            ctypes.c_double(seconds),
            ctypes.byref(outcome),
        )
        return Flow(messages=outcome.messages, seconds=outcome.seconds)

    def consume(self, topic: Topic, limit: int, seconds: float) -> Flow:
        """Consume from the beginning with librdkafka's defaults, for `seconds` or until `limit` messages came."""
        outcome = _Outcome()
        self._call(
            "consume_for",
            ctypes.byref(_settings(topic, {})),
            topic.name.encode(),
            ctypes.c_uint32(topic.partitions),
            ctypes.c_uint64(limit),
            ctypes.c_double(seconds),
            ctypes.byref(outcome),
        )
        return Flow(messages=outcome.messages, seconds=outcome.seconds)

    def latencies_ms(self, topic: Topic, size_bytes: int, *, rate: int, count: int) -> list[float]:
        """Sorted latencies with linger 0, from the time at which a message was due to be sent until its arrival."""
        waits = (ctypes.c_uint64 * count)()
        self._call(
            "latency_run",
            ctypes.byref(_settings(topic, {"acks": "all", "linger.ms": "0"})),
            ctypes.byref(_settings(topic, {})),
            topic.name.encode(),
            ctypes.c_uint32(topic.partitions),
            ctypes.c_size_t(size_bytes),
            ctypes.c_uint64(1_000_000_000 // rate),
            ctypes.c_uint64(count),
            waits,
        )
        return sorted(wait / 1e6 for wait in waits)

    def _call(self, name: str, *arguments: object) -> None:
        code: int = getattr(self._library.code, name)(*arguments)
        if code:
            raise BenchFailed(f"{name}: {_FAILURES.get(code, code)}")


def _settings(topic: Topic, more: Mapping[str, str]) -> _Settings:
    pairs = [text.encode() for pair in {**topic.settings, **more}.items() for text in pair]
    return _Settings(pairs=(ctypes.c_char_p * len(pairs))(*pairs), count=len(pairs) // 2)
