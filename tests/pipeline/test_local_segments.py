"""Rows from the segment files of a node on the same machine are those of fetches; what cannot be read is fetched."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from client.hubs import PATIENCE_S, Hubs, an_account
from hubmere.client import local_segments
from hubmere.client.connection import Client
from hubmere.client.consumer import Fetched, HubReader
from hubmere.client.failures import RangeLost
from hubmere.client.local_segments import LocalSegmentsReader, boot_id, read_files
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.offsets import DataLost, Range
from hubmere.pipeline.options import InvalidOption, read_options
from hubmere.pipeline.ranges import read_ranges
from hubmere.pipeline.source import HubStreamReader
from hubmere.testing import Node
from hubmere.wire.kafka.messages.fetch import StoredFile
from pipeline.queries import batch, conf

SEGMENT_BYTES = 1024 * 1024
# Several segments of events that do not compress.
EVENTS = 3000
BODY_BYTES = 1000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def disk_hubs() -> Iterator[Hubs]:
    """The hubs of a node on disk with small segments."""
    with Node(settings={"as": "unlimited", "durability": "os", "segment_bytes": SEGMENT_BYTES}) as node:
        hubs = Hubs(node)
        try:
            yield hubs
        finally:
            hubs.client.close()


def fill(hubs: Hubs, hub: str, *, events: int = EVENTS, aborts: bool = False) -> None:
    """Publish to the first partition: batches with each codec, then committed (and aborted) transactions."""
    for number, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "linger.ms": 20, "batch.size": SEGMENT_BYTES // 16}
        producer = Producer(hubs.node.kafka_config() | settings)
        produce(producer, hub, events // len(CODECS), number)
        assert producer.flush(PATIENCE_S) == 0
    producer = Producer({**hubs.node.kafka_config(), "transactional.id": hub})
    producer.init_transactions(PATIENCE_S)
    for commits in (True, not aborts, True):
        producer.begin_transaction()
        produce(producer, hub, 10, 9)
        assert producer.flush(PATIENCE_S) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(PATIENCE_S)


def produce(producer: Producer, hub: str, events: int, seed: int) -> None:
    for number in range(events):
        body = None if number % 50 == 7 else os.urandom(BODY_BYTES)
        headers = [("color", b"red"), ("number", str(number).encode())] if number % 3 else None
        producer.produce(hub, body, key=f"{seed}-{number}" if number % 2 else None, headers=headers, partition=0)
        producer.poll(0)


def rows(hubs: Hubs, hub: str, start: int, end: int, *, local: bool, fails: bool = True) -> pa.Table:
    """What a task of a query reads, in all columns."""
    found = read_ranges(
        an_account(hubs.node),
        hub,
        [Range(0, start, end)],
        SCHEMA,
        hub_id=None,
        fails_on_data_loss=fails,
        reads_local_segments=local,
    )
    return pa.Table.from_batches(list(found), SCHEMA)


def end_of(hubs: Hubs, hub: str) -> int:
    return hubs.reader(hub).bounds([0])[0].end


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sequence numbers from which this process fetches."""
    found: list[int] = []
    fetch: Callable[..., Any] = HubReader._fetch

    def count(self: HubReader, wanted: Any, *, is_sent: bool) -> Any:
        found.append(wanted.sequence)
        return fetch(self, wanted, is_sent=is_sent)

    monkeypatch.setattr(HubReader, "_fetch", count)
    return found


@pytest.fixture(scope="module")
def filled(disk_hubs: Hubs) -> str:
    """A hub with events of every kind, but no aborted transaction."""
    hub = disk_hubs.new(partitions=1)
    fill(disk_hubs, hub)
    return hub


@pytest.mark.parametrize(("skipped", "omitted"), [(0, 0), (777, 0), (0, 555), (1201, 302)])
def test_rows_from_files_are_those_of_fetches(
    disk_hubs: Hubs, filled: str, fetches: list[int], skipped: int, omitted: int
) -> None:
    """Any range, over several files, all codecs, transactions with their markers, and all nine columns."""
    end = end_of(disk_hubs, filled) - omitted

    local = rows(disk_hubs, filled, skipped, end, local=True)
    assert fetches == []
    fetched = rows(disk_hubs, filled, skipped, end, local=False)

    assert fetches
    assert local.equals(fetched)
    assert local.num_columns == 9
    assert len(disk_hubs.reader(filled).find_files(0, skipped, end, boot_id())) > 1


def test_small_ranges_are_fetched(disk_hubs: Hubs, filled: str, fetches: list[int]) -> None:
    """For a few events the question costs more than the answer saves."""
    assert rows(disk_hubs, filled, 100, 150, local=True).num_rows == 50
    assert fetches[0] == 100


def test_aborted_transactions_are_fetched_and_skipped(disk_hubs: Hubs, fetches: list[int]) -> None:
    """A file does not list them."""
    hub = disk_hubs.new(partitions=1)
    fill(disk_hubs, hub, events=1000, aborts=True)
    end = end_of(disk_hubs, hub)

    local = rows(disk_hubs, hub, 0, end, local=True)

    assert fetches
    assert local.num_rows == 1020
    assert local.equals(rows(disk_hubs, hub, 0, end, local=False))


def test_files_that_cannot_be_opened_are_fetched(
    disk_hubs: Hubs, filled: str, fetches: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark may run as another user, or in a container that does not see the folder."""
    end = end_of(disk_hubs, filled)
    expected = rows(disk_hubs, filled, 0, end, local=False)
    fetches.clear()

    open_file: Callable[..., int] = os.open

    def refuse(path: Any, *more: Any) -> int:
        if str(path).endswith(".log"):
            raise PermissionError(path)
        return open_file(path, *more)

    monkeypatch.setattr(os, "open", refuse)
    with caplog.at_level(logging.INFO, "hubmere.client"):
        found = rows(disk_hubs, filled, 0, end, local=True)

    assert found.equals(expected)
    assert fetches[0] == 0
    assert "partition 0: events from 0 on are fetched, not read from files" in caplog.text


def test_another_file_of_the_same_name_is_not_read(disk_hubs: Hubs, filled: str) -> None:
    """A container may have a folder of the same name, with a copy that ends earlier or differs."""
    files = disk_hubs.reader(filled).find_files(0, 0, EVENTS, boot_id())

    assert list(read_files((replace(files[0], file_id="1:1"), *files[1:]), 0)) == []
    # A file that does not begin where the one before ended would leave events out.
    assert list(read_files(files[1:], 0)) == []
    (*_, last) = read_files((files[0], *files[2:]), 0)
    assert last.next_sequence == files[0].end_offset


@pytest.mark.timeout(120)
def test_pipe_in_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    """The path comes from the server. Opening a pipe would wait for a writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = pipe.stat()
    named = StoredFile(
        path=str(pipe), file_id=f"{found.st_dev}:{found.st_ino}", position=0, end_position=100, log_position=0,
        first_offset=0, end_offset=10,
    )  # fmt: skip

    assert list(read_files((named,), 0)) == []


@pytest.mark.parametrize("is_cut", [False, True])
def test_reading_ends_before_a_damaged_batch(disk_hubs: Hubs, filled: str, tmp_path: Path, is_cut: bool) -> None:
    """A wrong checksum, or a file that is shorter than the node said."""
    (file, *_) = disk_hubs.reader(filled).find_files(0, 0, EVENTS, boot_id())
    content = bytearray(Path(file.path).read_bytes()[: file.end_position])
    half = len(content) // 2
    content[half] ^= 1
    copy = tmp_path / "copy"
    copy.write_bytes(content[:half] if is_cut else content)
    found = copy.stat()
    damaged = replace(file, path=str(copy), file_id=f"{found.st_dev}:{found.st_ino}")

    reached = [(fetched.position + len(fetched.data), fetched.next_sequence) for fetched in read_files((damaged,), 0)]

    assert 0 < reached[-1][0] <= half
    assert 0 < reached[-1][1] < file.end_offset


def test_client_of_another_boot_fetches(
    disk_hubs: Hubs, filled: str, fetches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is behind a tunnel that ends on this machine."""
    monkeypatch.setattr(local_segments, "boot_id", lambda: "another")

    assert rows(disk_hubs, filled, 0, EVENTS, local=True).num_rows
    assert fetches[0] == 0


def test_file_that_retention_deletes_while_it_is_read_is_read_to_its_end(disk_hubs: Hubs) -> None:
    """An open file stays readable; what was in the next files is lost, and reported as with a fetch."""
    hub = disk_hubs.new(partitions=1)
    fill(disk_hubs, hub)
    end = end_of(disk_hubs, hub)
    files = disk_hubs.reader(hub).find_files(0, 0, end, boot_id())
    assert len(files) > 2
    kept = files[2].first_offset
    with Client(an_account(disk_hubs.node)) as client:
        reading = LocalSegmentsReader(client, hub).read_range(0, 0, end, max_bytes=SEGMENT_BYTES // 4)
        reached = [next(reading).next_sequence]

        disk_hubs.trim(hub, 0, kept)
        for file in files[:2]:  # what the node does a moment later
            Path(file.path).unlink(missing_ok=True)
        with pytest.raises(RangeLost) as lost:
            reached.extend(fetched.next_sequence for fetched in reading)

    assert len(reached) > 1
    assert (reached[-1], lost.value.wanted, lost.value.first) == (files[0].end_offset, files[0].end_offset, kept)
    rest = rows(disk_hubs, hub, 0, end, local=True, fails=False)
    assert rest.equals(rows(disk_hubs, hub, kept, end, local=False))


def test_damaged_batch_is_reported_as_by_a_fetch(tmp_path: Path) -> None:
    """The reader finds it by its checksum, and leaves the rest to the node."""
    with Node(settings={"as": "unlimited"}, data=tmp_path / "data") as node:
        hubs = Hubs(node)
        hub = hubs.new(partitions=1)
        hubs.publish(hub, 0, *([os.urandom(100) for _ in range(100)] for _ in range(10)))
        (file,) = hubs.reader(hub).find_files(0, 0, 1000, boot_id())
        hubs.client.close()
        node.kill()
        content = bytearray(Path(file.path).read_bytes())
        content[len(content) // 2] ^= 1
        Path(file.path).write_bytes(content)
        node.start()

        lost = {local: _loss(hubs, hub, local=local) for local in (True, False)}
        hubs.client.close()

    assert lost[True] == lost[False]
    assert "are lost" in lost[True]


def _loss(hubs: Hubs, hub: str, *, local: bool) -> str:
    with pytest.raises(DataLost) as lost:
        rows(hubs, hub, 0, 1000, local=local)
    return str(lost.value)


def test_batch_that_is_larger_than_the_buffer_is_fetched(disk_hubs: Hubs, filled: str, fetches: list[int]) -> None:
    """Most batches are far smaller."""
    reader = LocalSegmentsReader(disk_hubs.client, filled)

    (first, *_) = reader.read_range(0, 0, EVENTS, max_bytes=200)

    assert fetches[0] == 0
    assert first.next_sequence > 0


@pytest.mark.parametrize(
    ("given", "reads"), [({}, True), ({"localSegments": "OFF"}, False), ({"localSegments": "auto"}, True)]
)
def test_option_is_auto_or_off(hubs: Hubs, given: dict[str, str], reads: bool) -> None:
    """On by default."""
    assert read_options(conf(hubs, "orders", **given)).reads_local_segments is reads
    with pytest.raises(InvalidOption, match="'yes' is not auto or off"):
        read_options(conf(hubs, "orders", localSegments="yes"))


def test_spark_reads_the_same_rows_both_ways(spark: SparkSession, disk_hubs: Hubs, filled: str) -> None:
    """A batch of a real session, over TLS, in all nine columns."""
    found = {
        setting: batch(spark, conf(disk_hubs, filled, localSegments=setting)).orderBy("sequenceNumber").collect()
        for setting in ("auto", "off")
    }

    assert len(found["auto"]) == EVENTS + 30
    assert found["auto"] == found["off"]
    assert len(found["auto"][0]) == 9


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_stream_reads_each_kept_event_once_while_files_change(
    disk_hubs: Hubs, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Segments roll, and DeleteRecords removes the oldest, between two results of a task and between micro-batches."""
    hub = disk_hubs.new(partitions=1)
    opened: list[tuple[StoredFile, ...]] = []
    read_files = local_segments.read_files

    def count(files: tuple[StoredFile, ...], *rest: int) -> Iterator[Fetched]:
        opened.append(files)
        return read_files(files, *rest)

    monkeypatch.setattr(local_segments, "read_files", count)
    given = read_options(conf(disk_hubs, hub, localSegments=setting, failOnDataLoss="false"))
    reader = HubStreamReader(given, SCHEMA)
    published: list[bytes] = []
    seen: list[tuple[int, bytes]] = []
    trimmed = 0

    def publish() -> None:
        new = [os.urandom(BODY_BYTES) for _ in range(1500)]
        published.extend(new)
        disk_hubs.publish(hub, 0, *(new[at : at + 100] for at in range(0, len(new), 100)))

    publish()
    offset = reader.initialOffset()
    for round_number in range(6):
        reached = reader.latestOffset(offset, ReadAllAvailable())
        for task in reader.partitions(offset, reached):
            for number, found in enumerate(reader.read(task)):
                seen += zip(found["sequenceNumber"].to_pylist(), found["body"].to_pylist(), strict=True)
                if number == 0:
                    publish()
                    # In odd rounds also below the reader, whose next file is then gone.
                    trimmed = seen[-1][0] + (700 if round_number % 2 else -100)
                    disk_hubs.trim(hub, 0, trimmed)
        offset = reached
    reader.stop()

    numbers = [number for number, _ in seen]
    end = offset[hub]["0"]
    assert bool(opened) == (setting == "auto")
    assert len({file.path for files in opened for file in files}) > 1 or setting == "off"
    assert end == 6 * 1500
    assert numbers == sorted(set(numbers))
    assert all(body == published[number] for number, body in seen)
    # What the log still has was read, and so was most of what it has no longer.
    assert set(range(trimmed, end)) <= set(numbers)
    assert len(numbers) > end // 2
