"""Reads ranges of a hub into Arrow record batches; the work of a task, on any executor.

The client of the previous task is reused, and the next response is requested while one is decoded. If retention deletes
events of a range between planning and reading, the task fails with an error that names the lost range, or continues
after it if the query allows that. The same holds for events that are damaged on the node's disk. A hub that is created
again between planning and the end of a task always fails the task: what was read may belong to either hub.
"""

import gc
import logging
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

import pyarrow as pa

from hubmere.client.connection import Account
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost
from hubmere.client.pool import pooled_client
from hubmere.pipeline.decode import decode
from hubmere.pipeline.offsets import DataLost, HubRecreated, Lost, Range

log = logging.getLogger("hubmere.spark")

# The number of the task of a process before which all modules are imported, including Spark's own for writing rows, and
# the garbage is collected.
_SETTLED_TASK: Final = 2
_tasks: Final = count(1)


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
) -> Iterator[pa.RecordBatch]:
    """The events of the ranges, in order; `hub_id` is that of the hub for which they were planned."""
    settle()
    with pooled_client(account) as client:
        reader = HubReader(client, hub)
        for each in ranges:
            yield from _read_range(reader, hub, each, schema, fails_on_data_loss=fails_on_data_loss)
        check_hub(reader, hub, hub_id)


def check_hub(reader: HubReader, hub: str, hub_id: str | None) -> None:
    """Raise HubRecreated if the hub is not the one with this id.

    Ids are never used again: one check after reading covers everything that was read.
    """
    found = reader.describe().id if hub_id is not None else None
    if hub_id is not None and found is not None and found != hub_id:
        raise HubRecreated(hub, hub_id, found)


def _read_range(
    reader: HubReader, hub: str, wanted: Range, schema: pa.Schema, *, fails_on_data_loss: bool
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
            start = _behind(loss, hub, wanted, fails_on_data_loss=fails_on_data_loss)


def _behind(loss: RangeLost, hub: str, wanted: Range, *, fails_on_data_loss: bool) -> int:
    """Where to continue after lost events."""
    behind = wanted.end if loss.first <= loss.wanted else min(loss.first, wanted.end)
    _report(DataLost(hub, [Lost(wanted.partition, loss.wanted, behind)]), fails=fails_on_data_loss)
    return behind


def _report(lost: DataLost, *, fails: bool) -> None:
    if fails:
        raise lost
    log.warning("%s", lost)
