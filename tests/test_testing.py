"""Helpers for users' tests: a node in a `with` block, and a fixture."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.cli.exit_codes import Exit
from hubmere.settings import HubSetting, load
from hubmere.settings.child import settings_file
from hubmere.testing import Node, NodeFailed

names = st.from_regex(r"\A[a-z0-9]([a-z0-9._-]{0,10}[a-z0-9])?\Z")
hub_settings = st.builds(
    HubSetting,
    name=names,
    partition_count=st.none() | st.integers(1, 32),
    consumer_groups=st.lists(names, unique=True, max_size=3).map(tuple),
    retention_hours=st.none() | st.integers(1, 100),
    user_metadata=st.just("") | st.text('aé"\\ 🙂', min_size=1, max_size=9).map(str.strip),
)


@given(st.lists(hub_settings, max_size=4))
def test_settings_file_is_read_back_as_it_was_meant(
    tmp_path_factory: pytest.TempPathFactory, hubs: list[HubSetting]
) -> None:
    """The node gets the settings of the test."""
    path = tmp_path_factory.mktemp("settings") / "hubmere.toml"
    path.write_text(settings_file({"memory": True, "hostname": ["a", "b"]}, hubs), encoding="utf-8")

    settings = load({}, {}, path)

    assert (settings.hubs, settings.memory, settings.hostname) == (tuple(hubs), True, ("a", "b"))


def test_node_that_cannot_start_reports_the_reason_and_leaves_nothing_behind() -> None:
    """Without the reason a failing fixture is hard to debug."""
    node = Node(settings={"durability": "later"})

    with pytest.raises(NodeFailed) as failure:
        node.__enter__()

    assert f"exit code {Exit.USAGE}" in failure.value.what
    assert "durability" in str(failure.value)
    assert not node.data.parent.exists()


def test_node_runs_for_the_length_of_the_block() -> None:
    """It is started, reachable, and stopped at the end."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        pid, folder = node.pid, node.data.parent
        with urllib.request.urlopen(f"{node.http}/health", timeout=120) as answer:
            status = answer.status

    assert status == 200
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_restarted_node_has_the_same_ports_and_keys() -> None:
    """Clients that reconnect, and tests of crashes, need this."""
    with Node(hubs=["orders"]) as node:
        first = node.ready
        node.kill()
        node.restart()
        second = node.ready

    assert first.pid != second.pid
    assert [
        getattr(first, name) for name in ("amqp", "amqps", "kafka", "http", "connection_string", "admin_token")
    ] == [getattr(second, name) for name in ("amqp", "amqps", "kafka", "http", "connection_string", "admin_token")]


def test_ports_of_a_stopped_node_are_kept_for_its_next_start() -> None:
    """Clients are refused meanwhile, and no other program gets a port."""
    with Node() as node:
        port = int(node.http.rpartition(":")[2])
        for end in (node.stop, node.kill):
            end()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            node.start()
            assert int(node.http.rpartition(":")[2]) == port
            assert urllib.request.urlopen(f"{node.http}/health").status == 200
    with socket.create_server(("127.0.0.1", port)):
        pass  # everything is given back


def test_second_node_on_the_same_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    """Two writers would destroy the log."""
    with Node(data=tmp_path / "data") as node:
        other = Node(data=tmp_path / "data")

        with pytest.raises(NodeFailed) as failure, other:
            pass

        assert f"exit code {Exit.FOLDER_IN_USE}" in failure.value.what
        assert str(node.pid) in failure.value.logs


def test_port_in_use_is_reported() -> None:
    """The error names the service that needs it."""
    with Node(settings={"memory": True}) as node:
        port = int(node.amqp.rpartition(":")[2])

        with pytest.raises(NodeFailed) as failure, Node(settings={"memory": True, "kafka_port": port}):
            pass

    assert f"exit code {Exit.PORT_IN_USE}" in failure.value.what
    assert str(port) in failure.value.logs
    assert "Traceback" not in failure.value.logs


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_a_node_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    """Supervisors and Ctrl-C send these signals."""
    ready = tmp_path / "ready.json"
    ports = [f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https")]
    command = [
        sys.executable,
        "-m",
        "hubmere",
        "up",
        "--data",
        str(tmp_path / "data"),
        "--ready-file",
        str(ready),
        *ports,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        banner = process.stdout.readline()  # this is last, except for the ready file

        process.send_signal(number)
        _, errors = process.communicate(timeout=120)

    assert banner.startswith("Hubmere ")
    assert process.returncode == Exit.OK, errors
    assert "Traceback" not in errors


def test_fixture_returns_a_node_with_the_requested_hubs(tmp_path: Path) -> None:
    """A user of the plugin writes such a test, in a separate folder."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef hubmere_hubs():\n    return ['orders']\n",
        encoding="utf-8",
    )
    (tmp_path / "test_theirs.py").write_text(
        "def test_theirs(hubmere_node):\n    print(hubmere_node.ready)\n    assert hubmere_node.amqp\n",
        encoding="utf-8",
    )

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert "1 passed" in run.stdout, run.stdout + run.stderr


def test_report_of_a_failed_test_shows_what_the_node_has_logged_meanwhile(tmp_path: Path) -> None:
    """The log has the reason of each refusal, which clients often do not show; lines of other tests would mislead."""
    (tmp_path / "test_theirs.py").write_text(
        "import pytest\nfrom hubmere.testing import NodeFailed\n\n"
        "def test_first(hubmere_node):\n    with pytest.raises(NodeFailed):\n        hubmere_node.events('earlier')\n\n"
        "def test_second(hubmere_node):\n    hubmere_node.events('missing')\n\n"
        "def test_third():\n    assert not 'without a node'\n",
        encoding="utf-8",
    )

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert "2 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count("Hubmere node log") == 1
    logged = run.stdout.partition("Hubmere node log")[2].partition("_ test_third _")[0]
    assert "hubmere/missing" in logged
    assert "earlier" not in logged


def test_ready_file_of_a_node_is_json_with_its_pid() -> None:
    """The same content that `Node` shows as attributes."""
    with Node(settings={"memory": True}) as node:
        content = json.loads((node.data.parent / "ready.json").read_bytes())

        assert (content["pid"], content["amqp"]) == (node.pid, node.amqp)
