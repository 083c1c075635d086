"""Ports for programs that cannot say which port they got."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from hubmere.cli.cluster import free_ports as module
from hubmere.cli.cluster.free_ports import free_ports


def test_ports_are_free_and_different() -> None:
    """A program can listen on each of them."""
    ports = free_ports(20)

    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
    assert len(set(ports)) == 20


def test_no_port_is_one_that_the_system_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise any other program could get it before it is used."""
    chosen = tmp_path / "range"
    chosen.write_text("14000\t60999\n")
    monkeypatch.setattr(module, "_CHOSEN_BY_THE_SYSTEM", chosen)

    assert all(12_000 <= port < 14_000 for port in free_ports(50))


def test_default_range_is_used_where_the_system_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems other than Linux."""
    monkeypatch.setattr(module, "_CHOSEN_BY_THE_SYSTEM", tmp_path / "missing")

    assert all(12_000 <= port < 32_000 for port in free_ports(50))
