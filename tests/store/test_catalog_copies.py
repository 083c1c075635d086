"""Copies of the catalog: one at a time, also while the node stops."""

import threading
from pathlib import Path

import pytest

from hubmere.store.catalog import sqlite
from hubmere.store.catalog.mirror import list_copies, make_copy
from hubmere.store.catalog.sqlite import CATALOG_FILE
from log_records import messages_of
from store.catalog_builders import PATIENCE_S, a_catalog, with_hub


def test_close_waits_for_a_running_copy_and_does_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that stops while its background thread copies the catalog has one good copy and no warning."""
    is_running, may_continue = threading.Event(), threading.Event()
    copied: list[Path] = []

    def slow_copy(path: Path) -> None:
        is_running.set()
        assert may_continue.wait(PATIENCE_S)
        make_copy(path)
        copied.append(path)

    monkeypatch.setattr(sqlite, "make_copy", slow_copy)
    (tmp_path / "log").mkdir()
    catalog = a_catalog(tmp_path / CATALOG_FILE)
    catalog.mirror_to(tmp_path)
    with_hub(catalog)

    background = threading.Thread(target=catalog.copy_if_changed)
    background.start()
    assert is_running.wait(PATIENCE_S)
    closing = threading.Thread(target=catalog.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    may_continue.set()
    background.join(PATIENCE_S)
    closing.join(PATIENCE_S)

    assert copied == [tmp_path / CATALOG_FILE]
    assert len(list_copies(tmp_path)) == 1
    assert not messages_of(caplog, "hubmere")
