"""The properties of a message that Kafka readers see as record headers, in plain text."""

import binascii
from typing import Final

from .amqp_values import Malformed, is_text, list_head, value_end
from .record_layout import length_of, with_length

# Fields of the properties section that Kafka readers see as headers, by their place in the list.
_EXPORT_LEADS: Final[list[bytes]] = [
    with_length(name) if name else b""
    for name in (
        b"message-id",
        b"user-id",
        b"to",
        b"",  # subject
        b"reply-to",
        b"",  # correlation-id
        b"content-type",
        b"content-encoding",
        b"",  # absolute-expiry-time
        b"creation-time",
    )
]


def headers_of_properties(data: bytes, at: int, end: int) -> tuple[int, int, bytes]:
    """The end of the properties, and those that Kafka readers see as headers in plain text, with their number."""
    stop, count, at = list_head(data, at, end)
    parts: list[bytes] = []
    exported = 0
    for place in range(count):
        if at >= stop:
            raise Malformed("a value is missing")
        code = data[at]
        if code == 0x40:
            at += 1
            continue
        if (code == 0xA1 or code == 0xA3) and at + 1 < stop:
            after = at + 2 + data[at + 1]
        else:
            after = value_end(data, at, stop, 1)
        lead = _EXPORT_LEADS[place] if place < len(_EXPORT_LEADS) else b""
        if lead:
            text = data[at + 2 : after] if code == 0xA1 or code == 0xA3 else _plain_text(data, at, after, place == 1)
            if text is not None:
                exported += 1
                parts += (lead, length_of(len(text)), text)
        at = after
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    return stop, exported, b"".join(parts)


def _plain_text(data: bytes, at: int, stop: int, is_user: bool) -> bytes | None:
    """A property other than a short string as text: ids in canonical form, times as ISO 8601, binary as base64.

    The binary of a user's name is text already, mostly.
    """
    code = data[at]
    if code == 0xB1 or code == 0xB3:
        return data[at + 5 : stop]
    if code == 0xA0 or code == 0xB0:
        content = data[at + 2 : stop] if code == 0xA0 else data[at + 5 : stop]
        return content if is_user and is_text(content) else binascii.b2a_base64(content, newline=False)
    if code == 0x98:
        digits = data[at + 1 : stop].hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()
    if code == 0x83:
        return _instant(int.from_bytes(data[at + 1 : stop], "big", signed=True))
    if code == 0x44:
        return b"0"
    if code == 0x53 or code == 0x80:
        return str(int.from_bytes(data[at + 1 : stop], "big")).encode()
    return None


# Days from 0000-03-01 to 1970-01-01 in the proleptic Gregorian calendar, and the days of its 400-year cycle.
_EPOCH_DAYS: Final = 719_468
_CYCLE_DAYS: Final = 146_097
_LAST_YEAR: Final = 9_999


def _instant(time_ms: int) -> bytes:
    """A time in ISO 8601, UTC, with milliseconds; outside years 1 to 9999 the bare number of milliseconds."""
    days, ms = divmod(time_ms, 86_400_000)
    cycle, day = divmod(days + _EPOCH_DAYS, _CYCLE_DAYS)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += cycle * 400
    if month >= 10:
        year += 1
        month -= 9
    else:
        month += 3
    if year < 1 or year > _LAST_YEAR:
        return str(time_ms).encode()
    seconds, ms = divmod(ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    return f"{year:04}-{month:02}-{day:02}T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{ms:03}Z".encode()
