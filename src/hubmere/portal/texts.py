"""Numbers, sizes, times and bodies as people read them. Pure functions; nothing here knows a page."""

import json
from datetime import UTC, datetime

_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
_STEP = 1024
_HEX_PER_LINE = 16
# What a page shows of one body; more would only make the browser slow. The whole is in the log.
SHOWN_BODY_BYTES = 64 * 1024
_PREVIEW_CHARACTERS = 120
_MS = 1000


def size(count_bytes: float) -> str:
    """A size in the largest unit that leaves a number of at least one."""
    unit = 0
    while abs(count_bytes) >= _STEP and unit < len(_SIZES) - 1:
        count_bytes /= _STEP
        unit += 1
    return f"{count_bytes:.0f} B" if unit == 0 else f"{count_bytes:.1f} {_SIZES[unit]}"


def number(count: float) -> str:
    """A whole number with its thousands apart."""
    return f"{count:,.0f}"


def rate(per_second: float) -> str:
    """A rate: decimals only where they say something."""
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def instant(at_ms: int) -> str:
    """A moment in UTC to the millisecond; a dash when there was none."""
    if at_ms < 0:
        return "–"  # noqa: RUF001
    try:
        return datetime.fromtimestamp(at_ms / _MS, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        # A Kafka producer may stamp anything.
        return f"{at_ms} ms"


def hours(count: int | None) -> str:
    """A retention: whole days where it is some, else hours."""
    if count is None:
        return "for ever"
    days, rest = divmod(count, 24)
    if rest:
        return f"{count} h"
    return "1 day" if days == 1 else f"{days} days"


def preview(body: bytes | None) -> str:
    """The beginning of a body in one line."""
    if body is None:
        return "(no body)"
    text = body[: _PREVIEW_CHARACTERS * 4].decode("utf-8", "replace")
    if not is_text(text):
        return f"({size(len(body))} of binary)"
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW_CHARACTERS else line[:_PREVIEW_CHARACTERS] + "…"


def is_text(text: str) -> bool:
    """Whether a decoded text is worth showing as such."""
    return "\ufffd" not in text and all(letter.isprintable() or letter in "\r\n\t" for letter in text)


def as_text(body: bytes) -> str:
    """A body as text, with a mark for every byte that is none."""
    return body[:SHOWN_BODY_BYTES].decode("utf-8", "replace")


def as_json(body: bytes) -> str | None:
    """A body as indented JSON; None when it is none, or too large to be shown whole."""
    if len(body) > SHOWN_BODY_BYTES:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def as_hex(body: bytes) -> str:
    """A body as lines of place, bytes and letters."""
    lines = []
    for place in range(0, min(len(body), SHOWN_BODY_BYTES), _HEX_PER_LINE):
        part = body[place : place + _HEX_PER_LINE]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{place:08x}  {part.hex(' '):<{_HEX_PER_LINE * 3}} {letters}")
    return "\n".join(lines)
