"""Records and downsamples the history of a node: rates of namespaces and hubs, and the lag of consumer groups.

1. Once a second the recorder takes a sample of every namespace (`sampler`). It has one row per second for the namespace
   and for each hub with traffic; an idle hub has no rows and costs nothing.
2. Rows of 10 seconds and of a minute are the mean of the seconds in them.
3. Every 10 seconds the new rows go to the store, on another thread. The rows of the last minutes stay in memory.
4. Lag changes slowly and costs more: each second a few groups are visited, so that each has a row about every 10
   seconds.

Memory is bounded: about 30 KB for each of at most `MAX_SERIES` series of hubs. Thread rule: the owner's thread only,
except that `read` asks the store on another thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from hubmere.broker import Broker, HubView, NamespaceView
from hubmere.model.clock import Clock
from hubmere.model.monitoring.history import RINGS, HistoryRow, HistoryStore, Values
from hubmere.model.names import fold
from hubmere.portal.history.consumer_lag import LagVisitor
from hubmere.portal.history.sampler import COUNTERS, MAX_HISTORIES, Sampler

log = logging.getLogger("hubmere.portal")

# The rates in the order of COUNTERS, then the number of connections (always 0 for a hub).
WIDTH = len(COUNTERS) + 1
CONNECTIONS = len(COUNTERS)
LAG_WIDTH = 1
# Maximum number of hubs with a history: on disk at most 2.2 MB each, if the hub has traffic for 30 days.
MAX_SERIES = 100
# A hub without traffic for this long can be replaced by another one.
_IDLE_SECONDS = 3600
# Maximum number of lag series, on disk at most 0.4 MB each; further groups have no trend.
MAX_LAG_SERIES = 200
# Seconds that stay in memory: the shortest range of a chart.
RECENT_SECONDS = 300
_FLUSH_SECONDS = 10
# After the last traffic of a hub, zeros are recorded until its last minute is complete.
_ENDING_SECONDS = 61
_CLEAN_SECONDS = 3600
# Maximum number of points of one line.
MAX_POINTS = 600

_FINE, _COARSE, _COARSEST = range(len(RINGS))
_ZEROS: Values = (0.0,) * WIDTH


def namespace_series(namespace: NamespaceView) -> str:
    """The series of a namespace."""
    return f"namespace-{fold(namespace.name)}"


def hub_series(hub: HubView) -> str:
    """The series of a hub."""
    return f"hub-{hub.uid}"


def lag_series(hub_uid: str, group: str) -> str:
    """The series with the lag of a group in a hub. Group ids may be longer than a file name."""
    return f"lag-{hub_uid}-{sha256(group.encode()).hexdigest()[:24]}"


@dataclass(slots=True)
class _Mean:
    """The mean of the rows in the current step of a ring."""

    ring: int
    start_s: int = 0
    count: int = 0
    total: list[float] = field(default_factory=list)

    def add(self, second: int, values: Values) -> tuple[int, Values] | None:
        """Add the row of a second; returns the finished row of the step before."""
        step_s = RINGS[self.ring].step_s
        start_s = second - second % step_s
        finished = None
        if start_s != self.start_s:
            finished = self.finish()
            self.start_s, self.count, self.total = start_s, 0, [0.0] * len(values)
        self.count += 1
        self.total = [total + value for total, value in zip(self.total, values, strict=True)]
        return finished

    def finish(self) -> tuple[int, Values] | None:
        """The row of the current step; None if there is none."""
        return (self.start_s, tuple(total / self.count for total in self.total)) if self.count else None


@dataclass(slots=True)
class _Series:
    """The rows of one series that are not in the store yet, and its last minutes."""

    last_s: int = 0
    active_s: int = 0
    recent: deque[tuple[int, Values]] = field(default_factory=lambda: deque(maxlen=RECENT_SECONDS))
    means: tuple[_Mean, ...] = field(default_factory=lambda: (_Mean(_COARSE), _Mean(_COARSEST)))

    def add(self, name: str, second: int, values: Values) -> Iterator[HistoryRow]:
        """Add the row of a second; yields the rows to store."""
        self.last_s = second
        self.recent.append((second, values))
        yield HistoryRow(name, _FINE, second, values)
        for mean in self.means:
            finished = mean.add(second, values)
            if finished is not None:
                yield HistoryRow(name, mean.ring, *finished)


class Recorder:
    """The history of a node."""

    def __init__(self, broker: Broker, clock: Clock, sampler: Sampler, store: HistoryStore) -> None:
        self._broker = broker
        self._clock = clock
        self._sampler = sampler
        self._store = store
        self._series: dict[str, _Series] = {}
        self._pending: list[HistoryRow] = []
        self._lag_visitor = LagVisitor(broker, clock)
        # The last known lag of each group in each hub.
        self.lags: dict[str, int] = {}
        self._has_failed = False
        self._flushed_s = self._cleaned_s = clock.now_ms() // 1000

    async def run(self) -> None:
        """Record until cancelled."""
        try:
            while True:
                # At the start of each second of the clock, so that a slow second does not shift the following ones.
                await asyncio.sleep(1.0 - self._clock.now_ms() % 1000 / 1000)
                self.sample()
                if self._clock.now_ms() // 1000 >= self._flushed_s + _FLUSH_SECONDS:
                    await self.flush()
        finally:
            self._write(self._take_pending())

    def sample(self) -> None:
        """Take the samples of this second."""
        second = self._clock.now_ms() // 1000
        for namespace in self._broker.namespace_views()[:MAX_HISTORIES]:
            history = self._sampler.sample(namespace)
            name = namespace_series(namespace)
            if not history.samples or self._series.setdefault(name, _Series()).last_s >= second:
                continue
            newest = history.samples[-1]
            self._series[name].active_s = second
            self._add(name, second, (*newest.rates, float(newest.connections)))
            for uid, rates in history.rates.items():
                if uid and self._has_place(f"hub-{uid}", second):
                    self._series.setdefault(f"hub-{uid}", _Series()).active_s = second
                    self._add(f"hub-{uid}", second, (*rates, 0.0))
        self._add_zeros(second)
        for hub_uid, group, lag in self._lag_visitor.visit():
            self._add_lag(lag_series(hub_uid, group), second, lag)

    def _add(self, name: str, second: int, values: Values) -> None:
        self._pending += self._series[name].add(name, second, values)

    def _add_zeros(self, second: int) -> None:
        """Rows for hubs whose traffic has just ended, until the minute of their last traffic is stored."""
        for name, series in self._series.items():
            if series.last_s < second <= series.active_s + _ENDING_SECONDS:
                self._add(name, second, _ZEROS)

    def _has_place(self, name: str, second: int) -> bool:
        """Whether a hub has or gets a history; a hub that is idle for an hour is replaced."""
        if name in self._series or len(self._series) < MAX_SERIES:
            return True
        oldest = min(self._series, key=lambda known: self._series[known].active_s)
        if self._series[oldest].active_s > second - _IDLE_SECONDS:
            return False
        del self._series[oldest]
        return True

    def _add_lag(self, name: str, second: int, lag: int) -> None:
        if name not in self.lags and len(self.lags) >= MAX_LAG_SERIES:
            return
        self.lags[name] = lag
        for ring in (_COARSE, _COARSEST):
            start_s = second - second % RINGS[ring].step_s
            self._pending.append(HistoryRow(name, ring, start_s, (float(lag),)))

    # --- the store ---

    async def flush(self) -> None:
        """Hand the new rows to the store, on another thread. Once an hour, delete what is not needed any more."""
        self._flushed_s = second = self._clock.now_ms() // 1000
        await asyncio.to_thread(self._write, self._take_pending())
        if second >= self._cleaned_s + _CLEAN_SECONDS:
            self._cleaned_s = second
            needed = self._needed_series()
            await asyncio.to_thread(self._store.retain, needed.__contains__)

    def _take_pending(self) -> list[HistoryRow]:
        rows, self._pending = self._pending, []
        return rows

    def _write(self, rows: Sequence[HistoryRow]) -> None:
        """Write rows, on any thread. If the disk refuses them, they are dropped and that is logged once."""
        try:
            self._store.write(rows)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                log.warning("the history of metrics cannot be written: %s", error)
            self._has_failed = True

    def _needed_series(self) -> frozenset[str]:
        """The series of everything that exists; lags of groups that were not seen for an hour are dropped."""
        needed = set(self.lags)
        self.lags.clear()
        for namespace in self._broker.namespace_views():
            needed.add(namespace_series(namespace))
            needed.update(hub_series(hub) for hub in namespace.hubs())
        return frozenset(needed)

    def recent(self, series: str, after_s: int) -> list[tuple[int, Values]]:
        """The rows of the last minutes that are later than a second, oldest first."""
        known = self._series.get(series)
        return [] if known is None else [row for row in known.recent if row[0] > after_s]

    async def read(self, series: str, range_s: int, *, width: int = WIDTH) -> list[tuple[int, Values]]:
        """The rows of the last `range_s` seconds, oldest first, in the finest ring that covers them."""
        last_s = self._clock.now_ms() // 1000
        first_s = last_s - range_s
        ring = next((index for index, ring in enumerate(RINGS) if range_s <= ring.range_s), _COARSEST)
        if width == LAG_WIDTH:
            ring = max(ring, _COARSE)
        rows = await asyncio.to_thread(self._store.read, series, width, ring, first_s, last_s)
        newer = {row.second: row.values for row in self._pending if row[:2] == (series, ring)}
        known = self._series.get(series)
        if ring == _FINE and known is not None:
            newer.update(row for row in known.recent if row[0] >= first_s)
        return sorted({**dict(rows), **newer}.items())


def fill_idle(rows: Sequence[tuple[int, Values]], times: Iterable[int]) -> list[tuple[int, Values]]:
    """Add rows of zeros for the times at which the node has recorded and the hub was idle."""
    known = dict(rows)
    return [(second, known.get(second, _ZEROS)) for second in times]


def downsample(rows: Sequence[tuple[int, Values]], range_s: int) -> list[tuple[int, Values]]:
    """Downsample to about `MAX_POINTS` rows: the means of equal parts of the range."""
    step_s = max(range_s // MAX_POINTS, 1)
    parts: dict[int, list[Values]] = {}
    for second, values in rows:
        parts.setdefault(second - second % step_s, []).append(values)
    return [
        (second, tuple(sum(column) / len(part) for column in zip(*part, strict=True))) for second, part in parts.items()
    ]
