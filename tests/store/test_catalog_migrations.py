"""Schema migrations: files of older versions are migrated with all content, newer and foreign files are not touched."""

import sqlite3
from pathlib import Path

import pytest

from hubmere.model.names import ROOT_RULE
from hubmere.store.catalog.migrations import MIGRATIONS, CatalogUnusable, migrate, schema_version
from hubmere.store.catalog.rows import TABLES
from hubmere.store.catalog.runtime_state import Meta
from hubmere.store.catalog.sqlite import open_connection
from hubmere.store.catalog.view import Put
from store.catalog_builders import a_catalog, an_offset, with_hub

# A catalog of version 1, written by hand: bodies with the properties of that version, and one unknown property.
OLD_ROWS = """
INSERT INTO namespaces VALUES ('hubmere', '{"name":"Hubmere","tier":"Standard","capacity":2,"later":1}');
INSERT INTO hubs VALUES ('u1', 'hubmere', 'orders',
    '{"namespace":"Hubmere","name":"Orders","uid":"u1","topic_id":"t1","partition_count":8}');
INSERT INTO consumer_groups VALUES ('u1', '$default', '{"hub_uid":"u1","name":"$Default"}');
INSERT INTO access_rules VALUES ('hubmere', '', 'rootmanagesharedaccesskey', NULL,
    '{"namespace":"Hubmere","name":"RootManageSharedAccessKey","rights":7,"primary_key":"p","secondary_key":"s"}');
INSERT INTO meta VALUES ('node-id', 'n1');
"""


def an_old_file(path: Path, version: int = 1) -> Path:
    connection = open_connection(path)
    migrate(connection, str(path), MIGRATIONS[:version])
    connection.executescript(OLD_ROWS)
    connection.close()
    return path


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_file_of_every_older_version_is_migrated_with_all_content(tmp_path: Path, version: int) -> None:
    """An update of the program must not lose a hub or a key."""
    path = an_old_file(tmp_path / "catalog.db", version)

    catalog = a_catalog(path)

    namespace = catalog.view.namespace("hubmere")
    hub = catalog.view.hub("hubmere", "orders")
    assert (namespace.name, namespace.capacity) == ("Hubmere", 2)
    assert (hub.uid, hub.partition_count, hub.retention.hours) == ("u1", 8, 168)
    assert catalog.view.rule(namespace, ROOT_RULE).primary_key == "p"
    assert catalog.view.meta("node-id") == "n1"
    catalog.apply(Put(an_offset(hub)))
    catalog.close()


def test_migrated_file_needs_no_further_migration(tmp_path: Path) -> None:
    """The second start changes nothing."""
    path = an_old_file(tmp_path / "catalog.db")
    a_catalog(path).close()

    connection = open_connection(path)

    assert schema_version(connection) == len(MIGRATIONS)
    connection.close()
    a_catalog(path).close()


def test_new_file_has_a_table_for_every_kind(tmp_path: Path) -> None:
    """Every kind of item has a table, and all tables have strict types."""
    connection = open_connection(tmp_path / "catalog.db")

    migrate(connection, "catalog.db")

    tables = {row[1]: row[5] for row in connection.execute("PRAGMA table_list") if not row[1].startswith("sqlite_")}
    assert tables.keys() == {table.name for table in TABLES.values()} | {"revision"}
    assert set(tables.values()) == {1}
    connection.close()


def test_audit_table_of_older_versions_is_dropped(tmp_path: Path) -> None:
    """The audit log is a file; rows of the old table must not stay for ever."""
    path = an_old_file(tmp_path / "catalog.db", version=5)
    connection = open_connection(path)
    connection.execute("INSERT INTO audit (at_ms, actor, action, resource) VALUES (1, 'me', 'create', 'x')")
    connection.close()

    a_catalog(path).close()

    connection = open_connection(path)
    assert "audit" not in {row[1] for row in connection.execute("PRAGMA table_list")}
    connection.close()


def test_checkpoint_tables_of_older_versions_are_dropped(tmp_path: Path) -> None:
    """Checkpoints are blobs; the tables were never used."""
    path = an_old_file(tmp_path / "catalog.db", version=8)

    a_catalog(path).close()

    connection = open_connection(path)
    assert {"checkpoints", "ownerships"}.isdisjoint(row[1] for row in connection.execute("PRAGMA table_list"))
    connection.close()


def test_failed_migration_step_leaves_the_previous_version(tmp_path: Path) -> None:
    """A step and its version number are written in one transaction."""
    connection = open_connection(tmp_path / "catalog.db")
    broken = (*MIGRATIONS[:1], "CREATE TABLE half (x INTEGER) STRICT; CREATE TABLE hubs (x INTEGER) STRICT;")

    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, "catalog.db", broken)

    tables = {row[1] for row in connection.execute("PRAGMA table_list")}
    assert schema_version(connection) == 1
    assert "half" not in tables
    migrate(connection, "catalog.db")
    assert schema_version(connection) == len(MIGRATIONS)
    connection.close()


def test_file_of_a_newer_version_is_refused_unchanged(tmp_path: Path) -> None:
    """To go back to an older version, a backup is needed."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    with_hub(catalog)
    catalog.close()
    connection = open_connection(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()

    with pytest.raises(CatalogUnusable) as refusal:
        a_catalog(path)

    assert f"version {len(MIGRATIONS) + 1}" in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    """A file at a wrong path must not be overwritten."""
    path = tmp_path / "catalog.db"
    path.write_text("this is a diary, not a catalog\n" * 100)

    with pytest.raises(CatalogUnusable):
        a_catalog(path)

    assert path.read_text().startswith("this is a diary")


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    """The operator gets the path, not a traceback."""
    with pytest.raises(CatalogUnusable) as refusal:
        a_catalog(tmp_path / "absent" / "catalog.db")

    assert "absent" in str(refusal.value)


def test_unreadable_row_is_reported(tmp_path: Path) -> None:
    """A node that ignores a hub without an error would lose its events."""
    path = an_old_file(tmp_path / "catalog.db", len(MIGRATIONS))
    connection = open_connection(path)
    connection.execute("UPDATE hubs SET body = '{\"name\":'")
    connection.close()

    with pytest.raises(CatalogUnusable):
        a_catalog(path)


def test_metadata_of_the_catalog_survives_a_restart(tmp_path: Path) -> None:
    """The node's id and the administrator's token are stored in the data folder."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    catalog.apply(Put(Meta(name="admin-token", text="x")))
    catalog.close()

    reopened = a_catalog(path)

    assert reopened.view.meta("admin-token") == "x"
    reopened.close()
