"""Filters that Spark offers before it reads: those on partition, sequenceNumber and enqueuedTime narrow the ranges.

Spark still applies every filter to the rows, so a range may be wider than the filter and never narrower.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from hubmere.client.consumer import HubReader
from hubmere.pipeline.offsets import Range
from hubmere.pipeline.positions import instant_ms

_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What can pass the filters: ranges of sequence numbers and times (ms), both ends included."""

    partitions: frozenset[str] | None = None
    low_sequence: int = 0
    high_sequence: int = _MAX
    low_ms: int = -_MAX
    high_ms: int = _MAX

    def keeps(self, partition: int) -> bool:
        """Whether a partition is read at all."""
        return self.partitions is None or str(partition) in self.partitions


def narrow_by(filters: Iterable[Filter]) -> Narrowing:
    """The combined effect of filters that must all hold."""
    found = Narrowing()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        narrow = _NARROW.get(attribute[0]) if len(attribute) == 1 else None
        if narrow is not None:
            found = narrow(found, each)
    return found


def _by_partition(found: Narrowing, each: Filter) -> Narrowing:
    if isinstance(each, EqualTo):
        wanted = frozenset({str(each.value)})
    elif isinstance(each, In):
        wanted = frozenset(str(value) for value in each.value if value is not None)
    else:
        return found
    return replace(found, partitions=wanted if found.partitions is None else found.partitions & wanted)


def _by_sequence(found: Narrowing, each: Filter) -> Narrowing:
    low, high = _interval(each, step=1)
    return replace(found, low_sequence=max(found.low_sequence, low), high_sequence=min(found.high_sequence, high))


def _by_time(found: Narrowing, each: Filter) -> Narrowing:
    # Times are whole milliseconds in the log and microseconds in Spark: round outwards, Spark checks the rest.
    low, high = _interval(each, step=0)
    return replace(found, low_ms=max(found.low_ms, low), high_ms=min(found.high_ms, high))


def _interval(each: Filter, *, step: int) -> tuple[int, int]:
    """The lowest and highest value that pass a filter."""
    if isinstance(each, EqualTo):
        value = _number(each.value)
        return value, value
    if isinstance(each, In):
        values = [_number(value) for value in each.value if value is not None]
        return (min(values), max(values)) if values else (_MAX, -_MAX)
    if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
        return _number(each.value) + (step if isinstance(each, GreaterThan) else 0), _MAX
    if isinstance(each, (LessThan, LessThanOrEqual)):
        return -_MAX, _number(each.value) - (step if isinstance(each, LessThan) else 0)
    return -_MAX, _MAX


def _number(value: Any) -> int:
    if isinstance(value, datetime):
        return instant_ms(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
    return int(value)


_NARROW: Final = {"partition": _by_partition, "sequenceNumber": _by_sequence, "enqueuedTime": _by_time}


def narrow_ranges(reader: HubReader, ranges: Iterable[Range], left: Narrowing) -> list[Range]:
    """The parts of the ranges that can pass the filters; empty ones are omitted."""
    kept = [each for each in ranges if left.keeps(each.partition)]
    partitions = [each.partition for each in kept]
    lows: Mapping[int, int | None] = {}
    highs: Mapping[int, int | None] = {}
    if left.low_ms > -_MAX:
        lows = reader.first_at(dict.fromkeys(partitions, max(left.low_ms, 0)))
    # Times of producers may decrease: an event of the range may follow one behind it.
    cuts_end = left.high_ms < _MAX and reader.has_ordered_times()
    if cuts_end:
        highs = reader.first_at(dict.fromkeys(partitions, max(left.high_ms + 1, 0)))
    found: list[Range] = []
    for each in kept:
        low, high = each.start, each.end
        if left.low_ms > -_MAX:
            at = lows[each.partition]
            low = each.end if at is None else max(low, at)
        if cuts_end and (at := highs[each.partition]) is not None:
            high = min(high, at)
        cut = Range(each.partition, max(low, left.low_sequence), min(high, left.high_sequence + 1))
        if cut.start < cut.end:
            found.append(cut)
    return found
