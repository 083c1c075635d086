"""Decides the files of one hub: which windows are due, and under which names their files are written.

Fetches the ends of the partitions over one connection; `windows` has the rules. The decision is an offset, which the
job logs before a file is written; `files_of` derives the files from it, today or after a restart.
"""

import time
from collections.abc import Mapping
from typing import Final

from hubmere.client.connection import Client
from hubmere.pipeline.capture.destinations import NameTaken, destination_of
from hubmere.pipeline.capture.files.names import Span
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.offsets import CaptureOffset
from hubmere.pipeline.capture.planning.probe import HubProbe
from hubmere.pipeline.capture.planning.windows import LogView, Planned, Window, first_window, plan
from hubmere.pipeline.capture.writing import FileTask
from hubmere.pipeline.ranges import check_hub

# How many used names are skipped (files of an earlier incarnation of the hub); more mean that the folder belongs to
# something else.
_MOST_TAKEN: Final = 1000


def files_of(hub: HubPlan, offset: CaptureOffset) -> list[FileTask]:
    """The files of the micro-batch that ends at an offset; the offset alone decides."""
    names = hub.names(offset.format, offset.encoding)
    found: list[FileTask] = []
    for index, (files, window) in sorted(offset.partitions.items()):
        begins = (*(file.second for file in files[1:]), window.start_s)
        for file, next_s in zip(files, begins, strict=False):
            span = Span(hub.id, index, file.first, file.end)
            found.append(FileTask(span, names.name_of(index, file.second), offset.encoding, next_s))
    return found


class HubPlanner:
    """One hub. Thread rule: one owner."""

    def __init__(self, hub: HubPlan) -> None:
        self._hub = hub
        self._probe = HubProbe(Client(hub.account), hub.hub)
        # Where a run ends that takes everything and closes all windows.
        self._target: dict[int, int] | None = None
        self.has_waiting = False

    def check(self) -> None:
        """Raise if the hub cannot be read."""
        self._views()

    def freeze_end(self) -> None:
        """Take everything up to the present end of the hub, and nothing after it."""
        self._target = {index: view.end for index, view in self._views().items()}

    def first_offset(self) -> CaptureOffset:
        """Where capture of the hub was enabled."""
        now_s = int(time.time())
        return self._offset(
            {index: Planned((), self._first_window(index, view, now_s)) for index, view in self._views().items()}
        )

    def next_offset(self, begun: CaptureOffset) -> CaptureOffset | None:
        """Close the windows that are due; None if there are none."""
        now_s = int(time.time())
        views = self._views()
        planned: dict[int, Planned] = {}
        for index, view in views.items():
            known = begun.partitions.get(index)
            window = known.window if known else self._first_window(index, view, now_s)
            planned[index] = self._plan_files(index, window, view, now_s)
        self.has_waiting = any(view.end > planned[index].window.at for index, view in views.items())
        if not any(each.files for each in planned.values()) and planned.keys() <= begun.partitions.keys():
            return None
        check_hub(self._probe.reader, self._hub.hub, self._hub.topic_id)
        return self._offset({**begun.without_files().partitions, **planned})

    def close(self) -> None:
        """Close the connection."""
        self._probe.close()

    def _views(self) -> Mapping[int, LogView]:
        return self._probe.views(range(self._hub.partition_count), self._target)

    def _first_window(self, index: int, view: LogView, now_s: int) -> Window:
        return first_window(view, self._hub.since.get(index, 0), now_s)

    def _plan_files(self, index: int, window: Window, view: LogView, now_s: int) -> Planned:
        """The files to write now, under unused names: an earlier incarnation of the hub may have used the same
        second."""
        names = self._hub.names(self._hub.format, self._hub.encoding)
        for _ in range(_MOST_TAKEN):
            planned = plan(window, view, self._hub.rules, now_s, closes_all=self._target is not None)
            if not planned.files:
                return planned
            destination = destination_of(self._hub.target.url, self._hub.target.options)
            taken = [file.second for file in planned.files if destination.has(names.name_of(index, file.second))]
            if not taken:
                return planned
            window = Window(window.at, max(taken) + 1)
        raise NameTaken(destination.url_of(names.name_of(index, window.start_s - 1)))

    def _offset(self, partitions: Mapping[int, Planned]) -> CaptureOffset:
        return CaptureOffset(format=self._hub.format, encoding=self._hub.encoding, partitions=partitions)
