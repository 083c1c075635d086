"""Reads ranges of a hub into Arrow record batches; the work of a task, on any executor.

The client of the previous task is reused, and the next response is requested while one is decoded. If retention deletes
events of a range between planning and reading, the task fails with an error that names the lost range, or continues
after it if the query allows that. The same holds for events that are damaged on the node's disk. A query with history
reads what the log has lost from captured files: a range may begin in them, and retention may move on while it is read.
A hub that is created again between planning and the end of a task always fails the task: what was read may belong to
either hub.
"""

import gc
import logging
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from hubmere.client.connection import Account
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost
from hubmere.client.local_segments import LocalSegmentsReader
from hubmere.client.pool import pooled_client
from hubmere.pipeline.decode import decode
from hubmere.pipeline.offsets import DataLost, HubRecreated, Lost, Range
from hubmere.pipeline.worker_files import enlarge_output

if TYPE_CHECKING:
    from hubmere.pipeline.history.files import CapturedFiles
    from hubmere.pipeline.history.location import Location

log = logging.getLogger("hubmere.spark")

# The number of the task of a process before which all modules are imported, including Spark's own for writing rows, and
# the garbage is collected.
_SETTLED_TASK: Final = 2
_tasks: Final = count(1)
# The captured files of the task before, if it read any.
_files: "Final[list[CapturedFiles]]" = []


def settle() -> None:
    """Exempt imported modules from garbage collection; called by every task.

    Spark's worker collects garbage after every task, and visits every object for that: 100,000 of modules alone, 25 ms,
    as long as it takes to read 50,000 events.
    """
    if next(_tasks) == _SETTLED_TASK:
        gc.freeze()


def read_ranges(
    account: Account,
    hub: str,
    ranges: Sequence[Range],
    schema: pa.Schema,
    *,
    hub_id: str | None,
    fails_on_data_loss: bool,
    location: "Location | None" = None,
    reads_local_segments: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The events of the ranges, in order; `hub_id` is that of the hub for which they were planned.

    `location` is that of captured files, for events that the log no longer has. With `reads_local_segments` the batches
    of a node on the same machine are read from its files, where it allows that.
    """
    settle()
    enlarge_output()
    files = None if location is None else _files_of(location, hub_id)
    with pooled_client(account) as client:
        reader = LocalSegmentsReader(client, hub) if reads_local_segments else HubReader(client, hub)
        for each in ranges:
            yield from _read_range(reader, hub, each, schema, files, fails_on_data_loss=fails_on_data_loss)
        check_hub(reader, hub, hub_id)


def _files_of(location: "Location", hub_id: str | None) -> "CapturedFiles":
    """The files of a location; those of the task before, which are listed again when one is missing."""
    from hubmere.pipeline.history.files import CapturedFiles

    if _files and _files[0].is_of(location, hub_id):
        return _files[0]
    _files[:] = [CapturedFiles(location, hub_id)]
    return _files[0]


def check_hub(reader: HubReader, hub: str, hub_id: str | None) -> None:
    """Raise HubRecreated if the hub is not the one with this id.

    Ids are never used again: one check after reading covers everything that was read.
    """
    found = reader.describe().id if hub_id is not None else None
    if hub_id is not None and found is not None and found != hub_id:
        raise HubRecreated(hub, hub_id, found)


def _read_range(
    reader: HubReader,
    hub: str,
    wanted: Range,
    schema: pa.Schema,
    files: "CapturedFiles | None",
    *,
    fails_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    start = wanted.start
    while start < wanted.end:
        try:
            for fetched in reader.read_range(wanted.partition, start, wanted.end):
                for first, behind in fetched.missing_between(start, wanted.end):
                    _report(DataLost(hub, [Lost(wanted.partition, first, behind)]), fails=fails_on_data_loss)
                yield from decode(fetched, wanted.partition, start, wanted.end, schema)
                start = fetched.next_sequence
        except RangeLost as loss:
            lost = Range(wanted.partition, start, min(loss.first, wanted.end))
            if files is not None and lost.start < lost.end:
                yield from _read_files(files, hub, lost, schema, fails_on_data_loss=fails_on_data_loss)
                start = lost.end
            else:
                start = _behind(loss, hub, wanted, fails_on_data_loss=fails_on_data_loss)


def _read_files(
    files: "CapturedFiles", hub: str, lost: Range, schema: pa.Schema, *, fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Events that the log no longer has, from captured files; reports those that are in no file either."""
    from hubmere.pipeline.history.hub import next_in_files, read_before

    at = lost.start
    is_fresh = False
    while at < lost.end:
        try:
            for reached, rows in read_before(files, lost.partition, at, lost.end, schema):
                at = reached
                if rows is not None:
                    yield rows
        except FileNotFoundError:
            # Deleted since it was listed; a file that is open stays readable, so nothing of it was yielded.
            if is_fresh:
                raise
        if at < lost.end and not is_fresh:
            files.refresh()
            is_fresh = True
        elif at < lost.end:
            behind = next_in_files(files, lost.partition, at, lost.end)
            _report(DataLost(hub, [Lost(lost.partition, at, behind)]), fails=fails_on_data_loss)
            at = behind


def _behind(loss: RangeLost, hub: str, wanted: Range, *, fails_on_data_loss: bool) -> int:
    """Where to continue after lost events."""
    behind = wanted.end if loss.first <= loss.wanted else min(loss.first, wanted.end)
    _report(DataLost(hub, [Lost(wanted.partition, loss.wanted, behind)]), fails=fails_on_data_loss)
    return behind


def _report(lost: DataLost, *, fails: bool) -> None:
    if fails:
        raise lost
    log.warning("%s", lost)
