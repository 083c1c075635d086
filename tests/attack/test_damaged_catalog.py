"""A lost or damaged catalog: the node reports it and does not start, and the doctor restores hubs and keys."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hubmere.cli.exit_codes import Exit
from hubmere.settings import HubSetting
from hubmere.store.catalog.mirror import COPIES_FOLDER, DESCRIPTION, REVISION_FILE
from hubmere.store.catalog.sqlite import CATALOG_FILE
from hubmere.testing import Node, NodeFailed
from test_doctor_command import doctor, publish

HUBS = [HubSetting(name="orders", partition_count=2, consumer_groups=("billing",)), HubSetting(name="events")]


@pytest.fixture(scope="module")
def used_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The data folder of a killed node, and its connection string."""
    data = tmp_path_factory.mktemp("catalog") / "data"
    with Node(hubs=HUBS, data=data) as node:
        for number in range(5):
            publish(node, "orders", b"event %d" % number)
        connection_string = node.connection_string
        node.restart()  # A stop makes a copy of the catalog.
        publish(node, "events", b"x")
        node.kill()
    return data, connection_string


@pytest.fixture
def data(used_folder: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    subprocess.run(["cp", "-a", str(used_folder[0]), str(tmp_path / "data")], check=True)
    return tmp_path / "data"


def _key(connection_string: str) -> str:
    return connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


def _delete(data: Path) -> None:
    for path in data.glob(f"{CATALOG_FILE}*"):
        path.unlink()


def _truncate(data: Path) -> None:
    _delete_wal(data)
    content = (data / CATALOG_FILE).read_bytes()
    (data / CATALOG_FILE).write_bytes(content[: len(content) // 3])


def _empty(data: Path) -> None:
    _delete_wal(data)
    (data / CATALOG_FILE).write_bytes(b"")


def _zero_pages(data: Path) -> None:
    _delete_wal(data)
    content = bytearray((data / CATALOG_FILE).read_bytes())
    content[4096 : 4096 * 6] = bytes(4096 * 5)
    (data / CATALOG_FILE).write_bytes(content)


def _flip_in_an_entity(data: Path) -> None:
    """Flip one bit of a partition count or key: SQLite itself reports no error."""
    _checkpoint(data)
    content = bytearray((data / CATALOG_FILE).read_bytes())
    at = content.index(b'"primary_key":"') + 20
    content[at] ^= 1
    (data / CATALOG_FILE).write_bytes(content)


def _delete_wal(data: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (data / (CATALOG_FILE + suffix)).unlink(missing_ok=True)


def _checkpoint(data: Path) -> None:
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA wal_checkpoint(TRUNCATE)')"
    subprocess.run([sys.executable, "-c", code, str(data / CATALOG_FILE)], check=True)


DAMAGES: list[Callable[[Path], None]] = [_delete, _truncate, _empty, _zero_pages, _flip_in_an_entity]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_node_does_not_start_on_a_lost_or_damaged_catalog(damage: Callable[[Path], None], data: Path) -> None:
    """Before, it became ready with no hubs and a new root key."""
    damage(data)
    before = sorted(path.name for path in data.glob("log/*"))

    with pytest.raises(NodeFailed) as failure:
        Node(hubs=HUBS, data=data).__enter__()

    assert f"exit code {Exit.DAMAGED}" in str(failure.value)
    assert "hubmere doctor --rebuild-catalog" in str(failure.value)
    assert sorted(path.name for path in data.glob("log/*")) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_doctor_restores_hubs_keys_and_events(
    damage: Callable[[Path], None], data: Path, used_folder: tuple[Path, str]
) -> None:
    """Everything in the copy of the catalog is restored; clients continue with their connection strings."""
    damage(data)

    run = doctor(data, "--rebuild-catalog")

    assert run.returncode == Exit.OK, run.stdout + run.stderr
    assert "rebuilt  restored from the copy of" in run.stdout
    assert list(data.glob(f"{CATALOG_FILE}.damaged-*")) or damage is _delete
    with Node(data=data) as node:
        assert _key(node.connection_string) == _key(used_folder[1])
        publish(node, "orders", b"more")
        publish(node, "events", b"more")


def test_change_that_was_lost_with_the_write_ahead_file_is_detected(tmp_path: Path) -> None:
    """The file is valid for SQLite, but older than acknowledged changes."""
    data = tmp_path / "data"
    with Node(hubs=["orders"], data=data) as node:
        node.kill()
    _delete_wal(data)

    with pytest.raises(NodeFailed) as failure:
        Node(data=data).__enter__()

    assert "rebuild-catalog" in str(failure.value)


def test_hubs_are_restored_from_log_folders_without_a_copy(data: Path, used_folder: tuple[Path, str]) -> None:
    """Names, partitions, groups and events are restored; everything that is lost is listed."""
    _delete(data)
    for path in (data / COPIES_FOLDER).iterdir():
        path.unlink()

    run = doctor(data, "--rebuild-catalog")

    assert run.returncode == Exit.OK, run.stdout + run.stderr
    assert "keys, rules, checkpoints and group offsets are lost" in run.stdout
    assert "restored hub 'hubmere/orders' with 2 partitions and groups $Default, billing" in run.stdout
    assert "restored namespace 'hubmere' with a new root key" in run.stdout
    with Node(data=data) as node:
        assert _key(node.connection_string) != _key(used_folder[1])
        publish(node, "orders", b"more")


def test_log_folders_without_a_description_become_a_new_hub(data: Path) -> None:
    """Events must not be lost because the name of their hub is unknown."""
    _delete(data)
    for path in [*(data / COPIES_FOLDER).iterdir(), *data.glob(f"log/*{DESCRIPTION}")]:
        path.unlink()

    run = doctor(data, "--rebuild-catalog")

    assert run.returncode == Exit.OK, run.stdout + run.stderr
    assert run.stdout.count("have no description: the hub is now called 'recovered-") == 2


def test_intact_catalog_is_not_rebuilt(data: Path) -> None:
    """A user may run the command by mistake."""
    content = (data / REVISION_FILE).read_bytes()

    run = doctor(data, "--rebuild-catalog")

    assert run.returncode == Exit.OK, run.stdout
    assert run.stdout.startswith("kept     the catalog is sound")
    assert (data / REVISION_FILE).read_bytes() == content


def test_new_folder_starts_normally(tmp_path: Path) -> None:
    """Only a used folder can have lost its catalog."""
    with Node(hubs=["orders"], data=tmp_path / "fresh") as node:
        publish(node, "orders", b"x")
        node.restart()
        publish(node, "orders", b"y")
