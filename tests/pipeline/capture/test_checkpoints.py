"""The write-ahead log of a hub: complete entries are continued, entries torn by a power cut are decided again."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hubmere.pipeline.capture.checkpoints import (
    BatchLog,
    HadoopStorage,
    InvalidCheckpoint,
    LocalStorage,
    Recovered,
    Storage,
    open_storage,
)

OFFSET = {"format": "x", "encoding": "Avro", "partitions": {"0": [7, 1_000_000, [[0, 7, 999_940]]]}}
# As Structured Streaming wrote them for earlier versions.
OLD_OFFSET = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1789000000000,"conf":{"spark.sql.shuffle.partitions":"2"}}\n'
    '{"format":"x","encoding":"Avro","partitions":{"0":[7,1000000,[[0,7,999940]]]}}'
)
OLD_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As an earlier version leaves it amid its second micro-batch."""
    for name, content in {
        "metadata": '{"id":"f00"}',
        "offsets/0": OLD_OFFSET,
        "offsets/1": OLD_OFFSET,
        "commits/0": OLD_COMMIT,
        "offsets/.1.crc": "crc",
        ".metadata.crc": "crc",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def a_log(checkpoint: Path) -> BatchLog:
    return BatchLog(LocalStorage(checkpoint))


def test_checkpoint_of_an_earlier_version_is_continued(checkpoint: Path) -> None:
    """First with the micro-batch that it had begun; after that one is committed, with the next one."""
    assert a_log(checkpoint).recover() == Recovered(1, OFFSET, False)

    (checkpoint / "commits/1").write_text(OLD_COMMIT)
    assert a_log(checkpoint).recover() == Recovered(1, OFFSET, True)


@pytest.mark.parametrize("left", ["", "\0\0\0\0", "v1\n", OLD_OFFSET[:-9]])
def test_torn_micro_batch_is_decided_again(checkpoint: Path, left: str) -> None:
    """It was not published: its offset would have been synced before."""
    (checkpoint / "offsets/1").write_text(left)

    assert a_log(checkpoint).recover() == Recovered(0, OFFSET, True)

    assert not (checkpoint / "offsets/1").exists()


@pytest.mark.parametrize("left", ["", "v1\n", None])
def test_torn_commit_makes_the_last_micro_batch_come_again(checkpoint: Path, left: str | None) -> None:
    """A repeat finds its files and leaves them as they are."""
    (checkpoint / "offsets/1").unlink()
    (checkpoint / "commits/0").unlink()
    if left is not None:
        (checkpoint / "commits/0").write_text(left)

    assert a_log(checkpoint).recover() == Recovered(0, OFFSET, False)


def test_two_torn_offsets_are_left_for_somebody_to_see(checkpoint: Path) -> None:
    """No power cut does that: files may depend on the older one."""
    for name in ("offsets/0", "offsets/1"):
        (checkpoint / name).write_text("")

    with pytest.raises(InvalidCheckpoint, match="micro-batch 0"):
        a_log(checkpoint).recover()

    assert (checkpoint / "offsets/0").exists()


def test_checkpoint_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    """The first micro-batch creates it."""
    assert a_log(tmp_path / "new").recover() is None


def test_entry_that_was_being_written_counts_for_nothing(checkpoint: Path) -> None:
    """A job that dies while it writes leaves a file under another name."""
    (checkpoint / "offsets/.2.new").write_text(OLD_OFFSET[:30])

    assert a_log(checkpoint).recover() == Recovered(1, OFFSET, False)


def write_and_read(storage: Storage) -> None:
    log = BatchLog(storage)
    assert log.recover() is None
    for batch in range(30):
        log.add(batch, {**OFFSET, "format": str(batch)})
        assert log.recover() == Recovered(batch, {**OFFSET, "format": str(batch)}, False)
        log.commit(batch)
    assert log.recover() == Recovered(29, {**OFFSET, "format": "29"}, True)
    assert storage.entries("offsets") == storage.entries("commits") == list(range(10, 30))


def test_log_keeps_its_last_entries_in_a_folder(tmp_path: Path) -> None:
    """It must not grow with the life of the hub."""
    write_and_read(LocalStorage(tmp_path / "shop" / "orders"))


@pytest.mark.slow
def test_log_is_the_same_on_the_file_systems_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A cluster's checkpoints are on `hdfs:` or `s3a:`, which the JVM alone knows."""
    location = f"{(tmp_path / 'shop').as_uri()}/orders"

    write_and_read(HadoopStorage(spark.sparkContext, location))

    assert isinstance(open_storage(spark.sparkContext, location), LocalStorage)
    assert isinstance(open_storage(spark.sparkContext, "hdfs://localhost:1/x"), HadoopStorage)
