"""Captured files as an operator reads them: the files of a hub in a folder, and the events in one file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hubmere.model.entity import CaptureDescription

Scalar = int | float | str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedHub:
    """Whose files are meant: the names of a hub, its capture settings, and the URL of its destination."""

    namespace: str
    hub: str
    described: CaptureDescription
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilter:
    """Which files are listed: those of one partition, and those whose window begins in a range of time."""

    partition: int | None = None
    from_s: int | None = None
    until_s: int | None = None

    def matches(self, partition: int, second: int) -> bool:
        """Whether a file is listed."""
        if self.partition is not None and partition != self.partition:
            return False
        return (self.from_s is None or second >= self.from_s) and (self.until_s is None or second <= self.until_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One captured file: its name below the destination, and the start of its window in seconds since 1970 UTC."""

    name: str
    partition: int
    second: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The newest files that match, newest first; `is_complete` is False if the folder has more than was examined."""

    files: Sequence[StoredFile]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedEvent:
    """One event of a captured file. Values have the types of the file."""

    sequence: int
    offset: str
    enqueued_ms: int
    system: Mapping[str, Scalar]
    properties: Mapping[str, Scalar | None]
    body: bytes | None


class CapturedEvents(Protocol):
    """The events of one open file, in the order of the file. May be used on any thread, one call at a time."""

    @property
    def total(self) -> int:
        """How many events the file has."""

    @property
    def position(self) -> int:
        """How many of them were read or skipped."""

    def read(self, limit: int) -> list[CapturedEvent]:
        """The next events, at most `limit`; empty at the end. InvalidArgument if the file is damaged."""

    def close(self) -> None:
        """Close the file."""


class CapturedFiles(Protocol):
    """Reads captured files in folders of this machine. Its methods wait for the disk, on any thread."""

    def list_files(self, hub: CapturedHub, wanted: FileFilter) -> FileList:
        """The files of a hub. NotSupported if its destination is not a folder of this machine."""

    def open_file(self, hub: CapturedHub, name: str, first: int) -> CapturedEvents:
        """Open a file at its event number `first`. NotFound for a name that is not one of the hub's files."""
