"""The verification accepts correct files, and finds every kind of error."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from client.hubs import Hubs, bodies
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.verify import verify
from pipeline.capture.plans import NAMESPACE, a_hub, read
from pipeline.capture.runs import capture
from pipeline.capture.stores import Store

MEBIBYTE = 1024 * 1024


def publish(hubs: Hubs, hub: str, partition: int, name: str = "event") -> None:
    """Enough events for several files of 10 MiB."""
    for run in range(3):
        large = [b"%s %d %d " % (name.encode(), run, number) + b"x" * (MEBIBYTE // 2) for number in range(8)]
        hubs.publish(hub, partition, *([body] for body in large))


@pytest.fixture
def captured(hubs: Hubs, tmp_path: Path) -> HubPlan:
    """A hub of two partitions, captured into a folder: three files of partition 0, one of partition 1."""
    hub = hubs.new(2)
    publish(hubs, hub, 0)
    hubs.publish(hub, 1, bodies(100))
    plan = read(hubs, a_hub(hubs, hub, tmp_path / "captured", partitions=2, size_limit_bytes=4 * MEBIBYTE))
    capture(plan)
    return plan


def files(plan: HubPlan, partition: int) -> list[Path]:
    root = Path(plan.target.url.removeprefix("file://"))
    return sorted(root.glob(f"{NAMESPACE}/{plan.hub}/{partition}/**/*.*"))


def test_captured_files_are_verified(captured: HubPlan) -> None:
    """Every event of each partition is found once and in order."""
    seen: list[int] = []

    proof = verify(captured, seen.append)

    assert proof.holds, proof.problems
    assert [(each.partition, each.events, each.compared, each.waiting) for each in proof.partitions] == [
        (0, 24, 24, 0), (1, 100, 100, 0),
    ]  # fmt: skip
    assert proof.partitions[0].files > 2
    assert sum(seen) == 124


def test_missing_file_is_a_gap(captured: HubPlan) -> None:
    """A file in the middle was deleted."""
    files(captured, 0)[1].unlink()

    assert any("a gap" in problem for problem in verify(captured).problems)


def test_event_in_two_files_is_an_overlap(captured: HubPlan) -> None:
    """A file was copied under the name of a later window."""
    first, *_, last = files(captured, 0)
    shutil.copy(first, last.with_name("59.avro"))

    assert any("an overlap" in problem for problem in verify(captured).problems)


def test_truncated_file_is_reported(captured: HubPlan) -> None:
    """It is truncated inside a block, and inside the header."""
    first, second, *_ = files(captured, 0)
    first.write_bytes(first.read_bytes()[:-100])
    second.write_bytes(second.read_bytes()[:50])

    problems = "\n".join(verify(captured).problems)

    assert f"{first.name}: cannot be read" in problems
    assert f"{second.name}: is not a captured file" in problems


def test_changed_body_is_reported(captured: HubPlan) -> None:
    """One byte of one event is changed."""
    (file,) = files(captured, 1)
    content = bytearray(file.read_bytes())
    content[content.index(b"event 42")] ^= 1
    file.write_bytes(content)

    assert any("the body of event 42" in problem for problem in verify(captured).problems)


def test_wrong_name_is_reported(captured: HubPlan) -> None:
    """Readers look for files by the name format."""
    (file,) = files(captured, 1)
    file.rename(file.with_name("extra.avro"))

    assert any("does not match the format" in problem for problem in verify(captured).problems)


def test_waiting_events_are_counted_and_no_problem(captured: HubPlan, hubs: Hubs) -> None:
    """Their window is still open."""
    hubs.publish(captured.hub, 1, bodies(7, "later"))

    proof = verify(captured)

    assert proof.holds
    assert [each.waiting for each in proof.partitions] == [0, 7]


def test_files_of_events_that_retention_deleted_are_checked_for_order(captured: HubPlan, hubs: Hubs) -> None:
    """Files outlive the events in the log."""
    hubs.trim(captured.hub, 1, 60)

    proof = verify(captured)

    assert proof.holds
    assert proof.partitions[1].compared == 40


def test_files_of_an_earlier_capture_are_ignored(captured: HubPlan, hubs: Hubs) -> None:
    """Capture was disabled and enabled again: the files of both are in one folder."""
    hubs.publish(captured.hub, 1, bodies(7, "later"))
    target = Path(captured.target.url.removeprefix("file://"))
    again = read(hubs, a_hub(hubs, captured.hub, target, partitions=2, since={0: 24, 1: 100}, incarnation="second"))
    capture(again)

    proof = verify(again)

    assert proof.holds, proof.problems
    assert [each.events for each in proof.partitions] == [0, 7]
    assert proof.earlier > 2


@pytest.mark.parametrize("encoding", ["Avro", "AvroDeflate", "Parquet"])
def test_every_encoding_in_every_destination_is_verified(hubs: Hubs, store: Store, encoding: str) -> None:
    """The job is the same for every encoding and destination."""
    hub = hubs.new(2)
    publish(hubs, hub, 1)
    plan = read(
        hubs,
        a_hub(
            hubs, hub, store.url, partitions=2, encoding=encoding, options=store.options,
            size_limit_bytes=4 * MEBIBYTE,
        ),
    )  # fmt: skip

    written = capture(plan)
    proof = verify(plan)

    assert len(written) > 2
    assert proof.holds, proof.problems
    assert [each.events for each in proof.partitions] == [0, 24]


def test_parquet_files_have_columns_with_the_names_of_the_service(hubs: Hubs, tmp_path: Path) -> None:
    """They are the names of Avro files, but times are timestamps."""
    hub = hubs.new(1)
    hubs.publish(hub, 0, bodies(3))
    plan = read(hubs, a_hub(hubs, hub, tmp_path, partitions=1, encoding="Parquet"))
    capture(plan)

    table = pq.read_table(files(plan, 0)[0])

    assert table.column_names == [
        "SequenceNumber", "Offset", "EnqueuedTimeUtc", "SystemProperties", "Properties", "Body",
    ]  # fmt: skip
    assert table.column("Body").to_pylist() == bodies(3)
    assert str(table.schema.field("EnqueuedTimeUtc").type) == "timestamp[us, tz=UTC]"
