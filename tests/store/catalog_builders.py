"""An owner's thread that the test controls, and catalogs with content."""

import queue
import sqlite3
from collections.abc import Callable
from pathlib import Path

from hubmere.model.entity import Hub, Namespace
from hubmere.model.spec import HubSpec, root_rule
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.catalog.sqlite import MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Create
from model.builders import NOW_MS, a_hub_and_group, a_namespace

# Much longer than a loaded machine needs for one small transaction; it is reached only in a failure.
PATIENCE_S = 240.0


class ManualLoop:
    """A queue of posted calls, which run only when the test calls `turn`."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, call: Callable[[], None]) -> None:
        self._posted.put(call)

    def turn(self) -> None:
        """Wait for the next posted call and run it."""
        self._posted.get(timeout=PATIENCE_S)()

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.turn()


class SmallDisk(sqlite3.Connection):
    """A database that the test can declare full: SQLite then reports a full disk."""

    def fill(self) -> None:
        pages = self.execute("PRAGMA page_count").fetchone()[0]
        self.execute(f"PRAGMA max_page_count = {pages}")

    def make_room(self) -> None:
        self.execute("PRAGMA max_page_count = 1000000")


def a_catalog(path: Path | str = MEMORY, loop: ManualLoop | None = None) -> SqliteCatalog:
    return SqliteCatalog.open(path, None if loop is None else loop.post)


def with_hub(catalog: SqliteCatalog, name: str = "eh1", *, namespace: str = "ns1234") -> tuple[Namespace, Hub]:
    """Create a namespace with its root rule and one hub, and wait until they are durable."""
    owner = catalog.view.find_namespace(namespace)
    if owner is None:
        owner = a_namespace(namespace)
        catalog.apply(Create(owner), Create(root_rule(owner, now_ms=NOW_MS)))
    hub, group = a_hub_and_group(name, namespace=owner, spec=HubSpec(partition_count=2))
    catalog.apply(Create(hub), Create(group))
    return owner, hub


def an_offset(hub: Hub, sequence: int = 7, *, group_id: str = "g", partition: int = 0) -> GroupOffset:
    return GroupOffset(
        namespace=hub.parent[0], group_id=group_id, hub_uid=hub.uid, partition=partition, sequence=sequence
    )
