"""Values of properties from JSON and the names of their AMQP types: the inverse of how browsing shows them.

JSON has no binary, no UUID, no timestamp and one kind of number, so a copy of an event names the type of such a value.
Decides which value a name and a JSON value stand for. Ranges are checked when the value is encoded.
"""

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping

from hubmere.translate.http import UserProperty
from hubmere.wire.amqp.codec import types as amqp


def parse_typed_value(type_name: str, value: object) -> UserProperty:
    """The value with its AMQP type; ValueError if there is no such type, or the value has not its form."""
    parse = _PARSERS.get(type_name)
    if parse is None:
        raise ValueError(f"there is no type '{type_name[:40]}'")
    try:
        return parse(value)
    except (TypeError, binascii.Error) as error:
        raise ValueError(str(error)) from error


def _integer(kind: type[int]) -> Callable[[object], int]:
    def parse(value: object) -> int:
        # A text stands for a number that JSON readers would round.
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError("expected an integer")
        return kind(int(value))

    return parse


def _real(kind: type[float]) -> Callable[[object], float]:
    def parse(value: object) -> float:
        # A text stands for infinity or for no number.
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError("expected a number")
        return kind(value)

    return parse


def _text(kind: type[str]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str):
            raise TypeError("expected a text")
        return kind(value)

    return parse


def _bytes(kind: type[bytes], size: int | None = None) -> Callable[[object], bytes]:
    def parse(value: object) -> bytes:
        content = base64.b64decode(_text(str)(value), validate=True)
        if size is not None and len(content) != size:
            raise ValueError(f"expected {size} bytes")
        return kind(content)

    return parse


def _char(value: object) -> str:
    text = _text(amqp.Char)(value)
    if len(text) != 1:
        raise ValueError("expected one character")
    return text


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("expected true or false")
    return value


def _null(value: object) -> None:
    if value is not None:
        raise TypeError("expected null")


# By the names of `view`. Lists, maps, arrays and described values are no simple values (AMQP 1.0, 3.2.5).
_PARSERS: Mapping[str, Callable[[object], UserProperty]] = {
    "null": _null,
    "boolean": _boolean,
    "ubyte": _integer(amqp.UByte),
    "ushort": _integer(amqp.UShort),
    "uint": _integer(amqp.UInt),
    "ulong": _integer(amqp.ULong),
    "byte": _integer(amqp.Byte),
    "short": _integer(amqp.Short),
    "int": _integer(amqp.Int),
    "long": _integer(amqp.Long),
    "timestamp": _integer(amqp.Timestamp),
    "float": _real(amqp.Float),
    "double": _real(float),
    "decimal32": _bytes(amqp.Decimal32, 4),
    "decimal64": _bytes(amqp.Decimal64, 8),
    "decimal128": _bytes(amqp.Decimal128, 16),
    "char": _char,
    "string": _text(str),
    "symbol": _text(amqp.Symbol),
    "uuid": lambda value: uuid.UUID(_text(str)(value)),
    "binary": _bytes(bytes),
}
