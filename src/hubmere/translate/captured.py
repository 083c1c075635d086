"""Properties of an event as captured files store them: every value is a long, a double, a text or bytes.

An event has the same values whichever protocol published it. Headers of a Kafka producer are bytes without a type and
stay bytes, as AMQP readers see them. A property without a value is stored as null. The service's schema has no null
among the system properties, so those are omitted. Reference: service 6 (union mapping).
"""

from decimal import Decimal, localcontext
from typing import Final, NamedTuple
from uuid import UUID

from hubmere.records import kernels
from hubmere.translate.columns import KAFKA_KEY, Headers, read_message, text_of
from hubmere.wire.amqp.codec import types as amqp

Scalar = int | float | str | bytes

_LEAST_LONG: Final = -(1 << 63)
_MOST_LONG: Final = (1 << 63) - 1
# IEEE 754-2008, 3.5.2, binary integer significand, which AMQP 1.0 (1.6.13 to 1.6.15) names: width in bytes to the bits
# of the exponent and its bias.
_DECIMALS: Final = {4: (8, 101), 8: (10, 398), 16: (14, 6176)}


class Maps(NamedTuple):
    """The two maps of a captured event."""

    system: dict[str, Scalar]
    properties: dict[str, Scalar | None]


def captured_maps(key: bytes | None, value: bytes | None, headers: Headers) -> Maps:
    """The maps of a record."""
    if not headers:
        return Maps({} if key is None else {KAFKA_KEY: key}, {})
    name, envelope = headers[-1]
    is_message = name == kernels.ENVELOPE_NAME and envelope is not None
    fields = read_message(key, value, headers) if is_message else None
    if fields is None:
        return _kafka_maps(key, headers)
    system = {name: scalar_of(value) for name, value in fields.system.items() if value is not None}
    properties = {name: None if value is None else scalar_of(value) for name, value in fields.properties.items()}
    return Maps(system, properties)


def _kafka_maps(key: bytes | None, headers: Headers) -> Maps:
    """The last value of a repeated name counts, as for AMQP readers; it keeps the position of the first."""
    properties: dict[str, Scalar | None] = {name.decode("utf-8", "replace"): content for name, content in headers}
    return Maps({} if key is None else {KAFKA_KEY: key}, properties)


def scalar_of(value: amqp.Value) -> Scalar:
    """An AMQP value as one of the four kinds; a value that none of them can represent becomes the text of `text_of`."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return int(value) if _LEAST_LONG <= value <= _MOST_LONG else str(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (amqp.Decimal32, amqp.Decimal64, amqp.Decimal128)):
        return _double_of(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, (str, UUID)):
        return str(value)
    if isinstance(value, amqp.Described) and value.value is not None:
        return scalar_of(value.value)
    return text_of(value)


def _double_of(raw: bytes) -> float:
    exponent_bits, bias = _DECIMALS[len(raw)]
    width = len(raw) * 8
    bits = int.from_bytes(raw, "big")
    sign = -1 if bits >> (width - 1) else 1
    if bits >> (width - 6) & 0x1F == 0x1F:
        return float("nan")
    if bits >> (width - 6) & 0x1E == 0x1E:
        return sign * float("inf")
    shift = width - 1 - exponent_bits
    if bits >> (width - 3) & 0x3 == 0x3:
        # A significand that begins with 100: two more bits mark it, and the exponent follows them.
        shift -= 2
        significand = (0x4 << shift) | (bits & ((1 << shift) - 1))
    else:
        significand = bits & ((1 << shift) - 1)
    exponent = (bits >> shift & ((1 << exponent_bits) - 1)) - bias
    with localcontext() as context:
        context.prec = 40  # more than the 34 digits of decimal128
        return float(sign * Decimal(significand).scaleb(exponent))
