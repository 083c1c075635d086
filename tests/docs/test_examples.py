"""The programs under `examples/` run unchanged against a real node, with the environment that `env.py` prints."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.clients import NotInstalled, go_program, java_clients, java_tool, js_clients, node
from hubmere.node.ready import write_ready_file
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

EXAMPLES = Path(__file__).parents[2] / "examples"
_RUN_SECONDS = 3000
# Examples that read from the beginning have their own hub.
_HUBS = ["orders", "from-javascript", "from-java", "from-go", "from-proton", "from-rhea", "for-spark"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The ready file of a node with the hubs of all examples."""
    ready = tmp_path_factory.mktemp("examples") / "ready.json"
    with Node(hubs=_HUBS, settings={"memory": True}) as running:
        write_ready_file(ready, running.ready)
        yield ready


@pytest.fixture(scope="module")
def environment(served: Path) -> dict[str, str]:
    """The environment of a shell after `eval "$(python examples/env.py ready.json)"`."""
    printed = run_program([sys.executable, str(EXAMPLES / "env.py"), str(served)], dict(os.environ))
    exported = (shlex.split(line)[1].partition("=")[::2] for line in printed.splitlines())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **dict(exported)}


def run_program(command: list[str], environment: dict[str, str]) -> str:
    """The output of a program; a failure shows its output, too."""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(name: str, environment: dict[str, str]) -> str:
    return run_program([sys.executable, str(EXAMPLES / name)], environment)


def javascript(name: str, environment: dict[str, str], folder: Path) -> str:
    """Run beside the installed packages, as after `npm install` in a user's project."""
    try:
        packages = js_clients() / "node_modules"
    except NotInstalled as reason:
        pytest.skip(str(reason))
    (folder / "node_modules").symlink_to(packages)
    program = folder / Path(name).name
    program.write_bytes((EXAMPLES / name).read_bytes())
    return run_program([node(), str(program)], environment)


def with_hub(environment: dict[str, str], name: str) -> dict[str, str]:
    """The environment for a hub that no other example uses."""
    return {**environment, "EVENTHUB_NAME": name}


def bodies(printed: str) -> set[str]:
    """The text after the position of each event."""
    return {line.partition(": ")[2] for line in printed.splitlines()}


def test_python_sdk_reads_events_of_every_protocol(environment: dict[str, str]) -> None:
    """Events are published over AMQP, Kafka and HTTPS to one hub, and read by the SDK and by Kafka."""
    sent = [python("python/publish.py", environment), python("kafka/produce.py", environment)]
    sent.append(python("python/publish_over_tls.py", environment))
    sent.append(run_program([str(EXAMPLES / "http" / "publish.sh")], environment))

    by_amqp = bodies(python("python/receive.py", environment))
    by_kafka = bodies(python("kafka/consume.py", environment))

    expected = {f"{what} {number}" for what in ("python", "kafka", "tls", "http") for number in range(3)} | {"http 3"}
    assert [line.strip() for line in sent] == [
        "published 3 events", "produced 3 records", "published 3 events over TLS", "published 4 events",
    ]  # fmt: skip
    assert by_amqp == expected
    assert by_kafka == expected


@pytest.mark.full
def test_the_javascript_sdk_publishes_and_receives(environment: dict[str, str], tmp_path: Path) -> None:
    """An application on Node.js does this."""
    place = with_hub(environment, "from-javascript")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    published = javascript("javascript/publish.mjs", place, tmp_path / "a")
    received = javascript("javascript/receive.mjs", place, tmp_path / "b")

    assert published == "published 3 events\n"
    assert bodies(received) == {f'{{"text":"javascript {number}"}}' for number in range(3)}


@pytest.mark.full
def test_the_java_sdk_publishes_and_receives(environment: dict[str, str]) -> None:
    """It runs from its source, without a build file."""
    try:
        command = [java_tool("java"), "-cp", f"{java_clients()}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    place = with_hub(environment, "from-java")

    printed = run_program([*command, str(EXAMPLES / "java" / "RoundTrip.java")], place)

    assert printed.splitlines() == ["0: java 0", "1: java 1", "2: java 2"]


@pytest.mark.full
def test_the_go_sdk_publishes_and_receives(environment: dict[str, str]) -> None:
    """It uses TLS with the node's own CA, as built by `make go-clients`."""
    try:
        program = go_program("example")
    except NotInstalled as reason:
        pytest.skip(str(reason))

    printed = run_program([str(program)], with_hub(environment, "from-go"))

    assert printed.splitlines() == ["0: go 0", "1: go 1", "2: go 2"]


def test_proton_sends_and_receives(environment: dict[str, str]) -> None:
    """Proton is a generic AMQP 1.0 client."""
    printed = python("amqp/with_proton.py", with_hub(environment, "from-proton"))

    assert printed.splitlines() == ["proton 0", "proton 1", "proton 2"]


@pytest.mark.full
def test_rhea_sends_and_receives(environment: dict[str, str], tmp_path: Path) -> None:
    """The same on Node.js."""
    printed = javascript("amqp/with_rhea.mjs", with_hub(environment, "from-rhea"), tmp_path)

    assert printed.splitlines() == ["rhea 0", "rhea 1", "rhea 2"]


def test_management_sdk_creates_and_deletes_a_hub(environment: dict[str, str]) -> None:
    """The credential is the administrator's token."""
    printed = python("management/manage.py", environment)

    assert "returns: 2 partitions, kept for 7 days" in printed.splitlines()
    assert "sends to: returns" in printed.splitlines()


def test_spark_counts_the_events_of_each_partition(environment: dict[str, str]) -> None:
    """No jar and no registration are needed: Spark finds the package by its name."""
    place = with_hub(environment, "for-spark")
    python("amqp/with_proton.py", place)

    printed = python("spark/count.py", place)

    assert printed.splitlines() == ["partition 0: 3 events"]


def test_every_example_is_listed_in_the_readme_of_the_folder() -> None:
    """`examples/README.md` says what each of them does."""
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    programs = [
        path for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".mjs", ".java", ".go", ".sh", ".properties"}
    ]
    of_projects = {EXAMPLES / "pipelines", EXAMPLES / "streaming"}

    missing = [
        str(path.relative_to(EXAMPLES))
        for path in programs
        if of_projects.isdisjoint(path.parents) and str(path.relative_to(EXAMPLES)) not in listed
    ]

    assert missing == []
