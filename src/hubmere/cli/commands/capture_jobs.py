"""`hubmere capture verify` and `hubmere capture run`: compare captured files with the log, and run the capture job
elsewhere.

Both get the capture plan from the node, which requires the administrator's token. `verify` only reads. `run` calls
`spark-submit` and passes all further arguments to it. Spark and Arrow are imported when a command needs them.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from hubmere.capture.java import CannotRun, find_java, require_pyspark
from hubmere.cli.arm.client import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION, Arm
from hubmere.cli.arm.verbs import NODE_OPTIONS, AzCommand, option, take_node, with_signature
from hubmere.cli.commands.events.counting import open_counter
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.results import Output, render
from hubmere.cli.target.http import NodeHttp
from hubmere.cli.target.node import TOKEN_VARIABLE, BearerToken, NodeTarget
from hubmere.model.capture.targets import PLAN_PATH
from hubmere.model.extras import install_command

if TYPE_CHECKING:
    from hubmere.pipeline.capture.plan import HubPlan
    from hubmere.pipeline.capture.verify import Proof

_COLUMNS: Final = (
    ("Partition", "partition"),
    ("Files", "files"),
    ("Events", "events"),
    ("First", "first"),
    ("End", "end"),
    ("Compared", "compared"),
    ("Waiting", "waiting"),
)
# Spark settings of the job, wherever it runs; settings on the command line override them.
_SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.scheduler.mode": "FAIR",
}
_DEFAULT_MASTER: Final = "local[*,4]"


# --- verify ----------------------------------------------------------------------------------------------------------


def _verify(given: dict[str, Any]) -> None:
    namespace, hub_name = given.pop("namespace_name"), given.pop("eventhub_name")
    destination, output = given.pop("destination"), given.pop("output")
    _require("fastavro", "pyarrow")
    hub = _planned_hub(take_node(given), namespace, hub_name)
    if destination:
        hub = replace(hub, target=replace(hub.target, url=destination.rstrip("/")))
    proof = _proof(hub)
    typer.echo(_report(proof) if output is Output.TABLE else render(_shape(proof), output, _COLUMNS))
    if not proof.holds:
        count_text = f"{len(proof.problems)} problems" if len(proof.problems) > 1 else "one problem"
        raise CommandFailed(Exit.FAILED, f"the files of '{hub}' at {hub.target.url} have {count_text}", *proof.problems)


def _planned_hub(target: NodeTarget, namespace: str | None, name: str) -> "HubPlan":
    """The hub in the node's capture plan."""
    from hubmere.pipeline.capture.plan import InvalidPlan, read_plan

    with closing(NodeHttp(target)) as http, closing(Arm(target, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP)) as arm:
        answer = http.request("GET", PLAN_PATH)
        wanted = arm.namespace(namespace)
    try:
        hubs = read_plan(answer.body).values()
    except InvalidPlan as error:
        raise CommandFailed(Exit.FAILED, f"{target.url}{PLAN_PATH} is not a plan: {error}") from None
    for hub in hubs:
        if (hub.namespace.lower(), hub.hub.lower()) == (wanted.lower(), name.lower()):
            return hub
    captured = ", ".join(str(hub) for hub in hubs) or "none"
    raise CommandFailed(Exit.FAILED, f"the hub '{name}' of '{wanted}' is not captured; captured are: {captured}")


def _proof(hub: "HubPlan") -> "Proof":
    from hubmere.client.failures import ClientFailure
    from hubmere.pipeline.capture.destinations import DestinationFailed
    from hubmere.pipeline.capture.verify import verify

    try:
        with open_counter(None) as bar:
            return verify(hub, bar.advance)
    except (ClientFailure, DestinationFailed) as failure:
        raise CommandFailed(Exit.FAILED, str(failure)) from None


def _shape(proof: "Proof") -> dict[str, Any]:
    return {
        "holds": proof.holds,
        "partitions": [{path: getattr(each, path) for _, path in _COLUMNS} for each in proof.partitions],
        "earlierFiles": proof.earlier,
        "problems": list(proof.problems),
    }


def _report(proof: "Proof") -> str:
    table = render(_shape(proof)["partitions"], Output.TABLE, _COLUMNS)
    files, events = (sum(getattr(each, name) for each in proof.partitions) for name in ("files", "events"))
    verdict = "every event once, in order" if proof.holds else "NOT as the log is"
    earlier = f"\n{proof.earlier} files belong to an earlier capture of the hub and were skipped" * bool(proof.earlier)
    return f"{table}\n\n{files} files, {events} events: {verdict}{earlier}"


# --- run -------------------------------------------------------------------------------------------------------------


def _run(given: dict[str, Any]) -> None:
    once, checkpoints = given.pop("once"), given.pop("checkpoint_location")
    master, node, further = given.pop("master"), given.pop("node"), given.pop("spark_arguments")
    if node is not None:
        given["url"] = node
    target = take_node(given)
    if not isinstance(target.credential, BearerToken):
        raise CommandFailed(Exit.USAGE, f"the administrator's token is needed: --token or {TOKEN_VARIABLE}")
    _require("fastavro", "pyarrow", "pyspark")
    words = submit_words(target, master, str(checkpoints), once=once, further=further or ())
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **os.environ,
        TOKEN_VARIABLE: target.credential.token,
    }
    code = subprocess.run(words, env=environment, check=False).returncode  # noqa: S603  our own command line
    if code:
        raise CommandFailed(Exit.FAILED, f"the capture job ended with code {code}")


def submit_words(
    target: NodeTarget, master: str, checkpoints: str, *, once: bool, further: Sequence[str]
) -> tuple[str, ...]:
    """The command line of `spark-submit`: settings first, so that those of the user override them, then the job."""
    spark, job = find_spec("pyspark"), find_spec("hubmere.pipeline.capture")
    assert spark is not None, "it was required"
    assert spark.origin is not None, "it is a package"
    assert job is not None, "it is ours"
    assert job.origin is not None, "it is a package"
    try:
        require_pyspark()
        find_java(None, os.environ)
    except CannotRun as missing:
        raise CommandFailed(Exit.FAILED, str(missing)) from None
    settings = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    return (
        str(Path(spark.origin).with_name("bin") / "spark-submit"),
        "--master", master, *settings, *further,
        str(Path(job.origin).with_name("__main__.py")),
        "--node", target.url, "--checkpoint-location", checkpoints, "--detached",
        *(("--ca-file", target.ca_file) if target.ca_file else ()), *(("--once",) if once else ()),
    )  # fmt: skip


def _require(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            Exit.FAILED, f"{' and '.join(missing)} not installed", f"install with: {install_command('capture')}"
        )


# --- the commands ----------------------------------------------------------------------------------------------------

_VERIFY_OPTIONS: Final = (
    option(
        "namespace_name", str | None, "--namespace-name", metavar="NAME",
        help="Name of the namespace. Default: the node's own.",
    ),
    option(
        "eventhub_name", str, "--eventhub-name", "--name", "-n", default=inspect.Parameter.empty, metavar="NAME",
        help="Name of the event hub.",
    ),
    option(
        "destination", str | None, "--destination", metavar="URL",
        help="Location of the files, if it is not the one in the hub's settings: a copy, for example.",
    ),
    option(
        "output", Output, "--output", "-o", default=Output.TABLE, case_sensitive=False, metavar="|".join(Output),
        help="Format of the result. Default: table.",
    ),
    *NODE_OPTIONS,
)  # fmt: skip
_VERIFY_HELP: Final = """Check that captured files hold every event of a hub's log exactly once and in order.

If they do not, print the differences and end with exit code 1. Reads all files and the log; changes nothing.
"""
_RUN_OPTIONS: Final = (
    option("node", str | None, "--node", metavar="URL", help="HTTP or HTTPS address of the node; the same as --url."),
    option(
        "master", str, "--master", default=_DEFAULT_MASTER, metavar="URL",
        help=f"Where Spark runs: spark://..., k8s://..., yarn or local[N,4]. Default: {_DEFAULT_MASTER}.",
    ),
    option(
        "checkpoint_location", str, "--checkpoint-location", default=inspect.Parameter.empty, metavar="DIR",
        help="Folder for Spark's checkpoint. It belongs to the captured files: use the same one in every run.",
    ),
    option("once", bool, "--once", default=False, help="Capture all stored events, close all windows and end."),
    option(
        "spark_arguments", list[str] | None, "--spark", metavar="ARGUMENT",
        help="Further argument of spark-submit, such as --spark=--conf --spark=spark.executor.memory=2g.",
    ),
    *NODE_OPTIONS,
)  # fmt: skip
_RUN_HELP: Final = """Run the capture job of a node on this machine or on a Spark cluster, until it is stopped.

The node must not run it as well: set capture_supervise = false there.
"""


def add_jobs(app: typer.Typer) -> None:
    """Add both commands to the group."""
    app.command("verify", help=_VERIFY_HELP, cls=AzCommand)(with_signature(_verify, _VERIFY_OPTIONS))
    app.command("run", help=_RUN_HELP)(with_signature(_run, _RUN_OPTIONS))
