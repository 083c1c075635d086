"""Start-up check: a node must not start with a catalog that is lost, damaged or older than the last one.

A node that started with an empty catalog beside full log folders would have no hubs and a new root key. So it does not
start, and the message names the command that helps.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

from hubmere.store.catalog.check import check_catalog
from hubmere.store.catalog.migrations import CatalogUnusable
from hubmere.store.catalog.mirror import COPIES_FOLDER, DESCRIPTION, list_copies, read_revision
from hubmere.store.catalog.sqlite import CATALOG_FILE, EXCLUSIVE_LOCKING, SqliteCatalog, is_out_of_space

_LOGS = "log"
_DELETING = "-delete"
_MAX_NAMES = 3


class CatalogLost(CatalogUnusable):
    """The catalog is missing, damaged or has lost changes, but the logs of its hubs exist."""

    def __str__(self) -> str:
        """The problem, and what to do."""
        return (
            f"The catalog '{self.path}' cannot be used: {self.why}. The node does not start, so that no hub or key is "
            f"replaced by a new one. 'hubmere doctor --rebuild-catalog' restores the newest copy from {COPIES_FOLDER} "
            "and brings back hubs from the log folders."
        )


def log_uids(data: Path) -> set[str]:
    """The uids of hubs that have log folders or descriptions."""
    folder = data / _LOGS
    if not folder.is_dir():
        return set()
    described = {path.name.removesuffix(DESCRIPTION) for path in folder.glob("*" + DESCRIPTION)}
    logs = {path.name for path in folder.iterdir() if path.is_dir() and not path.name.endswith(_DELETING)}
    return described | {name.rpartition("-")[0] for name in logs}


def check_before_opening(data: Path) -> None:
    """Raises CatalogLost if there are logs but no catalog, or if SQLite finds the catalog damaged."""
    path = data / CATALOG_FILE
    has_been_used = bool(log_uids(data)) or read_revision(data) is not None or bool(list_copies(data))
    if not path.exists() or not path.stat().st_size:
        if has_been_used:
            raise CatalogLost(str(path), "it is missing or empty, but this folder holds the logs of a node")
        return
    try:
        version, found = _inspect(path)
    except sqlite3.Error as error:
        raise CatalogLost(str(path), str(error)) from error
    if found != "ok":
        raise CatalogLost(str(path), f"SQLite reports: {found}")
    if version == 0 and has_been_used:
        raise CatalogLost(str(path), "it is empty, but this folder holds the logs of a node")


def check_after_opening(data: Path, catalog: SqliteCatalog) -> None:
    """Raises CatalogLost if the checksum does not match, or if changes or hubs with logs are missing."""
    path, kept, found = str(data / CATALOG_FILE), read_revision(data), catalog.revision
    if catalog.stored_sum not in (None, found.checksum):
        raise CatalogLost(path, "its entities do not match their checksum")
    if kept is not None and (found.number < kept.number or (found.number == kept.number and found != kept)):
        raise CatalogLost(path, f"it is at revision {found.number}, but was at {kept.number}: changes are lost")
    known = {hub.uid for namespace in catalog.view.namespaces() for hub in catalog.view.hubs(namespace.name)}
    known |= {deletion.hub_uid for deletion in catalog.pending_deletions()}
    unknown = sorted(log_uids(data) - known)
    if unknown:
        names = ", ".join(unknown[:_MAX_NAMES])
        raise CatalogLost(path, f"it has no entry for {len(unknown)} hubs whose logs exist ({names})")


def _inspect(path: Path) -> tuple[int, str]:
    """The schema version, and the first finding of SQLite's own check; works on a full disk too."""
    for pragmas in ((), (EXCLUSIVE_LOCKING,)):
        try:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                for pragma in pragmas:
                    connection.execute(pragma)
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                return int(version), str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.Error as error:
            if pragmas or not is_out_of_space(error):
                raise
    raise AssertionError("the second attempt returns or raises")


def explain_damage(data: Path) -> list[str]:
    """The faults of the catalog in a folder that no node uses, one sentence each; changes nothing."""
    findings = [f"{CATALOG_FILE}: {finding}" for finding in check_catalog(data / CATALOG_FILE)]
    if findings:
        return findings
    with tempfile.TemporaryDirectory(prefix="hubmere-") as folder:
        copy = Path(folder) / CATALOG_FILE
        for suffix in ("", "-wal"):
            if (source := data / (CATALOG_FILE + suffix)).exists():
                shutil.copy2(source, copy.with_name(copy.name + suffix))
        try:
            catalog = SqliteCatalog.open(copy)
        except CatalogUnusable as unusable:
            return [f"{CATALOG_FILE}: {unusable.why}"]
        try:
            check_after_opening(data, catalog)
        except CatalogLost as lost:
            return [f"{CATALOG_FILE}: {lost.why}"]
        finally:
            catalog.close()
    return []
