"""`hubmere cluster status`: how the state of a cluster is shown, and how the brokers are reached."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands.runner import hubmere
from hubmere.cli.cluster import status as status_module
from hubmere.cluster.upstream.connection import Access

GATEWAY = {
    "session": "0001",
    "address": "g1.example.org:5671",
    "machine": "m1",
    "version": "1",
    "state": "alive",
    "lastSeen": "2026-11-18T20:00:00.000Z",
    "roles": ["capture", "snapshots"],
    "connections": 7,
    "lag": 0,
    "ingressBytesPerSecond": 10,
    "egressBytesPerSecond": 20,
    "silence": 0,
}
STATUS = {
    "clusterId": "abc",
    "brokers": [{"id": 1, "address": "b1:9092"}],
    "gateways": [GATEWAY, {**GATEWAY, "address": "g2.example.org:5671", "state": "gone", "lag": None, "roles": []}],
    "places": 1,
    "rows": 2,
    "roles": {"capture": "0001"},
    "controlLog": {"start": 0, "end": 5, "length": 5},
    "snapshot": None,
    "digest": "d",
}


class Asked:
    """What the command has asked for."""

    def __init__(self) -> None:
        self.access: Access | None = None

    def read(self, brokers: Sequence[tuple[str, int]], prefix: str, access: Access) -> dict[str, Any]:
        self.access = access
        return STATUS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Brokers that have this state."""
    found = Asked()
    monkeypatch.setattr(status_module, "read_status", found.read)
    return found


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """The flags that are always needed."""
    secret = tmp_path / "secret"
    secret.write_text("a secret", encoding="utf-8")
    return ["cluster", "status", "--cluster-kafka=b1:9092", f"--cluster-secret-file={secret}"]


def test_status_is_json_in_a_script(asked: Asked, flags: list[str]) -> None:
    """Scripts read it; nothing is left out."""
    assert hubmere(*flags).json == STATUS


def test_status_has_a_table_for_people(asked: Asked, flags: list[str]) -> None:
    """One line for each gateway and each broker."""
    lines = hubmere(*flags, "--output", "table").lines

    (first,) = (line.split() for line in lines if line.startswith("g1."))
    assert first[:6] == ["g1.example.org:5671", "m1", "1", "alive", "capture", "snapshots"]
    assert any(line.startswith("g2.example.org:5671") and " gone " in line for line in lines)
    assert "1       b1:9092" in lines
    assert "controlLog.length  5" in lines


def test_status_is_selected_by_a_query(asked: Asked, flags: list[str]) -> None:
    """An alert needs one value."""
    assert hubmere(*flags, "--query", "gateways[].state", "-o", "tsv").lines == ["alive", "gone"]
    assert json.loads(hubmere(*flags, "--query", "controlLog.length").out) == 5


def test_status_of_brokers_that_require_a_password(asked: Asked, flags: list[str], tmp_path: Path) -> None:
    """The same flags as of `hubmere up`."""
    password = tmp_path / "password"
    password.write_text("secret", encoding="utf-8")
    signs_in = ("--cluster-sasl=scram-sha-256", "--cluster-sasl-user=ops", f"--cluster-sasl-password-file={password}")

    assert hubmere(*flags, *signs_in, "--cluster-tls").code == 0

    assert asked.access is not None
    assert (asked.access.mechanism, asked.access.user, asked.access.password) == ("SCRAM-SHA-256", "ops", "secret")
    assert asked.access.tls is not None
