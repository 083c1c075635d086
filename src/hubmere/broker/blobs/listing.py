"""Pages of a list of containers or blobs, with folders where a delimiter is given.

A page costs as much as it has entries, however long the list is: it begins at the marker, and what is in a folder is
skipped without a look at it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from hubmere.store.catalog.blob_records import BlobRecord, ContainerRecord

MAX_RESULTS: Final = 5000
_LAST_CHARACTER: Final = chr(0x10FFFF)

_Named = TypeVar("_Named", BlobRecord, ContainerRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """The parameters of a list. Blobs and folders count towards `max_results`."""

    prefix: str = ""
    marker: str = ""
    delimiter: str = ""
    max_results: int = MAX_RESULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_Named]):
    """One page; `next_marker` is the name with which the next page begins, empty on the last one."""

    records: list[_Named]
    folders: list[str]
    next_marker: str = ""


def read_page(records_from: Callable[[str], Iterator[_Named]], wanted: ListRequest) -> Page[_Named]:
    """One page of a list. `records_from` gives records from a name on, in order."""
    records: list[_Named] = []
    folders: list[str] = []
    upcoming = records_from(max(wanted.prefix, wanted.marker))
    while (record := next(upcoming, None)) is not None and record.name.startswith(wanted.prefix):
        if len(records) + len(folders) == wanted.max_results:
            return Page(records=records, folders=folders, next_marker=record.name)
        folder = _folder_of(record.name, wanted)
        if folder is None:
            records.append(record)
            continue
        folders.append(folder)
        following = _first_after(folder)
        if following is None:
            break
        upcoming = records_from(following)
    return Page(records=records, folders=folders)


def _folder_of(name: str, wanted: ListRequest) -> str | None:
    """The folder in which a name is; None if it is in none."""
    if not wanted.delimiter:
        return None
    end = name.find(wanted.delimiter, len(wanted.prefix))
    return None if end < 0 else name[: end + len(wanted.delimiter)]


def _first_after(folder: str) -> str | None:
    """The smallest text behind everything that begins with `folder`; None if there is none."""
    stem = folder.rstrip(_LAST_CHARACTER)
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None
