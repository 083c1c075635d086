"""Capture without Spark: the reader plans, files are written and published, as the job does in its micro-batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hubmere.pipeline.capture.destinations import destination_of
from hubmere.pipeline.capture.files.names import Span
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.source import CaptureReader, FilePartition, WrittenFile, write_file

Offset = dict[str, Any]


@contextmanager
def a_reader(hub: HubPlan) -> Iterator[CaptureReader]:
    """The driver's reader."""
    reader = CaptureReader(hub)
    try:
        yield reader
    finally:
        reader.stop()


def micro_batches(hub: HubPlan, offset: Offset | None = None) -> Iterator[tuple[Offset, list[FilePartition]]]:
    """The micro-batches of a run that takes everything: the offset that each ends at, and its files."""
    with a_reader(hub) as reader:
        reader.prepareForTriggerAvailableNow()
        offset = offset or reader.initialOffset()
        while (following := reader.latestOffset(offset)) != offset:
            files = [each for each in reader.partitions(offset, following) if isinstance(each, FilePartition)]
            yield following, files
            offset = following


def publish(hub: HubPlan, written: WrittenFile) -> None:
    """What the driver does with a file."""
    if written.token is not None:
        span = Span(hub.id, written.partition, written.first, written.end)
        destination_of(hub.target.url, hub.target.options).publish(written.name, span, written.token)


def capture(hub: HubPlan, offset: Offset | None = None) -> list[WrittenFile]:
    """Capture everything that is there; gives the files."""
    found = []
    for number, (_, files) in enumerate(micro_batches(hub, offset)):
        for file in files:
            written = write_file(hub, file, f"{number}-0")
            publish(hub, written)
            found.append(written)
    return found
