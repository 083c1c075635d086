"""Runs the demo: a node in a child process, the workers, and a table of their activity. The data is deleted at the end
unless a data folder was given. Ends after a given time, or on Ctrl-C.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from hubmere.cli.arm.client import (
    DEFAULT_RESOURCE_GROUP,
    DEFAULT_SUBSCRIPTION,
    HUBS,
    NAMESPACES,
    Arm,
    merge,
)
from hubmere.cli.commands.pipeline import check_requirements
from hubmere.cli.demo.devices import Device, fleet
from hubmere.cli.demo.pipeline import RESULT_HUB, RESULT_PARTITIONS, STEPS, Pipeline
from hubmere.cli.demo.workers import AmqpPublisher, AmqpReader, HttpsPublisher, KafkaPublisher, KafkaReader, Worker
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.node import BearerToken, NodeTarget
from hubmere.node.ready import Ready
from hubmere.settings import HubSetting
from hubmere.testing import Node, NodeFailed

HUB = "telemetry"
DASHBOARD, BILLING = "dashboard", "billing"
_PARTITIONS = 4
# The shortest allowed window, so that files appear soon.
_CAPTURE = {"enabled": True, "encoding": "Avro", "intervalInSeconds": 60, "sizeLimitInBytes": 10 * 1024 * 1024}
_REFRESH_SECONDS = 0.5
# Without a terminal, a line is printed this often.
_LINE_SECONDS = 5.0
_END_SECONDS = 10.0
# The devices are divided equally among these protocols.
_PUBLISHERS = (("AMQP devices", AmqpPublisher), ("Kafka devices", KafkaPublisher), ("HTTPS devices", HttpsPublisher))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of the demo. Without `duration_s` it runs until Ctrl-C; without `data` it uses a temporary folder."""

    devices: int = 30
    events_per_second: float = 60.0
    duration_s: float | None = None
    is_captured: bool = True
    # None: if Spark is installed.
    has_pipeline: bool | None = None
    data: Path | None = None


def run(plan: Plan) -> None:
    """Run the demo; raises CommandFailed when the node does not start."""
    why_no_pipeline = _why_no_pipeline(plan)
    hubs = [
        HubSetting(name=HUB, partition_count=_PARTITIONS, consumer_groups=(DASHBOARD, *STEPS)),
        HubSetting(name=RESULT_HUB, partition_count=RESULT_PARTITIONS),
    ]
    try:
        with Node(hubs=hubs, data=plan.data) as node, _project_folder(plan) as folder:
            _say(node.ready, plan, why_no_pipeline or str(folder))
            if plan.is_captured:
                capture(node.ready)
            workers = _workers(node.ready, plan)
            if why_no_pipeline is None:
                workers.append(Pipeline(f"pipeline to {RESULT_HUB}", node.ready, HUB, folder))
            with _working(workers), suppress(KeyboardInterrupt):
                _watch(workers, plan.duration_s)
            _print_totals(workers)
    except NodeFailed as failed:
        raise CommandFailed(Exit.FAILED, str(failed)) from failed


def _why_no_pipeline(plan: Plan) -> str | None:
    """Why the demo runs no pipeline; None if it runs one. CommandFailed if it was asked for and cannot run."""
    if plan.has_pipeline is False:
        return "none, as asked"
    try:
        check_requirements(os.environ)
    except CommandFailed as missing:
        if plan.has_pipeline:
            raise
        return f"none: {'; '.join(missing.lines)}"
    return None


@contextmanager
def _project_folder(plan: Plan) -> Iterator[Path]:
    """The folder of the pipeline's project: inside the data folder if that is kept."""
    if plan.data is not None:
        yield plan.data.resolve() / "demo-pipeline"
        return
    with tempfile.TemporaryDirectory(prefix="hubmere-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _say(ready: Ready, plan: Plan, pipeline: str) -> None:
    console = Console()
    console.print("A node runs, with devices that publish and readers that read.", highlight=False)
    for name, value in (
        ("portal", ready.portal), ("connection string", ready.emulator_connection_string), ("Kafka", ready.kafka),
        ("data", ready.data), ("pipeline", pipeline),
    ):  # fmt: skip
        console.print(f"  {name:<18}{value}", highlight=False, soft_wrap=True)
    console.print("Ctrl-C ends it." if plan.duration_s is None else f"It ends after {plan.duration_s:g} s.")


def capture(ready: Ready) -> None:
    """Enable Capture over ARM, as management tools do."""
    url = ready.http or ready.https
    assert url is not None
    where = NodeTarget(url=url.rstrip("/"), credential=BearerToken(ready.admin_token), ca_file=ready.ca_file)
    arm = Arm(where, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP)
    at = (NAMESPACES, ready.namespace, HUBS, HUB)
    arm.put(at, merge(arm.get(at), {"properties": {"captureDescription": _CAPTURE}}))
    arm.close()


def _workers(ready: Ready, plan: Plan) -> list[Worker]:
    devices = list(fleet(max(plan.devices, len(_PUBLISHERS))))
    rate = plan.events_per_second / len(_PUBLISHERS)
    publishers = [
        kind(name, ready, HUB, _share(devices, at), rate) for at, (name, kind) in enumerate(_PUBLISHERS)
    ]  # fmt: skip
    readers = [
        AmqpReader(f"AMQP reader, group {DASHBOARD}", ready, HUB, DASHBOARD, _PARTITIONS),
        KafkaReader(f"Kafka reader, group {BILLING}", ready, HUB, BILLING),
    ]
    return [*publishers, *readers]


def _share(devices: Sequence[Device], at: int) -> list[Device]:
    return list(devices[at :: len(_PUBLISHERS)])


@contextmanager
def _working(workers: list[Worker]) -> Iterator[list[Worker]]:
    """Start the workers; end them when the context is left."""
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.join(_END_SECONDS)


# --- what is shown ---------------------------------------------------------------------------------------------------


def _watch(workers: Sequence[Worker], duration_s: float | None) -> None:
    """Show the activity until the time is over."""
    started_s = time.monotonic()
    seen: dict[str, int] = {}
    is_terminal = sys.stdout.isatty()
    pause_s = _REFRESH_SECONDS if is_terminal else _LINE_SECONDS
    with ExitStack() as stack:
        live = stack.enter_context(Live(_table(workers, seen, pause_s), transient=True)) if is_terminal else None
        while (left_s := _seconds_left(started_s, duration_s)) > 0:
            time.sleep(min(pause_s, left_s))
            if live is not None:
                live.update(_table(workers, seen, pause_s))
            else:
                _print_line(workers)
            seen = {worker.name: worker.done for worker in workers}


def _seconds_left(started_s: float, duration_s: float | None) -> float:
    return float("inf") if duration_s is None else started_s + duration_s - time.monotonic()


def _table(workers: Sequence[Worker], seen: dict[str, int], pause_s: float) -> Table:
    table = Table("who", "events", "per second", "trouble", box=None, pad_edge=False)
    for worker in workers:
        rate = (worker.done - seen.get(worker.name, worker.done)) / pause_s
        table.add_row(worker.name, f"{worker.done:,}", f"{rate:,.0f}", worker.trouble or "")
    return table


def _print_line(workers: Sequence[Worker]) -> None:
    texts = (f"{worker.name}: {worker.trouble or worker.done}" for worker in workers)
    sys.stdout.write("; ".join(texts) + "\n")
    sys.stdout.flush()


def _print_totals(workers: Sequence[Worker]) -> None:
    for worker in workers:
        sys.stdout.write(f"{worker.name}: {worker.done} events\n")
