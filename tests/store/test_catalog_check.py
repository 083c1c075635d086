"""The offline check of the catalog: intact files pass, and every kind of damage is reported."""

from pathlib import Path

import pytest

from hubmere.store.catalog.check import check_catalog
from hubmere.store.catalog.migrations import MIGRATIONS, migrate
from hubmere.store.catalog.sqlite import open_connection
from hubmere.store.catalog.view import Put
from store.catalog_builders import a_catalog, an_offset, with_hub


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "odd #?% name.db"
    catalog = a_catalog(place)
    _, hub = with_hub(catalog)
    catalog.apply(Put(an_offset(hub)))
    catalog.close()
    return place


def damage(path: Path, statement: str) -> None:
    connection = open_connection(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(statement)
    connection.close()


def test_intact_catalog_has_no_findings_and_is_not_changed(path: Path) -> None:
    """The check must be safe at any time."""
    before = path.read_bytes()

    assert check_catalog(path) == []

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("DELETE FROM hubs", "refers to a missing row of hubs"),
        ("DELETE FROM consumer_groups", "no $Default group"),
        ("UPDATE hubs SET body = '{'", "hubs cannot be read"),
        ("UPDATE namespaces SET body = json_set(body, '$.tier', 'Gold')", "namespaces cannot be read"),
        (f"PRAGMA user_version = {len(MIGRATIONS) + 1}", "this program supports"),
    ],
)
def test_damage_is_reported(path: Path, statement: str, finding: str) -> None:
    """The operator must know what to restore."""
    damage(path, statement)

    findings = check_catalog(path)

    assert any(finding in sentence for sentence in findings)


def test_flipped_pages_are_detected(path: Path) -> None:
    """SQLite's own check finds damage that no query reads."""
    content = bytearray(path.read_bytes())
    for at in range(4096 * 2 + 8, len(content), 4096):
        content[at : at + 16] = b"\xff" * 16
    path.write_bytes(content)

    assert check_catalog(path) != []


def test_index_that_differs_from_its_table_is_detected(path: Path) -> None:
    """No query of the node would detect this damage."""
    connection = open_connection(path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX group_offsets_by_hub ON group_offsets (group_id)' "
        "WHERE name = 'group_offsets_by_hub'"
    )
    connection.close()

    findings = check_catalog(path)

    assert findings[0].startswith("SQLite reports: ")


def test_path_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    """There is a folder in place of the file."""
    assert "cannot be" in check_catalog(tmp_path)[0]


def test_missing_file_or_other_file_is_reported(tmp_path: Path) -> None:
    """The check must not create a file."""
    absent, diary = tmp_path / "absent.db", tmp_path / "diary.db"
    diary.write_text("dear diary " * 1000)

    assert check_catalog(absent) == ["absent.db is missing"]
    assert "cannot be read" in check_catalog(diary)[0]
    assert not absent.exists()


def test_file_of_an_older_version_is_intact(tmp_path: Path) -> None:
    """The next start migrates it; that is no damage."""
    old = tmp_path / "old.db"
    connection = open_connection(old)
    migrate(connection, str(old), MIGRATIONS[:1])
    connection.close()

    assert check_catalog(old) == []
