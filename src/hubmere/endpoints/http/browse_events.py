"""Browse events as JSON: for the command line and other tools (the Azure service has no such path).

`GET /{hub}/consumergroups/{group}/partitions/{id}/messages?from=...`, where a position is `first`, `latest`,
`sequence:5`, `offset:96` or `time:2026-01-01T00:00:00Z`. The client does not become a reader: it has no epoch and no
checkpoint, and does not count among the five readers of a group. It needs Listen. With `wait` the response is delayed
until there are events, so that clients need not poll.
"""

import asyncio
import json
from datetime import UTC, datetime
from functools import partial

from starlette.responses import Response

from hubmere.broker import HubView, Peek
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.request import Request
from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Position
from hubmere.translate import EventView, event_json, events

PATH = "{hub*}/consumergroups/{group}/partitions/{partition}/messages"

_DEFAULT_LIMIT = 50
_MAX_EVENTS = 1000
_MAX_WAIT_S = 60
# Bytes read for one response: a thousand events of 1 KB; a single larger event is always read completely.
_READ_BYTES = 1024 * 1024
_MAX_NUMBER_DIGITS = 19
_POSITIONS = "first, latest, sequence:N, offset:N or time:ISO-8601"


async def browse_events(request: Request) -> Response:
    """Some events of a partition from a position on."""
    limit = request.number("limit", _DEFAULT_LIMIT, _MAX_EVENTS)
    wait_s = request.number("wait", 0, _MAX_WAIT_S)
    position = parse_position(request.query.get("from", "first"))
    hub, peek = _peek(request, position)
    if peek.chunk is None and wait_s and await _wait_for_events(peek, wait_s):
        # The caller signs in again, since rules may have changed. `latest` means the end when the wait began.
        hub, peek = _peek(request, Position.sequence(peek.sequence, inclusive=True))
    return Response(json.dumps(_page_json(hub, peek, limit)).encode(), 200, media_type=JSON_TYPE)


def _peek(request: Request, position: Position) -> tuple[HubView, Peek]:
    caller, name = request.sign_in_to_hub()
    peek = caller.peek(
        name,
        request.context.now_s,
        group=request.names["group"],
        partition=request.names["partition"],
        position=position,
        max_bytes=_READ_BYTES,
    )
    return caller.visible_hub(name), peek


async def _wait_for_events(peek: Peek, wait_s: int) -> bool:
    """Wait until the partition changes; False if it does not in time."""
    moved = asyncio.Event()
    peek.partition.watch(moved.set)
    try:
        async with asyncio.timeout(wait_s):
            await moved.wait()
    except TimeoutError:
        return False
    finally:
        peek.partition.unwatch(moved.set)
    return True


def parse_position(text: str) -> Position:
    """A position from its text; sequence numbers, offsets and times are inclusive."""
    kind, _, value = text.partition(":")
    if kind == "first" and not value:
        return Position.first()
    if kind == "latest" and not value:
        return Position.latest()
    if kind in ("sequence", "offset") and value.isascii() and value.isdigit() and len(value) <= _MAX_NUMBER_DIGITS:
        make = Position.sequence if kind == "sequence" else Position.offset
        return make(int(value), inclusive=True)
    if kind == "time":
        return Position.time(_parse_time_ms(value), inclusive=True)
    raise InvalidArgument("from", text, _POSITIONS)


def _parse_time_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument("from", f"time:{text}", _POSITIONS) from None


def _page_json(hub: HubView, peek: Peek, limit: int) -> dict[str, object]:
    found: list[EventView] = []
    next_sequence = peek.sequence
    if peek.chunk is not None and limit:
        chunk = peek.chunk
        found = events(
            chunk.data,
            chunk.offset,
            peek.sequence,
            limit,
            on_unreadable=partial(hub.report_unreadable, peek.partition.number),
            offsets_are_sequences=peek.partition.offsets_are_sequences,
            offsets=chunk.offsets,
        )
        next_sequence = found[-1].sequence + 1 if len(found) == limit else chunk.next_sequence
    state = peek.partition.state
    page: dict[str, object] = {
        "events": [event_json(event) for event in found],
        "nextSequenceNumber": next_sequence,
        "beginSequenceNumber": state.log_start,
        "lastSequenceNumber": state.committed - 1,
    }
    if damaged := _damaged_json(hub, peek, next_sequence):
        page["damagedRanges"] = damaged
    return page


def _damaged_json(hub: HubView, peek: Peek, next_sequence: int) -> list[dict[str, object]]:
    """The ranges between the requested position and the next one that cannot be read."""
    return [
        {"firstSequenceNumber": each.first_sequence, "lastSequenceNumber": each.next_sequence - 1, "reason": str(each)}
        for partition, each in hub.damaged_ranges()
        if partition == peek.partition.number
        and each.first_sequence < next_sequence
        and each.next_sequence > peek.sequence
    ]
