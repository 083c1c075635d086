"""Split a path into checked segments, and find its handler in a table of routes.

Segments are split before they are decoded, so an encoded slash stays inside its segment. Dot segments, control
characters and invalid encodings are refused. Fixed segments match in any case, because clients send `consumerGroups`
and `resourcegroups`; names keep their case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from hubmere.endpoints.http.errors import MalformedRequest, MethodNotAllowed

# The longest paths are ARM's, with four names of up to 256 characters, which may be percent-encoded.
MAX_PATH_BYTES = 8192
# Split paths that are cached, since devices post to the same few. Long ones are not, to bound the memory.
_CACHED_PATHS = 1024
_CACHED_PATH_BYTES = 256

_ABSOLUTE = (b"https://", b"http://", b"wss://", b"ws://")

H = TypeVar("H")


def split_path(raw_path: bytes) -> tuple[str, ...]:
    """The decoded segments of a path, without empty ones (double or trailing slashes)."""
    return _cached_split(raw_path) if len(raw_path) <= _CACHED_PATH_BYTES else _split(raw_path)


def _split(raw_path: bytes) -> tuple[str, ...]:
    if len(raw_path) > MAX_PATH_BYTES:
        raise MalformedRequest(f"a path has at most {MAX_PATH_BYTES} bytes")
    return tuple(_decode_segment(segment) for segment in _without_authority(raw_path).split(b"/") if segment)


def _without_authority(target: bytes) -> bytes:
    """The path of a target in absolute form, which Java's WebSocket client sends (RFC 9112, 3.2.2)."""
    for scheme in _ABSOLUTE:
        if target[: len(scheme)].lower() == scheme:
            return target[len(scheme) :].partition(b"/")[2]
    return target


_cached_split = lru_cache(maxsize=_CACHED_PATHS)(_split)


def _decode_segment(segment: bytes) -> str:
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise MalformedRequest("a segment of the path is not UTF-8") from None
    if text in (".", ".."):
        raise MalformedRequest("the path has a dot segment")
    if any(character < " " or character == "\x7f" for character in text):
        raise MalformedRequest("the path has a control character")
    return text


@dataclass(frozen=True, slots=True)
class Match(Generic[H]):
    """A handler and the names in the path."""

    handler: H
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Route(Generic[H]):
    parts: tuple[tuple[str, bool], ...]  # (text, is a name): a name matches any segment
    handlers: Mapping[str, H]


class RouteTable(Generic[H]):
    """Handlers by path pattern and method; in `{hub}/consumergroups/{group}`, `{name}` stands for one segment.

    A first `{hub*}` stands for one or more segments, since hubs of the emulator's configuration may contain slashes.
    """

    def __init__(self, table: Mapping[str, Mapping[str, H]]) -> None:
        self._routes = [_parse_pattern(pattern, handlers) for pattern, handlers in table.items()]

    def find(self, method: str, segments: Sequence[str]) -> Match[H] | None:
        """The handler of a path by the first pattern that matches; None if none does."""
        for route in self._routes:
            names = _match(route.parts, segments)
            if names is not None:
                handler = route.handlers.get("GET" if method == "HEAD" else method)
                if handler is None:
                    raise MethodNotAllowed(method, ", ".join(sorted(route.handlers)))
                return Match(handler, names)
        return None


def _parse_pattern(pattern: str, handlers: Mapping[str, H]) -> _Route[H]:
    parts = tuple(
        (segment[1:-1], True) if segment.startswith("{") else (segment.lower(), False)
        for segment in pattern.split("/")
        if segment
    )
    return _Route(parts, handlers)


def _match(parts: tuple[tuple[str, bool], ...], segments: Sequence[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    if parts and parts[0][0].endswith("*"):
        extra = len(segments) - len(parts) + 1
        if extra < 1:
            return None
        names[parts[0][0][:-1]] = "/".join(segments[:extra])
        parts, segments = parts[1:], segments[extra:]
    if len(parts) != len(segments):
        return None
    for (text, is_name), segment in zip(parts, segments, strict=True):
        if is_name:
            names[text] = segment
        elif segment.lower() != text:
            return None
    return names
