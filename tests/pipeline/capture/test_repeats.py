"""A repeated micro-batch writes the same files from its offset, wherever the previous attempt was interrupted."""

from dataclasses import replace
from pathlib import Path

import pytest

from client.hubs import Hubs, bodies
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.planner import files_of
from hubmere.pipeline.capture.verify import verify
from hubmere.pipeline.capture.writing import write_file
from hubmere.pipeline.offsets import HubRecreated
from pipeline.capture.plans import NAMESPACE, a_hub, read
from pipeline.capture.runs import capture, micro_batches, publish


def a_captured_hub(hubs: Hubs, target: Path, **settings: object) -> HubPlan:
    """A hub with several files in its first micro-batch."""
    hub = hubs.new(2)
    for partition in range(2):
        hubs.publish(hub, partition, *(bodies(50, f"{partition} {run} {'x' * 1000}") for run in range(8)))
    return read(hubs, a_hub(hubs, hub, target, partitions=2, size_limit_bytes=120_000, **settings))  # type: ignore[arg-type]


def contents(plan: HubPlan, root: Path) -> dict[str, bytes]:
    """Every visible file with its bytes."""
    top = root / NAMESPACE / plan.hub
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize("encoding", ["Avro", "AvroDeflate", "Parquet"])
def test_repeat_writes_the_same_names_and_bytes(hubs: Hubs, tmp_path: Path, encoding: str) -> None:
    """It writes to another folder, so that no file can be reused."""
    plan = a_captured_hub(hubs, tmp_path / "once", encoding=encoding)
    batches = list(micro_batches(plan))
    for _, files in batches:
        for file in files:
            publish(plan, write_file(plan, file, "0-0"))

    other = read(hubs, a_hub(hubs, plan.hub, tmp_path / "again", partitions=2, encoding="Avro"))
    for end, _ in batches:
        for file in files_of(other, end):
            publish(other, write_file(other, file, "7-3"))

    assert contents(plan, tmp_path / "once") == contents(plan, tmp_path / "again")
    assert sum(len(files) for _, files in batches) > 6


def test_job_that_dies_between_any_two_files_captures_each_event_once(hubs: Hubs, tmp_path: Path) -> None:
    """It dies after every number of staged and of published files."""
    plan = a_captured_hub(hubs, tmp_path / "0")
    end, files = next(micro_batches(plan))
    for published in range(len(files) + 1):
        target = tmp_path / str(published)
        dying = read(hubs, a_hub(hubs, plan.hub, target, partitions=2, size_limit_bytes=120_000))
        written = [write_file(dying, file, "0-0") for file in files]
        for each in written[:published]:
            publish(dying, each)

        repeated = [write_file(dying, file, "0-1") for file in files_of(dying, end)]
        for each in repeated:
            publish(dying, each)
        capture(dying, end)

        proof = verify(dying)
        assert proof.holds, proof.problems
        assert [each.token is None for each in repeated] == [True] * published + [False] * (len(files) - published)
        assert [each.events for each in proof.partitions] == [400, 400]


def test_repeat_after_retention_deleted_the_events_finds_its_files(hubs: Hubs, tmp_path: Path) -> None:
    """The files were published and reported, then the events were trimmed, then the micro-batch is repeated."""
    plan = a_captured_hub(hubs, tmp_path)
    ends = []
    for end, files in micro_batches(plan):
        ends.append(end)
        for file in files:
            publish(plan, write_file(plan, file, "0-0"))
    before = contents(plan, tmp_path)
    hubs.trim(plan.hub, 0, 400)

    repeated = [write_file(plan, file, "0-1") for end in ends for file in files_of(plan, end)]

    assert all(each.token is None for each in repeated)
    assert contents(plan, tmp_path) == before


def test_events_that_retention_deleted_before_their_capture_are_counted(hubs: Hubs, tmp_path: Path) -> None:
    """The other events are captured, and the job reports the missing ones."""
    plan = a_captured_hub(hubs, tmp_path)
    ((_, files),) = list(micro_batches(plan))[:1]
    hubs.trim(plan.hub, 0, 20)

    written = [write_file(plan, file, "0-0") for file in files]

    assert next(each.lost for each in written if each.partition == 0) == 20
    assert sum(each.lost for each in written) == 20


def test_capture_of_a_deleted_hub_includes_no_event_of_its_successor(hubs: Hubs, tmp_path: Path) -> None:
    """The hub is created again before the job learns of it: neither the open file nor a new one has its events."""
    plan = a_captured_hub(hubs, tmp_path)
    plan = replace(plan, topic_id=hubs.reader(plan.hub).describe().id)
    _, files = next(micro_batches(plan))
    hubs.make_again(plan.hub, partitions=2)
    hubs.publish(plan.hub, 0, *(bodies(200, f"new {run} {'x' * 1000}") for run in range(5)))

    with pytest.raises(HubRecreated):
        write_file(plan, files[0], "0-0")
    with pytest.raises(HubRecreated):
        list(micro_batches(plan))

    assert not list(tmp_path.rglob("*.avro"))


def test_changed_settings_do_not_affect_a_pending_micro_batch(hubs: Hubs, tmp_path: Path) -> None:
    """Name format and encoding are part of the offset."""
    plan = a_captured_hub(hubs, tmp_path)
    end, files = next(micro_batches(plan))
    changed = read(
        hubs, a_hub(hubs, plan.hub, tmp_path, partitions=2, size_limit_bytes=999_999_999, encoding="Parquet")
    )

    again = files_of(changed, end)

    assert [(file.name, file.span, file.encoding) for file in again] == [
        (file.name, file.span, file.encoding) for file in files
    ]


def test_added_partition_is_captured_from_its_beginning(hubs: Hubs, tmp_path: Path) -> None:
    """The plan has changed, but the offset does not contain the partition yet."""
    plan = a_captured_hub(hubs, tmp_path)
    *_, (end, _) = micro_batches(plan)
    capture(plan)
    hubs.grow(plan.hub, 3)
    hubs.publish(plan.hub, 2, bodies(5))
    grown = read(hubs, a_hub(hubs, plan.hub, tmp_path, partitions=3, since={0: 0, 1: 0, 2: 0}))

    capture(grown, end)

    assert [each.events for each in verify(grown).partitions] == [400, 400, 5]
