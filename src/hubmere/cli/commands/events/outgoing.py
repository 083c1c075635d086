"""Prepares events for `send`: reads them from lines, and groups them into as few publications as the rules allow.

A publication goes to one partition and so holds events of one key; events of a key stay in their order. Reading from a
pipe returns what is available, so that the lines of a slow writer are sent at once.
"""

import base64
import binascii
import json
import os
import select
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hubmere.cli.commands.events.formats import wire_value
from hubmere.cli.exit_codes import CommandFailed, Exit

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"

# One publication: small enough for the smallest tier (256 KiB), large enough that the round trip does not matter.
_PUBLICATION_BYTES = 200 * 1024
_PUBLICATION_EVENTS = 2000
# Events that wait in publications that are not full yet, over all partition keys.
_WAITING_BYTES = 8 * 1024 * 1024
_READ_BYTES = 256 * 1024
# Above the largest event of any tier (20 MiB): a longer line means that the file is the wrong one.
_LINE_BYTES = 32 * 1024 * 1024

# Fields of the AMQP properties section that an event sent over HTTP may have, with their names in HTTP.
_BROKER_PROPERTIES = {
    "message-id": "MessageId",
    "to": "To",
    "subject": "Label",
    "reply-to": "ReplyTo",
    "correlation-id": "CorrelationId",
    "content-type": "ContentType",
    "group-id": "SessionId",
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One event to send."""

    body: bytes
    partition_key: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    # Fields of the AMQP properties section by their names: `content-type`, `message-id`, ...
    system: Mapping[str, str] = field(default_factory=dict)
    # AMQP types of properties, by name; the others have the type that JSON implies.
    property_types: Mapping[str, str] = field(default_factory=dict)

    @property
    def broker_properties(self) -> dict[str, str]:
        """The value of the header BrokerProperties (reference: service 3)."""
        found = {_BROKER_PROPERTIES[name]: value for name, value in self.system.items()}
        return found if self.partition_key is None else {"PartitionKey": self.partition_key, **found}

    def encode(self) -> bytes:
        """The event as an element of a batch."""
        entry: dict[str, Any]
        try:
            entry = {"Body": self.body.decode()}
        except UnicodeDecodeError:
            entry = {"Body": base64.b64encode(self.body).decode(), "IsBodyBase64": True}
        if self.properties:
            entry["UserProperties"] = self.properties
        if self.property_types:
            entry["UserPropertyTypes"] = self.property_types
        if broker_properties := self.broker_properties:
            entry["BrokerProperties"] = broker_properties
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The content of one request."""

    count: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Open:
    """A publication that is being filled."""

    events: list[Outgoing] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class Publications:
    """Groups events into publications. Thread rule: one owner."""

    def __init__(self) -> None:
        self._open: dict[str | None, _Open] = {}
        self._waiting_bytes = 0

    def add(self, event: Outgoing) -> Iterator[Publication]:
        """Add an event; returns the publications that are full now."""
        part = event.encode()
        filling = self._open.setdefault(event.partition_key, _Open())
        if filling.parts and filling.size_bytes + len(part) > _PUBLICATION_BYTES:
            yield self._close(event.partition_key)
            filling = self._open.setdefault(event.partition_key, _Open())
        filling.events.append(event)
        filling.parts.append(part)
        filling.size_bytes += len(part) + 1
        self._waiting_bytes += len(part) + 1
        if len(filling.parts) >= _PUBLICATION_EVENTS:
            yield self._close(event.partition_key)
        elif self._waiting_bytes > _WAITING_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Publication]:
        """The publications that are not full."""
        for key in list(self._open):
            yield self._close(key)

    def _close(self, key: str | None) -> Publication:
        done = self._open.pop(key)
        self._waiting_bytes -= done.size_bytes
        only = done.events[0]
        if len(done.events) == 1 and not only.properties:
            # Send the plain body: JSON would make it larger, and an event may be as large as a publication.
            broker_properties = only.broker_properties
            headers = {"BrokerProperties": json.dumps(broker_properties)} if broker_properties else {}
            return Publication(count=1, body=only.body, headers=headers)
        body = b"[" + b",".join(done.parts) + b"]"
        return Publication(count=len(done.parts), body=body, headers={"Content-Type": BATCH_TYPE})


# --- lines -----------------------------------------------------------------------------------------------------------


def lines(fd: int) -> Iterator[list[bytes]]:
    """The lines of a file or pipe as they arrive, without line ends; an empty list: no more at the moment."""
    rest = b""
    while data := os.read(fd, _READ_BYTES):
        found = (rest + data).split(b"\n")
        rest = found.pop()
        if len(rest) > _LINE_BYTES:
            raise CommandFailed(Exit.USAGE, f"a line is longer than {_LINE_BYTES} bytes")
        yield [line.removesuffix(b"\r") for line in found]
        if not select.select([fd], [], [], 0)[0]:
            yield []
    if rest:
        yield [rest]


def parse_event(line: bytes, number: int) -> Outgoing:
    """Parse a JSON line, in the format that `hubmere tail --output json` prints."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad(number, f"is not JSON: {error}") from None
    if isinstance(entry, dict) and entry.get("bodyEncoding") == "none":
        raise _bad(number, "has no body: it is a tombstone, which only Kafka clients can send")
    if not isinstance(entry, dict) or entry.get("body") is None:
        raise _bad(number, 'is not an object with a "body"; --lines sends lines as they are')
    properties, system = entry.get("properties") or {}, entry.get("systemProperties") or {}
    if not isinstance(properties, dict) or not isinstance(system, dict):
        raise _bad(number, "has properties or systemProperties that are not an object")
    typed, types = _typed(properties, entry.get("propertyTypes") or {}, number)
    return Outgoing(_body(entry, number), _key(entry, number), typed, _system(system), types)


def _typed(properties: dict[str, Any], kinds: object, number: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Properties and types as the node reads them, from the form that `tail` prints."""
    if not isinstance(kinds, dict):
        raise _bad(number, "has propertyTypes that are not an object")
    values = dict(properties)
    types: dict[str, str] = {}
    if not kinds:
        return values, types
    from hubmere.translate import parse_typed_value  # not loaded for lines without types

    for name, kind in kinds.items():
        if name not in values or not isinstance(kind, str):
            raise _bad(number, f"has propertyTypes with '{name}', which is not a type of one of its properties")
        try:
            types[name], values[name] = wire_value(kind, values[name])
            parse_typed_value(types[name], values[name])
        except ValueError as error:
            raise _bad(number, f"has the property '{name}', which is no {kind[:40]}: {error}") from None
    return values, types


def _key(entry: dict[str, Any], number: int) -> str | None:
    """The partition key, else the key of a Kafka record: readers of either protocol see it as the key of the copy."""
    key = entry.get("partitionKey")
    if key is None:
        key = entry.get("key")
        if key is not None and entry.get("keyEncoding") == "base64":
            raise _bad(number, "has a key that is not text, which only Kafka clients can send")
    if not isinstance(key, str | None):
        raise _bad(number, "has a partitionKey or key that is not text")
    return key


def _system(values: dict[str, Any]) -> dict[str, str]:
    """The system properties that can be sent; the hub itself sets positions and annotations."""
    return {name: str(values[name]) for name in _BROKER_PROPERTIES if values.get(name) is not None}


def _body(entry: dict[str, Any], number: int) -> bytes:
    body = entry["body"]
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        if entry.get("bodyEncoding") == "base64":
            return base64.b64decode(text, validate=True)
        return text.encode()
    except (binascii.Error, ValueError):
        raise _bad(number, "has a body that cannot be decoded") from None


def _bad(number: int, why: str) -> CommandFailed:
    return CommandFailed(Exit.USAGE, f"line {number} {why}")


def events_of(batches: Iterable[list[bytes]], *, is_json: bool, key: str | None) -> Iterator[list[Outgoing]]:
    """Lines as events, in the portions in which they arrived; blank lines are skipped."""
    number = 0
    for batch in batches:
        events: list[Outgoing] = []
        for line in batch:
            number += 1
            if not is_json:
                events.append(Outgoing(line, key))
            elif line.strip():
                events.append(parse_event(line, number))
        yield events
