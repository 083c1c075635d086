"""Cold reads that would harm others: very many captured files, and readers that do not take what they asked for.

Long turns of the node's loop fail these tests as any others (`stalls`).
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from attack.test_memory import resident_bytes
from client.hubs import bodies
from hubmere.broker.cold.history import MAX_BLOCK_BYTES
from hubmere.capture.cold import files as cold_files
from hubmere.capture.cold.files import SORTED_AT_ONCE, FileIndex, in_order
from hubmere.capture.cold.folders import FolderReader
from hubmere.model.capture.cold import ColdFile, ColdHub
from hubmere.model.errors import ColdUnreadable
from pipeline.captured_hubs import CapturedHubs, a_capturing_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Waits for what must happen; a busy machine needs some of it.
PATIENCE_S = 900.0
MIB = 1024 * 1024
DECOYS = 30_000
# A file that is remembered takes about 1 KB: its name, its span, and where it is.
BYTES_PER_FILE = 2048
# The memory of a node moves by so much without any of this.
SLACK_BYTES = 48 * MIB


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[CapturedHubs]:
    """A node on the disk that captures into a folder when a test asks for it."""
    settings = {"memory": False, "data": str(tmp_path / "data")}
    with a_capturing_node(tmp_path / "files", capture_hold_retention=False, **settings) as hubs:
        yield hubs


def a_cold_hub(hubs: CapturedHubs, runs: int, events: int, body_bytes: int) -> tuple[str, int]:
    """A hub whose events are in files only, one for each run, except the last; and their number."""
    hub = hubs.new_captured()
    for run in range(runs):
        texts = [b"%d %d " % (run, number) + b"x" * body_bytes for number in range(events)]
        hubs.publish(hub, 0, *(texts[at : at + 50] for at in range(0, events, 50)))
        hubs.capture(hub)
    total = runs * events
    hubs.trim(hub, 0, total - 1)
    hubs.enable(hub, 1, coldReads=True)
    return hub, total


def a_consumer(hubs: CapturedHubs, **settings: Any) -> Consumer:
    return Consumer(hubs.node.kafka_config("readers", enable_auto_commit=False, auto_offset_reset="error", **settings))


def read(consumer: Consumer, count: int) -> list[int]:
    """The sequence numbers of the next events."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        found.append(message.offset())
    return found


def read_from(hubs: CapturedHubs, hub: str, start: int, count: int) -> list[int]:
    consumer = a_consumer(hubs)
    consumer.assign([TopicPartition(hub, 0, start)])
    try:
        return read(consumer, count)
    finally:
        consumer.close()


def add_decoys(hubs: CapturedHubs, hub: str, count: int) -> None:
    """More files of the hub: links to those that there are, under names of other windows."""
    real = hubs.files(hub)
    # Year, month, day, hour, minute and second are the last parts of a name.
    partition = real[0].parents[5]
    for number in range(count):
        minute, second = divmod(number, 60)
        folder = (
            partition / "2001" / "01" / f"{minute // 1440 + 1:02}" / f"{minute // 60 % 24:02}" / f"{minute % 60:02}"
        )
        if not second:
            folder.mkdir(parents=True)
        os.link(real[number % len(real)], folder / f"{second:02}.avro")


def test_very_many_files_do_not_stop_other_clients(hubs: CapturedHubs) -> None:
    """They are listed and put in order beside the loop; memory grows with their number and no faster."""
    hub, total = a_cold_hub(hubs, runs=20, events=100, body_bytes=200)
    add_decoys(hubs, hub, DECOYS)
    other = hubs.new(1)
    before_bytes = resident_bytes(hubs.node)
    found: list[list[int]] = []
    reading = threading.Thread(target=lambda: found.append(read_from(hubs, hub, 0, total)))

    reading.start()
    published = 0
    while reading.is_alive():
        hubs.publish(other, 0, bodies(10, f"{published}"))
        published += 10
    reading.join(PATIENCE_S)

    assert found == [list(range(total))]
    assert read_from(hubs, other, 0, published) == list(range(published))
    grown_bytes = resident_bytes(hubs.node, "VmHWM") - before_bytes
    assert grown_bytes < DECOYS * BYTES_PER_FILE + SLACK_BYTES


def test_readers_that_stop_in_the_files_keep_nobody_waiting(hubs: CapturedHubs) -> None:
    """Many readers take one event each, from places far apart, and no more. Others read everything, memory stays
    bounded although the files are larger, and the slow readers continue where they were.
    """
    hub, total = a_cold_hub(hubs, runs=12, events=2000, body_bytes=4000)
    assert total * 4000 > MAX_BLOCK_BYTES
    before_bytes = resident_bytes(hubs.node)
    starts = range(0, total - 2000, total // 24)
    small = {"queued_min_messages": 1, "max_partition_fetch_bytes": 16 * 1024}
    slow = [a_consumer(hubs, **small) for _ in starts]
    try:
        for consumer, start in zip(slow, starts, strict=True):
            consumer.assign([TopicPartition(hub, 0, start)])
        assert [read(consumer, 1) for consumer in slow] == [[start] for start in starts]

        assert read_from(hubs, hub, 0, total) == list(range(total))
        assert [read(consumer, 50) for consumer in slow] == [list(range(start + 1, start + 51)) for start in starts]
    finally:
        for consumer in slow:
            consumer.close()
    grown_bytes = resident_bytes(hubs.node, "VmHWM") - before_bytes
    assert grown_bytes < 2 * MAX_BLOCK_BYTES + SLACK_BYTES


def test_too_many_files_are_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out silently: readers wait, and the reason is shown."""
    monkeypatch.setattr(cold_files, "MAX_FILES", 3)
    hub = ColdHub(
        namespace="n", hub="h", url=tmp_path.as_uri(), name_format="{Namespace}/{EventHub}/{PartitionId}/{Second}",
        hub_id="id", capture_id="c", is_append_time=True,
    )  # fmt: skip
    folder = tmp_path / "n" / "h" / "0"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number:02}.avro").touch()

    answer = FolderReader().list_files(hub)

    assert isinstance(answer, ColdUnreadable)
    assert "has more than 3 captured files" in answer.text()
    (folder / "03.avro").unlink()
    assert len(FileIndex().list_files(hub).unusable) == 3


def test_files_are_sorted_in_pieces() -> None:
    """One call that sorts all of them would hold the interpreter's lock for a second."""
    files = [ColdFile(number * 7919 % 20_011, 0, "", 0, 0) for number in range(3 * SORTED_AT_ONCE)]

    assert list(in_order(files)) == sorted(files)
