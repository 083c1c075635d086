"""Reads the captured files of hubs in folders of this machine: lists them, loads parts, looks positions up.

Failures become refusals: a file that is damaged (`CorruptBatch`), that is missing (`NotFound`), or that cannot be read
now (`ColdUnreadable`). Thread rule: any thread, but one listing at a time.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import BinaryIO, Final, TypeVar

from hubmere.capture.browse import open_below
from hubmere.capture.cold.files import FileIndex, FileParts, OpenFile, find_in_files, folder_of
from hubmere.model.capture.cold import ColdBlock, ColdFile, ColdFiles, ColdHub
from hubmere.model.errors import ColdUnreadable, CorruptBatch, NotFound, Refusal
from hubmere.model.position import Position
from hubmere.pipeline.capture.files.avro_layout import DAMAGE

log = logging.getLogger("hubmere.capture")

# Files whose layout is remembered; one has up to some hundred parts.
_MAX_LAYOUTS: Final = 256

T = TypeVar("T")


class FolderReader:
    """The captured files of a node's own folders."""

    def __init__(self) -> None:
        self._index = FileIndex()
        self._layouts: OrderedDict[tuple[ColdHub, ColdFile], FileParts] = OrderedDict()
        self._lock = Lock()

    def list_files(self, hub: ColdHub, without: Collection[ColdFile] = ()) -> ColdFiles | Refusal:
        """The files of a hub, without some that cannot be read."""
        return _answer(lambda: self._list(hub, without))

    def load(self, hub: ColdHub, file: ColdFile, sequence: int) -> ColdBlock | Refusal:
        """The part of a file that covers a sequence number."""
        return _answer(lambda: self._load(hub, file, sequence))

    def find(self, hub: ColdHub, files: Sequence[ColdFile], position: Position) -> int | Refusal | None:
        """The first event at or after a time or an offset."""
        return _answer(lambda: find_in_files(files, position, lambda file: self._open(hub, file)))

    def _list(self, hub: ColdHub, without: Collection[ColdFile]) -> ColdFiles:
        files = self._index.list_files(hub, without)
        for name, why in files.unusable.items():
            log.warning("cold reads of %s/%s cannot use the file %s: %s", hub.namespace, hub.hub, name, why)
        return files

    def _load(self, hub: ColdHub, file: ColdFile, sequence: int) -> ColdBlock:
        with self._open(hub, file) as (opened, parts):
            return parts.load(opened, sequence, is_append_time=hub.is_append_time)

    @contextmanager
    def _open(self, hub: ColdHub, file: ColdFile) -> Iterator[OpenFile]:
        with open_below(folder_of(hub), file.name) as opened:
            yield opened, self._parts_of(hub, file, opened)

    def _parts_of(self, hub: ColdHub, file: ColdFile, opened: BinaryIO) -> FileParts:
        key = (hub, file)
        with self._lock:
            if (known := self._layouts.get(key)) is not None:
                self._layouts.move_to_end(key)
                return known
        parts = FileParts(opened, file)
        with self._lock:
            self._layouts[key] = parts
            while len(self._layouts) > _MAX_LAYOUTS:
                self._layouts.popitem(last=False)
        return parts


def _answer(work: Callable[[], T]) -> T | Refusal:
    try:
        return work()
    except NotFound as refusal:
        return refusal
    except OSError as error:
        return ColdUnreadable(str(error))
    except DAMAGE as error:
        return CorruptBatch(str(error))
