"""Redundant data beside the catalog: detects a lost or damaged catalog, and serves to rebuild it.

The catalog's writer thread updates these after each transaction that changes entities:

- `revision` (a table of the catalog): the number of changes, and a checksum over all entities. It detects a flipped bit
  in an entity.
- `catalog.revision`: the same two values in a file. A catalog that is older than this file has lost changes.
- `log/<uid>.hub`: a description of each hub with its namespace and its consumer groups, so that log folders can be
  assigned to hubs without a catalog. It contains no keys.

`catalog-copies/` has the last copies of the whole catalog, made while the node runs and when it stops.
Thread rule: the catalog's writer thread, except where a function says otherwise.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from hubmere.model.entity import ConsumerGroup, Entity, Hub, Namespace
from hubmere.store.catalog.rows import TABLES, Item, decode_entity, encode_entity
from hubmere.store.catalog.view import RowChange

REVISION_FILE = "catalog.revision"
COPIES_FOLDER = "catalog-copies"
DESCRIPTION = ".hub"
# Number of copies of the catalog.
KEPT_COPIES = 3

_SUM_MASK = 2**64 - 1
_ENTITIES: tuple[type[Item], ...] = tuple(kind for kind in TABLES if issubclass(kind, Entity))


class Revision(NamedTuple):
    """The number of entity changes so far, and the checksum over all entities."""

    number: int
    checksum: int

    @property
    def text(self) -> str:
        """The format of the file: number, checksum over entities, and a checksum of these."""
        body = f"{self.number} {self.checksum:016x}"
        return f"{body} {crc32c(body.encode()):08x}\n"

    @classmethod
    def parse(cls, text: str) -> "Revision | None":
        """Parse the file; None if it does not match its checksum."""
        body, _, check = text.strip().rpartition(" ")
        number, _, checksum = body.partition(" ")
        try:
            is_sound = int(check, 16) == crc32c(body.encode())
            return cls(int(number), int(checksum, 16)) if is_sound else None
        except ValueError:
            return None


class EntityChecksum:
    """A checksum over all entities that is updated change by change."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[type[Item], object], int] = {}
        self.value = 0

    def apply(self, changes: Iterable[RowChange]) -> bool:
        """Update the checksum; True if a change concerned an entity."""
        has_changed = False
        for change in changes:
            if isinstance(change.item, _ENTITIES):
                has_changed = True
                self._replace(change)
        return has_changed

    def _replace(self, change: RowChange) -> None:
        key = (type(change.item), change.item.key)
        self.value -= self._hashes.pop(key, 0)
        if not change.is_removal:
            self._hashes[key] = _hash(change.item)
            self.value += self._hashes[key]
        self.value &= _SUM_MASK


def _hash(item: Item) -> int:
    table = TABLES[type(item)]
    text = repr((table.name, table.to_row(item)))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class HubDescriptions:
    """The description files of all hubs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespaces: dict[object, Namespace] = {}
        self._hubs: dict[str, Hub] = {}
        self._groups: dict[str, dict[object, ConsumerGroup]] = {}

    def load(self, items: Iterable[Item]) -> None:
        """Start with the items of the catalog, and write missing files."""
        for item in items:
            self._apply(RowChange(item))
        self._folder.mkdir(exist_ok=True)
        existing = {
            entry.name for entry in os.scandir(self._folder) if entry.name.endswith(DESCRIPTION) and _size(entry)
        }
        self._write(uid for uid in self._hubs if uid + DESCRIPTION not in existing)

    def update(self, changes: Iterable[RowChange]) -> None:
        """Write the files of the hubs that durable changes concern; raises OSError."""
        touched: dict[str, None] = {}
        for change in changes:
            touched.update(dict.fromkeys(self._apply(change)))
        self._write(touched)

    def _apply(self, change: RowChange) -> list[str]:
        """Apply one change; returns the hubs whose description changes."""
        item, is_removal = change.item, change.is_removal
        if isinstance(item, Namespace):
            self._namespaces[item.key] = item
            return [uid for uid, hub in self._hubs.items() if hub.parent == item.key]
        if isinstance(item, Hub):
            if is_removal:
                self._hubs.pop(item.uid, None)
                self._groups.pop(item.uid, None)
            else:
                self._hubs[item.uid] = item
            return [item.uid]
        if isinstance(item, ConsumerGroup):
            groups = self._groups.setdefault(item.hub_uid, {})
            if is_removal:
                groups.pop(item.key, None)
            else:
                groups[item.key] = item
            return [item.hub_uid]
        return []

    def _write(self, uids: Iterable[str]) -> None:
        for uid in uids:
            path = self._folder / (uid + DESCRIPTION)
            hub = self._hubs.get(uid)
            if hub is None:
                path.unlink(missing_ok=True)
            else:
                groups = self._groups.get(uid, {}).values()
                _replace_text(path, _describe(self._namespaces[hub.parent], hub, groups))


class HubDescription(NamedTuple):
    """The content of a description file."""

    namespace: Namespace
    hub: Hub
    groups: list[ConsumerGroup]


def _describe(namespace: Namespace, hub: Hub, groups: Iterable[ConsumerGroup]) -> str:
    bodies = [encode_entity(group) for group in groups]
    text = json.dumps({"namespace": encode_entity(namespace), "hub": encode_entity(hub), "groups": bodies})
    return f"{text}\n{crc32c(text.encode()):08x}\n"


def read_descriptions(folder: Path) -> Iterator[tuple[str, HubDescription | None]]:
    """The description files of a log folder: each hub's uid and description; None if it cannot be read."""
    for path in sorted(folder.glob("*" + DESCRIPTION)):
        yield path.name.removesuffix(DESCRIPTION), _read_description(path)


def _read_description(path: Path) -> HubDescription | None:
    try:
        text, checksum, _ = path.read_text("ascii").split("\n")
        if int(checksum, 16) != crc32c(text.encode()):
            return None
        found = json.loads(text)
        namespace, hub = decode_entity(Namespace, found["namespace"]), decode_entity(Hub, found["hub"])
        groups = [decode_entity(ConsumerGroup, body) for body in found["groups"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    assert isinstance(namespace, Namespace)
    assert isinstance(hub, Hub)
    return HubDescription(namespace, hub, [group for group in groups if isinstance(group, ConsumerGroup)])


def read_revision(data: Path) -> Revision | None:
    """The revision file beside the catalog; None if it cannot be read."""
    try:
        return Revision.parse((data / REVISION_FILE).read_text("ascii"))
    except (OSError, ValueError):
        return None


def write_revision(data: Path, revision: Revision) -> None:
    """Write the revision file beside the catalog, durably; raises OSError."""
    _replace_text(data / REVISION_FILE, revision.text, sync=True)


# --- copies of the whole catalog -------------------------------------------------------------------------------------


def list_copies(data: Path) -> list[Path]:
    """The existing copies, newest first."""
    found = (data / COPIES_FOLDER).glob("catalog-*.sqlite3")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def make_copy(catalog: Path) -> None:
    """Copy a catalog that may be in use, and replace the oldest copy; on any thread. Raises OSError, sqlite3.Error."""
    folder = catalog.parent / COPIES_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    fresh = folder / "fresh.tmp"
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(catalog)) as source, contextlib.closing(sqlite3.connect(fresh)) as target:
        source.backup(target)
    _sync(fresh)
    existing = list_copies(catalog.parent)
    names = [f"catalog-{number}.sqlite3" for number in range(1, KEPT_COPIES + 1)]
    unused = [name for name in names if folder / name not in existing]
    fresh.replace(folder / unused[0] if unused else existing[-1])
    _sync(folder)


def _replace_text(path: Path, text: str, *, sync: bool = False) -> None:
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(text, "ascii")
    if sync:
        _sync(fresh)
    fresh.replace(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _size(entry: "os.DirEntry[str]") -> int:
    return entry.stat().st_size
