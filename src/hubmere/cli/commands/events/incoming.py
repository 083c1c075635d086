"""Reads the events of a hub for `tail`: stored events of all partitions in the order of time, then new events.

Browses (`GET .../messages`), which does not count as a reader: no checkpoint, no epoch, and none of the five readers of
a group. To follow new events, each partition has a connection with a long poll. A node that restarts is retried.
"""

import heapq
import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from hubmere.cli.commands.events.hub_client import HubClient
from hubmere.cli.exit_codes import CommandFailed
from hubmere.cli.target.http import Refused, Unreachable

Json = dict[str, Any]

# The largest page of a node; the longest long poll is 60 s.
_PAGE_EVENTS = 1000
_WAIT_S = 30
# Limit of pages that wait to be printed, over all partitions; readers pause at it.
_WAITING_PAGES = 64
# A node restarts within seconds; a longer outage ends the command.
_PATIENCE_S = 60.0
_PAUSE_S = 0.5
_BAD_REQUEST = 400

_Page = list[Json]


class Incoming:
    """Reads some partitions of a hub from a position on. Thread rule: one owner."""

    def __init__(self, client: HubClient, group: str, partitions: Sequence[str], start: str) -> None:
        self._client, self._group = client, group
        # The next position of each partition, as query parameters of the browse request.
        self._next = dict.fromkeys(partitions, start)

    def present(self) -> Iterator[Json]:
        """The events that are stored now, oldest first."""
        return heapq.merge(*(self._partition(one) for one in self._next), key=lambda event: event["enqueuedTime"])

    def coming(self) -> Iterator[Json]:
        """New events as they arrive, without end. An empty page lets the caller flush."""
        arrived: queue.Queue[_Page | CommandFailed] = queue.Queue(_WAITING_PAGES)
        for partition, start in self._next.items():
            follower = _Follower(self._client.again(), self._group, partition, start, arrived)
            threading.Thread(target=follower.run, name=f"partition {partition}", daemon=True).start()
        while True:
            page = arrived.get()
            if isinstance(page, CommandFailed):
                raise page
            yield from page

    def _partition(self, partition: str) -> Iterator[Json]:
        page = self._first_page(partition)
        end = page["lastSequenceNumber"]
        while True:
            for event in page["events"]:
                if event["sequenceNumber"] > end:
                    return
                self._next[partition] = f"sequence:{event['sequenceNumber'] + 1}"
                yield event
            following = f"sequence:{page['nextSequenceNumber']}"
            is_stuck = following == self._next[partition] and not page["events"]
            self._next[partition] = following
            if page["nextSequenceNumber"] > end or is_stuck:
                return
            page = look(self._client, self._group, partition, following)

    def _first_page(self, partition: str) -> Json:
        try:
            return look(self._client, self._group, partition, self._next[partition])
        except Refused as refused:
            if refused.status != _BAD_REQUEST or len(self._next) == 1:
                raise
            # The sequence number is beyond the end of this partition: all its events are still to come.
            return look(self._client, self._group, partition, "latest")


class _Follower:
    """Follows one partition in its own thread, and queues new pages."""

    def __init__(
        self, client: HubClient, group: str, partition: str, start: str, arrived: "queue.Queue[_Page | CommandFailed]"
    ) -> None:
        self._client, self._group, self._partition, self._start = client, group, partition, start
        self._arrived = arrived

    def run(self) -> None:
        """Follow until the program ends, or until the node has been unreachable for too long."""
        try:
            while True:
                page = self._patiently()
                self._start = f"sequence:{page['nextSequenceNumber']}"
                if page["events"]:
                    self._arrived.put(page["events"])
        except CommandFailed as failed:
            self._arrived.put(failed)

    def _patiently(self) -> Json:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return look(self._client, self._group, self._partition, self._start, wait_s=_WAIT_S)
            except (Unreachable, Refused) as failed:
                is_transient = isinstance(failed, Unreachable) or failed.is_transient
                if not is_transient or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)


def look(client: HubClient, group: str, partition: str, start: str, wait_s: int = 0) -> Json:
    """One page of the browse request; hub and partition are added to each event."""
    below = f"/consumergroups/{quote(group, safe='$')}/partitions/{quote(partition, safe='')}/messages"
    query = f"?from={quote(start, safe='')}&limit={_PAGE_EVENTS}&wait={wait_s}"
    page: Json = json.loads(client.get(below + query, group))
    page["events"] = [{"hub": client.hub, "partition": partition, **event} for event in page["events"]]
    return page
