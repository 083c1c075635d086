"""Capture without Spark: the planner decides, files are written and published, as in the job's micro-batches."""

from collections.abc import Iterator
from contextlib import closing

from hubmere.pipeline.capture.destinations import destination_of
from hubmere.pipeline.capture.files.names import Span
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.offsets import CaptureOffset
from hubmere.pipeline.capture.planning.planner import HubPlanner, files_of
from hubmere.pipeline.capture.writing import FileTask, WrittenFile, write_file


def micro_batches(hub: HubPlan, offset: CaptureOffset | None = None) -> Iterator[tuple[CaptureOffset, list[FileTask]]]:
    """The micro-batches of a run that captures everything: the offset at the end of each, and its files."""
    with closing(HubPlanner(hub)) as planner:
        planner.freeze_end()
        offset = offset or planner.first_offset()
        while (following := planner.next_offset(offset)) is not None:
            yield following, files_of(hub, following)
            offset = following


def publish(hub: HubPlan, written: WrittenFile) -> None:
    """Publish a file, as the driver does."""
    if written.token is not None:
        span = Span(hub.id, written.partition, written.first, written.end)
        destination_of(hub.target.url, hub.target.options).publish(written.name, span, written.token)


def capture(hub: HubPlan, offset: CaptureOffset | None = None) -> list[WrittenFile]:
    """Capture all stored events; returns the files."""
    found = []
    for number, (_, files) in enumerate(micro_batches(hub, offset)):
        for file in files:
            written = write_file(hub, file, f"{number}-0")
            publish(hub, written)
            found.append(written)
    return found
