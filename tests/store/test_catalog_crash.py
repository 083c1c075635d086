"""A node that is killed: every acknowledged write survives, and no hub exists in part."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hubmere.store.catalog.check import check_catalog
from hubmere.store.catalog.sqlite import SqliteCatalog
from hubmere.store.catalog.view import Create, Delete, Drop
from hubmere.store.engine import LogConfig, log_id
from hubmere.store.local import LocalEngine
from model.builders import NOW_MS, a_hub_and_group, a_namespace
from store.builders import log_ids, open_log
from store.catalog_builders import a_catalog, with_hub

# A writer in a separate process: prints acknowledged changes until it is killed.
WRITER = """
import queue, sys
from hubmere.model.names import hub_name
from hubmere.model.spec import HubSpec, new_hub
from hubmere.model.tier import limits_for
from hubmere.store.catalog.sqlite import SqliteCatalog
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.catalog.view import Create, Put

calls = queue.SimpleQueue()
catalog = SqliteCatalog.open(sys.argv[1], calls.put)
namespace = catalog.view.namespaces()[0]
target = catalog.view.hubs(namespace.name)[0]
limits = limits_for(overrides={"hubs_per_namespace": "unlimited"})
first, waiting = int(sys.argv[2]), 0

def acknowledge(line):
    def callback(error):
        global waiting
        waiting -= 1
        if error is None:
            sys.stdout.write(line + "\\n")
            sys.stdout.flush()
    return callback

for number in range(first, first + 1_000_000):
    waiting += 1
    if number % 10:
        offset = GroupOffset(
            namespace="ns1234", group_id=f"g{number % 7}", hub_uid=target.uid, partition=0, sequence=number
        )
        catalog.submit(Put(offset), callback=acknowledge(f"offset g{number % 7} {number}"))
    else:
        hub, group = new_hub(namespace, hub_name(f"h{number}"), HubSpec(), limits, existing=(), now_ms=0)
        catalog.submit(Create(hub), Create(group), callback=acknowledge(f"hub {hub.name} {hub.uid}"))
    while waiting > 50:
        calls.get()()
"""

ROUNDS = 3
ACKNOWLEDGED_PER_ROUND = 400


def run_and_kill(path: Path, first: int) -> list[list[str]]:
    """Run a writer until it has acknowledged enough changes, then kill it while it works."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(first)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(ACKNOWLEDGED_PER_ROUND)]
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    return [line.split() for line in lines if line.endswith("\n")]


def test_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """The writer is killed with kill -9 several times while it writes."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    with_hub(catalog)
    catalog.close()
    offsets: dict[str, int] = {}
    hubs: dict[str, str] = {}

    for round_number in range(ROUNDS):
        for kind, name, value in run_and_kill(path, (round_number + 1) * 10_000_000):
            if kind == "offset":
                offsets[name] = int(value)
            else:
                hubs[name] = value

    survivor = a_catalog(path)
    view = survivor.view
    assert len(hubs) >= ROUNDS * ACKNOWLEDGED_PER_ROUND // 20
    assert {name: view.hub("ns1234", name).uid for name in hubs} == hubs
    assert all(view.find_group(view.hub("ns1234", name), "$Default") for name in hubs)
    kept = {name: view.group_offsets("ns1234", name)[0].sequence for name in offsets}
    assert all(kept[name] >= acknowledged for name, acknowledged in offsets.items())
    survivor.close()
    assert check_catalog(path) == []


# --- a cut at every step of a hub's life -----------------------------------------------------------------------------


class Life:
    """Creates and deletes a hub step by step, with a power cut after any step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = a_catalog(folder / "catalog.db")
        self.engine = an_engine(folder)
        self.namespace = a_namespace()
        self.catalog.apply(Create(self.namespace))
        self.hub, self.group = a_hub_and_group(namespace=self.namespace)
        self.logs = [log_id(self.hub.uid, number) for number in range(self.hub.partition_count)]

    def steps(self) -> list[Callable[[], object]]:
        return [
            lambda: self.catalog.apply(Create(self.hub), Create(self.group)),
            *(partial(open_log, self.engine, log, LogConfig()) for log in self.logs),
            lambda: self.catalog.apply(Delete(self.hub, now_ms=NOW_MS)),
            *(partial(self.engine.delete, log) for log in self.logs),
            lambda: self.catalog.apply(Drop(self.catalog.pending_deletions()[0])),
        ]

    def cut_power(self, folder: Path) -> tuple[SqliteCatalog, LocalEngine]:
        """The files that a restart finds: they are copied while the first process still has them open."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("*-shm"))
        return a_catalog(folder / "catalog.db"), an_engine(folder)

    def close(self) -> None:
        self.engine.close()
        self.catalog.close()


def an_engine(folder: Path) -> LocalEngine:
    return LocalEngine(folder, post=lambda call: call(), threads=0)


STEPS = 11


@pytest.mark.parametrize("cut_after", range(STEPS + 1))
def test_cut_at_any_step_leaves_no_incomplete_hub(tmp_path: Path, cut_after: int) -> None:
    """After the restart and the pending deletions, every log belongs to a hub, and every hub is complete."""
    (tmp_path / "before").mkdir()
    life = Life(tmp_path / "before")
    steps = life.steps()
    assert len(steps) == STEPS
    for step in steps[:cut_after]:
        step()

    catalog, engine = life.cut_power(tmp_path / "after")
    for deletion in catalog.pending_deletions():
        for number in range(deletion.partition_count):
            engine.delete(log_id(deletion.hub_uid, number))
        catalog.apply(Drop(deletion))

    is_there = 1 <= cut_after <= 1 + len(life.logs)
    assert catalog.view.find_hub(life.namespace.name, life.hub.name) == (life.hub if is_there else None)
    assert (catalog.view.find_group(life.hub, "$Default") is not None) is is_there
    assert set(log_ids(engine)) == set(life.logs[: cut_after - 1] if is_there else ())
    assert catalog.pending_deletions() == []
    catalog.close()
    engine.close()
    life.close()
