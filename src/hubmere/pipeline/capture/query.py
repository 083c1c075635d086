"""One captured hub as one Structured Streaming query: started, published from, restarted after a failure.

The query's sink publishes the files that the tasks of a micro-batch have staged, after the offset that determines those
files is on disk. A query that fails is restarted with back-off; Spark repeats its last micro-batch from the checkpoint,
with the same files.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.checkpoints import anchor, make_durable, mend
from hubmere.pipeline.capture.destinations import Destination, destination_of
from hubmere.pipeline.capture.files.names import Span, table_root
from hubmere.pipeline.capture.ledger import HubLedger
from hubmere.pipeline.capture.plan import HubPlan, hub_json
from hubmere.pipeline.capture.source import COLUMN, NAME, PLAN_OPTION, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("hubmere.capture")

# How often windows are checked: their times are whole seconds.
_TRIGGER: Final = "1 second"
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# A query that ran this long before it failed starts its back-off from the beginning.
_HEALTHY_AFTER_S: Final = 120.0
# Attempts of a run with `once`.
_ATTEMPTS_ONCE: Final = 3
# Status messages of Spark for a query whose source answers; before that, Spark starts processes.
_IDLE: Final = "Waiting"
_RUNNING: Final = (_IDLE, "Processing")
# Object stores take tens of milliseconds per call: files of a micro-batch are published in parallel.
_PUBLISHERS: Final = 8
_STOP_POLL_S: Final = 0.05


class CaptureQuery:
    """One hub. Thread rule: the job's main thread, except for `_publish`, which Spark calls on a thread of its own."""

    def __init__(
        self, spark: "SparkSession", hub: HubPlan, checkpoint: str, *, once: bool, on_published: Callable[[], None]
    ) -> None:
        self.hub = hub
        self._spark = spark
        self._checkpoint = checkpoint
        self._folder = local_folder(checkpoint)
        self._once = once
        self._on_published = on_published
        self.ledger = HubLedger(hub, self._folder)
        self._query: StreamingQuery | None = None
        self._started_at_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._resume_at_s = 0.0
        self._is_done = False
        self._failures = 0
        # Starting is expensive (processes): the job starts only a few queries at a time.
        self.is_starting = False
        # Whether the source has answered since the last start: before that, nothing can be captured.
        self.has_started = False
        self.error: str | None = None
        self._trouble: str | None = None

    # --- life ---

    def advance(self, now_s: float, *, may_start: bool) -> None:
        """Start the query when it is due, and update the state when it has started, failed or finished."""
        if self._query is None:
            if may_start and now_s >= self._resume_at_s and not self.is_finished:
                self._start(now_s)
        elif not self._query.isActive:
            failure = self._query.exception()
            self._query, self.is_starting = None, False
            if failure is not None:
                self._on_failure(str(failure), now_s)
            else:
                self._is_done = self.has_started = self._once
                self._on_recovered()
        else:
            message = self._query.status["message"]
            self.has_started = self.has_started or message.startswith(_RUNNING)
            self.is_starting = self.is_starting and not self.has_started
            if message.startswith(_IDLE):
                self._on_recovered()

    def _on_recovered(self) -> None:
        """Clear the error of an earlier failure."""
        if self._failures:
            self._failures, self.error = 0, None

    @property
    def is_finished(self) -> bool:
        """Whether a run with `once` has ended, successfully or after too many failures."""
        return self._is_done or (self._once and self._failures >= _ATTEMPTS_ONCE)

    def stop(self, deadline_s: float) -> None:
        """End the query, between two micro-batches if that comes before the deadline (of the monotonic clock)."""
        query, self._query = self._query, None
        self.is_starting = False
        if query is None:
            return
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(_STOP_POLL_S)
        query.stop()

    def _start(self, now_s: float) -> None:
        self._started_at_s = now_s
        self.is_starting, self.has_started = True, False
        try:
            if self._folder is not None:
                anchor(self._folder)
                for torn in mend(self._folder):
                    log.warning("%s: %s was incomplete and is repeated", self.hub, torn)
            self._destination().sweep(self.hub.id, self.hub.names(self.hub.format, self.hub.encoding))
            self._query = self._start_query()
        except Exception as error:
            log.debug("%s: not started", self.hub, exc_info=True)
            self._on_failure(f"{type(error).__name__}: {error}", now_s)

    def _start_query(self) -> "StreamingQuery":
        rows = self._spark.readStream.format(NAME).option(PLAN_OPTION, hub_json(self.hub)).load()
        writer = rows.writeStream.queryName(f"{self.hub} {self.hub.id}").foreachBatch(self._publish)
        writer = writer.option("checkpointLocation", self._checkpoint)
        triggered = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=_TRIGGER)
        return triggered.start()

    def _on_failure(self, why: str, now_s: float) -> None:
        if now_s - self._started_at_s >= _HEALTHY_AFTER_S:
            self._pause_s = _FIRST_PAUSE_S
        self.is_starting = False
        self._failures += 1
        self.error = self._without_secrets(why)
        self._resume_at_s = now_s + self._pause_s
        log.error("%s: restarting in %g s: %s", self.hub, self._pause_s, self.error)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def _without_secrets(self, why: str) -> str:
        """The most informative line of an error, without credentials."""
        lines = [line.strip() for line in why.splitlines() if line.strip()]
        noise = ("at ", "File ", "Traceback", "During", "^", "===")
        candidates = [line for line in lines if not line.startswith(noise)]
        text = self._trouble or (candidates[0] if candidates else "the query ended without a reason")
        self._trouble = None
        for secret in (*self.hub.target.secrets(), self.hub.account.connection_string):
            text = text.replace(secret, "***")
        return text[:1000]

    # --- publishing ---

    def _publish(self, rows: "DataFrame", batch: int) -> None:
        """Publish the files that the tasks of a micro-batch have staged. Collecting the rows is what runs the tasks."""
        files = [WrittenFile(**json.loads(row[COLUMN])) for row in rows.collect()]
        if self._folder is not None:
            make_durable(self._folder, batch)
        destination = self._destination()
        try:
            with ThreadPoolExecutor(_PUBLISHERS) as publishers:
                list(publishers.map(lambda file: self._publish_file(destination, file), files))
            self._commit_table(batch, [file for file in files if file.encoding == CaptureEncoding.DELTA])
        except Exception as error:
            # Spark reports a Java trace; this is the text for the report.
            self._trouble = f"{type(error).__name__}: {error}"
            raise
        self._note(batch, files, destination)

    def _publish_file(self, destination: Destination, file: WrittenFile) -> None:
        if file.token is not None:
            span = Span(self.hub.id, file.partition, file.first, file.end)
            destination.publish(file.name, span, file.token)

    def _commit_table(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Add files to the log of the Delta table, which makes them visible to its readers."""
        if not files:
            return
        from hubmere.pipeline.capture.destinations.delta import DataFile, commit_files

        root = table_root(self.hub.namespace, self.hub.hub)
        named = [
            DataFile(file.name.removeprefix(root), file.partition, file.size_bytes, file.events, file.last_us // 1000)
            for file in files
        ]
        commit_files(f"{self.hub.target.url}/{root}", self.hub.target.options, self.hub.id, batch, named)

    def _note(self, batch: int, files: Sequence[WrittenFile], destination: Destination) -> None:
        ordered = sorted(files, key=lambda file: (file.partition, file.first, file.next_s))
        self.ledger.publish(batch, [(file, destination.url_of(file.name)) for file in ordered])
        lost = [file for file in ordered if file.lost]
        self.error = (
            f"partition {lost[-1].partition}: {lost[-1].lost} events could not be captured: retention deleted them, "
            "or they are damaged on the node's disk"
            if lost
            else None
        )
        self._pause_s, self._failures = _FIRST_PAUSE_S, 0
        for file in ordered:
            log.info(
                "%s: partition %d, events %d to %d, %d bytes: %s",
                self.hub, file.partition, file.first, file.end - 1, file.size_bytes, file.name,
            )  # fmt: skip
        self._on_published()

    def _destination(self) -> Destination:
        return destination_of(self.hub.target.url, self.hub.target.options)


def local_folder(location: str) -> Path | None:
    """The folder of a location on this machine; None for one that only Spark's file systems know."""
    parts = urlsplit(location)
    if parts.scheme == "":
        return Path(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
