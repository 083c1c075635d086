"""The log compared with the disk: appends and reads, and system calls with the same bytes, in turns in the same run.

`python -m bench.log` prints two tables. Compare the ratios, not absolute numbers: each row is measured in turns with
its own baseline. The last table is the reason why the group commit flushes many files in threads.
"""

import ctypes
import os
import queue
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crc32c import crc32c

from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, write_header
from hubmere.store.engine import LogConfig, PartitionLog, log_id
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from hubmere.store.log.commit import Durability
from hubmere.store.log.log import LocalLog

MEGABYTE = 1 << 20
GROUPS, ROUNDS = 100, 5
SMALL_APPENDS, IN_FLIGHT = 20_000, 100
FILE_COUNTS = (1, 2, 4, 8, 16, 64)


def a_batch(size_bytes: int, count: int) -> bytearray:
    """A batch with a number of events, unsealed as from an AMQP publisher; the content does not matter to the log."""
    batch = bytearray(size_bytes)
    length = size_bytes - LENGTH_PREFIX_BYTES
    write_header(batch, BatchHeader(0, length, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count))
    batch[HEADER_BYTES:] = os.urandom(4096).ljust(size_bytes - HEADER_BYTES, b"x")[: size_bytes - HEADER_BYTES]
    return batch


def open_log(engine: LocalEngine, turns: "queue.SimpleQueue[Callable[[], None]]") -> LocalLog:
    """Open the log of the benchmark, or create it."""
    answers: list[PartitionLog | Refusal] = []
    engine.open(log_id("bench", 0), LogConfig(), answers.append)
    while not answers:
        turns.get()()
    assert isinstance(answers[0], LocalLog), answers[0]
    return answers[0]


class EngineHarness:
    """One log engine, and the queue of calls that its owner's thread runs."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self.turns: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.engine = LocalEngine(folder, post=self.turns.put, durability=durability)
        self.log = open_log(self.engine, self.turns)

    def until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.turns.get()()


def append_groups(harness: EngineHarness) -> float:
    """Megabytes per second of 1 MB groups, each acknowledged before the next is sent."""
    batches = [a_batch(MEGABYTE, 1024) for _ in range(GROUPS)]
    begin = time.perf_counter()
    for batch in batches:
        receipt = harness.log.append(batch, 1_000)
        harness.until(lambda receipt=receipt: receipt.is_done)  # type: ignore[misc]
    return GROUPS / (time.perf_counter() - begin)


def write_raw(path: Path, *, sync: bool, checksum: bool = False) -> float:
    """Write the same bytes with `os.write`; with `fdatasync` if `sync`, after a CRC-32C of each group if `checksum`."""
    groups = [bytes(a_batch(MEGABYTE, 1024)) for _ in range(GROUPS)]
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    begin = time.perf_counter()
    for group in groups:
        if checksum:
            crc32c(group)
        os.write(fd, group)
        if sync:
            os.fdatasync(fd)
    took = time.perf_counter() - begin
    os.close(fd)
    return GROUPS / took


def read_log(harness: EngineHarness) -> float:
    """Megabytes per second of reading closed batches back, 1 MB at a time."""
    sequence, size = harness.log.state.log_start, 0
    begin = time.perf_counter()
    while (chunk := harness.log.read(sequence, MEGABYTE)) is not None:
        size += len(chunk.data)
        sequence = chunk.next_sequence
    return size / MEGABYTE / (time.perf_counter() - begin)


def read_raw(path: Path) -> float:
    """Read one file with `os.pread`, for comparison."""
    fd, at = os.open(path, os.O_RDONLY), 0
    begin = time.perf_counter()
    while data := os.pread(fd, MEGABYTE, at):
        at += len(data)
    took = time.perf_counter() - begin
    os.close(fd)
    return at / MEGABYTE / took


def append_small(harness: EngineHarness) -> float:
    """Appends per second of batches with one event of 100 bytes, with 100 in flight."""
    batches = [a_batch(HEADER_BYTES + 110, 1) for _ in range(SMALL_APPENDS)]
    left = SMALL_APPENDS

    def acknowledged(_: Receipt) -> None:
        nonlocal left
        left -= 1
        if batches:
            harness.log.append(batches.pop(), 1_000, acknowledged)

    begin = time.perf_counter()
    for _ in range(IN_FLIGHT):
        harness.log.append(batches.pop(), 1_000, acknowledged)
    harness.until(lambda: left == 0)
    return SMALL_APPENDS / (time.perf_counter() - begin)


def append_cost() -> float:
    """Microseconds of our own code per small append, without the system call that writes."""

    class NoWrite(Files):
        write = staticmethod(len_of)

    folder = Path(tempfile.mkdtemp(prefix="bench-log-"))
    turns: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    log = open_log(LocalEngine(folder, post=turns.put, files=NoWrite(), durability="os"), turns)
    best = float("inf")
    for _ in range(ROUNDS):
        batches = [a_batch(HEADER_BYTES + 110, 1) for _ in range(SMALL_APPENDS)]
        begin = time.perf_counter()
        for batch in batches:
            log.append(batch, 1_000)
        best = min(best, (time.perf_counter() - begin) / SMALL_APPENDS)
    shutil.rmtree(folder)
    return best * 1e6


def len_of(_fd: int, data: bytes | bytearray | memoryview) -> int:
    """Replaces `os.write` by a call that does nothing."""
    return len(data)


def flush_ways(folder: Path, count: int) -> dict[str, float]:
    """Median milliseconds to flush one 16 KB append to each of `count` files, with three methods."""
    fds = [os.open(folder / f"sync-{number}", os.O_RDWR | os.O_CREAT | os.O_APPEND) for number in range(count)]
    syncfs = ctypes.CDLL(None).syncfs
    with ThreadPoolExecutor(8) as threads:
        ways: dict[str, Callable[[], object]] = {
            "one by one": lambda: list(map(os.fdatasync, fds)),
            "8 threads": lambda: list(threads.map(os.fdatasync, fds)),
            "syncfs": lambda: syncfs(fds[0]),
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(15):
            for name, way in ways.items():
                for fd in fds:
                    os.write(fd, b"x" * 16_384)
                begin = time.perf_counter()
                way()
                took[name].append(time.perf_counter() - begin)
    for fd in fds:
        os.close(fd)
    return {name: statistics.median(times) * 1e3 for name, times in took.items()}


def compare_appends(folder: Path, durability: Durability) -> None:
    """Measure appends to the log and raw writes in turns, then read both back."""
    harness = EngineHarness(folder, durability)
    logs, raws, checked = [], [], []
    sync = durability == "fsync"
    for number in range(ROUNDS):
        logs.append(append_groups(harness))
        raws.append(write_raw(folder / f"raw-{number}", sync=sync))
        checked.append(write_raw(folder / f"checked-{number}", sync=sync, checksum=True))
    raw = statistics.median(raws)
    _row(f"append 1 MB groups, {durability}", statistics.median(logs), raw, "MB/s")
    # The ceiling: the log must compute the checksum of what it builds, and reads each byte once more for that.
    _row(f"checksum and write alone, {durability}", statistics.median(checked), raw, "MB/s")
    reads = [(read_log(harness), read_raw(folder / f"raw-{number}")) for number in range(ROUNDS)]
    _row("read back, 1 MB", statistics.median(r[0] for r in reads), statistics.median(r[1] for r in reads), "MB/s")
    rate = max(append_small(harness) for _ in range(3))
    print(f"  {'append of one event, 100 in flight, ' + durability:<44} {rate:>10,.0f} /s")
    harness.engine.close()
    cold = LocalEngine(folder, post=harness.turns.put)
    harness.log = open_log(cold, harness.turns)
    print(f"  {'read back after a restart, checksums checked':<44} {read_log(harness):>10,.0f} MB/s")
    cold.close()


def _row(name: str, ours: float, raw: float, unit: str) -> None:
    print(f"  {name:<44} {ours:>10,.0f} {unit}   raw {raw:>8,.0f}   ratio {ours / raw:.2f}")


def main() -> None:
    """Measure everything in less than a minute; the data is deleted afterwards."""
    base = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(
        f"log append and read ({GROUPS} x 1 MB of 1 KB events, median of {ROUNDS} rounds taking turns with raw calls)"
    )
    durabilities: tuple[Durability, ...] = ("fsync", "os")
    for durability in durabilities:
        with tempfile.TemporaryDirectory(prefix="bench-log-", dir=base) as folder:
            compare_appends(Path(folder), durability)
    print(f"  {'own code per small append':<44} {append_cost():>10.2f} us")
    print("flush of 16 KB appends to many files, ms (why the commit uses threads)")
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=base) as folder:
        for count in FILE_COUNTS:
            ways = flush_ways(Path(folder), count)
            print(f"  {count:>3} files   " + "   ".join(f"{name} {value:7.2f}" for name, value in ways.items()))


if __name__ == "__main__":
    main()
