"""The log compared with a simple model: random appends, reads, finds, trims, retention, crashes and restarts."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hubmere.model.errors import PositionBeyondEnd
from hubmere.model.offsets import index_at_offset, spread_offset
from hubmere.model.position import Position
from hubmere.store.log.log import LocalLog
from store.builders import LOG_0, Owner, a_batch, an_engine, batches_of, open_log, small_segments
from store.faulty_files import FaultyFiles, Loss

ROOT = Path("/data")


class _Batch:
    """The model of a stored batch."""

    def __init__(self, base: int, count: int, offset: int, size_bytes: int, time_ms: int) -> None:
        self.base = base
        self.count = count
        self.offset = offset
        self.size_bytes = size_bytes
        self.time_ms = time_ms

    @property
    def end(self) -> int:
        return self.base + self.count


class LogAgainstModel(RuleBasedStateMachine):
    """The model is a list; the log must agree with it after every step."""

    @initialize(segment_bytes=st.integers(150, 12_000))
    def start(self, segment_bytes: int) -> None:
        self.config = small_segments(segment_bytes=segment_bytes, retention_ms=500)
        self.files = FaultyFiles()
        self.files.make_directory(ROOT)
        self.files.sync_directory(Path("/"))
        self.batches: list[_Batch] = []
        self.first = self.end = 0
        self.now_ms = 1_000
        self._open()

    @property
    def newest_ms(self) -> int:
        return self.batches[-1].time_ms if self.batches else -1

    def _open(self) -> None:
        self.owner = Owner()
        self.engine = an_engine(ROOT, self.owner, self.files)
        self.log: LocalLog = open_log(self.engine, LOG_0, self.config)

    @rule(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=6), later_ms=st.integers(-50, 200))
    def append(self, sizes: list[int], later_ms: int) -> None:
        self.now_ms += later_ms
        time_ms = max(self.newest_ms, self.now_ms)
        receipt = self.log.append(a_batch([b"x" * size for size in sizes]), self.now_ms)
        self.owner.run()
        assert receipt.error is None
        assert receipt.sequence_number == self.end
        assert receipt.enqueued_at_ms == time_ms
        stored = _Batch(self.end, len(sizes), receipt.offset, receipt.size_bytes, time_ms)
        assert not self.batches or stored.offset == self.batches[-1].offset + self.batches[-1].size_bytes
        self.batches.append(stored)
        self.end = stored.end

    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        before = self.first + int(share * (self.end - self.first))
        self.log.trim(before)
        self.first = max(self.first, before)

    @rule(later_ms=st.integers(0, 400))
    def retain(self, later_ms: int) -> None:
        self.now_ms = max(self.newest_ms, self.now_ms) + later_ms
        self.log.apply_retention(self.now_ms)
        self.owner.run()
        kept = self.log.state.log_start
        assert kept >= self.first
        young = [batch for batch in self.batches if batch.time_ms >= self.now_ms - 500 and batch.end > self.first]
        assert not young or kept <= max(young[0].base, self.first)
        self.first = kept

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self._open()

    @rule(loss=st.sampled_from(list(Loss)), seed=st.integers(0, 1_000))
    def crash(self, loss: Loss, seed: int) -> None:
        self.files = self.files.after_cut(loss, seed)
        self._open()

    @rule(loss=st.sampled_from(list(Loss)), seed=st.integers(0, 1_000), size=st.integers(0, 900))
    def crash_with_a_batch_under_way(self, loss: Loss, seed: int, size: int) -> None:
        receipt = self.log.append(a_batch([b"y" * size]), self.now_ms)
        self.files = self.files.after_cut(loss, seed)
        self._open()
        if self.log.state.committed > self.end:  # The batch is not acknowledged, but it may be stored.
            self.batches.append(_Batch(self.end, 1, receipt.offset, receipt.size_bytes, receipt.enqueued_at_ms))
            self.end += 1

    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 6_000))
    def read(self, share: float, max_bytes: int) -> None:
        sequence = self.first + int(share * (self.end - self.first))
        chunk = self.log.read(sequence, max_bytes)
        expected = [batch for batch in self.batches if batch.end > sequence]
        if not expected:
            assert chunk is None
            return
        assert chunk is not None
        found = [header.base_sequence_number for header, _ in batches_of(chunk)]
        assert found == [batch.base for batch in expected[: len(found)]]
        assert chunk.offset == expected[0].offset
        assert chunk.next_sequence == expected[len(found) - 1].end
        assert len(chunk.data) <= max(max_bytes, expected[0].size_bytes)

    @rule(share=st.floats(0, 1), inclusive=st.booleans())
    def find_offset(self, share: float, inclusive: bool) -> None:
        last = self.log.state.last_offset
        wanted = int(share * max(last, 0))
        if last < 0:
            with pytest.raises(PositionBeyondEnd):
                self.log.find(Position.offset(wanted))
            return
        at = wanted if inclusive else wanted + 1
        expected = self.end
        for batch in reversed(self.batches):
            index = index_at_offset(batch.offset, batch.size_bytes, batch.count, at)
            if index == batch.count:
                break
            expected = batch.base + index
        assert self.log.find(Position.offset(wanted, inclusive=inclusive)) == max(expected, self.first)

    @rule(time_ms=st.integers(900, 5_000), inclusive=st.booleans())
    def find_time(self, time_ms: int, inclusive: bool) -> None:
        at = time_ms if inclusive else time_ms + 1
        expected = next((batch.base for batch in self.batches if batch.time_ms >= at), self.end)
        assert self.log.find(Position.time(time_ms, inclusive=inclusive)) == max(expected, self.first)

    @invariant()
    def state_agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        state = self.log.state
        assert (state.log_start, state.committed) == (self.first, self.end)
        if self.batches:
            last = self.batches[-1]
            assert state.last_offset == spread_offset(last.offset, last.size_bytes, last.count, last.count - 1)
            assert state.last_enqueued_ms == last.time_ms


LogAgainstModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestLogAgainstModel = LogAgainstModel.TestCase
