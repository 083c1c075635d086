"""Streams over captured files and the log, with and without the node's segment files: the rows are the same."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from client.hubs import bodies
from hubmere.client import local_segments
from hubmere.client.consumer import Fetched
from hubmere.pipeline import ranges
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.options import read_options
from hubmere.pipeline.source import HubBatchReader, HubStreamReader
from hubmere.wire.kafka.messages.fetch import StoredFile
from pipeline.batches import rows
from pipeline.captured_hubs import CapturedHubs, a_capturing_node
from pipeline.queries import conf, run_stream, streamed

Row = dict[str, Any]
SEGMENT_BYTES = 1024 * 1024
BODY_BYTES = 1000
BATCH = 100
SETTINGS = ("auto", "off")


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedHubs]:
    """The hubs of a node on disk with small segments, which captures into a folder."""
    folder = tmp_path_factory.mktemp("captured")
    with a_capturing_node(folder, memory=False, durability="os", segment_bytes=SEGMENT_BYTES) as hubs:
        yield hubs


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process reads, in order: `segments` of the log, or captured `files`."""
    found: list[str] = []
    read_segments, read_captured = local_segments.read_files, ranges._read_files

    def count_segments(files: tuple[StoredFile, ...], *rest: int) -> Iterator[Fetched]:
        found.append("segments")
        return read_segments(files, *rest)

    def count_captured(*given: Any, **named: Any) -> Any:
        found.append("files")
        return read_captured(*given, **named)

    monkeypatch.setattr(local_segments, "read_files", count_segments)
    monkeypatch.setattr(ranges, "_read_files", count_captured)
    return found


def fill(hubs: CapturedHubs, hub: str, batches: int) -> None:
    """Publish events that do not compress."""
    hubs.publish(hub, 0, *([os.urandom(BODY_BYTES) for _ in range(BATCH)] for _ in range(batches)))


def read_all(reader: HubBatchReader | HubStreamReader, tasks: Any) -> list[Row]:
    """The rows of tasks, each with a copy of the reader as on an executor."""
    found: list[Row] = []
    for task in tasks:
        copy, task = pickle.loads(pickle.dumps((reader, task)))
        found += rows(copy.read(task))
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_stream_with_history_reads_the_same_rows_both_ways(
    hubs: CapturedHubs, readings: list[str], setting: str
) -> None:
    """The log begins at another event with each micro-batch, also between planning and reading, and inside segments."""
    hub = hubs.new_captured()
    fill(hubs, hub, 40)
    options = conf(hubs, hub, capture="auto", localSegments=setting, maxEventsPerTrigger="1300")
    batch = HubBatchReader(read_options(options), SCHEMA)
    expected = read_all(batch, batch.partitions())
    hubs.capture(hub)
    hubs.trim(hub, 0, 700)
    readings.clear()

    stream = HubStreamReader(read_options(options), SCHEMA)
    offset, limit, found = stream.initialOffset(), stream.getDefaultReadLimit(), list[Row]()
    stream.prepareForTriggerAvailableNow()
    while (reached := stream.latestOffset(offset, limit)) != offset:
        tasks = stream.partitions(offset, reached)
        hubs.trim(hub, 0, min(reached[hub]["0"] - 650, 3100))
        found += read_all(stream, tasks)
        offset = reached
    stream.stop()

    assert [row["sequenceNumber"] for row in found] == list(range(4000))
    assert found == expected
    assert "files" in readings
    assert ("segments" in readings) == (setting == "auto")


@pytest.mark.slow
def test_spark_continues_a_stream_from_files_into_segments_and_fetches(
    spark: SparkSession, hubs: CapturedHubs, tmp_path: Path
) -> None:
    """Runs with `availableNow` and a limit share a checkpoint; the second one does not read the node's files."""
    hub = hubs.new_captured(partitions=2)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    expected: list[str] = []

    for run, setting in enumerate(SETTINGS):
        written = [[bodies(800, f"{run} {part} {number}") for number in range(2)] for part in range(2)]
        for part, batches in enumerate(written):
            hubs.publish(hub, part, *batches)
        hubs.capture(hub)
        for part in range(2):
            hubs.trim(hub, part, 1600 * run + 500 + 300 * part)
        options = conf(hubs, hub, capture="auto", localSegments=setting, maxEventsPerTrigger="1000")
        sizes = run_stream(spark, options, out, checkpoint)
        expected += [body.decode() for batches in written for batch in batches for body in batch]
        assert sum(sizes) == 3200
        assert max(sizes) <= 1000

    found = streamed(spark, out)
    assert len(found) == len(expected)
    assert set(found) == set(expected)
    in_order = spark.read.parquet(str(out)).where("partition = '1'").orderBy("sequenceNumber").select("sequenceNumber")
    assert [row.sequenceNumber for row in in_order.collect()] == list(range(3200))
