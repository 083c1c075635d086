"""The write-ahead log of a hub: complete entries are continued, entries torn by a power cut are decided again."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hubmere.pipeline.capture.checkpoints import (
    BatchLog,
    HadoopStorage,
    InvalidCheckpoint,
    LocalStorage,
    NotTheNewest,
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
    """A checkpoint of an earlier version during its second micro-batch."""
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
    """It continues with the micro-batch that had begun, and then with the next one."""
    assert a_log(checkpoint).recover() == Recovered(1, OFFSET, False)

    (checkpoint / "commits/1").write_text(OLD_COMMIT)
    assert a_log(checkpoint).recover() == Recovered(1, OFFSET, True)


@pytest.mark.parametrize("left", ["", "\0\0\0\0", "v1\n", OLD_OFFSET[:-9]])
def test_torn_micro_batch_is_planned_again(checkpoint: Path, left: str) -> None:
    """It was not published, because its offset would have been synced before."""
    (checkpoint / "offsets/1").write_text(left)

    assert a_log(checkpoint).recover() == Recovered(0, OFFSET, True)

    assert not (checkpoint / "offsets/1").exists()


@pytest.mark.parametrize("left", ["", "v1\n", None])
def test_torn_commit_repeats_the_last_micro_batch(checkpoint: Path, left: str | None) -> None:
    """The repeat finds its files and leaves them unchanged."""
    (checkpoint / "offsets/1").unlink()
    (checkpoint / "commits/0").unlink()
    if left is not None:
        (checkpoint / "commits/0").write_text(left)

    assert a_log(checkpoint).recover() == Recovered(0, OFFSET, False)


def test_two_torn_offsets_are_an_error(checkpoint: Path) -> None:
    """No power cut causes this: files may depend on the older one."""
    for name in ("offsets/0", "offsets/1"):
        (checkpoint / name).write_text("")

    with pytest.raises(InvalidCheckpoint, match="micro-batch 0"):
        a_log(checkpoint).recover()

    assert (checkpoint / "offsets/0").exists()


def test_missing_checkpoint_is_empty(tmp_path: Path) -> None:
    """The first micro-batch creates it."""
    assert a_log(tmp_path / "new").recover() is None


def test_incomplete_entry_is_ignored(checkpoint: Path) -> None:
    """A job that dies while it writes leaves a file with a temporary name."""
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


def test_log_in_a_folder_keeps_only_its_last_entries(tmp_path: Path) -> None:
    """It must not grow for ever."""
    write_and_read(LocalStorage(tmp_path / "shop" / "orders"))


@pytest.mark.slow
def test_log_is_the_same_on_the_file_systems_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Checkpoints of a cluster are on `hdfs:` or `s3a:`, which only the JVM can access."""
    location = f"{(tmp_path / 'shop').as_uri()}/orders"

    write_and_read(HadoopStorage(spark.sparkContext, location))

    assert isinstance(open_storage(spark.sparkContext, location), LocalStorage)
    assert isinstance(open_storage(spark.sparkContext, "hdfs://localhost:1/x"), HadoopStorage)


def test_second_job_does_not_replace_the_decision_of_the_first(tmp_path: Path) -> None:
    """A gateway that is cut off may still run its job when another one has taken over: one of them decides."""
    old, new = BatchLog(LocalStorage(tmp_path)), BatchLog(LocalStorage(tmp_path))
    old.add(0, OFFSET)

    with pytest.raises(NotTheNewest, match="another capture job has decided micro-batch 0"):
        new.add(0, {**OFFSET, "format": "other"})

    assert new.recover() == Recovered(0, OFFSET, False)
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == ["0"]


def test_job_that_was_frozen_for_long_decides_nothing_any_more(tmp_path: Path) -> None:
    """The entries of its time are deleted, so their names are free again; later ones show that it is too late."""
    frozen, new = BatchLog(LocalStorage(tmp_path)), BatchLog(LocalStorage(tmp_path))
    for batch in range(30):
        new.add(batch, OFFSET)
        new.commit(batch)
    assert not (tmp_path / "offsets" / "1").exists()

    with pytest.raises(NotTheNewest, match="another capture job has decided micro-batch 29"):
        frozen.add(1, OFFSET)

    assert not (tmp_path / "offsets" / "1").exists()
    assert new.recover() == Recovered(29, OFFSET, True)


def test_second_job_does_not_replace_a_decision_on_file_systems_of_spark(tmp_path: Path, spark: SparkSession) -> None:
    """The same for `hdfs:` and others, whose rename does not replace a file."""
    location = tmp_path.as_uri()
    old, new = (BatchLog(HadoopStorage(spark.sparkContext, location)) for _ in range(2))
    old.add(0, OFFSET)

    with pytest.raises(NotTheNewest):
        new.add(0, {**OFFSET, "format": "other"})

    assert new.recover() == Recovered(0, OFFSET, False)
