"""A micro-batch that is repeated from its offset writes the same files, wherever the one before it was cut off."""

from dataclasses import replace
from pathlib import Path

import pytest

from client.hubs import Hubs, bodies
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planner import files_of
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
    """Into another folder, so that nothing can be taken over."""
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


def test_job_that_dies_between_any_two_files_leaves_each_event_once(hubs: Hubs, tmp_path: Path) -> None:
    """After every number of files written aside, and every number of them published."""
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


def test_repeat_after_retention_took_the_events_finds_its_files(hubs: Hubs, tmp_path: Path) -> None:
    """Published, reported, trimmed, and only then repeated: existing files are not read again."""
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


def test_events_that_retention_took_before_they_were_written_are_counted(hubs: Hubs, tmp_path: Path) -> None:
    """The other events are captured, and the job reports the missing ones."""
    plan = a_captured_hub(hubs, tmp_path)
    ((_, files),) = list(micro_batches(plan))[:1]
    hubs.trim(plan.hub, 0, 20)

    written = [write_file(plan, file, "0-0") for file in files]

    assert next(each.lost for each in written if each.partition == 0) == 20
    assert sum(each.lost for each in written) == 20


def test_query_of_a_deleted_hub_captures_nothing_of_its_successor(hubs: Hubs, tmp_path: Path) -> None:
    """The hub is created again before the job hears of it: neither the open file nor a new one takes its events."""
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


def test_settings_that_change_do_not_touch_a_micro_batch_that_is_on_its_way(hubs: Hubs, tmp_path: Path) -> None:
    """Format and encoding are in the offset with the files."""
    plan = a_captured_hub(hubs, tmp_path)
    end, files = next(micro_batches(plan))
    changed = read(
        hubs, a_hub(hubs, plan.hub, tmp_path, partitions=2, size_limit_bytes=999_999_999, encoding="Parquet")
    )

    again = files_of(changed, end)

    assert [(file.name, file.span, file.encoding) for file in again] == [
        (file.name, file.span, file.encoding) for file in files
    ]


def test_partition_that_is_added_is_captured_from_its_beginning(hubs: Hubs, tmp_path: Path) -> None:
    """The plan changes, the offset does not know it yet."""
    plan = a_captured_hub(hubs, tmp_path)
    *_, (end, _) = micro_batches(plan)
    capture(plan)
    hubs.grow(plan.hub, 3)
    hubs.publish(plan.hub, 2, bodies(5))
    grown = read(hubs, a_hub(hubs, plan.hub, tmp_path, partitions=3, since={0: 0, 1: 0, 2: 0}))

    capture(grown, end)

    assert [each.events for each in verify(grown).partitions] == [400, 400, 5]
