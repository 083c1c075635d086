"""Formats numbers, sizes, times, event bodies and values for display. Pure functions without a page."""

import base64
import codecs
import json
import re
from datetime import UTC, datetime

_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
_STEP = 1024
_HEX_PER_LINE = 16
# Maximum part of a body that a page displays; more would slow the browser down.
MAX_DISPLAYED_BODY_BYTES = 64 * 1024
_PREVIEW_CHARACTERS = 120
_MS = 1000
# What no text has: control characters other than tab and line ends, and the sign of bytes that are not UTF-8.
_NOT_TEXT = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ufffd]")
# The number of ticks of a chart's value axis, and their distances within a unit: sizes are counted in units of 1,024.
_TICKS = 4
_NUMBER_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_SIZE_STEPS = tuple(1 << power for power in range(10))


def size(count_bytes: float) -> str:
    """A size in the largest unit in which it is at least 1."""
    unit = 0
    while abs(count_bytes) >= _STEP and unit < len(_SIZES) - 1:
        count_bytes /= _STEP
        unit += 1
    return f"{count_bytes:.0f} B" if unit == 0 else f"{count_bytes:.1f} {_SIZES[unit]}"


def number(count: float) -> str:
    """A whole number with thousands separators."""
    return f"{count:,.0f}"


def quantity(count: int, noun: str) -> str:
    """A whole number with its noun, which is in the plural unless the number is one."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def rate(per_second: float) -> str:
    """A rate per second; with one decimal if it is below 10."""
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def milliseconds(seconds: float) -> str:
    """A duration in milliseconds; with one decimal if it is below 10."""
    duration_ms = seconds * _MS
    return f"{duration_ms:.1f} ms" if 0 < duration_ms < 10 else f"{duration_ms:,.0f} ms"


def age(seconds: float) -> str:
    """How long ago something happened, in the largest unit that is reached."""
    for unit_s, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def timestamp(at_ms: int) -> str:
    """A time in UTC with milliseconds; a dash if the time is unknown (negative)."""
    if at_ms < 0:
        return "–"  # noqa: RUF001
    try:
        return datetime.fromtimestamp(at_ms / _MS, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        # Kafka producers may send any timestamp.
        return f"{at_ms} ms"


def hours(count: int | None) -> str:
    """A retention time in days if it is a whole number of days, else in hours."""
    if count is None:
        return "unlimited"
    days, rest = divmod(count, 24)
    if rest:
        return f"{count} h"
    return "1 day" if days == 1 else f"{days} days"


def preview(body: bytes | None) -> str:
    """The beginning of a body, on one line."""
    if body is None:
        return "(no body)"
    text = _beginning(body, _PREVIEW_CHARACTERS * 4)
    if not is_text(text):
        return f"({size(len(body))} of binary data)"
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW_CHARACTERS else line[:_PREVIEW_CHARACTERS] + "…"


def is_text(text: str) -> bool:
    """Whether a decoded body is text rather than binary data."""
    return _NOT_TEXT.search(text) is None


def bytes_text(value: bytes) -> str | None:
    """Bytes as text; None if they are not text."""
    text = value.decode("utf-8", "replace")
    return text if is_text(text) else None


def value_text(value: object) -> str:
    """The value of a property. Bytes are text if they can be, as headers of Kafka clients, else base64."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = bytes_text(bytes(value))
        return f"base64:{base64.b64encode(value).decode('ascii')}" if text is None else text
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        # Integers of AMQP have classes of their own, whose names mean nothing to a person.
        return str(int(value))
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{value_text(key)}: {value_text(item)}' for key, item in value.items())}}}"
    return str(value)


def is_shortened(body: bytes | None) -> bool:
    """Whether a body is too large to be displayed completely."""
    return body is not None and len(body) > MAX_DISPLAYED_BODY_BYTES


def to_text(body: bytes) -> str:
    """A body decoded as UTF-8; invalid bytes become U+FFFD."""
    return _beginning(body, MAX_DISPLAYED_BODY_BYTES)


def _beginning(body: bytes, size_bytes: int) -> str:
    """The first bytes of a body as text. A character that is cut in two is left out, so it does not look invalid."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(body[:size_bytes], final=len(body) <= size_bytes)


def to_json(body: bytes) -> str | None:
    """A body as indented JSON; None if it is not JSON or too large to display."""
    if len(body) > MAX_DISPLAYED_BODY_BYTES:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def to_hex(body: bytes) -> str:
    """A body as a hex dump: offset, bytes, printable characters."""
    lines = []
    for offset in range(0, min(len(body), MAX_DISPLAYED_BODY_BYTES), _HEX_PER_LINE):
        part = body[offset : offset + _HEX_PER_LINE]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{offset:08x}  {part.hex(' '):<{_HEX_PER_LINE * 3}} {letters}")
    return "\n".join(lines)


def value_axis(top: float, *, is_bytes: bool) -> tuple[float, float]:
    """Maximum and distance of the ticks of a chart's value axis that shows values up to `top`."""
    steps, base = (_SIZE_STEPS, _STEP) if is_bytes else (_NUMBER_STEPS, _MS)
    unit = 1.0
    while top / _TICKS > unit * steps[-1]:
        unit *= base
    step = next(unit * number for number in steps if unit * number >= top / _TICKS)
    return max(-(-top // step), 1.0) * step, step
