"""Offline check of a catalog file for `hubmere doctor`; changes nothing."""

import sqlite3
from pathlib import Path

from hubmere.model.entity import ConsumerGroup, Hub
from hubmere.model.names import DEFAULT_GROUP, fold
from hubmere.store.catalog.migrations import MIGRATIONS, schema_version
from hubmere.store.catalog.rows import TABLES, Table
from hubmere.store.catalog.view import CatalogView, RowChange

# Findings of SQLite's own check that are reported.
_MAX_FINDINGS = 20


def check_catalog(path: Path) -> list[str]:
    """The faults of a catalog file, one sentence each; empty if it is sound."""
    if not path.exists():
        return [f"{path.name} is missing"]
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        return [f"{path.name} cannot be opened: {error}"]
    try:
        return _findings(connection)
    except sqlite3.Error as error:
        return [f"{path.name} cannot be read: {error}"]
    finally:
        connection.close()


def _findings(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})")
    findings = [f"SQLite reports: {row[0]}" for row in rows if row[0] != "ok"]
    if findings:
        return findings
    version = schema_version(connection)
    if version != len(MIGRATIONS):
        # An older file is migrated at the next start; its tables cannot be checked against the current schema.
        is_older = version < len(MIGRATIONS)
        return [] if is_older else [f"the schema has version {version}; this program supports up to {len(MIGRATIONS)}"]
    orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(_MAX_FINDINGS)
    findings += [f"a row of {table} refers to a missing row of {parent}" for table, _, parent, _ in orphans]
    view = CatalogView()
    for table in TABLES.values():
        findings += _load(connection, table, view)
    return findings + _check_hubs(view)


def _load(connection: sqlite3.Connection, table: Table, view: CatalogView) -> list[str]:
    findings = []
    for row in connection.execute(table.load_sql):
        try:
            view.apply_changes([RowChange(table.from_row(row))])
        except (ValueError, TypeError, KeyError) as error:
            findings.append(f"a row of {table.name} cannot be read: {error}")
    return findings


def _check_hubs(view: CatalogView) -> list[str]:
    items = list(view.items())
    hubs = [item for item in items if isinstance(item, Hub)]
    default = fold(DEFAULT_GROUP)
    with_default = {item.hub_uid for item in items if isinstance(item, ConsumerGroup) and fold(item.name) == default}
    return [f"the hub {hub.namespace}/{hub.name} has no $Default group" for hub in hubs if hub.uid not in with_default]
