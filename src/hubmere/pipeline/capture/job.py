"""The capture application: one Spark application for all captured hubs of a node.

    python -m hubmere.pipeline.capture --node URL --checkpoint-location DIR [--ca-file F] [--ready-file F] [--once]

Asks the node every few seconds which hubs to capture, runs one query for each, and reports their progress. A hub that
fails does not disturb the others; an unreachable node is asked again. SIGTERM, or the end of standard input when the
parent process dies, stops the job after the running micro-batches. `--once` captures all present events, closes all
windows and ends. Spark's own settings come from spark-submit.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hubmere.pipeline.capture.node_client import MissingToken, NodeClient, NodeUnavailable, find_token
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.query import CaptureQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("hubmere.capture")

# How often the plan is fetched and progress is reported; progress is also reported right after a publication.
_POLL_S: Final = 2.0
_TEND_S: Final = 0.25
# A micro-batch writes a few files per partition; one that takes longer is aborted and repeated at the next start.
STOP_BOUND_S: Final = 20.0
# Each source starts a process that imports PySpark; too many at once would slow each other down.
_MAX_COMING_UP: Final = 2
_FAILED, _USAGE = 1, 2
_STARTING, _RUNNING = "starting", "running"


class Application:
    """All queries of one node. Thread rule: one owner, except for `stop`."""

    def __init__(self, spark: "SparkSession", client: NodeClient, checkpoints: str, *, once: bool) -> None:
        self._spark = spark
        self._client = client
        self._checkpoints = checkpoints.rstrip("/")
        self._once = once
        self._stopping = threading.Event()
        self._reports = threading.Event()
        self._queries: dict[tuple[str, str, str], CaptureQuery] = {}
        self._is_away = False

    def stop(self) -> None:
        """Request the end; may be called from any thread and from a signal handler."""
        self._stopping.set()

    def run(self) -> int:
        """Run until stopped, or with `once` until everything is captured; returns the exit code."""
        next_poll_s = 0.0
        while not self._stopping.is_set():
            now_s = time.monotonic()
            if now_s >= next_poll_s:
                self._follow(self._fetch_plan())
                next_poll_s = now_s + _POLL_S
                self._reports.set()
            self._tend(now_s)
            if self._reports.is_set():
                self._reports.clear()
                self._report(self._state())
            if self._once and self._is_finished():
                break
            self._stopping.wait(_TEND_S)
        self._end_all()
        return _FAILED if self._once and any(query.error for query in self._queries.values()) else 0

    # --- hubs ---

    def _fetch_plan(self) -> Mapping[tuple[str, str, str], HubPlan] | None:
        try:
            found = self._client.plan()
        except NodeUnavailable as away:
            if not self._is_away:
                log.warning("%s", away)
            self._is_away = True
            return None
        self._is_away = False
        return found

    def _follow(self, wanted: Mapping[tuple[str, str, str], HubPlan] | None) -> None:
        """Stop the queries of removed or changed hubs, and create those of new hubs."""
        if wanted is None or (self._once and self._queries):
            return
        for key in [key for key, query in self._queries.items() if wanted.get(key) != query.hub]:
            self._queries.pop(key).stop(time.monotonic() + STOP_BOUND_S)
        for key, hub in wanted.items():
            if key not in self._queries:
                checkpoint = "/".join((self._checkpoints, *key))
                self._queries[key] = CaptureQuery(
                    self._spark, hub, checkpoint, once=self._once, on_published=self._reports.set
                )

    def _tend(self, now_s: float) -> None:
        for query in self._queries.values():
            coming_up = sum(each.is_starting for each in self._queries.values())
            query.advance(now_s, may_start=coming_up < _MAX_COMING_UP)

    def _is_finished(self) -> bool:
        return not self._is_away and all(query.is_finished for query in self._queries.values())

    def _end_all(self) -> None:
        deadline_s = time.monotonic() + STOP_BOUND_S
        for query in self._queries.values():
            query.stop(deadline_s)
        self._report("stopped")
        self._client.close()

    # --- reports ---

    def _state(self) -> str:
        """Report the state of each hub; it is "starting" until its query has reached the node."""
        queries = self._queries.values()
        return _STARTING if queries and not any(query.has_started for query in queries) else _RUNNING

    def _report(self, state: str) -> None:
        job = {
            "pid": os.getpid(),
            "state": state,
            "sparkVersion": self._spark.version,
            "master": self._spark.sparkContext.master,
        }
        hubs = [self._hub_report(key, query) for key, query in self._queries.items()]
        try:
            self._client.report({"job": job, "hubs": hubs})
        except NodeUnavailable as away:
            log.debug("%s", away)

    def _hub_report(self, key: tuple[str, str, str], query: CaptureQuery) -> dict[str, Any]:
        namespace, hub, incarnation = key
        return {
            "namespace": namespace,
            "hub": hub,
            "id": incarnation,
            "state": _RUNNING if query.has_started else _STARTING,
            "error": query.error,
            "partitions": query.ledger.report(),
        }


# --- the process -----------------------------------------------------------------------------------------------------


def a_session() -> "SparkSession":
    """A Spark session with the settings of the caller, and the capture source registered."""
    from pyspark.sql import SparkSession

    from hubmere.pipeline.capture.source import CaptureSource

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("hubmere-capture").getOrCreate()
    spark.dataSource.register(CaptureSource)
    return spark


def stop_when_alone(application: Application) -> None:
    """End when the process that started the job ends: it holds the other end of standard input."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        application.stop()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="hubmere-capture", description="Capture the hubs of a node.")
    parser.add_argument("--node", required=True, metavar="URL", help="HTTP or HTTPS address of the node")
    parser.add_argument("--checkpoint-location", required=True, metavar="DIR", help="folder for Spark's checkpoint")
    parser.add_argument(
        "--ca-file", metavar="FILE", help="certificate of the authority that signed the node's certificate"
    )
    parser.add_argument("--ready-file", metavar="FILE", help="the node's ready file, for its token")
    parser.add_argument("--once", action="store_true", help="capture all present events, close all windows and end")
    parser.add_argument("--detached", action="store_true", help="do not end with standard input")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the application; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    given = arguments(argv)
    try:
        client = NodeClient(given.node, find_token(given.ready_file), given.ca_file)
    except MissingToken as missing:
        log.error("%s", missing)
        return _USAGE
    spark = a_session()
    application = Application(spark, client, given.checkpoint_location, once=given.once)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: application.stop())
    if not given.detached:
        stop_when_alone(application)
    try:
        return application.run()
    finally:
        spark.stop()
