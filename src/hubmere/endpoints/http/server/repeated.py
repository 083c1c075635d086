"""Recognizes a publish request that has the same head as the last one of its connection.

A device posts one event after another with the same request line and headers. Only the body changes, and with it the
value of Content-Length. Such a request need not be parsed:

1. When a request has the head of the one before it, the bytes of that head are remembered: those before the value of
   Content-Length, and those after it.
2. A read that begins with the first bytes, goes on with a number and with the other bytes, and ends with as many bytes
   of body as the number says, is one complete request with the same head.
3. Everything else goes to the parser, which decides about it as if nothing had been remembered.
"""

# Longer numbers go to the parser: no read is as large as that.
_MAX_DIGITS = 7
_LENGTH_NAME = b"\r\ncontent-length:"


class RepeatedHead:
    """The bytes of a request head around the value of its Content-Length."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one request with this head; else None."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        at = len(before)
        end = data.find(b"\r", at, at + _MAX_DIGITS + 1)
        number = data[at:end]
        if end < 0 or not number.isdigit() or not data.startswith(after, end):
            return None
        body = data[end + len(after) :]
        return body if len(body) == int(number) else None


def remember_head(data: bytes, body_bytes: int) -> RepeatedHead | None:
    """The head of a request that the parser has accepted, given its bytes and the size of its body.

    None if the value of Content-Length is not found at one place, or not in the form in which it is recognized.
    """
    head = data[: len(data) - body_bytes]
    folded = head.lower()
    if folded.count(_LENGTH_NAME) != 1 or not head.endswith(b"\r\n\r\n"):
        return None
    start = folded.index(_LENGTH_NAME) + len(_LENGTH_NAME)
    start += len(head[start:]) - len(head[start:].lstrip(b" \t"))
    end = head.index(b"\r", start)
    repeated = RepeatedHead(head[:start], head[end:])
    return repeated if repeated.body_of(data) is not None else None
