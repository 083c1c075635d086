"""Event positions in the form of Microsoft's connector, and their sequence numbers in a hub.

    {"offset": "-1" | "@latest" | "123" | null, "seqNo": -1 | n, "enqueuedTime": "2026-01-01T00:00:00.000Z" | null,
     "isInclusive": true}

The first of offset, seqNo and enqueuedTime that is given decides. `earliest` and `latest`, as in Kafka, mean the two
ends, and so do the plain offsets `-1` and `@latest`. A start is at the event (inclusive) or after it. An end is before
the event with the given sequence number, as in the connector, or after the last event of a time if that is inclusive.
Positions outside the range of a partition mean its beginning or its end.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from hubmere.client.consumer import Bounds, HubReader

START_OF_STREAM: Final = "-1"
END_OF_STREAM: Final = "@latest"


class InvalidPosition(ValueError):
    """A text is not a valid position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPosition:
    """A position in a partition."""

    offset: str | None = None
    sequence: int = -1
    time_ms: int | None = None
    inclusive: bool = True

    @classmethod
    def start_of_stream(cls) -> "EventPosition":
        """Before the oldest event."""
        return cls(offset=START_OF_STREAM)

    @classmethod
    def end_of_stream(cls) -> "EventPosition":
        """After the newest event."""
        return cls(offset=END_OF_STREAM)


def read_position(text: str) -> EventPosition:
    """Parse a position from JSON, or from the word for an end."""
    offset = _ENDS.get(text.strip().strip('"').lower())
    return EventPosition(offset=offset) if offset is not None else _position(_object(text))


def read_positions(text: str, hub: str) -> dict[int, EventPosition]:
    """Positions by partition: a JSON object with a key for each, `{"ehName": "hub", "partitionId": 0}` or just `0`."""
    found: dict[int, EventPosition] = {}
    for key, value in _object(text).items():
        partition = int(key) if key.isdecimal() else _partition_of(key, hub)
        if isinstance(value, str):
            found[partition] = read_position(value)
        elif isinstance(value, dict):
            found[partition] = _position(value)
        else:
            raise InvalidPosition(f"the position of partition {partition} is not an object")
    return found


def read_kafka_offsets(text: str, hub: str) -> dict[int, EventPosition]:
    """Positions in the form of Spark's Kafka source: `{"hub": {"0": 23, "1": -2}}`, -2 the first and -1 the end."""
    found: dict[int, EventPosition] = {}
    for name, numbers in _object(text).items():
        if name != hub or not isinstance(numbers, dict):
            raise InvalidPosition(f'\'{text}\' is not of the form {{"{hub}": {{"0": 23}}}}')
        for key, number in numbers.items():
            if not key.isdecimal() or not isinstance(number, int) or number < _KAFKA_EARLIEST:
                raise InvalidPosition(f"'{key}': {number} is not a partition and its offset")
            found[int(key)] = _KAFKA_ENDS.get(number) or EventPosition(sequence=number)
    return found


def _partition_of(key: str, hub: str) -> int:
    name = _object(key)
    partition = name.get("partitionId")
    if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
        raise InvalidPosition(f"'{key}' has no partitionId")
    if name.get("ehName", hub) != hub:
        raise InvalidPosition(f"'{key}' is not about the hub '{hub}'")
    return partition


_ENDS: Final = {
    "earliest": START_OF_STREAM, START_OF_STREAM: START_OF_STREAM, "latest": END_OF_STREAM,
    END_OF_STREAM: END_OF_STREAM,
}  # fmt: skip
_KAFKA_EARLIEST: Final = -2
_KAFKA_ENDS: Final = {_KAFKA_EARLIEST: EventPosition.start_of_stream(), -1: EventPosition.end_of_stream()}


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise InvalidPosition(f"'{text}' is not a JSON object")
    return value


def _position(value: Mapping[str, Any]) -> EventPosition:
    offset, sequence, time = value.get("offset"), value.get("seqNo", -1), value.get("enqueuedTime")
    inclusive = value.get("isInclusive", True)
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not isinstance(inclusive, bool):
        raise InvalidPosition("seqNo is a whole number and isInclusive true or false")
    if offset is not None and offset not in (START_OF_STREAM, END_OF_STREAM) and not str(offset).isdecimal():
        raise InvalidPosition(f"'{offset}' is not an offset")
    if offset is None and sequence < 0 and time is None:
        raise InvalidPosition("one of offset, seqNo and enqueuedTime is needed")
    return EventPosition(
        offset=None if offset is None else str(offset),
        sequence=sequence,
        time_ms=None if time is None else _time_ms(time),
        inclusive=inclusive,
    )


def _time_ms(text: object) -> int:
    try:
        instant = datetime.fromisoformat(str(text))
    except ValueError:
        raise InvalidPosition(f"'{text}' is not a time such as 2026-01-01T00:00:00.000Z") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return instant_ms(instant)


def instant_ms(instant: datetime) -> int:
    """Milliseconds since 1970, a part of one rounded down."""
    since = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


# --- in a hub --------------------------------------------------------------------------------------------------------


def resolve(
    reader: HubReader,
    bounds: Mapping[int, Bounds],
    default: EventPosition,
    own: Mapping[int, EventPosition],
    *,
    is_end: bool,
) -> dict[int, int]:
    """The sequence number at which each partition starts, or before which it ends."""
    wanted = {partition: own.get(partition, default) for partition in bounds}
    times = {
        partition: position.time_ms + (position.inclusive is is_end)
        for partition, position in wanted.items()
        if position.offset is None and position.sequence < 0 and position.time_ms is not None
    }
    by_time = reader.first_at(times)
    found: dict[int, int] = {}
    for partition, position in wanted.items():
        first, end = bounds[partition]
        if partition in times:
            at = by_time[partition]
            sequence = end if at is None else at
        elif position.offset is not None:
            sequence = _of_offset(reader, partition, bounds[partition], position, is_end=is_end)
        else:
            sequence = position.sequence if is_end or position.inclusive else position.sequence + 1
        found[partition] = min(max(sequence, first), end)
    return found


def _of_offset(reader: HubReader, partition: int, bounds: Bounds, position: EventPosition, *, is_end: bool) -> int:
    if position.offset == START_OF_STREAM:
        return bounds.first
    if position.offset == END_OF_STREAM:
        return bounds.end
    return reader.find_offset(partition, int(position.offset or 0), inclusive=position.inclusive or is_end)
