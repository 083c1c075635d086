"""Turns a gateway into a known bad build, for tests that must catch it. Python imports this module at its start.

The variable BAD_BUILD names the build. The product's code is patched when its module is first imported.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def _refuse_by_known_end(log: Any) -> None:
    """Refuse a position beyond the end that this gateway knows, although another gateway may have appended."""
    out_of_range = log.SequenceOutOfRange

    def check_position(self: Any, sequence: int, leader_epoch: int) -> object:
        state = self._state
        if not state.log_start <= sequence <= state.committed:
            return out_of_range(sequence, state.log_start, state.committed)
        return None

    log.KafkaLog.check_position = check_position


def _grant_at_once(lease: Any) -> None:
    """Answer a claim before those that it displaces have been released."""
    on_claim = lease.Lease._on_claim

    def grant(self: Any, claim: Any, outcome: Any, now: float) -> object:
        events = on_claim(self, claim, outcome, now)
        return [*events, self._grant(claim.id)] if claim.id in self._waiting else events

    lease.Lease._on_claim = grant


def _send_without_numbers(appends: Any) -> None:
    """Send the gateway's own batches, and their repeats, without a producer's numbers."""
    stamp = appends.PartitionAppends._stamp

    def stamp_nothing(self: Any, append: Any) -> None:
        stamp(self, append)
        plain = append.header._replace(producer_id=-1, producer_epoch=-1, producer_sequence=-1)
        appends.write_header(append.batch, plain)
        appends.seal(append.batch)

    appends.PartitionAppends._stamp = stamp_nothing


BUILDS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "stale-end": ("hubmere.cluster.engine.log", _refuse_by_known_end),
    "early-claim": ("hubmere.cluster.control.lease", _grant_at_once),
    "no-numbers": ("hubmere.cluster.engine.appends", _send_without_numbers),
}


class _Loader(importlib.abc.Loader):
    """Loads a module as usual, then patches it."""

    def __init__(self, loader: importlib.abc.Loader, patch: Callable[[Any], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patch(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as usual, and has it patched."""

    def __init__(self, name: str, patch: Callable[[Any], None]) -> None:
        self._name = name
        self._patch = patch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._patch)
        return spec


if (build := os.environ.get("BAD_BUILD")) is not None:
    sys.meta_path.insert(0, _Finder(*BUILDS[build]))
