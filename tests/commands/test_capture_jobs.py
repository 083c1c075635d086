"""`hubmere capture verify` and `run` on a real node, whose plan says what is captured and where the files are."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from client.hubs import Hubs, bodies
from commands.runner import at, hubmere
from hubmere.cli.commands.capture_jobs import submit_words
from hubmere.cli.target.node import BearerToken, NodeTarget
from hubmere.pipeline.capture.node_client import NodeClient
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.testing import Node
from pipeline.capture.runs import capture


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node that does not start the capture job itself."""
    with Node(hubs=["orders", "quiet"], settings={"capture_supervise": False}) as running:
        yield running


@pytest.fixture
def plan(node: Node) -> HubPlan:
    """The hub in the node's plan, created for each test."""
    assert at(node, "capture", "disable", "--name", "orders").code == 0
    assert at(node, "capture", "enable", "--name", "orders", "--skip-empty-archives", "true").code == 0
    with closing(NodeClient(node.http, node.admin_token, None)) as client:
        (hub,) = client.plan().values()
    return hub


def publish(node: Node, name: str) -> None:
    hubs = Hubs(node)
    hubs.publish("orders", 0, bodies(20, name))
    hubs.publish("orders", 3, bodies(30, name))
    hubs.client.close()


def test_captured_files_are_verified_at_their_destination(node: Node, plan: HubPlan) -> None:
    """Events from before Capture was enabled are in no file, and are not reported as missing."""
    publish(node, "proven")
    capture(plan)

    run = at(node, "capture", "verify", "--eventhub-name", "orders")
    found = at(node, "capture", "verify", "--eventhub-name", "orders", "--output", "json").json

    assert "2 files, 50 events: every event once, in order" in run.lines
    assert [each["events"] for each in found["partitions"]] == [20, 0, 0, 30]
    assert found["holds"] is True


def test_missing_events_end_with_a_failure_that_names_them(node: Node, plan: HubPlan) -> None:
    """A script may rely on the exit code."""
    publish(node, "missing")
    written = capture(plan)
    first = written[0]
    publish(node, "more")
    capture(replace(plan, since={**plan.since, **{each.partition: each.end for each in written}}))
    Path(plan.target.url.removeprefix("file://"), first.name).unlink()

    run = at(node, "capture", "verify", "--eventhub-name", "orders")

    assert run.code == 1
    assert "a gap" in run.err
    assert "NOT as the log is" in run.out


def test_copy_of_the_files_is_checked_by_its_url(node: Node, plan: HubPlan, tmp_path: Path) -> None:
    """An empty folder has no event of the log."""
    publish(node, "copy")

    found = at(
        node, "capture", "verify", "--eventhub-name", "orders", "--destination", tmp_path.as_uri(), "-o", "json"
    ).json

    assert [each["waiting"] for each in found["partitions"]] == [20, 0, 0, 30]


def test_hub_that_is_not_captured_is_reported(node: Node, plan: HubPlan) -> None:
    """The error lists the captured hubs."""
    run = at(node, "capture", "verify", "--eventhub-name", "quiet")

    assert run.code == 1
    assert f"captured are: {node.namespace}/orders" in run.err


def test_command_line_of_spark_submit_has_no_secret_and_the_users_options_last() -> None:
    """All users of the machine can see command lines."""
    where = NodeTarget(url="https://events.example.org:5301", credential=BearerToken("the-token"), ca_file="/ca.pem")

    words = submit_words(where, "yarn", "/shared", once=True, further=("--conf", "spark.executor.memory=2g"))

    assert Path(words[0]).name == "spark-submit"
    assert words[1:3] == ("--master", "yarn")
    assert words.index("spark.executor.memory=2g") > words.index("spark.scheduler.mode=FAIR")
    assert Path(words[-9]).parts[-3:] == ("pipeline", "capture", "__main__.py")
    assert words[-8:] == (
        "--node", "https://events.example.org:5301", "--checkpoint-location", "/shared", "--detached",
        "--ca-file", "/ca.pem", "--once",
    )  # fmt: skip
    assert "the-token" not in " ".join(words)


def test_run_needs_the_administrators_token() -> None:
    """A connection string gives access to the hubs, not to the plan."""
    run = hubmere(
        "capture", "run", "--checkpoint-location", "/x", "--connection-string",
        "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true",
    )  # fmt: skip

    assert run.code == 2
    assert "administrator's token" in run.err
