"""`hubmere cluster demo` where it cannot start: what it says, its exit code, and what it leaves behind."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from hubmere.cli.cluster.brokers import JARS_VARIABLE, LocalBrokers
from hubmere.cli.exit_codes import Exit
from hubmere.store.files import acquire_lock

_SECONDS = 600.0


def run_demo(jars: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Run the command, which is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "hubmere", "cluster", "demo", *flags],
        env={**os.environ, JARS_VARIABLE: str(jars)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def test_missing_jars_are_named_with_the_remedy(tmp_path: Path) -> None:
    """Nothing has been started: it is a mistake of the user, and no folder is left behind."""
    data = tmp_path / "data"

    ended = run_demo(tmp_path, f"--data={data}")

    assert ended.returncode == Exit.USAGE
    (said,) = ended.stderr.splitlines()
    assert f"no jars of Apache Kafka in {tmp_path}" in said
    assert "make kafka-jars" in said
    assert JARS_VARIABLE in said
    assert not data.exists()


def test_ready_file_of_an_earlier_run_is_removed(tmp_path: Path) -> None:
    """A script that waits for the file must not read the addresses of processes that are gone."""
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("{}", encoding="utf-8")

    run_demo(tmp_path, f"--ready-file={ready_file}")

    assert not ready_file.exists()


def test_folder_of_a_running_demo_is_refused(tmp_path: Path) -> None:
    """A second demo would overwrite the configuration of the running brokers."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "kafka-server-0.jar").touch()
    lock = acquire_lock(data)
    try:
        ended = run_demo(tmp_path, f"--data={data}")
    finally:
        lock.release()

    assert ended.returncode == Exit.FOLDER_IN_USE
    assert f"is in use by process {os.getpid()}" in ended.stderr
    assert [path.name for path in data.iterdir()] == ["lock"]


def test_brokers_get_other_ports_if_another_program_uses_theirs(tmp_path: Path) -> None:
    """The program would be taken for a broker, and gateways would wait for it."""
    ports = LocalBrokers(tmp_path, 1).choose_ports()
    with socket.create_server(("127.0.0.1", ports[0][0])):
        others = LocalBrokers(tmp_path, 1).choose_ports()

    assert not set(ports[0]) & set(others[0])
    assert LocalBrokers(tmp_path, 1).choose_ports() == others
