"""The captured files of a hub in the order of their events, found by few reads.

Names give partition and time of a file, and files of one partition follow each other in both; so the file with a
sequence number is found by bisection, and only the headers on that way are read. Files of a hub of the same name that
was deleted come before and do not count. Nothing here remembers a failure: a file that appears later is found by
`refresh`.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, overload
from urllib.parse import unquote, urlsplit

from hubmere.pipeline.capture.destinations import Destination, DestinationFailed, destination_of
from hubmere.pipeline.capture.files.content import about_in
from hubmere.pipeline.capture.files.names import Span, table_root
from hubmere.pipeline.history.location import Location

# Headers that are remembered: a year of five-minute windows.
_MAX_HEADS: Final = 100_000


class HistoryFile(NamedTuple):
    """A captured file with the events from `first` up to, and not including, `end`."""

    name: str
    size_bytes: int
    first: int
    end: int


class _Listed(NamedTuple):
    second: int
    name: str
    size_bytes: int


class CapturedFiles:
    """The files of one hub with one id. Thread rule: one owner."""

    def __init__(self, location: Location, hub_id: str | None) -> None:
        self.location = location
        self.destination: Destination = destination_of(location.url, location.options)
        self._hub_id = hub_id
        self._listed: dict[int, list[_Listed]] | None = None
        # By name: the span, or None for a file of another hub.
        self._heads: dict[str, Span | None] = {}

    def is_of(self, location: Location, hub_id: str | None) -> bool:
        """Whether these are the files of a location and a hub."""
        return self.location == location and self._hub_id == hub_id

    def refresh(self) -> None:
        """List the files again when they are next needed."""
        self._listed = None

    def first(self, partition: int) -> int | None:
        """The first sequence number that a file of the partition holds."""
        found = self._after(partition, -1)
        return None if found is None else found.first

    def between(self, partition: int, start: int, end: int) -> Iterator[HistoryFile]:
        """The files with events from `start` up to, not including, `end`, in order."""
        at = start
        while at < end and (file := self._after(partition, at)) is not None and file.first < end:
            yield file
            at = file.end

    def before(self, partition: int, end: int) -> Sequence[HistoryFile]:
        """The files with events before a sequence number, in order; each header is read when it is asked for."""
        files = self._files(partition)
        first = bisect_left(files, True, key=lambda each: self._ends_after(each.name, -1))
        behind = bisect_left(files, True, lo=first, key=lambda each: self._ends_after(each.name, end - 1))
        return _Lazy(self, files[first : behind + 1])

    def file_of(self, listed: "_Listed") -> HistoryFile:
        """A listed file with its span."""
        span = self._span(listed.name)
        assert span is not None, "only files of this hub are asked for"
        return HistoryFile(listed.name, listed.size_bytes, span.first, span.end)

    def _after(self, partition: int, sequence: int) -> HistoryFile | None:
        """The first file with an event at or after a sequence number."""
        files = self._files(partition)
        at = bisect_left(files, True, key=lambda each: self._ends_after(each.name, sequence))
        if at == len(files):
            return None
        return self.file_of(files[at])

    def _ends_after(self, name: str, sequence: int) -> bool:
        span = self._span(name)
        return span is not None and span.end > sequence

    def _span(self, name: str) -> Span | None:
        if name not in self._heads:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[name] = self._read_span(name)
        return self._heads[name]

    def _read_span(self, name: str) -> Span | None:
        with closing(self.destination.open(name)) as file:
            text, hub_id = about_in(name, file)
        span = None if text is None else Span.parse(text)
        if span is None:
            url = self.destination.url_of(name)
            raise DestinationFailed(f"{url} has the name of a captured file and is none, or is damaged; move it away")
        is_own = hub_id == self._hub_id if hub_id is not None else span.hub_id == self.location.capture_id
        return span if is_own else None

    def _files(self, partition: int) -> list[_Listed]:
        if self._listed is None:
            self._listed = self._list()
        return self._listed.get(partition, [])

    def _list(self) -> dict[int, list[_Listed]]:
        self._check_folder()
        formats = self.location.formats()
        in_table, table = self.location.table_format().matcher(), self._table_files()
        found: dict[int, list[_Listed]] = {}
        for prefix in sorted({each.prefix() for each in formats}):
            for stored in self.destination.files(prefix):
                window = next((read for each in formats if (read := each.read(stored.name)) is not None), None)
                # A file in the folder of the table that its log does not name is not captured yet, or no longer valid.
                is_valid = table is None or stored.name in table or not in_table(stored.name)
                if window is not None and is_valid:
                    listed = _Listed(window.second, stored.name, stored.size_bytes)
                    found.setdefault(window.partition, []).append(listed)
        return {partition: sorted(set(files)) for partition, files in found.items()}

    def _check_folder(self) -> None:
        """Raise if the location is a folder that does not exist: its files must not pass for deleted ones."""
        parts = urlsplit(self.location.url)
        if parts.scheme == "file" and not Path(unquote(parts.path)).is_dir():
            raise DestinationFailed(
                f"{self.location.url} is not a folder of this machine; mount it, or name another in eventhubs.capture"
            )

    def _table_files(self) -> set[str] | None:
        """The files in the log of the Delta table; None if there is no table."""
        if not self.location.is_table:
            return None
        from hubmere.pipeline.capture.destinations.delta import table_files

        root = table_root(self.location.namespace, self.location.hub)
        return {root + name for name in table_files(f"{self.location.url}/{root}", self.location.options)}


class _Lazy(Sequence[HistoryFile]):
    """Files whose headers are read one by one, for a search that needs few of them."""

    def __init__(self, files: CapturedFiles, listed: list[_Listed]) -> None:
        self._files = files
        self._listed = listed

    def __len__(self) -> int:
        return len(self._listed)

    @overload
    def __getitem__(self, at: int) -> HistoryFile: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[HistoryFile]: ...
    def __getitem__(self, at: int | slice) -> HistoryFile | Sequence[HistoryFile]:
        if isinstance(at, slice):
            return _Lazy(self._files, self._listed[at])
        return self._files.file_of(self._listed[at])
