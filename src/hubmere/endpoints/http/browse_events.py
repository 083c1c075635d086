"""A look at events as JSON, for people and tools: the portal, the command line, tests (an extension of ours).

`GET /{hub}/consumergroups/{group}/partitions/{id}/messages?from=...`, where a position is `first`, `latest`,
`sequence:5`, `offset:96` or `time:2026-01-01T00:00:00Z`. Reads without becoming a reader: no epoch, no place among the
five, no checkpoint. Needs Listen. With `wait` the answer is held back until there is something to show, so that a tail
need not poll.
"""

import asyncio
import base64
import json
import uuid
from datetime import UTC, datetime
from functools import partial

from starlette.responses import Response

from hubmere.broker.access import Resource
from hubmere.broker.broker import Look
from hubmere.broker.live import LiveHub
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.request import Request
from hubmere.model.entity import Rights
from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Position
from hubmere.translate import EventView, TypedValue, events

PATH = "{hub*}/consumergroups/{group}/partitions/{partition}/messages"

_DEFAULT_LIMIT = 50
_MOST_EVENTS = 1000
_LONGEST_WAIT_S = 60
# Read for one answer: a thousand events of 1 KB, or the one large event that is always read whole.
_READ_BYTES = 1024 * 1024
_MAX_NUMBER_DIGITS = 19
_POSITIONS = "first, latest, sequence:N, offset:N or time:ISO-8601"


async def browse_events(request: Request) -> Response:
    """Some events of a partition from a position on."""
    hub = _authorized_hub(request)
    limit = request.number("limit", _DEFAULT_LIMIT, _MOST_EVENTS)
    wait_s = request.number("wait", 0, _LONGEST_WAIT_S)
    seen = await _looked(request, hub, parse_position(request.query.get("from", "first")), wait_s)
    return Response(json.dumps(_shown(hub, seen, limit)).encode(), 200, media_type=JSON_TYPE)


def _authorized_hub(request: Request) -> LiveHub:
    """The hub, for a caller that may read this partition of it."""
    hub = request.context.find_hub(request.host, request.names["hub"])
    namespace = request.context.namespace_at(request.host) if hub is None else hub.namespace
    principal = request.known_as(request.context.identity.of_data(namespace, request.peer, request.authorization))
    name = request.names["hub"] if hub is None else hub.name
    below = ("consumergroups", request.names["group"], "partitions", request.names["partition"])
    principal.require(Rights.LISTEN, Resource.of_hub(namespace.entity.name, name, *below, is_messages=True))
    return namespace.hub(name)


def parse_position(text: str) -> Position:
    """A position in words; numbers and times are inclusive, as people mean them."""
    word, _, value = text.partition(":")
    if word == "first" and not value:
        return Position.first()
    if word == "latest" and not value:
        return Position.latest()
    if word in ("sequence", "offset") and value.isascii() and value.isdigit() and len(value) <= _MAX_NUMBER_DIGITS:
        make = Position.sequence if word == "sequence" else Position.offset
        return make(int(value), inclusive=True)
    if word == "time":
        return Position.time(_milliseconds(value), inclusive=True)
    raise InvalidArgument("from", text, _POSITIONS)


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument("from", f"time:{text}", _POSITIONS) from None


async def _looked(request: Request, hub: LiveHub, position: Position, wait_s: int) -> Look:
    def look(at: Position) -> Look:
        return request.context.broker.look(
            hub, group=request.names["group"], partition=request.names["partition"], position=at, max_bytes=_READ_BYTES
        )

    seen = look(position)
    if seen.chunk is not None or not wait_s:
        return seen
    moved = asyncio.Event()
    seen.log.watch(moved.set)
    try:
        async with asyncio.timeout(wait_s):
            await moved.wait()
    except TimeoutError:
        return seen
    finally:
        seen.log.unwatch(moved.set)
    # Rules may have changed during the wait.
    _authorized_hub(request)
    # `latest` meant the end as it was when the wait began.
    return look(Position.sequence(seen.sequence, inclusive=True))


def _shown(hub: LiveHub, seen: Look, limit: int) -> dict[str, object]:
    shown: list[EventView] = []
    following = seen.sequence
    if seen.chunk is not None and limit:
        chunk = seen.chunk
        is_compacted = hub.entity.retention.is_compacted
        shown = events(
            chunk.data,
            chunk.offset,
            seen.sequence,
            limit,
            on_unreadable=partial(hub.report_unreadable, seen.partition),
            offsets_are_sequences=is_compacted,
        )
        following = shown[-1].sequence + 1 if len(shown) == limit else chunk.next_sequence
    state = seen.log.state
    page: dict[str, object] = {
        "events": [event_json(event) for event in shown],
        "nextSequenceNumber": following,
        "beginSequenceNumber": state.log_start,
        "lastSequenceNumber": state.committed - 1,
    }
    if damaged := _damaged(hub, seen, following):
        page["damagedRanges"] = damaged
    return page


def _damaged(hub: LiveHub, seen: Look, following: int) -> list[dict[str, object]]:
    """The events between the wanted position and the next one that cannot be read."""
    return [
        {"firstSequenceNumber": each.first_sequence, "lastSequenceNumber": each.next_sequence - 1, "reason": str(each)}
        for partition, each in hub.damaged_ranges()
        if hub.log(partition) is seen.log and each.first_sequence < following and each.next_sequence > seen.sequence
    ]


def event_json(event: EventView) -> dict[str, object]:
    """One event; its body is text where it is UTF-8, else base64."""
    text, encoding = _text_of(event.body)
    return {
        "sequenceNumber": event.sequence,
        "offset": str(event.offset),
        "enqueuedTime": datetime.fromtimestamp(max(event.enqueued_ms, 0) / 1000, UTC).isoformat(
            timespec="milliseconds"
        ),
        "partitionKey": event.partition_key,
        "publisher": event.publisher,
        "body": text,
        "bodyEncoding": encoding,
        "properties": {name: _value_json(value) for name, value in event.properties.items()},
        "systemProperties": {name: _value_json(value) for name, value in event.system_properties.items()},
    }


def _text_of(body: bytes | None) -> tuple[str | None, str]:
    if body is None:
        return None, "none"
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _value_json(typed: TypedValue) -> dict[str, object]:
    return {"type": typed.type, "value": _plain(typed.value)}


def _plain(value: object) -> object:
    """A value that JSON can hold: binaries as base64, whole numbers beyond a double and everything else as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else str(int(value))
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, (str, uuid.UUID)) else repr(value)
