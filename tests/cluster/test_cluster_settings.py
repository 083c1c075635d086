"""Settings of a gateway: required and forbidden ones, and clusters on which it does not start."""

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hubmere.capture.service import capture_targets
from hubmere.model.entity import CaptureDestination
from hubmere.model.errors import InvalidArgument
from hubmere.settings import BadSettings, load


def a_secret(folder: Path) -> str:
    path = folder / "secret"
    path.write_text("a secret of all gateways", encoding="utf-8")
    return str(path)


def problems(flags: Mapping[str, object]) -> list[str]:
    with pytest.raises(BadSettings) as refused:
        load(flags, {})
    return [problem.setting for problem in refused.value.problems]


def test_gateway_needs_brokers_and_a_secret(tmp_path: Path) -> None:
    """Two settings are enough."""
    flags = {"store": "cluster", "cluster_kafka": "b1:9092,b2:9093", "cluster_secret_file": a_secret(tmp_path)}

    settings = load(flags, {})

    assert settings.is_gateway
    assert not settings.has_data_folder
    assert settings.cluster_kafka == (("b1", 9092), ("b2", 9093))


def test_all_missing_settings_are_reported_together() -> None:
    """A user must not have to start four times to find four errors."""
    assert problems({"store": "cluster", "cluster_sasl": "plain"}) == [
        "cluster_kafka",
        "cluster_secret_file",
        "cluster_sasl_password_file",
    ]


def test_settings_of_the_data_folder_are_refused(tmp_path: Path) -> None:
    """A gateway stores nothing: an unused folder would be misleading."""
    flags = {"store": "cluster", "cluster_kafka": "b1:9092", "cluster_secret_file": a_secret(tmp_path)}

    assert problems({**flags, "data": "here", "durability": "os", "memory": True}) == ["data", "memory", "durability"]


def test_settings_of_a_cluster_are_refused_without_it() -> None:
    """A forgotten --store must not start a node on an empty data folder."""
    assert problems({"cluster_kafka": "b1:9092"}) == ["cluster_kafka"]


@pytest.mark.parametrize("secret", ["", "  \n"])
def test_an_empty_secret_is_refused(tmp_path: Path, secret: str) -> None:
    """It would encrypt nothing."""
    path = tmp_path / "secret"
    path.write_text(secret, encoding="utf-8")

    flags = {"store": "cluster", "cluster_kafka": "b1:9092", "cluster_secret_file": str(path)}

    assert problems(flags) == ["cluster_secret_file"]


@pytest.mark.parametrize("brokers", ["b1", "b1:", "b1:x", ":9092", "b1:70000", "b1:9092,,b2:9092"])
def test_addresses_of_brokers_are_checked(tmp_path: Path, brokers: str) -> None:
    """A typing error must not look like an unreachable cluster."""
    flags = {"store": "cluster", "cluster_kafka": brokers, "cluster_secret_file": a_secret(tmp_path)}

    assert "cluster_kafka" in problems(flags)


def start(folder: Path, port: int, *more: str) -> "subprocess.CompletedProcess[str]":
    """Start a gateway that is expected to end by itself."""
    command = [sys.executable, "-m", "hubmere", "up", "--store=cluster", f"--cluster-kafka=127.0.0.1:{port}"]
    ports = [f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https")]
    secret = f"--cluster-secret-file={a_secret(folder)}"
    return subprocess.run(
        [*command, secret, *ports, *more], capture_output=True, text=True, timeout=600, check=False, cwd=folder
    )


def test_gateway_waits_for_its_cluster_until_the_timeout(tmp_path: Path) -> None:
    """It logs what it waits for; then it ends with the exit code for settings, and has written nothing."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    ended = start(tmp_path, port, "--start-timeout=1")

    assert ended.returncode == 2
    assert ended.stderr.count("waiting for the Kafka cluster") == 1
    assert "no Kafka broker was reached within 1 s" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def capture_refusal(flags: Mapping[str, object], account: str = "") -> str:
    """Why a gateway with these settings does not capture to an account; empty if it does."""
    targets = capture_targets(load(flags, {}), Path("unused"))
    destination = CaptureDestination(storage_account=account, container="box")
    try:
        targets.place_of(destination)
    except InvalidArgument as refusal:
        return refusal.text()
    return ""


def test_capture_needs_folders_that_all_gateways_share(tmp_path: Path) -> None:
    """Another gateway takes the job over: it must find the checkpoints and the files."""
    flags = {"store": "cluster", "cluster_kafka": "b1:9092", "cluster_secret_file": a_secret(tmp_path)}
    checkpoints = {"capture_checkpoint_dir": str(tmp_path / "checkpoints")}

    assert "needs capture_checkpoint_dir: a folder that all gateways share" in capture_refusal(flags)
    assert "capture_folder: a folder that all gateways share" in capture_refusal({**flags, **checkpoints})
    assert capture_refusal({**flags, **checkpoints, "capture_folder": str(tmp_path)}) == ""
    # A job that runs elsewhere has its own checkpoints.
    elsewhere = {**flags, "capture_supervise": False, "capture_folder": str(tmp_path)}
    assert capture_refusal(elsewhere) == ""
