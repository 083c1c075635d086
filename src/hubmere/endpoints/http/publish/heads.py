"""What the head of a publication says: where it goes, what kind it is, its properties, and how long its client waits.

Nothing here knows who may; a head that cannot be read refuses the request (reference: service 2.5, 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qs

from hubmere.broker.access import Resource
from hubmere.endpoints.http.context import HEADER_NAMES, Scope, declared_length
from hubmere.endpoints.http.errors import MethodNotAllowed, PathNotFound
from hubmere.endpoints.http.paths import segments_of
from hubmere.endpoints.http.publish import publications
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import publisher_name
from hubmere.translate import HttpEvent

# The `timeout` parameter in every example of the API; clients may ask for up to five minutes.
_DEFAULT_TIMEOUT = "60"
_LONGEST_TIMEOUT_S = 300.0
COMMON_TIMEOUTS = {
    b"": 60.0,
    b"timeout=60": 60.0,
    b"api-version=2014-01": 60.0,
    b"timeout=60&api-version=2014-01": 60.0,
    b"api-version=2014-01&timeout=60": 60.0,
}

# Hub, `consumergroups`, a group, `partitions`, an id, `messages`.
_LOOK_SEGMENTS = 6
_PARTITIONS = "partitions"
# One page of the API writes the singular: both are taken.
_PUBLISHERS = ("publishers", "publisher")


class Target(NamedTuple):
    """Where a POST goes."""

    hub: str
    partition: str | None = None
    publisher: str | None = None


@dataclass(slots=True)
class Head:
    """The headers of a publication, sorted in one walk."""

    host: str | None = None
    authorization: str | None = None
    content_type: bytes = b""
    broker_properties: bytes | None = None
    partition_key: str | None = None
    length: int | None = None
    custom: list[tuple[bytes, bytes]] | None = None
    # What custom headers add to the size of an event.
    custom_bytes: int = 0

    @property
    def is_batch(self) -> bool:
        """Whether the body is several events."""
        return publications.is_batch(self.content_type)


def is_message_path(raw_path: bytes) -> bool:
    """Whether a path ends as those of the data plane do."""
    return raw_path[-9:].lower() == b"/messages"


def is_look_path(segments: Sequence[str]) -> bool:
    """Whether a path of messages is one that is read: of a partition as a consumer group sees it."""
    return len(segments) >= _LOOK_SEGMENTS and segments[-5].lower() == "consumergroups"


def target_of(raw_path: bytes) -> Target:
    """The hub, and the partition or publisher, that a path names."""
    segments = segments_of(raw_path)
    if is_look_path(segments):
        raise MethodNotAllowed("POST", "GET")
    if len(segments) >= 4:
        word = segments[-3].lower()
        if word == _PARTITIONS:
            return Target("/".join(segments[:-3]), partition=segments[-2])
        if word in _PUBLISHERS:
            return Target("/".join(segments[:-3]), publisher=publisher_name(segments[-2]))
    if len(segments) < 2:
        raise PathNotFound
    return Target("/".join(segments[:-1]))


def head_of(scope: Scope) -> Head:
    """Sort the headers. Names as they were sent come from our own server beside the lower-case ones of ASGI."""
    head = Head()
    custom: list[tuple[bytes, bytes]] = []
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    sent_names: list[bytes] | None = scope.get(HEADER_NAMES)
    for index, (name, value) in enumerate(headers):
        if name == b"host":
            head.host = value.decode("latin-1")
        elif name == b"authorization":
            head.authorization = publications.header_text(value)
        elif name == b"content-type":
            head.content_type = value
        elif name == b"content-length":
            head.length = declared_length({name: value})
        elif name == b"brokerproperties":
            head.broker_properties = value
        elif name == b"partitionkey":
            head.partition_key = publications.header_text(value)
        elif publications.is_property(name):
            custom.append((name if sent_names is None else sent_names[index], value))
            head.custom_bytes += len(name) + len(value)
    head.custom = custom
    return head


def resource_of(namespace: str, hub: str, target: Target) -> Resource:
    if target.publisher is not None:
        return Resource.of_publisher(namespace, hub, target.publisher)
    if target.partition is not None:
        return Resource.of_hub(namespace, hub, _PARTITIONS, target.partition, is_messages=True)
    return Resource.of_hub(namespace, hub, is_messages=True)


def events_of(head: Head, body: bytes) -> list[HttpEvent]:
    if head.is_batch:
        # Headers of the request say nothing about the events of a batch (reference: service 3).
        head.custom, head.custom_bytes = None, 0
        return publications.batch_events(body)
    return [event_of(head, body)]


def event_of(head: Head, body: bytes) -> HttpEvent:
    broker = None if head.broker_properties is None else publications.header_text(head.broker_properties)
    properties = publications.header_properties(head.custom) if head.custom else {}
    content_type = publications.header_text(head.content_type)
    return publications.single_event(body, content_type, broker, head.partition_key, properties)


def timeout_of(query: bytes) -> float:
    """How long the client lets the node try: the one query that every example shows is not parsed again and again."""
    return COMMON_TIMEOUTS.get(query) or _parsed_timeout_s(query)


def _parsed_timeout_s(query: bytes) -> float:
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("timeout", [_DEFAULT_TIMEOUT])[0]
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) == 0:
        raise InvalidArgument("timeout", text, "a number of seconds")
    return min(float(text), _LONGEST_TIMEOUT_S)
