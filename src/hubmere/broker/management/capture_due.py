"""When the capture job has work next, so that it need not run in the meantime.

The job decides which windows it closes. The node computes the same from the logs and from the open windows that the job
has reported: a window ends by size as soon as enough bytes wait, and by time at the end of the interval that contains
its first event, counted from the start of the reported window. The result may be too early, in which case the job runs
and finds nothing to do; it is never too late. A partition whose window is not known, because it is new or because the
node was restarted, is due at once. Thread rule: the owner's thread only.
"""

from datetime import datetime

from hubmere.broker.hubs.live import LiveHub
from hubmere.model.entity import CaptureDescription, CaptureEncoding
from hubmere.model.errors import Refusal
from hubmere.records.header import read_header
from hubmere.store.engine import PartitionLog

# Due at once.
NOW_MS = 0
_SMALLEST_READ_BYTES = 1


class OpenWindows:
    """The open windows that the job has reported, by the id of the capture and the partition."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, int], str] = {}
        # Enqueued time of the first waiting event of a partition: its sequence number, and the time.
        self._first_waiting: dict[tuple[str, int], tuple[int, int]] = {}

    def record(self, capture_id: str, partition: int, start: str) -> None:
        """Store the start of a window; empty if the job does not know it yet."""
        self._starts[capture_id, partition] = start

    def start_of(self, capture_id: str, partition: int) -> str:
        """The reported start; empty if there is none."""
        return self._starts.get((capture_id, partition), "")

    def keep(self, capture_ids: set[str]) -> None:
        """Forget all other captures."""
        self._starts = {key: start for key, start in self._starts.items() if key[0] in capture_ids}
        self._first_waiting = {key: first for key, first in self._first_waiting.items() if key[0] in capture_ids}

    def due_ms(self, hub: LiveHub, partition: int, captured: int, now_ms: int) -> int | None:
        """When the open window of a partition ends, in ms since 1970; None if that needs another event first."""
        capture, capture_id = hub.entity.capture, hub.entity.captured_since.id
        assert capture is not None, "the hub is captured"
        start_ms = _instant_ms(self.start_of(capture_id, partition))
        if start_ms is None:
            return NOW_MS
        try:
            log = hub.stored_log(partition)
            first = max(captured, log.state.log_start)
            if first >= log.state.committed:
                return None if _skips_empty(capture) else start_ms + capture.interval_s * 1000
            if not log.offsets_are_sequences and bytes_from(log, first) >= capture.size_limit_bytes:
                return NOW_MS
            first_ms = self._enqueued_ms((capture_id, partition), log, first)
        except Refusal:
            # Nobody can read an offline partition.
            return None
        interval_ms = capture.interval_s * 1000
        if first_ms > now_ms + interval_ms:
            # Such a time is wrong; the job takes the event for one of the last interval (`planning.windows`).
            first_ms = now_ms - interval_ms
        return _window_end_ms(start_ms, first_ms, interval_ms)

    def _enqueued_ms(self, key: tuple[str, int], log: PartitionLog, sequence: int) -> int:
        """When an event was enqueued; read once per window. 0 if the log cannot say it without waiting."""
        known = self._first_waiting.get(key)
        if known is not None and known[0] == sequence:
            return known[1]
        chunk = log.read(sequence, _SMALLEST_READ_BYTES)
        if chunk is None or not chunk.data:
            return 0
        self._first_waiting[key] = (sequence, read_header(chunk.data).max_time_ms)
        return self._first_waiting[key][1]


def bytes_from(log: PartitionLog, first: int) -> int:
    """Bytes of a log from an event on; estimated for compacted logs, which have no byte offsets."""
    state = log.state
    if log.offsets_are_sequences:
        return state.size_bytes * (state.committed - first) // (state.committed - state.log_start)
    return state.size_bytes - (log.offset_of(first) - log.offset_of(state.log_start))


def _skips_empty(capture: CaptureDescription) -> bool:
    # The log of a Delta table never lists an empty file, so none is written.
    return capture.skip_empty or capture.encoding is CaptureEncoding.DELTA


def _window_end_ms(start_ms: int, first_ms: int, interval_ms: int) -> int:
    return start_ms + (max(0, first_ms - start_ms) // interval_ms + 1) * interval_ms


def _instant_ms(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
