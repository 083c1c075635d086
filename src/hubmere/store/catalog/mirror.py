"""What keeps a lost or damaged catalog from being silent, and what it can be rebuilt from.

Written by the catalog's own writer thread after each transaction that changes entities:

- `revision` (a table of the catalog): a number that moves on, and a sum over all entities. A flipped bit in an entity
  does not match the sum.
- `catalog.revision` beside it: the same two values. A catalog that is older than this file has lost changes.
- `log/<uid>.hub`: one small file per hub with the hub, its namespace and its consumer groups, so that the log folders
  can be given back to a hub without any catalog. They hold no keys.

`catalog-copies/` holds the last copies of the whole catalog, made while the node runs and when it stops.
Thread rule: one thread, the catalog's writer, except where a function says otherwise.
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
from hubmere.store.catalog.rows import TABLES, Item, body_of, entity_from
from hubmere.store.catalog.view import Move

REVISION_FILE = "catalog.revision"
COPIES_FOLDER = "catalog-copies"
DESCRIPTION = ".hub"
# Copies of the catalog that are kept, the newest first.
KEPT_COPIES = 3

_SUM_MASK = 2**64 - 1
_ENTITIES: tuple[type[Item], ...] = tuple(kind for kind in TABLES if issubclass(kind, Entity))


class Revision(NamedTuple):
    """How often entities have changed, and the sum over them."""

    number: int
    checksum: int

    @property
    def text(self) -> str:
        """As it stands in the file: number, sum, and a checksum of these."""
        body = f"{self.number} {self.checksum:016x}"
        return f"{body} {crc32c(body.encode()):08x}\n"

    @classmethod
    def parse(cls, text: str) -> "Revision | None":
        """The values of a file; None when it does not match its checksum."""
        body, _, check = text.strip().rpartition(" ")
        number, _, checksum = body.partition(" ")
        try:
            is_sound = int(check, 16) == crc32c(body.encode())
            return cls(int(number), int(checksum, 16)) if is_sound else None
        except ValueError:
            return None


class EntitySum:
    """A sum over entities that follows changes without reading the others again."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[type[Item], object], int] = {}
        self.value = 0

    def apply(self, moves: Iterable[Move]) -> bool:
        """Follow moves; True when one of them was about an entity."""
        has_changed = False
        for move in moves:
            if isinstance(move.item, _ENTITIES):
                has_changed = True
                self._replace(move)
        return has_changed

    def _replace(self, move: Move) -> None:
        key = (type(move.item), move.item.key)
        self.value -= self._hashes.pop(key, 0)
        if not move.is_removal:
            self._hashes[key] = _hash(move.item)
            self.value += self._hashes[key]
        self.value &= _SUM_MASK


def _hash(item: Item) -> int:
    table = TABLES[type(item)]
    text = repr((table.name, table.to_row(item)))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class HubDescriptions:
    """The description files of all hubs under a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespaces: dict[object, Namespace] = {}
        self._hubs: dict[str, Hub] = {}
        self._groups: dict[str, dict[object, ConsumerGroup]] = {}

    def load(self, items: Iterable[Item]) -> None:
        """Begin with what the catalog holds, and write the files that are not there."""
        for item in items:
            self._take(Move(item))
        self._folder.mkdir(exist_ok=True)
        there = {entry.name for entry in os.scandir(self._folder) if entry.name.endswith(DESCRIPTION) and _size(entry)}
        self._write(uid for uid in self._hubs if uid + DESCRIPTION not in there)

    def follow(self, moves: Iterable[Move]) -> None:
        """Write the files of the hubs that durable moves have touched; raises OSError."""
        touched: dict[str, None] = {}
        for move in moves:
            touched.update(dict.fromkeys(self._take(move)))
        self._write(touched)

    def _take(self, move: Move) -> list[str]:
        """Follow one move; the hubs whose description changes by it."""
        item, is_removal = move.item, move.is_removal
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
                _replace_text(path, _described(self._namespaces[hub.parent], hub, groups))


class Described(NamedTuple):
    """A hub as its description file has it."""

    namespace: Namespace
    hub: Hub
    groups: list[ConsumerGroup]


def _described(namespace: Namespace, hub: Hub, groups: Iterable[ConsumerGroup]) -> str:
    text = json.dumps(
        {"namespace": body_of(namespace), "hub": body_of(hub), "groups": [body_of(group) for group in groups]}
    )
    return f"{text}\n{crc32c(text.encode()):08x}\n"


def read_descriptions(folder: Path) -> Iterator[tuple[str, Described | None]]:
    """Every description file under a log folder: the hub's uid, and what it says; None when it cannot be read."""
    for path in sorted(folder.glob("*" + DESCRIPTION)):
        yield path.name.removesuffix(DESCRIPTION), _read_description(path)


def _read_description(path: Path) -> Described | None:
    try:
        text, checksum, _ = path.read_text("ascii").split("\n")
        if int(checksum, 16) != crc32c(text.encode()):
            return None
        found = json.loads(text)
        namespace, hub = entity_from(Namespace, found["namespace"]), entity_from(Hub, found["hub"])
        groups = [entity_from(ConsumerGroup, body) for body in found["groups"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    assert isinstance(namespace, Namespace)
    assert isinstance(hub, Hub)
    return Described(namespace, hub, [group for group in groups if isinstance(group, ConsumerGroup)])


def read_revision(data: Path) -> Revision | None:
    """What stands beside the catalog; None when there is nothing that can be read."""
    try:
        return Revision.parse((data / REVISION_FILE).read_text("ascii"))
    except (OSError, ValueError):
        return None


def write_revision(data: Path, revision: Revision) -> None:
    """Put the revision beside the catalog, durably; raises OSError."""
    _replace_text(data / REVISION_FILE, revision.text, sync=True)


# --- copies of the whole catalog -------------------------------------------------------------------------------------


def copies(data: Path) -> list[Path]:
    """The copies that there are, the newest first."""
    found = (data / COPIES_FOLDER).glob("catalog-*.sqlite3")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def make_copy(catalog: Path) -> None:
    """Copy a catalog that may be in use, and drop the oldest copy; on any thread. Raises OSError or sqlite3.Error."""
    folder = catalog.parent / COPIES_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    fresh = folder / "fresh.tmp"
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(catalog)) as source, contextlib.closing(sqlite3.connect(fresh)) as target:
        source.backup(target)
    _sync(fresh)
    there = copies(catalog.parent)
    names = [f"catalog-{number}.sqlite3" for number in range(1, KEPT_COPIES + 1)]
    unused = [name for name in names if folder / name not in there]
    fresh.replace(folder / unused[0] if unused else there[-1])
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
