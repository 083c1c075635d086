"""Captures one hub, micro-batch by micro-batch. One run continues until no window is due. The steps of a micro-batch:

1. `planner` closes windows; the offset says which files that makes.
2. The offset is written to the log (`checkpoints`) and synced.
3. Tasks stage the files (`tasks`), so that they are not visible yet.
4. The driver publishes them, and adds them to the Delta table.
5. The ledger counts them, and the commit is written to the log.

After a failed run, or after the job was killed, the next run starts with the last offset: if its commit is missing,
steps 3 to 5 are repeated, with the same files under the same names. Files that are already published are recognised.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.checkpoints import BatchLog, local_folder, open_storage
from hubmere.pipeline.capture.destinations import Destination, destination_of
from hubmere.pipeline.capture.files.names import Span, table_root
from hubmere.pipeline.capture.ledger import HubLedger
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.offsets import CaptureOffset
from hubmere.pipeline.capture.planning.planner import HubPlanner, files_of
from hubmere.pipeline.capture.planning.schedule import Schedule
from hubmere.pipeline.capture.tasks import run_tasks
from hubmere.pipeline.capture.writing import WrittenFile

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("hubmere.capture")

# Runs of a job with `once` that may fail before the hub is given up.
_ATTEMPTS_ONCE: Final = 3
# Object stores take tens of milliseconds per call: files of a micro-batch are published in parallel.
_PUBLISHERS: Final = 8
_MAX_ERROR_CHARACTERS: Final = 1000


class HubCapture:
    """One hub. Thread rule: `run` is called by one thread at a time; everything else may be read by any thread."""

    def __init__(
        self, context: "SparkContext", hub: HubPlan, checkpoint: str, *, once: bool, on_change: Callable[[], None]
    ) -> None:
        self.hub = hub
        self._context = context
        self._checkpoint = checkpoint
        self._once = once
        self._on_change = on_change
        self.schedule = Schedule()
        self.ledger = HubLedger(hub, local_folder(checkpoint))
        self._stopping = threading.Event()
        self._log: BatchLog | None = None
        self._planner: HubPlanner | None = None
        self._batch = -1
        self._offset: CaptureOffset | None = None
        self._is_committed = False
        self._is_done = False
        self.is_busy = False
        # Whether the hub and its destination were reached: before that, nothing can be captured.
        self.has_started = False
        self._failure: str | None = None
        self._loss: str | None = None

    # --- life ---

    @property
    def is_finished(self) -> bool:
        """Whether a run with `once` has ended, successfully or after too many failures."""
        return self._is_done or (self._once and self.schedule.failures >= _ATTEMPTS_ONCE)

    @property
    def is_stopping(self) -> bool:
        """Whether the hub is not captured any more, or is captured in another way from now on."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin no further micro-batch; the one that is under way is finished."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connection to the node; only while no run is under way."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def run(self) -> None:
        """Check the hub, and capture all windows that are due."""
        try:
            planner = self._open()
            while not self._stopping.is_set() and self._advance(planner):
                pass
            self._is_done = self._once
            self._on_success(planner)
        except Exception as error:  # noqa: BLE001  the top of a thread: other hubs go on
            self._on_failure(error)
        finally:
            self.is_busy = False

    def _open(self) -> HubPlanner:
        """The planner, with the state of the log: opened at the first run, and again after a failure."""
        if self._planner is not None:
            return self._planner
        self._log = BatchLog(open_storage(self._context, self._checkpoint))
        self._destination().sweep(self.hub.id, self.hub.names(self.hub.format, self.hub.encoding))
        planner = HubPlanner(self.hub)
        try:
            if self._once:
                planner.freeze_end()
            self._recover(self._log, planner)
            planner.check()
        except BaseException:
            planner.close()
            raise
        self._planner, self.has_started = planner, True
        self._on_change()
        return planner

    def _recover(self, batches: BatchLog, planner: HubPlanner) -> None:
        """Continue the log. A new one begins with the first windows, so that they outlast a restart of the job."""
        found = batches.recover()
        if found is None:
            first = planner.first_offset()
            batches.add(0, first.to_json())
            self._batch, self._offset, self._is_committed = 0, first, False
        else:
            self._batch, self._is_committed = found.batch, found.is_committed
            self._offset = CaptureOffset.from_json(found.offset)

    # --- micro-batches ---

    def _advance(self, planner: HubPlanner) -> bool:
        """Finish the micro-batch that was begun, or begin the next one; False if nothing is due."""
        assert self._log is not None, "it was opened"
        assert self._offset is not None, "it was recovered"
        if not self._is_committed:
            self._finish(self._log, self._offset)
            return True
        following = planner.next_offset(self._offset)
        if following is None:
            return False
        self._log.add(self._batch + 1, following.to_json())
        self._batch, self._offset, self._is_committed = self._batch + 1, following, False
        return True

    def _finish(self, batches: BatchLog, offset: CaptureOffset) -> None:
        files = run_tasks(self._context, self.hub, self._batch, files_of(self.hub, offset))
        destination = self._destination()
        with ThreadPoolExecutor(_PUBLISHERS) as publishers:
            list(publishers.map(lambda file: self._publish_file(destination, file), files))
        self._commit_table([file for file in files if file.encoding == CaptureEncoding.DELTA])
        self._record(files, destination)
        batches.commit(self._batch)
        self._is_committed = True
        self._on_change()

    def _publish_file(self, destination: Destination, file: WrittenFile) -> None:
        if file.token is not None:
            span = Span(self.hub.id, file.partition, file.first, file.end)
            destination.publish(file.name, span, file.token)

    def _commit_table(self, files: Sequence[WrittenFile]) -> None:
        """Add files to the log of the Delta table, which makes them visible to its readers."""
        if not files:
            return
        from hubmere.pipeline.capture.destinations.delta import DataFile, commit_files

        root = table_root(self.hub.namespace, self.hub.hub)
        named = [
            DataFile(file.name.removeprefix(root), file.partition, file.size_bytes, file.events, file.last_us // 1000)
            for file in files
        ]
        commit_files(f"{self.hub.target.url}/{root}", self.hub.target.options, self.hub.id, self._batch, named)

    def _destination(self) -> Destination:
        return destination_of(self.hub.target.url, self.hub.target.options)

    # --- reports and errors ---

    @property
    def error(self) -> str | None:
        """Why the last run failed, or else which events the last files lack."""
        return self._failure or self._loss

    def report(self) -> list[dict[str, Any]]:
        """The report on the partitions for the node."""
        offset = self._offset
        windows = {} if offset is None else {index: each.window for index, each in offset.partitions.items()}
        return self.ledger.report(windows if self._is_committed else {})

    def _record(self, files: Sequence[WrittenFile], destination: Destination) -> None:
        """Count and log the published files of a micro-batch."""
        ordered = sorted(files, key=lambda file: (file.partition, file.first, file.next_s))
        self.ledger.publish(self._batch, [(file, destination.url_of(file.name)) for file in ordered])
        if ordered:
            self._loss = next((_loss_text(file) for file in reversed(ordered) if file.lost), None)
        for file in ordered:
            log.info(
                "%s: partition %d, events %d to %d, %d bytes: %s",
                self.hub, file.partition, file.first, file.end - 1, file.size_bytes, file.name,
            )  # fmt: skip

    def _on_success(self, planner: HubPlanner) -> None:
        is_news, self._failure = self._failure is not None, None
        self.schedule.on_success(has_waiting=planner.has_waiting)
        if is_news:
            self._on_change()

    def _on_failure(self, error: Exception) -> None:
        self.close()
        if self._stopping.is_set():
            log.debug("%s: stopped", self.hub, exc_info=error)
            return
        log.debug("%s: failed", self.hub, exc_info=error)
        self._failure = self._without_secrets(f"{type(error).__name__}: {error}")
        pause_s = self.schedule.on_failure()
        log.error("%s: trying again in %g s: %s", self.hub, pause_s, self._failure)
        self._on_change()

    def _without_secrets(self, text: str) -> str:
        for secret in (*self.hub.target.secrets(), self.hub.account.connection_string):
            text = text.replace(secret, "***")
        return text[:_MAX_ERROR_CHARACTERS]


def _loss_text(file: WrittenFile) -> str:
    return (
        f"partition {file.partition}: {file.lost} events could not be captured: retention deleted them, "
        "or they are damaged on the node's disk"
    )
