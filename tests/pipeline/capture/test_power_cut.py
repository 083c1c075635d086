"""Power cuts of a node that captures: no acknowledged event is lost, and every event is in the files once.

Node, job and JVM run on a disk that loses unsynced data (`powercut.py`). This runs only with `--torture` (`make
torture`); `test_checkpoints.py` has a test for each problem that the cuts have shown.
"""

import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest

from client.hubs import Hubs
from commands.runner import at
from hubmere.client.failures import ClientFailure
from hubmere.settings import HubSetting
from hubmere.testing import Node
from pipeline.capture.powercut import Disk, Loss
from pipeline.surviving import stored

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler for the simulated disk"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found by /proc"),
]

HUB, PARTITIONS = "orders", 2
# Windows close by size; the shortest time is a minute.
WINDOW_BYTES = 10_485_760
BODY_BYTES, BODIES_PER_BATCH = 65_536, 8
PATIENCE_S = 900.0
POLL_S = 0.1
# Enough for two windows of each partition in every run.
BATCHES_PER_LIFE = 2 * PARTITIONS * (WINDOW_BYTES // BODY_BYTES // BODIES_PER_BATCH + 2)


class Publishing:
    """Publishes in a thread, and records acknowledged events."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_over = threading.Event()
        self._number = 0
        self.acknowledged: set[tuple[int, bytes]] = set()

    def live(self) -> threading.Thread:
        """Publish during one run of the node."""
        self._is_over.clear()
        thread = threading.Thread(target=self._run)
        thread.start()
        return thread

    def end(self) -> None:
        """The node has ended: the pending publication is repeated in the next run, and no other one begins."""
        self._is_over.set()

    def _run(self) -> None:
        hubs = Hubs(self._node)
        try:
            for _ in range(BATCHES_PER_LIFE):
                if self._is_over.is_set():
                    return
                self._publish(hubs)
        except ClientFailure:
            # A write in progress may be in the log or not, because it was not acknowledged.
            self._number += 1
        finally:
            hubs.client.close()

    def _publish(self, hubs: Hubs) -> None:
        partition = self._number % PARTITIONS
        bodies = [(b"%d %d " % (self._number, index)).ljust(BODY_BYTES, b".") for index in range(BODIES_PER_BATCH)]
        hubs.publish(HUB, partition, bodies)
        self.acknowledged |= {(partition, body) for body in bodies}
        self._number += 1


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A folder whose power can be cut, for every process that is started afterwards."""
    (tmp_path / "data").mkdir()
    found = Disk(tmp_path / "data", tmp_path)
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    found.settle()
    return found


@pytest.fixture
def node(disk: Disk, tmp_path: Path) -> Iterator[Node]:
    """A node on that disk."""
    with Node(
        hubs=[HubSetting(name=HUB, partition_count=PARTITIONS)],
        settings={"as": "unlimited", "limits.publication_bytes": 1024 * 1024},
        data=tmp_path / "data",
    ) as running:
        yield running


def published_files(node: Node) -> set[str]:
    """The names of the published files, from the job's log."""
    log = node.data / "capture" / "job.log"
    return set(re.findall(r"bytes: (\S+\.avro)", log.read_text())) if log.exists() else set()


def await_file(node: Node) -> None:
    """Wait until the job has published one more file."""
    before, deadline = len(published_files(node)), time.monotonic() + PATIENCE_S
    log = node.data / "capture" / "job.log"
    while len(published_files(node)) <= before:
        assert time.monotonic() < deadline, log.read_text()[-6000:] if log.exists() else node.logs()[-4000:]
        time.sleep(POLL_S)


def test_power_cuts_during_capture_lose_no_event(disk: Disk, node: Node, deaths: Callable[[int, int], int]) -> None:
    """Files are being written and published; after each cut the node starts, and finally every event is captured."""
    cuts = deaths(0, 20)
    chance = Random(23)
    size = ("--capture-interval", "900", "--capture-size-limit", str(WINDOW_BYTES), "--skip-empty-archives", "true")
    assert at(node, "capture", "enable", "--name", HUB, *size).code == 0
    publishing = Publishing(node)

    for loss in islice(cycle(Loss), cuts):
        thread = publishing.live()
        await_file(node)
        time.sleep(chance.uniform(0.0, 1.5))
        published = published_files(node)
        disk.cut(node.pid, loss)
        assert all((node.data / "capture" / "files" / name).exists() for name in published)
        publishing.end()
        node.kill()
        disk.settle()
        node.start()
        thread.join()
    thread = publishing.live()
    await_file(node)
    thread.join()
    verified = at(node, "capture", "verify", "--eventhub-name", HUB)

    assert verified.code == 0, verified.err
    hubs = Hubs(node)
    logged = Counter(stored(hubs, HUB, PARTITIONS))
    hubs.client.close()
    assert set(logged.values()) == {1}
    assert publishing.acknowledged <= set(logged)
