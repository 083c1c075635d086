"""For all foreign clients: a node, and a record of what each test proved.

The record is `.cache/conformance.json`, one entry a test, kept over runs so that a part of the tests may run alone;
`report.py` holds it against the claims of `matrix.py`.
"""

import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from conformance.conformance_node import ConformanceNode, is_on_cluster
from conformance.matrix import MARK, RESULTS, Cell, cell_of, version_of
from conformance.on_cluster import why_left_out

_FOLDER = Path(__file__).parent
_cells: dict[str, Cell] = {}
_results: dict[str, dict[str, str]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}(client, transport, feature): the claim that a test proves")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _cells.update((item.nodeid, cell) for item in items if (cell := cell_of(item)) is not None)
    # kafka-python leaves sockets to the garbage collector, which may find them during any later test.
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            _leave_out_on_cluster(item)


def _leave_out_on_cluster(item: pytest.Item) -> None:
    if not is_on_cluster():
        return
    name = f"{item.path.relative_to(_FOLDER).as_posix()}::{item.name.partition('[')[0]}"
    if (why := why_left_out(name)) is not None:
        item.add_marker(pytest.mark.skip(reason=f"on a cluster: {why}"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    cell = _cells.get(report.nodeid)
    if cell is None or (report.when != "call" and report.passed):
        return
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    result = {**asdict(cell), "version": version_of(cell.client), "result": report.outcome, "reason": reason}
    if _results.get(report.nodeid, {}).get("result") != "failed":
        _results[report.nodeid] = result


def pytest_sessionfinish() -> None:
    # The page shows what a node does.
    if not _results or is_on_cluster():
        return
    RESULTS.parent.mkdir(exist_ok=True)
    # Several processes of one run write this file.
    with RESULTS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(RESULTS.read_bytes()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(known | _results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def conformance_node() -> Iterator[ConformanceNode]:
    """A node for the tests that need all its ports; each test creates its own hubs."""
    with ConformanceNode() as conformance_node:
        yield conformance_node
