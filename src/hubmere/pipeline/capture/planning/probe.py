"""Partition metadata for the windows: ends, times and byte positions, read from the node batch by batch.

Reads single batches only. Their positions and times never change, so results are cached. A compacted hub has no byte
positions: only time closes its windows.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from hubmere.client.connection import Client
from hubmere.client.consumer import UNKNOWN_POSITION, Bounds, HubReader

# Cached batches of all partitions: each poll needs the first and the last one of the backlog.
_MAX_PLACES: Final = 4096


class Place(NamedTuple):
    """Position and time range of the batch that holds an event."""

    second: int
    position: int
    end_position: int


class HubProbe:
    """One hub. Thread rule: one owner."""

    def __init__(self, client: Client, hub: str) -> None:
        self._client = client
        self._reader = HubReader(client, hub)
        self._places: dict[tuple[int, int], Place] = {}

    def views(self, partitions: Collection[int], ends: dict[int, int] | None = None) -> dict[int, "PartitionView"]:
        """The partitions as they are now, or up to the given ends."""
        bounds = self._reader.bounds(partitions)
        if ends is not None:
            bounds = {index: Bounds(each.first, min(each.end, ends[index])) for index, each in bounds.items()}
        return {index: PartitionView(self, index, each) for index, each in bounds.items()}

    def place_of(self, partition: int, sequence: int) -> Place | None:
        """The batch that holds an event; None if it was deleted."""
        known = self._places.get((partition, sequence))
        if known is not None:
            return known
        batch = self._reader.batch_at(partition, sequence)
        if batch is None:
            return None
        header, position = batch
        has_position = position != UNKNOWN_POSITION
        place = Place(
            max(0, header.max_time_ms // 1000),
            position,
            position + header.size_bytes if has_position else UNKNOWN_POSITION,
        )
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        self._places[partition, sequence] = place
        return place

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    @property
    def reader(self) -> HubReader:
        """The client with which it reads."""
        return self._reader


class PartitionView:
    """See `windows.LogView`."""

    def __init__(self, probe: HubProbe, partition: int, bounds: Bounds) -> None:
        self._probe = probe
        self._partition = partition
        self.first, self.end = bounds

    def second_at(self, sequence: int) -> int:
        """When an event was enqueued; 0 if it was deleted meanwhile, so that no window starts after it."""
        place = self._probe.place_of(self._partition, sequence)
        return 0 if place is None else place.second

    def first_at(self, second: int) -> int | None:
        """The first event that was enqueued at a second or later."""
        return self._probe.reader.first_at({self._partition: second * 1000})[self._partition]

    def bytes_from(self, sequence: int) -> int | None:
        """Size from an event to the end, in bytes."""
        if sequence >= self.end:
            return 0
        begin = self._probe.place_of(self._partition, sequence)
        last = self._probe.place_of(self._partition, self.end - 1)
        if begin is None or last is None or begin.position == UNKNOWN_POSITION:
            return None
        return last.end_position - begin.position

    def after_bytes(self, sequence: int, size_bytes: int) -> int:
        """Where a reader has read up to this number of bytes: at least one batch."""
        return self._probe.reader.find_after_bytes(self._partition, sequence, self.end, size_bytes)
