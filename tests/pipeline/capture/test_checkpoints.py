"""Checkpoints after a power cut: what is torn is put right, what is whole is left alone."""

import json
from pathlib import Path

import pytest

from hubmere.pipeline.capture.checkpoints import make_durable, mend

OFFSET = 'v1\n{"batchWatermarkMs":0}\n{"format":"x","encoding":"Avro","partitions":{}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As Spark leaves it amid its second micro-batch."""
    for name, content in {
        "metadata": '{"id":"f00"}',
        "offsets/0": OFFSET,
        "offsets/1": OFFSET,
        "commits/0": COMMIT,
        "offsets/.1.crc": "crc",
        ".metadata.crc": "crc",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_whole_checkpoint_loses_its_sums_alone(checkpoint: Path) -> None:
    """They are not synced, and a wrong one would keep Spark from reading what is good."""
    before = contents(checkpoint)

    assert mend(checkpoint) == []

    assert contents(checkpoint) == {name: text for name, text in before.items() if not name.endswith(".crc")}


@pytest.mark.parametrize("left", ["", "\0\0\0\0", "v1\n", OFFSET[:-9]])
def test_torn_micro_batch_is_forgotten(checkpoint: Path, left: str) -> None:
    """It was not published: its offset would have been synced before."""
    (checkpoint / "offsets/1").write_text(left)

    assert mend(checkpoint) == [checkpoint / "offsets/1"]

    assert set(contents(checkpoint)) == {"metadata", "offsets/0", "commits/0"}


def test_torn_commits_make_the_last_micro_batch_come_again(checkpoint: Path) -> None:
    """Nothing syncs them, so that all may be torn; a repeat finds its files and leaves them as they are."""
    for name in ("commits/0", "commits/1"):
        (checkpoint / name).write_text("")

    assert mend(checkpoint) == [checkpoint / "commits/0", checkpoint / "commits/1"]

    assert set(contents(checkpoint)) == {"metadata", "offsets/0", "offsets/1"}


def test_offset_that_is_torn_below_a_whole_one_is_left_for_somebody_to_see(checkpoint: Path) -> None:
    """No power cut does that: files may hang on it."""
    (checkpoint / "offsets/0").write_text("")

    assert mend(checkpoint) == []

    assert (checkpoint / "offsets/0").exists()


@pytest.mark.parametrize("is_missing", [False, True])
def test_query_without_an_id_gets_another(checkpoint: Path, is_missing: bool) -> None:
    """Spark would not read its logs without one."""
    (checkpoint / "metadata").write_text("")
    if is_missing:
        (checkpoint / "metadata").unlink()

    assert mend(checkpoint) == [checkpoint / "metadata"]

    assert len(json.loads((checkpoint / "metadata").read_text())["id"]) == 36


def test_checkpoint_that_is_not_there_yet_needs_nothing(tmp_path: Path) -> None:
    """Spark makes it."""
    assert mend(tmp_path) == []
    assert contents(tmp_path) == {}


def test_micro_batch_without_an_offset_is_not_published(checkpoint: Path) -> None:
    """What decided it must be there."""
    make_durable(checkpoint, 1)

    with pytest.raises(FileNotFoundError):
        make_durable(checkpoint, 2)
