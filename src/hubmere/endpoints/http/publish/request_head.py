"""Parse the head of a publish request: target, kind of body, event properties and timeout.

Nothing here authorizes the request. A head that cannot be parsed refuses it (reference: service 2.5, 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qs

from hubmere.endpoints.http.context import HEADER_NAMES, Scope
from hubmere.endpoints.http.errors import MethodNotAllowed, PathNotFound
from hubmere.endpoints.http.paths import split_path
from hubmere.endpoints.http.publish import event_decoder
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import publisher_name
from hubmere.translate import HttpEvent

# The `timeout` parameter in every example of the API. Clients may ask for up to five minutes.
_DEFAULT_TIMEOUT = "60"
_LONGEST_TIMEOUT_S = 300.0
# Timeouts of the query strings that nearly all clients send, so that these are not parsed.
_COMMON_TIMEOUTS_S = {
    b"": 60.0,
    b"timeout=60": 60.0,
    b"api-version=2014-01": 60.0,
    b"timeout=60&api-version=2014-01": 60.0,
    b"api-version=2014-01&timeout=60": 60.0,
}

# Hub, `consumergroups`, a group, `partitions`, an id, `messages`.
_READ_SEGMENTS = 6
_PARTITIONS = "partitions"
# One page of the API documentation uses the singular, so both are accepted.
_PUBLISHERS = ("publishers", "publisher")


class Target(NamedTuple):
    """The hub of a POST, with the partition or the publisher that its path names."""

    hub: str
    partition: str | None = None
    publisher: str | None = None


@dataclass(slots=True)
class RequestHead:
    """The headers of a publish request."""

    host: str | None = None
    authorization: str | None = None
    content_type: bytes = b""
    broker_properties: bytes | None = None
    partition_key: str | None = None
    # Headers that become properties of the event, and what they add to its size.
    custom: list[tuple[bytes, bytes]] | None = None
    custom_bytes: int = 0

    @property
    def is_batch(self) -> bool:
        """Whether the body is a JSON array of events."""
        return event_decoder.is_batch(self.content_type)

    def event_without_body(self) -> HttpEvent:
        """The single event that the headers describe, with an empty body."""
        broker = None if self.broker_properties is None else event_decoder.decode_header(self.broker_properties)
        properties = event_decoder.parse_header_properties(self.custom) if self.custom else {}
        content_type = event_decoder.decode_header(self.content_type)
        return event_decoder.single_event(b"", content_type, broker, self.partition_key, properties)


def is_message_path(raw_path: bytes) -> bool:
    """Whether a path ends in `/messages`, as all paths of the data plane do."""
    return raw_path[-9:].lower() == b"/messages"


def is_read_path(segments: Sequence[str]) -> bool:
    """Whether a path that ends in `/messages` is the one for reading: a partition below a consumer group."""
    return len(segments) >= _READ_SEGMENTS and segments[-5].lower() == "consumergroups"


def parse_target(raw_path: bytes) -> Target:
    """The hub, and the partition or publisher, that a path names."""
    segments = split_path(raw_path)
    if is_read_path(segments):
        raise MethodNotAllowed("POST", "GET")
    if len(segments) >= 4:
        kind = segments[-3].lower()
        if kind == _PARTITIONS:
            return Target("/".join(segments[:-3]), partition=segments[-2])
        if kind in _PUBLISHERS:
            return Target("/".join(segments[:-3]), publisher=publisher_name(segments[-2]))
    if len(segments) < 2:
        raise PathNotFound
    return Target("/".join(segments[:-1]))


def parse_head(scope: Scope) -> RequestHead:
    """Sort the headers in one pass. Our server keeps header names as sent beside ASGI's lower-case names."""
    head = RequestHead()
    custom: list[tuple[bytes, bytes]] = []
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    sent_names: list[bytes] | None = scope.get(HEADER_NAMES)
    for index, (name, value) in enumerate(headers):
        if name == b"host":
            head.host = value.decode("latin-1")
        elif name == b"authorization":
            head.authorization = event_decoder.decode_header(value)
        elif name == b"content-type":
            head.content_type = value
        elif name == b"brokerproperties":
            head.broker_properties = value
        elif name == b"partitionkey":
            head.partition_key = event_decoder.decode_header(value)
        elif event_decoder.is_property(name):
            custom.append((name if sent_names is None else sent_names[index], value))
            head.custom_bytes += len(name) + len(value)
    head.custom = custom
    return head


def parse_timeout_s(query: bytes) -> float:
    """How long the client waits for the commit."""
    return _COMMON_TIMEOUTS_S.get(query) or _parse_timeout_s(query)


def _parse_timeout_s(query: bytes) -> float:
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("timeout", [_DEFAULT_TIMEOUT])[0]
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) == 0:
        raise InvalidArgument("timeout", text, "a number of seconds")
    return min(float(text), _LONGEST_TIMEOUT_S)
