"""How `tail` writes an event: a line for people, a line of JSON, the body alone, or by a format string like that of
kcat.

An event is the node's JSON (`endpoints/http/browse_events`) with its `partition` and its `hub`.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.colours import paint

Json = dict[str, Any]
Write = Callable[[Json], bytes]

_BASE64, _BINARY = "base64", "binary"
_NOT_SIMPLE = ("list", "map", "array", "described")
_INT32 = range(-(2**31), 2**31)
_VALUES = ("properties", "systemProperties")
# Control characters, which a terminal would execute: C0 except the tab, DEL, C1.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(r"%(?P<code>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)", re.DOTALL)


# --- parts of an event ---


def decode_text(text: str | None, encoding: str) -> bytes:
    """Decode a body or a key to bytes."""
    return base64.b64decode(text or "") if encoding == _BASE64 else (text or "").encode()


def body_of(event: Json) -> bytes:
    """The body; empty if there is none."""
    return decode_text(event["body"], event["bodyEncoding"])


def key_of(event: Json) -> bytes | None:
    """The key as readers of either protocol see it: the partition key, else the key of a Kafka record."""
    if event["partitionKey"] is not None:
        return str(event["partitionKey"]).encode()
    return None if event["key"] is None else decode_text(event["key"], event["keyEncoding"])


def type_of_plain(typed: Mapping[str, Any]) -> str | None:
    """The type that a copy must name, since the plain value does not imply it; None if it does.

    Bytes are `binary` if the plain value is their text, and `base64` otherwise. Values that are not simple, which AMQP
    forbids here (1.0, 3.2.5), have no type that could be restored.
    """
    kind = str(typed["type"])
    if kind == _BINARY:
        return _BASE64 if plain_value(typed) is typed["value"] else _BINARY
    return None if kind in (*_NOT_SIMPLE, _implied_type(typed["value"])) else kind


def _implied_type(value: object) -> str:
    """The type that the node gives to a plain JSON value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int" if value in _INT32 else "long"
    return "double" if isinstance(value, float) else "string"


def plain_value(typed: Mapping[str, Any]) -> object:
    """The value of a property; bytes, which headers of Kafka records are, as text if they are UTF-8, else base64."""
    value = typed["value"]
    if typed["type"] != _BINARY or not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value).decode()
    except UnicodeDecodeError:
        return value


def wire_value(kind: str, value: object) -> tuple[str, object]:
    """Type and value as the node reads them; ValueError if bytes are not a text."""
    if kind not in (_BINARY, _BASE64):
        return kind, value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return _BINARY, value if kind == _BASE64 else base64.b64encode(value.encode()).decode()


# --- shapes ---


def text_writer(*, is_coloured: bool) -> Write:
    """Writes a line for people: partition and sequence number, time, key, body."""

    def write(event: Json) -> bytes:
        key = key_of(event)
        place = paint(f"{event['partition']}:{event['sequenceNumber']}".ljust(8), "dim", is_on=is_coloured)
        time = paint(event["enqueuedTime"].replace("+00:00", "Z"), "dim", is_on=is_coloured)
        shown_key = "" if key is None else "  " + paint(f"[{_escape_controls(key)}]", "cyan", is_on=is_coloured)
        return f"{place}  {time}{shown_key}  {_escape_controls(body_of(event))}\n".encode()

    return write


def _escape_controls(content: bytes) -> str:
    try:
        return _CONTROL.sub(lambda found: repr(found.group())[1:-1], content.decode())
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(content).decode()}"


def write_json(event: Json) -> bytes:
    """One line of JSON, which `hubmere send --json-lines` accepts.

    `propertyTypes` names the types of properties whose plain values do not imply them.
    """
    plain = {name: {key: plain_value(typed) for key, typed in event[name].items()} for name in _VALUES}
    types = {name: kind for name, typed in event["properties"].items() if (kind := type_of_plain(typed))}
    named = {"propertyTypes": types} if types else {}
    return json.dumps({**event, **plain, **named}, ensure_ascii=False).encode() + b"\n"


def write_body(event: Json) -> bytes:
    """The body and a line end."""
    return body_of(event) + b"\n"


# --- format strings ---


def _headers(event: Json) -> bytes:
    return ",".join(f"{name}={plain_value(typed)}" for name, typed in event["properties"].items()).encode()


def _time_ms(event: Json) -> bytes:
    return str(round(datetime.fromisoformat(event["enqueuedTime"]).timestamp() * 1000)).encode()


# The codes of kcat's -f. The offset of a Kafka client is the sequence number.
CODES: dict[str, tuple[str, Write]] = {
    "t": ("hub", lambda event: str(event["hub"]).encode()),
    "p": ("partition", lambda event: str(event["partition"]).encode()),
    "o": ("sequence number", lambda event: str(event["sequenceNumber"]).encode()),
    "k": ("key", lambda event: key_of(event) or b""),
    "K": ("length of the key in bytes, -1 without one", lambda event: _length(key_of(event))),
    "s": ("body", body_of),
    "S": ("length of the body in bytes", lambda event: _length(body_of(event))),
    "T": ("time in milliseconds since 1970", _time_ms),
    "h": ("properties as name=value,...", _headers),
    "%": ("a percent sign", lambda _: b"%"),
}


def _length(content: bytes | None) -> bytes:
    return str(-1 if content is None else len(content)).encode()


def format_writer(text: str) -> Write:
    """Writes events by a format string such as `%p %o %k: %s\\n`; CommandFailed when it is invalid."""
    pieces = [_piece(found) for found in _PIECE.finditer(text)]
    if "".join(found.group() for found in _PIECE.finditer(text)) != text:
        raise _bad_format("it ends in the middle of a code")

    def write(event: Json) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(event) for piece in pieces)

    return write


def _piece(found: re.Match[str]) -> bytes | Write:
    if (code := found["code"]) is not None:
        if code not in CODES:
            raise _bad_format(f"%{code} is unknown")
        return CODES[code][1]
    if (number := found["hex"]) is not None:
        return bytes.fromhex(number)
    if (escape := found["escape"]) is not None:
        if escape not in _ESCAPES:
            raise _bad_format(f"\\{escape} is unknown")
        return _ESCAPES[escape]
    return found["text"].encode("utf-8", "surrogateescape")


def _bad_format(why: str) -> CommandFailed:
    codes = ", ".join(f"%{code}" for code in CODES)
    return CommandFailed(Exit.USAGE, f"--format: {why}; the codes are {codes}, and \\n, \\r, \\t, \\0, \\\\, \\xNN")
