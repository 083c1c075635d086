"""kill -9 at random times: acknowledged events are stored once, in order."""

import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from random import Random

import pytest

from hubmere.store.doctor import Kind, check
from hubmere.store.engine import log_id
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from store.builders import everything, open_log
from torture.log_writer import CONFIG, LOGS

TESTS = Path(__file__).parent.parent
# Runs on one folder; each continues after the last one. More would only make each check slower.
LIVES_OF_ONE_FOLDER = 5


class Ledger:
    """Every acknowledgement of every run of the writer, by log."""

    def __init__(self) -> None:
        self.acknowledged: list[list[tuple[int, int, int]]] = [[] for _ in range(LOGS)]

    def note(self, line: bytes) -> None:
        number, sequence, count, crc = map(int, line.split())
        self.acknowledged[number].append((sequence, count, crc))


def _live(root: Path, seed: int, lines: int, ledger: Ledger) -> None:
    """Run the writer until it has acknowledged some batches, then kill it; its output counts."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    writer = subprocess.Popen(
        [sys.executable, "-m", "torture.log_writer", str(root), str(seed)], stdout=subprocess.PIPE, env=environment
    )
    assert writer.stdout is not None
    with writer:
        for _ in range(lines):
            ledger.note(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout.read().splitlines(keepends=True):
            if line.endswith(b"\n"):
                ledger.note(line)


def _check(root: Path, ledger: Ledger) -> None:
    turns: deque[object] = deque()
    report = check(root, Files())
    assert {finding.kind for finding in report.findings} <= {Kind.TORN_TAIL}
    engine = LocalEngine(root, post=turns.append, threads=0)
    for number in range(LOGS):
        stored = [(header.base_sequence_number, header.producer_sequence, header.crc) for header, _ in
                  everything(open_log(engine, log_id("torture", number), CONFIG), 1 << 20)]  # fmt: skip
        assert [sequence for sequence, _, _ in stored] == list(range(len(stored)))
        assert [count for _, count, _ in stored] == list(range(len(stored)))
        acknowledged = ledger.acknowledged[number]
        assert set(acknowledged) <= set(stored)
        assert acknowledged == sorted(acknowledged)
    engine.close()


def test_killed_writer_loses_no_acknowledged_event(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every run is killed at any time; the next one must find all acknowledged batches."""
    is_long = bool(request.config.getoption("--torture", default=False))
    random = Random(20)

    for family in range(15 if is_long else 1):
        root, ledger = tmp_path / str(family), Ledger()
        root.mkdir()
        for _ in range(LIVES_OF_ONE_FOLDER):
            _live(root, random.randrange(1 << 30), random.randint(1, 900), ledger)
            _check(root, ledger)
        assert sum(map(len, ledger.acknowledged)) >= LIVES_OF_ONE_FOLDER
        shutil.rmtree(root)
