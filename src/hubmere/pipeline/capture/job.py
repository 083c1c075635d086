"""The capture application: one Spark application for all captured hubs of a node.

    python -m hubmere.pipeline.capture --node URL --checkpoint-location DIR [--ca-file F] [--ready-file F] [--once]

Fetches the plan from the node every few seconds, checks each captured hub, writes the files that are due in tasks of
Spark, and reports the progress. This process plans for all hubs; Spark's Python processes exist only while files are
written. A hub that fails does not affect the others; an unreachable node is tried again. SIGTERM, or the end of
standard input when the parent process dies, stops the job after the running micro-batches. `--once` captures all
present events, closes all windows and ends. Spark's own settings come from spark-submit.
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

from hubmere.pipeline.capture.hub import HubCapture
from hubmere.pipeline.capture.node_client import MissingToken, NodeClient, NodeUnavailable, find_token
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.workers import Workers

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("hubmere.capture")

# How often the plan is fetched. Progress is reported when it has changed, and regularly as a sign of life.
_POLL_S: Final = 2.0
_REPORT_S: Final = 10.0
_TEND_S: Final = 0.25
# A micro-batch writes a few files per partition; one that takes longer is aborted and repeated at the next start.
STOP_BOUND_S: Final = 20.0
_FAILED, _USAGE = 1, 2
_STARTING, _RUNNING = "starting", "running"
_STOP_POLL_S: Final = 0.05


class SparkGone(Exception):
    """The Spark context of the job has ended."""


class Application:
    """All captured hubs of one node. Thread rule: one owner, except for `stop`."""

    def __init__(self, context: "SparkContext", client: NodeClient, checkpoints: str, *, once: bool) -> None:
        self._context = context
        self._client = client
        self._checkpoints = checkpoints.rstrip("/")
        self._once = once
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._workers = Workers()
        self._hubs: dict[tuple[str, str, str], HubCapture] = {}
        self._last_report: dict[str, Any] = {}
        self._reported_at_s = 0.0
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
                self._check_spark()
                self._follow(self._fetch_plan())
                next_poll_s = now_s + _POLL_S
            self._start_due()
            if self._changed.is_set() or now_s >= self._reported_at_s + _REPORT_S:
                self._changed.clear()
                self._report(self._state())
            if self._once and self._is_finished():
                break
            self._stopping.wait(_TEND_S)
        self._end_all()
        return _FAILED if self._once and any(hub.error for hub in self._hubs.values()) else 0

    def _check_spark(self) -> None:
        """Raise if the JVM or its context has ended: the job ends too, and its supervisor restarts it."""
        jsc: Any = self._context._jsc
        if jsc.sc().isStopped():
            raise SparkGone("Spark's context has stopped")

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
        """Stop the captures of removed or changed hubs, and create those of new hubs.

        A running capture finishes its micro-batch first: two captures must never use the same checkpoint.
        """
        if wanted is None or (self._once and self._hubs):
            return
        for key in [key for key, hub in self._hubs.items() if wanted.get(key) != hub.hub]:
            self._hubs[key].stop()
            if not self._hubs[key].is_busy:
                self._hubs.pop(key).close()
                self._changed.set()
        for key, plan in wanted.items():
            if key not in self._hubs:
                checkpoint = "/".join((self._checkpoints, *key))
                self._hubs[key] = HubCapture(
                    self._context, plan, checkpoint, once=self._once, on_change=self._changed.set
                )
                self._changed.set()

    def _start_due(self) -> None:
        for hub in self._hubs.values():
            if not hub.is_busy and not hub.is_stopping and not hub.is_finished and hub.schedule.is_due():
                hub.is_busy = True
                self._workers.submit(hub.run)

    def _is_finished(self) -> bool:
        hubs = self._hubs.values()
        return not self._is_away and all(hub.is_finished and not hub.is_busy for hub in hubs)

    def _end_all(self) -> None:
        deadline_s = time.monotonic() + STOP_BOUND_S
        for hub in self._hubs.values():
            hub.stop()
        while any(hub.is_busy for hub in self._hubs.values()) and time.monotonic() < deadline_s:
            time.sleep(_STOP_POLL_S)
        for hub in self._hubs.values():
            if not hub.is_busy:
                hub.close()
        self._report("stopped")
        self._client.close()

    # --- reports ---

    def _state(self) -> str:
        """State of the job; it is "starting" until one hub and its destination were reached."""
        hubs = self._hubs.values()
        return _STARTING if hubs and not any(hub.has_started for hub in hubs) else _RUNNING

    def _report(self, state: str) -> None:
        """Report to the node, unless the last report was the same and is recent."""
        job = {
            "pid": os.getpid(),
            "state": state,
            "sparkVersion": self._context.version,
            "master": self._context.master,
        }
        now_s = time.monotonic()
        report = {"job": job, "hubs": [_hub_report(key, hub) for key, hub in self._hubs.items()]}
        if report == self._last_report and now_s < self._reported_at_s + _REPORT_S:
            return
        self._reported_at_s = now_s
        try:
            self._client.report(report)
            self._last_report = report
        except NodeUnavailable as away:
            log.debug("%s", away)
            self._reported_at_s = now_s + _POLL_S - _REPORT_S


def _hub_report(key: tuple[str, str, str], capture: HubCapture) -> dict[str, Any]:
    namespace, hub, incarnation = key
    return {
        "namespace": namespace,
        "hub": hub,
        "id": incarnation,
        "state": _RUNNING if capture.has_started else _STARTING,
        "error": capture.error,
        "partitions": capture.report(),
    }


# --- the process -----------------------------------------------------------------------------------------------------


def a_context() -> "SparkContext":
    """Spark with the settings of the caller. Only its core is used: a session would load SQL into the JVM."""
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkContext.getOrCreate(SparkConf().setAppName("hubmere-capture"))


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
    context = a_context()
    application = Application(context, client, given.checkpoint_location, once=given.once)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: application.stop())
    if not given.detached:
        stop_when_alone(application)
    try:
        return application.run()
    finally:
        context.stop()
