"""`hubmere doctor` on data folders of real nodes: intact, in use, torn, damaged, missing."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.runner import at
from hubmere.cli.exit_codes import Exit
from hubmere.model.clock import SystemClock
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.settings import HubSetting
from hubmere.testing import Node

EVENTS = 3


def doctor(data: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "hubmere", "doctor", "--data", str(data), *flags],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def publish(node: Node, hub: str, body: bytes) -> None:
    """Publish one event over HTTP."""
    signer = ConnectionString.parse(node.connection_string)
    assert signer.key_name is not None
    assert signer.key is not None
    expires_at_s = SystemClock().now_ms() // 1000 + 60
    token = make_token(f"sb://{signer.host}/{hub}", signer.key_name, signer.key, expires_at_s=expires_at_s)
    request = urllib.request.Request(f"{node.http}/{hub}/messages", body, {"Authorization": token}, method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 201


@pytest.fixture(scope="module")
def used_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a few events, left by a node that was stopped."""
    data = tmp_path_factory.mktemp("doctor") / "data"
    with Node(hubs=[HubSetting(name="orders", partition_count=1)], data=data) as node:
        for _ in range(EVENTS):
            publish(node, "orders", b"x" * 1000)
    return data


@pytest.fixture
def data(used_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    subprocess.run(["cp", "-a", str(used_folder), str(tmp_path / "data")], check=True)
    return tmp_path / "data"


def the_log(data: Path) -> Path:
    (path,) = data.glob("log/*/*.log")
    return path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Node]:
    """A running node that uses its folder."""
    with Node(data=tmp_path / "live") as node:
        yield node


def test_intact_folder_is_reported_with_the_number_of_checks(data: Path) -> None:
    """ "Nothing found" must differ from "nothing checked"."""
    run = doctor(data)

    assert (run.returncode, run.stderr) == (Exit.OK, "")
    assert run.stdout == f"checked  {EVENTS} batches in 1 files of 1 partitions, and the catalog\n"


def test_partitions_that_the_next_start_recovers_are_listed(data: Path) -> None:
    """After a crash nothing is damaged; the operator sees what the next start has to do."""
    (the_log(data).parent / "hubmere-recovery").unlink()

    run = doctor(data)

    assert run.returncode == Exit.OK
    assert f"pending  the next start recovers 1 partitions: {the_log(data).parent.name}\n" in run.stdout


def test_folder_in_use_is_not_checked(running: Node) -> None:
    """A log that is being written looks torn."""
    run = doctor(running.data)

    assert run.returncode == Exit.FOLDER_IN_USE
    assert str(running.pid) in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_torn_end_is_reported_and_only_a_repair_truncates_it(data: Path) -> None:
    """Unacknowledged data may be truncated on request."""
    log = the_log(data)
    whole = log.read_bytes()
    log.write_bytes(whole + b"\0" * 100)

    runs = [doctor(data), doctor(data, "--repair"), doctor(data)]

    assert [run.returncode for run in runs] == [Exit.DAMAGED, Exit.OK, Exit.OK]
    assert [run.stdout.split()[0] for run in runs] == ["damaged", "repaired", "checked"]
    assert "--repair fixes 1" in runs[0].stdout
    assert log.read_bytes() == whole


def test_damaged_batch_in_the_middle_is_reported_and_never_truncated(data: Path) -> None:
    """It was acknowledged: a copy of the file may still help."""
    log = the_log(data)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)

    run = doctor(data, "--repair")

    assert run.returncode == Exit.DAMAGED
    assert f"{log.name} at byte" in run.stdout
    assert log.read_bytes() == content


def test_lost_catalog_is_damage(data: Path) -> None:
    """Events without their entities cannot be served."""
    (data / "catalog.sqlite3").unlink()

    run = doctor(data)

    assert run.returncode == Exit.DAMAGED
    assert "damaged  catalog.sqlite3" in run.stdout


def test_folder_without_data_is_refused_unchanged(tmp_path: Path) -> None:
    """Nothing must be written to a wrong path."""
    run = doctor(tmp_path)

    assert run.returncode == Exit.FAILED
    assert str(tmp_path) in run.stderr
    assert list(tmp_path.iterdir()) == []


# --- what clients use -------------------------------------------------------------------------------------------


def test_advertised_addresses_are_checked_on_a_running_node() -> None:
    """Every listener of the node is checked by the names and ports of its ready file."""
    with Node() as node:
        result = doctor(Path(node.data), "--clients")

    assert result.returncode == Exit.OK, result.stdout + result.stderr
    assert f"checked  kafka clients use {node.kafka}" in result.stdout
    assert "wrong" not in result.stdout


def test_name_that_clients_cannot_resolve_is_reported_with_the_setting() -> None:
    """After bootstrap a Kafka client would use a name that cannot be resolved."""
    settings = {"advertised_listeners": "kafka://no-such-host.invalid:9092,amqp://localhost:1"}
    with Node(settings=settings) as node:
        result = doctor(Path(node.data), "--clients")

    assert result.returncode == Exit.FAILED
    assert "wrong    kafka clients use no-such-host.invalid:9092: this machine cannot resolve" in result.stdout
    assert "wrong    amqp clients use localhost:1: this machine cannot connect" in result.stdout
    assert "set advertised_listeners to an address that clients can use, such as kafka://NAME:9092" in result.stdout
    assert "checked  https clients use" in result.stdout


def test_client_check_without_a_running_node_is_refused(tmp_path: Path) -> None:
    """The ready file exists while a node runs."""
    result = doctor(tmp_path, "--clients")

    assert result.returncode == Exit.FAILED
    assert "start the node, or name its ready file by --ready-file" in result.stderr


def test_node_without_captured_files_has_no_gaps(running: Node) -> None:
    """Hubs without cold reads, and those that were never captured, have nothing to check."""
    for name in ("cold", "plain"):
        assert at(running, "eventhub", "create", "--name", name, "--partition-count", "2").code == Exit.OK
    assert at(running, "eventhub", "update", "--name", "cold", "--cold-reads", "true").code == Exit.OK

    run = at(running, "doctor", "--captured")

    assert (run.code, run.lines) == (Exit.OK, ["checked  no hub with cold reads has captured files"])


def test_node_without_processors_has_nothing_to_check(running: Node) -> None:
    """No output would leave open whether anything was examined."""
    run = at(running, "doctor", "--processors")

    assert (run.code, run.lines) == (Exit.OK, ["checked  no event processor has checkpoints or owners in this node"])


def test_gap_of_captured_files_is_named(running: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words as in the portal."""
    assert at(running, "eventhub", "create", "--name", "cold", "--partition-count", "1").code == Exit.OK
    assert at(running, "eventhub", "update", "--name", "cold", "--cold-reads", "true").code == Exit.OK
    found = [{"partition": 0, "coldBegin": 40, "coldGap": "20-39"}]
    monkeypatch.setattr("hubmere.cli.capture_check.partitions", lambda *_: found)

    run = at(running, "doctor", "--captured")

    assert run.code == Exit.FAILED
    assert run.out == "wrong    cold/0: no captured file holds the events 20 to 39: no reader gets older ones\n"
