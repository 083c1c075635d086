"""Cold reads: captured files that hold events older than a log, as the broker asks for them.

The broker decides what a reader may see and when a file is needed; a `ColdSource` reads the files on threads of its
own and answers in a later turn. Values only, and the port between both.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hubmere.model.errors import Refusal
from hubmere.model.position import Position

# Names and numbers around the data of a block: about this much for each batch.
_BATCH_OVERHEAD_BYTES = 200
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdHub:
    """Whose files are meant. A hub that was deleted and created again has another `hub_id`.

    `capture_id` is that of the present capture, for files that do not name the hub's id.
    """

    namespace: str
    hub: str
    url: str
    name_format: str
    hub_id: str
    capture_id: str
    is_append_time: bool


class ColdFile(NamedTuple):
    """A captured file of a partition, with the events from `first` up to, and not including, `end`."""

    first: int
    end: int
    name: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The files of a partition that readers need, in order; a file inside another one is left out.

    `ends` has the end of each file, and `row_starts` the first event of the unbroken row of files that it belongs to.
    A partition may have hundreds of thousands of files, so every question is answered by bisection.
    """

    files: Sequence[ColdFile] = ()
    ends: Sequence[int] = ()
    row_starts: Sequence[int] = ()

    @classmethod
    def of(cls, files: Iterable[ColdFile]) -> "Coverage":
        """The coverage of files in the order of their first events."""
        kept: list[ColdFile] = []
        ends: list[int] = []
        row_starts: list[int] = []
        for file in files:
            if file.first >= file.end or (ends and file.end <= ends[-1]):
                continue
            row_starts.append(row_starts[-1] if ends and file.first <= ends[-1] else file.first)
            kept.append(file)
            ends.append(file.end)
        return cls(files=kept, ends=ends, row_starts=row_starts)

    def row_start(self, log_start: int) -> int | None:
        """The first event of the unbroken row of files that reaches the log's first event; None if none reaches it."""
        index = bisect_left(self.ends, log_start)
        is_reached = index < len(self.files) and self.files[index].first < log_start
        return self.row_starts[index] if is_reached else None

    def file_with(self, sequence: int) -> ColdFile | None:
        """The file that covers a sequence number."""
        index = bisect_right(self.ends, sequence)
        is_covered = index < len(self.files) and self.files[index].first <= sequence
        return self.files[index] if is_covered else None

    def between(self, first: int, end: int) -> Sequence[ColdFile]:
        """The files with events from `first` up to `end`."""
        stop = bisect_left(self.files, end, key=lambda file: file.first)
        return self.files[bisect_right(self.ends, first) : stop]

    def gap_before(self, sequence: int) -> range | None:
        """The events before a sequence number that no file has, if there are files before them."""
        index = bisect_left(self.ends, sequence)
        is_inside = index < len(self.files) and self.files[index].first < sequence
        return None if is_inside or not index else range(self.ends[index - 1], sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdFiles:
    """The captured files of a hub, by partition, and files that cannot be used."""

    by_partition: Mapping[int, Coverage]
    # By name: why the file is of no use.
    unusable: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdBlock:
    """A part of a file as record batches: all events from `first` up to, and not including, `end`.

    `starts` has the position of each batch in `data`, `bases` its base sequence number, `ends` the number after its
    last event, and `offsets` the byte offsets of its events by its base. Numbers that no event has belong to no batch.
    """

    first: int
    end: int
    data: bytes
    starts: Sequence[int]
    bases: Sequence[int]
    ends: Sequence[int]
    offsets: Mapping[int, Sequence[int]]

    @property
    def size_bytes(self) -> int:
        """Memory that the block takes."""
        events = sum(map(len, self.offsets.values()))
        return len(self.data) + events * _OFFSET_BYTES + len(self.starts) * _BATCH_OVERHEAD_BYTES

    def index_of(self, sequence: int) -> int:
        """The index of the batch that a reader at a sequence number begins with; past the last one if there is none."""
        return bisect_right(self.ends, sequence)


OnFiles = Callable[[ColdFiles | Refusal], None]
OnBlock = Callable[[ColdBlock | Refusal], None]
OnFound = Callable[[int | Refusal | None], None]


class ColdSource(Protocol):
    """Reads captured files. Called on the owner's thread; every answer comes on that thread in a later turn."""

    def list_files(self, hub: ColdHub, without: Collection[ColdFile], on_listed: OnFiles) -> None:
        """List the files of a hub with their spans, without some that cannot be read."""

    def load(self, hub: ColdHub, file: ColdFile, sequence: int, on_loaded: OnBlock) -> None:
        """Read the part of a file that covers a sequence number of its span."""

    def find(self, hub: ColdHub, files: Sequence[ColdFile], position: Position, on_found: OnFound) -> None:
        """The first event of the files at or after a time or an offset (or after it, by the position); None if there
        is none."""
