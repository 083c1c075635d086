"""Progress of each hub, which the node shows: counts, the last file, the open window.

For monitoring only: the checkpoint and the files decide what is captured. Beside a checkpoint on a local disk the
ledger is saved in a file, so that totals survive a restart of the job; elsewhere they start at zero.
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.windows import Window
from hubmere.pipeline.capture.writing import WrittenFile

_FILE: Final = "ledger.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLedger:
    """One partition."""

    captured: int
    window_start_s: int | None = None
    last_file: dict[str, Any] | None = None
    files: int = 0
    events: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _LedgerState:
    batch: int = -1
    partitions: dict[int, PartitionLedger] = field(default_factory=dict)


class HubLedger:
    """One hub. Thread rule: any thread; micro-batches write, reports read."""

    def __init__(self, hub: HubPlan, folder: Path | None) -> None:
        self._hub = hub
        self._path = None if folder is None else folder / _FILE
        self._lock = threading.Lock()
        self._book = self._load()

    def publish(self, batch: int, files: Iterable[tuple[WrittenFile, str]]) -> None:
        """Count the published files of a micro-batch, each with its URL; a repeated micro-batch is not counted
        again."""
        with self._lock:
            for file, url in files:
                self._add(file, url, is_new=batch > self._book.batch)
            self._book.batch = max(batch, self._book.batch)
            self._keep()

    def report(self, windows: Mapping[int, Window]) -> list[dict[str, Any]]:
        """The report for the node, with the open windows as far as they are known."""
        with self._lock:
            known = dict(self._book.partitions)
        untouched = {
            index: PartitionLedger(captured=self._hub.since.get(index, 0)) for index in range(self._hub.partition_count)
        }
        return [
            _partition_report(index, _at_window(each, windows.get(index)))
            for index, each in sorted({**untouched, **known}.items())
        ]

    def _add(self, file: WrittenFile, url: str, *, is_new: bool) -> None:
        before = self._book.partitions.get(file.partition, PartitionLedger(captured=file.first))
        after = replace(
            before,
            captured=max(before.captured, file.end),
            window_start_s=file.next_s,
            last_file=_file_report(file, url),
        )
        if is_new:
            after = replace(
                after,
                files=before.files + 1,
                events=before.events + file.events,
                bytes=before.bytes + file.size_bytes,
            )
        self._book.partitions[file.partition] = after

    def _load(self) -> _LedgerState:
        if self._path is None or not self._path.exists():
            return _LedgerState()
        try:
            kept = json.loads(self._path.read_bytes())
            return _LedgerState(
                kept["batch"], {int(index): PartitionLedger(**each) for index, each in kept["partitions"].items()}
            )
        except (ValueError, KeyError, TypeError):
            # Written by another version, or damaged: totals restart at 0. Nothing else depends on this file.
            return _LedgerState()

    def _keep(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_suffix(f".{os.getpid()}.new")
        partitions = {index: asdict(each) for index, each in self._book.partitions.items()}
        fresh.write_text(json.dumps({"batch": self._book.batch, "partitions": partitions}), encoding="utf-8")
        fresh.replace(self._path)


def _at_window(ledger: PartitionLedger, window: Window | None) -> PartitionLedger:
    """A ledger that knows at least what the log of micro-batches says; its own file may be missing or older."""
    if window is None:
        return ledger
    return replace(ledger, captured=max(ledger.captured, window.at), window_start_s=window.start_s)


def _partition_report(index: int, ledger: PartitionLedger) -> dict[str, Any]:
    start_s = ledger.window_start_s
    return {
        "partition": index,
        "captured": ledger.captured,
        "windowStart": None if start_s is None else _instant(start_s * 1_000_000),
        "lastFile": ledger.last_file,
        "files": ledger.files,
        "events": ledger.events,
        "bytes": ledger.bytes,
    }


def _file_report(file: WrittenFile, url: str) -> dict[str, Any]:
    """The fields of the service's CaptureFileCreated event."""
    has_events = file.end > file.first
    return {
        "url": url,
        "name": file.name,
        "sizeInBytes": file.size_bytes,
        "eventCount": file.events,
        "firstSequenceNumber": file.first if has_events else -1,
        "lastSequenceNumber": file.end - 1 if has_events else -1,
        "firstEnqueueTime": _instant(file.first_us),
        "lastEnqueueTime": _instant(file.last_us),
    }


def _instant(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
