"""A real Spark cluster: source and sink run on executors that are killed with kill -9, and the target has the same
events as the source. Two kills during Capture here, many and those of a query with `--torture` (`make torture`);
`test_crash.py` has the few kills of a query's workers, driver and node.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from client.hubs import Hubs
from commands.runner import at, environment
from hubmere.pipeline.capture.destinations.local import STAGING
from hubmere.pipeline.jvm import spark_home
from hubmere.settings import HubSetting
from hubmere.testing import Node
from pipeline import copying as program
from pipeline.cluster import SETTINGS, Cluster, a_cluster, conf_words, package_as_zip, python_without_package
from pipeline.processes import kill_one
from pipeline.secrets_shown import shown, texts_of
from pipeline.surviving import LIFE_SECONDS, Copying

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found by /proc"),
]

TESTS = Path(__file__).parent.parent
# Executors that are killed repeatedly end an application, but its work is not lost.
TRIGGERS_PER_DEATH = 3
# Capture: files of ten megabytes, one for each task; a number of them for each run of the job.
PARTITIONS, FILES_PER_PARTITION = 2, 2
BODY_BYTES, BODIES_PER_FILE = 65_536, 168
POLL_SECONDS = 0.005


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Master and a Worker."""
    with a_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@contextmanager
def submitted(cluster: Cluster, copying: Copying, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """The copy as an application: executors get the package only from `--py-files`."""
    words = ["--master", cluster.url, *conf_words(SETTINGS), "--py-files", str(package_as_zip(folder))]
    variables = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": python_without_package(folder),
    }
    submit = [str(spark_home() / "bin" / "spark-submit"), *words]
    with (folder / "driver.log").open("ab") as out:
        process = subprocess.Popen(
            [*submit, program.__file__, str(copying.write_arguments()), program.SUBMITTED],
            stdout=out,
            stderr=out,
            env=variables,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def assert_hidden(cluster: Cluster, node: Node, *logs: Path) -> None:
    """Check that no key and no token of the node is in a log or on a command line of the cluster."""
    key = node.connection_string.rpartition("SharedAccessKey=")[2]
    texts = texts_of([*cluster.logs(), *logs])
    assert any(" INFO " in text for place, text in texts.items() if place.endswith("/stderr"))
    lines = {str(pid): command for pid, command in cluster.processes().items()}
    assert shown({"the key": key, "the token": node.admin_token}, {**texts, **lines}) == []


def kill_next(cluster: Cluster, killed: dict[str, int], chance: Random, is_over: Callable[[], bool]) -> None:
    """Kill one process of the kind with fewer kills; after the last kill it may take a moment until there is one."""
    kind = min(killed, key=lambda each: killed[each])
    find = cluster.executors if kind == "jvm" else cluster.python_workers
    while not is_over():
        if kill_one(find(), chance) is not None:
            killed[kind] += 1
            return
        time.sleep(POLL_SECONDS)


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


def test_executors_that_are_killed_during_a_query_lose_no_event(
    cluster: Cluster, hubs: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """JVMs and Python processes are killed in turn during micro-batches; a failed application is submitted again."""
    wanted = deaths(0, 40)
    copying = Copying(hubs, wanted, tmp_path, TRIGGERS_PER_DEATH)
    chance = Random(13)
    killed = {"jvm": 0, "python": 0}

    code = -1
    while code != 0:
        with submitted(cluster, copying, tmp_path) as process:
            is_over = partial(_has_exited, process)
            while sum(killed.values()) < wanted and copying.await_open_batch(is_over) is not None:
                # The kill may hit any part of the micro-batch.
                time.sleep(chance.choice((0.0, 0.05, 0.2)))
                kill_next(cluster, killed, chance, is_over)
            code = process.wait(LIFE_SECONDS)

    assert killed == {"jvm": wanted // 2, "python": wanted // 2}, (tmp_path / "driver.log").read_text()[-4000:]
    copying.assert_exact()
    assert_hidden(cluster, hubs.node, tmp_path / "driver.log")


# --- Capture ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def captured() -> Iterator[Hubs]:
    """A node that captures a hub without starting the job."""
    hubs = [HubSetting(name="orders", partition_count=PARTITIONS)]
    with Node(
        hubs=hubs, settings={"as": "unlimited", "limits.publication_bytes": 1024 * 1024, "capture_supervise": False}
    ) as node:
        enable = ("--capture-interval", "900", "--capture-size-limit", str(10_485_760), "--skip-empty-archives", "true")
        enabled = at(node, "capture", "enable", "--name", "orders", *enable)
        assert enabled.code == 0, enabled.err
        found = Hubs(node)
        yield found
        found.client.close()


def publish_files(hubs: Hubs, name: str) -> int:
    """Publish enough events to fill the files of one run; returns their number."""
    for partition in range(PARTITIONS):
        bodies = [b"%s %d" % (name.encode(), number) for number in range(FILES_PER_PARTITION * BODIES_PER_FILE)]
        batches = [[body.ljust(BODY_BYTES, b".") for body in bodies[at : at + 14]] for at in range(0, len(bodies), 14)]
        hubs.publish("orders", partition, *batches, name=name)
    return PARTITIONS * FILES_PER_PARTITION * BODIES_PER_FILE


@contextmanager
def capturing(cluster: Cluster, node: Node, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run the user's command on the cluster for all stored events."""
    words = ["--node", node.http, "--master", cluster.url, "--checkpoint-location", str(folder / "checkpoints")]
    further = [f"--spark={word}" for word in conf_words(SETTINGS)]
    with (folder / "job.log").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hubmere", "capture", "run", "--once", *words, *further],
            stdout=out, stderr=out, env=environment(HUBMERE_TOKEN=node.admin_token),
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def is_writing(node: Node) -> bool:
    """Whether a task is writing a file."""
    return any((node.data / "capture" / "files" / STAGING).glob("*/*"))


def test_executors_that_are_killed_during_capture_lose_no_event(
    cluster: Cluster, captured: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """`hubmere capture run --master`: an executor's JVM and a Python process are killed while files are written."""
    chance, log = Random(17), tmp_path / "job.log"
    killed = {"jvm": 0, "python": 0}
    published = 0

    for run in range(deaths(1, 15)):
        published += publish_files(captured, f"run {run}")
        with capturing(cluster, captured.node, tmp_path) as process:
            wanted = sum(killed.values()) + 2
            while process.poll() is None:
                if sum(killed.values()) < wanted and is_writing(captured.node):
                    kill_next(cluster, killed, chance, partial(_has_exited, process))
                time.sleep(POLL_SECONDS)
            assert process.returncode == 0, log.read_text()[-4000:]
    verified = at(captured.node, "capture", "verify", "--eventhub-name", "orders", "--output", "json")

    assert all(killed.values()), killed
    assert verified.code == 0, verified.err
    partitions = json.loads(verified.out)["partitions"]
    assert sum(each["events"] for each in partitions) == sum(each["compared"] for each in partitions) == published
    assert_hidden(cluster, captured.node, log)
