"""Values for tests of the Kafka protocol: any message in any version, and batches with valid defaults."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID

from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.fetch import PRIVATE_TAGS
from hubmere.wire.kafka.schema import Api, Array, Kind, WireField, WireType, wire_fields

# Times stay below the year 2100, so that a foreign codec that uses dates keeps every millisecond.
_LAST_MS = 4_102_444_800_000

# Lengths around 127, where a compact length needs its second byte (length + 1 is encoded).
_TEXTS = ("", "a", "h\u00fcb", "\u4e8b\u4ef6", "x" * 126, "x" * 127, "x" * 128, "\U0001f980" * 100)
_BLOBS = (b"", b"\x00", b"\xff\x80", b"y" * 126, b"y" * 127, b"y" * 200)
_RECORDS = (*_BLOBS, b"z" * 5000)


def _integer(bits: int) -> Callable[[Random], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return lambda random: random.choice((low, -1, 0, 1, high, random.randint(low, high)))


_KINDS: dict[Kind, Callable[[Random], Any]] = {
    Kind.BOOL: lambda random: random.random() < 0.5,
    Kind.INT8: _integer(8),
    Kind.INT16: _integer(16),
    Kind.INT32: _integer(32),
    Kind.INT64: _integer(64),
    Kind.UUID: lambda random: UUID(int=random.choice((0, random.getrandbits(128)))),
    Kind.STRING: lambda random: random.choice(_TEXTS),
    Kind.BYTES: lambda random: random.choice(_BLOBS),
    Kind.RECORDS: lambda random: random.choice(_RECORDS),
}


def every_message() -> Iterator[tuple[Api, int, type]]:
    """Each request and response of each API in each of its versions."""
    for api in APIS.values():
        for version in range(api.versions.low, api.versions.high + 1):
            yield api, version, api.request
            yield api, version, api.response


def message_id(value: object) -> str:
    """A readable id for a parametrized test."""
    return value.__name__ if isinstance(value, type) else str(value) if isinstance(value, int) else ""


def any_message(cls: type, version: int, random: Random) -> Any:
    """A random message of a version; fields that the version lacks have their defaults."""
    return cls(**{spec.name: _any_field(spec, version, random) for spec in wire_fields(cls)})


def _any_field(spec: WireField, version: int, random: Random) -> Any:
    # Foreign codecs do not know our private tags, which have separate tests.
    if not spec.is_in(version) or (spec.tag is not None and spec.tag >= PRIVATE_TAGS):
        return spec.stand_in
    is_absent_tag = spec.tag is not None and spec.stand_in is None
    if (spec.is_nullable_in(version) or is_absent_tag) and random.random() < 0.3:
        return None
    # Codes and times stay in the range of every codec.
    if spec.type is Kind.INT16 and spec.name == "error_code":
        return int(random.choice(list(ErrorCode)))
    if spec.type is Kind.INT64 and spec.name.endswith("_ms"):
        return random.randrange(_LAST_MS)
    return _any_value(spec.type, version, random)


def _any_value(wire_type: WireType, version: int, random: Random) -> Any:
    if isinstance(wire_type, Array):
        return tuple(_any_value(wire_type.element, version, random) for _ in range(random.randrange(4)))
    if isinstance(wire_type, Kind):
        return _KINDS[wire_type](random)
    return any_message(wire_type, version, random)
