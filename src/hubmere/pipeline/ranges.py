"""Read ranges of a hub into Arrow record batches: what a task of either reader does, on any executor.

One client for a task; the answer after the one that is being decoded is on its way already. A range that retention
overtakes between planning and reading fails with the lost range named, or goes on behind it when the query allows that.
"""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from hubmere.client.connection import Account, Client
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost
from hubmere.pipeline.decode import decode
from hubmere.pipeline.offsets import DataLost, Lost, Range

log = logging.getLogger("hubmere.spark")


def read_ranges(
    account: Account, hub: str, ranges: Sequence[Range], schema: pa.Schema, *, fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The events of the ranges, in order."""
    with Client(account) as client:
        reader = HubReader(client, hub)
        for each in ranges:
            yield from _read_range(reader, hub, each, schema, fails_on_data_loss=fails_on_data_loss)


def _read_range(
    reader: HubReader, hub: str, wanted: Range, schema: pa.Schema, *, fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    start = wanted.start
    while start < wanted.end:
        try:
            for fetched in reader.read_range(wanted.partition, start, wanted.end):
                yield from decode(fetched, wanted.partition, start, wanted.end, schema)
                start = fetched.next_sequence
        except RangeLost as loss:
            start = _behind(loss, hub, wanted, fails_on_data_loss=fails_on_data_loss)


def _behind(loss: RangeLost, hub: str, wanted: Range, *, fails_on_data_loss: bool) -> int:
    """Where to go on behind what was lost."""
    behind = wanted.end if loss.first <= loss.wanted else min(loss.first, wanted.end)
    lost = DataLost(hub, [Lost(wanted.partition, loss.wanted, behind)])
    if fails_on_data_loss:
        raise lost from loss
    log.warning("%s", lost)
    return behind
