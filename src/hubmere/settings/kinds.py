"""Kinds of values of settings: how each is parsed, described and shown.

A reader takes text (flags, environment) or a TOML value and raises `ValueError` if it is not valid. `allowed` describes
valid values for error messages. Nothing here knows a setting by name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from hubmere.model.addresses import LISTENERS, AdvertisedListener
from hubmere.model.errors import InvalidName
from hubmere.model.names import NameRule

T = TypeVar("T")

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_SIZE_UNITS = {"": 1, "kib": KIB, "mib": MIB, "gib": GIB}
_SIZE = re.compile(r"([0-9]{1,15})\s*([a-z]*)", re.IGNORECASE)
# RFC 1123, 2.1: labels of letters, digits and hyphens, 253 characters in all.
_HOST_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)
_MAX_HOST_CHARS = 253
_WILDCARD = "*."
# A listener may have these addresses, but no client can connect to them; Kafka refuses to advertise them too.
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - refused, not bound
_SWITCH_WORDS = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How one kind of value is parsed, described and shown."""

    metavar: str
    allowed: str
    read: Callable[[object], T]
    show: Callable[[T], str] = str
    is_list: bool = False
    is_switch: bool = False


def read_text(value: object) -> str:
    """Non-blank text, stripped."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not text")
    return value.strip()


def read_integer(value: object) -> int:
    """An integer; booleans are not accepted."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("not a whole number")
    return int(value)


def read_number(value: object) -> float:
    """An integer or a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("not a number")
    return float(value)


def count(low: int, high: int) -> Kind[int]:
    """A whole number in a range."""

    def read(value: object) -> int:
        return _between(read_integer(value), low, high)

    return Kind("N", f"a whole number from {low} to {high}", read)


def seconds(low: float, high: float) -> Kind[float]:
    """A time in seconds in a range."""

    def read(value: object) -> float:
        return _between(read_number(value), low, high)

    return Kind("SECONDS", f"seconds from {low:g} to {high:g}", read, lambda value: f"{value:g}")


def size(low: int, high: int) -> Kind[int]:
    """A number of bytes in a range, with a binary unit if wanted."""

    def read(value: object) -> int:
        return _between(_read_size(value), low, high)

    allowed = f"bytes from {_show_size(low)} to {_show_size(high)}; KiB, MiB and GiB may follow the number"
    return Kind("BYTES", allowed, read, _show_size)


def choice(*words: str) -> Kind[str]:
    """One of several words."""

    def read(value: object) -> str:
        word = read_text(value).lower()
        if word not in words:
            raise ValueError("not one of the words")
        return word

    return Kind("|".join(words), "one of " + ", ".join(words), read)


def word(*words: str) -> Kind[str]:
    """One of several words, in this case of letters."""

    def read(value: object) -> str:
        text = read_text(value)
        if text not in words:
            raise ValueError("not one of the words")
        return text

    return Kind("NAME", "one of " + ", ".join(words), read)


def name(rule: NameRule) -> Kind[str]:
    """A name of an entity, checked by the model's rule."""

    def read(value: object) -> str:
        try:
            return rule.check(read_text(value))
        except InvalidName as refusal:
            raise ValueError("not a name") from refusal

    return Kind("NAME", f"{rule.shortest} to {rule.longest} characters, {rule.allowed}", read)


def list_of(kind: Kind[T]) -> Kind[tuple[T, ...]]:
    """Several distinct values of a kind: a list in a file, separated by commas in text."""

    def read(value: object) -> tuple[T, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise ValueError("not a list")
        return tuple(dict.fromkeys(kind.read(part) for part in parts))

    def show(values: tuple[T, ...]) -> str:
        return ", ".join(kind.show(value) for value in values)

    return Kind(kind.metavar, f"a list, each {kind.allowed}", read, show, is_list=True)


def _between(value: T, low: T, high: T) -> T:
    if not low <= value <= high:  # type: ignore[operator]  # numbers only; NaN compares false and is refused too
        raise ValueError("out of range")
    return value


def _read_size(value: object) -> int:
    match = _SIZE.fullmatch(value.strip() if isinstance(value, str) else str(read_integer(value)))
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("not a size")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def _show_size(size_bytes: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return str(size_bytes)


def _read_port(value: object) -> int | None:
    if value is False or (isinstance(value, str) and value.strip().lower() == "off"):
        return None
    return _between(read_integer(value), 0, 65535)


def _read_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = read_text(value).lower()
    if word not in _SWITCH_WORDS:
        raise ValueError("not a switch")
    return _SWITCH_WORDS[word]


def _read_path(value: object) -> Path:
    try:
        return value if isinstance(value, Path) else Path(read_text(value)).expanduser()
    except RuntimeError as no_such_home:
        raise ValueError("not a home folder") from no_such_home


def _read_host(value: object) -> str:
    name = read_text(value)
    try:
        return str(ip_address(name))
    except ValueError:
        labels = name.removesuffix(".").split(".")
        if len(name) > _MAX_HOST_CHARS or not all(_HOST_LABEL.fullmatch(label) for label in labels):
            raise
        return name


def _read_host_pattern(value: object) -> str:
    """A host, or `*.` and a domain below which every namespace has its own host name."""
    text = read_text(value)
    domain = text.removeprefix(_WILDCARD)
    host = _read_host(domain)
    if domain != text and not any(character.isalpha() for character in host):
        raise ValueError("not a domain")
    return text[: len(text) - len(domain)] + host


def _read_url(value: object) -> str:
    url = urlsplit(read_text(value))
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise ValueError("not an address")
    return url.geturl()


def _read_advertised(value: object) -> AdvertisedListener:
    url = urlsplit(read_text(value))
    if url.scheme not in LISTENERS or not url.hostname or url.path or url.query or url.fragment or url.username:
        raise ValueError("not a listener")
    host = _read_host(url.hostname)
    if host in _EVERY_ADDRESS:
        raise ValueError("no address for clients")
    return AdvertisedListener(url.scheme, host, url.port)


def _read_advertised_listeners(value: object) -> tuple[AdvertisedListener, ...]:
    read = _ADVERTISED_LIST.read(value)
    if len({entry.listener for entry in read}) != len(read):
        raise ValueError("a listener is named twice")
    return read


_ADVERTISED_LIST = list_of(
    Kind(
        "LISTENER",
        f"LISTENER://HOST or LISTENER://HOST:PORT, once for each listener ({', '.join(LISTENERS)}), "
        "with a HOST that clients can connect to",
        _read_advertised,
    )
)
ADVERTISED: Kind[tuple[AdvertisedListener, ...]] = replace(_ADVERTISED_LIST, read=_read_advertised_listeners)
PORT: Kind[int | None] = Kind(
    "PORT", "0 (any free port) to 65535, or off", _read_port, lambda value: "off" if value is None else str(value)
)
SWITCH: Kind[bool] = Kind("", "true or false", _read_switch, lambda value: str(value).lower(), is_switch=True)


def optional_size(low: int, high: int) -> Kind[int | None]:
    """A number of bytes in a range; the default is computed when the node starts."""
    kind = size(low, high)
    return Kind(kind.metavar, kind.allowed, kind.read, lambda value: "" if value is None else _show_size(value))


def _read_addresses(value: object) -> tuple[tuple[str, int], ...]:
    """Addresses of servers, separated by commas."""
    texts = value if isinstance(value, list) else read_text(value).split(",")
    found = []
    for text in texts:
        host, colon, port = read_text(text).rpartition(":")
        if not colon or not port.isascii() or not port.isdigit():
            raise ValueError("not an address")
        found.append((_read_host(host), _between(int(port), 1, 65535)))
    return tuple(found)


def _show_addresses(addresses: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{host}:{port}" for host, port in addresses)


ADDRESSES: Kind[tuple[tuple[str, int], ...]] = Kind(
    "HOST:PORT,...", "addresses such as b1:9092,b2:9092", _read_addresses, _show_addresses
)
PATH: Kind[Path] = Kind("PATH", "a path", _read_path)
OPTIONAL_PATH: Kind[Path | None] = Kind("PATH", "a path", _read_path)
TEXT: Kind[str] = Kind("TEXT", "a text", read_text)
OPTIONAL_URL: Kind[str | None] = Kind("URL", "an address such as http://localhost:4318", _read_url)
HOST: Kind[str] = Kind("HOST", "an IP address or a host name", _read_host)
HOSTS: Kind[tuple[str, ...]] = list_of(
    Kind("HOST", "an IP address, a host name, or *. and a host name", _read_host_pattern)
)
