"""Checks of a request head that the parser does not make: its host and its target (RFC 9112, 3.2).

The parser accepts several Host fields, and an absolute target beside a different Host. Two servers may interpret such a
request differently, which allows request smuggling. It is refused, or interpreted as the standard prescribes.
"""

import re
from typing import Final

import httptools

from hubmere.endpoints.http.errors import MalformedRequest

Headers = list[tuple[bytes, bytes]]

# The characters of a Host field: visible ASCII without the delimiters of a URL.
_HOST: Final = re.compile(rb"[!$-.0-;=A-\[\]_a-z~]*")
_SCHEMES: Final = (b"http", b"https")


def check_host(headers: Headers, http_version: str) -> None:
    """Refuse a request without a Host field, with several, or with one that is not a host."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        raise MalformedRequest("it has several Host fields, exactly one is expected")
    if not hosts and http_version != "1.0":
        raise MalformedRequest("it has no Host field, exactly one is expected")
    if hosts and _HOST.fullmatch(hosts[0]) is None:
        raise MalformedRequest("its Host field is not a host name with an optional port")


def check_encoding(headers: Headers, http_version: str) -> None:
    """Refuse Transfer-Encoding in HTTP/1.0, which does not define it (RFC 9112, 6.1)."""
    if http_version == "1.0" and any(name == b"transfer-encoding" for name, _ in headers):
        raise MalformedRequest("HTTP/1.0 has no Transfer-Encoding")


def resolve_target(target: bytes, headers: Headers) -> bytes:
    """The path and query of a target. The host of an absolute target replaces the Host field (RFC 9112, 3.2.2)."""
    if target[:1] == b"/":
        return target
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise MalformedRequest("its target is neither a path nor a URL") from None
    if parsed.host is None or parsed.userinfo is not None or (parsed.schema or b"").lower() not in _SCHEMES:
        raise MalformedRequest("its target is neither a path nor an HTTP URL")
    host = parsed.host if b":" not in parsed.host else b"[%b]" % parsed.host
    authority = host if parsed.port is None else b"%b:%d" % (host, parsed.port)
    headers[:] = [(name, authority if name == b"host" else value) for name, value in headers]
    query = b"" if parsed.query is None else b"?" + parsed.query
    return (parsed.path or b"/") + query


def is_readable_handshake(headers: Headers) -> bool:
    """Whether the headers of a WebSocket handshake can be decoded."""
    try:
        for name, value in headers:
            if name == b"host":
                value.decode("idna")
            elif name in (b"connection", b"upgrade") or name.startswith(b"sec-websocket-"):
                value.decode("ascii")
    except UnicodeError:
        return False
    return True
