"""Builders for tests of the log: every default is valid, and a test sets only what matters to it."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import cramjam

from hubmere.model.errors import Refusal
from hubmere.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    is_intact,
    read_header,
    seal,
    write_header,
)
from hubmere.store.engine import Chunk, LogConfig, LogId, PartitionLog, log_id
from hubmere.store.files import Files
from hubmere.store.local import CLEAN_SHUTDOWN, LocalEngine
from hubmere.store.log.commit import Job, Workers
from hubmere.store.log.committed_file import COMMITTED
from hubmere.store.log.log import LocalLog

LOG_0: LogId = log_id("hub", 0)
LOG_1: LogId = log_id("hub", 1)

Event = tuple[bytes | None, bytes | None]


def a_varint(value: int) -> bytes:
    """A zig-zag varint of the Kafka record format."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def a_record(delta: int, key: bytes | None, value: bytes | None, time_delta: int = 0) -> bytes:
    """One record without headers."""
    body = b"\0" + a_varint(time_delta) + a_varint(delta) + _bytes_of(key) + _bytes_of(value) + a_varint(0)
    return a_varint(len(body)) + body


def _bytes_of(value: bytes | None) -> bytes:
    return a_varint(-1) if value is None else a_varint(len(value)) + value


def a_batch(
    values: Sequence[bytes] = (b"one",),
    *,
    events: Sequence[Event] | None = None,
    time_ms: int = 1_000,
    time_deltas: Sequence[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytearray:
    """A closed batch of events; `producer` is its id, epoch and first sequence number."""
    pairs = events if events is not None else [(None, value) for value in values]
    deltas = time_deltas or [0] * len(pairs)
    body = b"".join(a_record(index, *pair, deltas[index]) for index, pair in enumerate(pairs))
    if attributes & 7 == 4:
        body = bytes(cramjam.zstd.compress(body))
    batch = bytearray(HEADER_BYTES) + body
    length, count = len(batch) - LENGTH_PREFIX_BYTES, len(pairs)
    newest = time_ms + max(deltas)
    write_header(batch, BatchHeader(0, length, 0, 2, 0, attributes, count - 1, time_ms, newest, *producer, count))
    seal(batch)
    return batch


def compact(log: LocalLog, now_ms: int) -> int:
    """Run one complete pass of compaction; returns the reclaimed bytes."""
    run = log.compaction_pass(now_ms)
    if run is None:
        return 0
    run.rewrite()
    return run.adopt(now_ms)


def log_ids(engine: LocalEngine) -> list[LogId]:
    """The ids of the logs whose directories exist."""
    names = engine._files.names(engine._folder)
    return [LogId(name) for name in names if "." not in name and name not in (CLEAN_SHUTDOWN, COMMITTED)]


class Owner:
    """Replaces the node's event loop: the test runs posted calls."""

    def __init__(self) -> None:
        self._turns: deque[Callable[[], None]] = deque()

    def post(self, turn: Callable[[], None]) -> None:
        self._turns.append(turn)

    def run(self) -> None:
        """Run all posted calls, and the calls that these post."""
        while self._turns:
            self._turns.popleft()()


def an_engine(root: Path, owner: Owner, files: Files | None = None, *, durability: str = "fsync") -> LocalEngine:
    """A local engine that runs its background work on the caller's thread, so that every test is deterministic."""
    assert durability in ("fsync", "os")
    return LocalEngine(
        root, post=owner.post, files=files, threads=0, durability="fsync" if durability == "fsync" else "os"
    )


def open_log(
    engine: LocalEngine, log: LogId, config: LogConfig, run_until: Callable[[Callable[[], bool]], None] | None = None
) -> LocalLog:
    """Open a log and wait for it; raises the refusal. An engine with threads needs `run_until` of its owner."""
    answers: list[PartitionLog | Refusal] = []
    engine.open(log, config, answers.append)
    if run_until is not None:
        run_until(lambda: bool(answers))
    elif not answers:  # the log is being deleted
        engine._commit.flush()
        engine._commit.finish_background()
    (answer,) = answers
    if isinstance(answer, Refusal):
        raise answer
    assert isinstance(answer, LocalLog)
    return answer


class LateWorkers(Workers):
    """A background thread that runs late: its jobs run as turns of the owner, after the posted calls."""

    def __init__(self, owner: Owner) -> None:
        super().__init__("late", 0)
        self._owner = owner
        self.is_late = True

    @property
    def limit(self) -> int:
        return int(self.is_late)

    def ensure_threads(self, count: int) -> None:
        """Do nothing: there are no threads."""

    def run(self, job: Job) -> None:
        if self.is_late:
            self._owner.post(job)
        else:
            job()


def with_late_workers(engine: LocalEngine, owner: Owner) -> LateWorkers:
    """Let the engine run all its background work late."""
    workers = engine._commit._background = LateWorkers(owner)
    return workers


def small_segments(**changes: object) -> LogConfig:
    """A configuration with which a log rolls after a few batches."""
    settings: dict[str, object] = {"segment_bytes": 1_000, **changes}
    return LogConfig(**settings)  # type: ignore[arg-type]


def batches_of(chunk: Chunk | None) -> list[tuple[BatchHeader, bytes]]:
    """The batches of a chunk: header and records."""
    found, at = [], 0
    data = chunk.data if chunk is not None else memoryview(b"")
    while at < len(data):
        header = read_header(data, at)
        found.append((header, bytes(data[at + HEADER_BYTES : at + header.size_bytes])))
        at += header.size_bytes
    return found


def are_intact(chunk: Chunk) -> bool:
    """Whether every batch of a chunk is complete and matches its checksum."""
    at, data = 0, chunk.data
    while at < len(data):
        size_bytes = read_header(data, at).size_bytes
        if not is_intact(data[at : at + size_bytes]):
            return False
        at += size_bytes
    return at == len(data)


def everything(log: LocalLog, max_bytes: int = 700) -> list[tuple[BatchHeader, bytes]]:
    """All committed batches, read in small steps; each of them must be intact."""
    found, sequence = [], log.state.log_start
    while (chunk := log.read(sequence, max_bytes)) is not None:
        assert are_intact(chunk), "a damaged batch was served"
        found += [pair for pair in batches_of(chunk) if pair[0].next_sequence_number > sequence]
        assert chunk.next_sequence > sequence, "a read must make progress"
        sequence = chunk.next_sequence
    return found
