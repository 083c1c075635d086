"""Parses link addresses and filters: hub, partition, consumer group and `Position`.

Accepts every form that deployed clients write (reference: AMQP 4.1, 5.1, 5.2): with or without scheme, host and leading
slash, percent-encoded, keywords in any case, selectors with quoted and bare values. Says nothing about existence or
rights. Anything else is refused as `InvalidArgument`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from hubmere.model.errors import InvalidArgument
from hubmere.model.names import DEFAULT_GROUP, fold
from hubmere.model.position import Position
from hubmere.wire.amqp.codec.types import Described, Value

# A hub, a group and a publisher have at most 256 characters each, three times that when percent-encoded.
MAX_ADDRESS_CHARACTERS = 4096
# The largest number that a sequence number, an offset or a time can be has 19 digits.
_MAX_DIGITS = 19


class ServiceNode(Enum):
    """Addresses that are not hubs."""

    CLAIMS = "$cbs"
    MANAGEMENT = "$management"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """A hub, or a part of one; names as the client wrote them."""

    hub: str
    group: str | None = None
    partition: str | None = None
    publisher: str | None = None

    @property
    def below(self) -> tuple[str, ...]:
        """The path below the hub, by which rights are checked."""
        group = () if self.group is None else ("consumergroups", self.group)
        partition = () if self.partition is None else ("partitions", self.partition)
        publisher = () if self.publisher is None else ("publishers", self.publisher)
        return (*group, *partition, *publisher)


Address = ServiceNode | HubAddress


def parse_address(value: Value) -> Address:
    """Parse the address of a source or target."""
    if not isinstance(value, str) or not value or len(value) > MAX_ADDRESS_CHARACTERS:
        raise InvalidArgument("address", value, "the name of an event hub, of a part of one, '$cbs' or '$management'")
    segments = _segments(value)
    if not segments:
        raise InvalidArgument("address", value, "it names no event hub")
    node = _SERVICE_NODES.get(fold(segments[-1]))
    if node is not None and (len(segments) == 1 or node is ServiceNode.MANAGEMENT):
        return node
    return _hub_address(segments)


def _segments(text: str) -> list[str]:
    """The path segments without scheme, authority and query."""
    _, found, rest = text.partition("://")
    path = rest.partition("/")[2] if found else text
    return [unquote(part) for part in path.partition("?")[0].split("/") if part]


_SERVICE_NODES = {node.value: node for node in ServiceNode}


def _hub_address(segments: list[str]) -> HubAddress:
    # Read from the end: the emulator's configuration allows hubs with '/' in their name.
    keywords = [fold(segment) for segment in segments]
    if len(segments) > 4 and keywords[-4] == "consumergroups" and keywords[-2] == "partitions":
        return HubAddress(hub="/".join(segments[:-4]), group=segments[-3], partition=segments[-1])
    if len(segments) > 2 and keywords[-2] in _TAILS:
        return _TAILS[keywords[-2]]("/".join(segments[:-2]), segments[-1])
    return HubAddress(hub="/".join(segments))


_TAILS: Mapping[str, Callable[[str, str], HubAddress]] = {
    "partitions": lambda hub, partition: HubAddress(hub=hub, partition=partition),
    "publishers": lambda hub, publisher: HubAddress(hub=hub, publisher=publisher),
    "consumergroups": lambda hub, group: HubAddress(hub=hub, group=group),
}


def reader_address(text: str, address: HubAddress) -> str:
    """A valid address to read one partition, for a client that named a hub or a consumer group in another form.

    One documented form is `//namespace/hub/group`: the last two names are then hub and group.
    """
    hub, group = address.hub, address.group
    if group is None:
        names = _segments(text)[1:] if text.startswith("//") else address.hub.split("/")
        names = names or [address.hub]
        hub, group = (names[-2], names[-1]) if len(names) > 1 else (names[0], DEFAULT_GROUP)
    return f"{hub}/ConsumerGroups/{group}/Partitions/{address.partition or 0}"


# --- where a reader starts --------------------------------------------------------------------------------------------

_SELECTOR_NAME = "apache.org:selector-filter:string"
# The descriptor code of the Apache selector filter, and the one that the .NET client writes.
_SELECTOR_CODES = frozenset({0x468C_0000_0004, 0x13_7000_000A})
_SELECTOR_START = "amqp.annotation."

_SELECTOR = re.compile(
    r"\s*amqp\.annotation\.(?P<name>[a-z-]+)\s*(?P<op>>=|>)\s*(?:'(?P<quoted>[^']*)'|(?P<bare>[^\s']+))\s*",
    re.IGNORECASE,
)
_NUMBER = re.compile(rf"-?[0-9]{{1,{_MAX_DIGITS}}}(?:\.[0-9]+)?")


def position_of(filters: Mapping[Value, Value] | None) -> Position:
    """Where a reader with these filters starts: at the oldest event unless a selector names a position."""
    selectors = list(_selectors(filters or {}))
    if not selectors:
        return Position.first()
    if len(selectors) > 1:
        raise InvalidArgument("filter", "; ".join(selectors), "at most one selector")
    return parse_selector(selectors[0])


def _selectors(filters: Mapping[Value, Value]) -> Iterator[str]:
    """The selectors, found by descriptor or by content: the keys of the map differ between clients."""
    for entry in filters.values():
        descriptor, value = (entry.descriptor, entry.value) if isinstance(entry, Described) else (None, entry)
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        is_selector = descriptor == _SELECTOR_NAME or descriptor in _SELECTOR_CODES
        if isinstance(text, str) and (is_selector or fold(text.lstrip()).startswith(_SELECTOR_START)):
            yield text
        elif is_selector:
            raise InvalidArgument("filter", value, "a selector is a text")


def parse_selector(text: str) -> Position:
    """The position that a selector names."""
    found = _SELECTOR.fullmatch(text)
    anchor = _ANCHORS.get(fold(found["name"])) if found else None
    if found is None or anchor is None:
        raise InvalidArgument(
            "filter", text, "amqp.annotation.x-opt-offset, -sequence-number or -enqueued-time > 'value'"
        )
    value = found["quoted"] if found["quoted"] is not None else found["bare"]
    return anchor(value.strip(), found["op"] == ">=")


def _offset(value: str, inclusive: bool) -> Position:
    if fold(value) == "@latest":
        return Position.latest()
    return _parse_number(value, inclusive, Position.offset)


def _sequence(value: str, inclusive: bool) -> Position:
    return _parse_number(value, inclusive, Position.sequence)


def _time(value: str, inclusive: bool) -> Position:
    return _parse_number(value, inclusive, Position.time)


def _parse_number(value: str, inclusive: bool, make: Callable[..., Position]) -> Position:
    if _NUMBER.fullmatch(value) is None:
        raise InvalidArgument("position", value, "a whole number")
    number = int(value.partition(".")[0])
    # -1 means the beginning, as in the service.
    return Position.first() if number < 0 else make(number, inclusive=inclusive)


_ANCHORS: Mapping[str, Callable[[str, bool], Position]] = {
    "x-opt-offset": _offset,
    "x-opt-sequence-number": _sequence,
    "x-opt-enqueued-time": _time,
    "x-opt-enqueuedtimeutc": _time,
}
