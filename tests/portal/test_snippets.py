"""The code snippets of a hub's page run unchanged: each kind of client publishes with them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from conformance.clients import Jars, NotInstalled, java_clients, java_tool, js_clients, kafka_jars, node
from hubmere.model.addresses import Addresses
from hubmere.pipeline.options import read_options
from hubmere.portal.snippets import VARIABLE, snippets
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

_RUN_SECONDS = 3000
_HUBS = ("for-python", "for-javascript", "for-java", "for-kafka", "for-curl", "for-spark")
_JAVA_PROGRAM = """import com.azure.messaging.eventhubs.*;
import java.util.List;

public class Snippet {{
    public static void main(String[] arguments) {{
{code}
    }}
}}
"""
_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


@pytest.fixture(scope="module")
def served() -> Iterator[Node]:
    """A node with a hub for each kind of client."""
    with Node(hubs=_HUBS, settings={"memory": True}) as running:
        yield running


def the_code(served: Node, title: str, hub: str) -> str:
    """A snippet as the page shows it."""
    amqp, kafka, http = (int(address.rpartition(":")[2]) for address in (served.amqp, served.kafka, served.http))
    addresses = Addresses(namespace=served.namespace, amqp=amqp, kafka=kafka, http=http)
    return {snippet.title: snippet.code for snippet in snippets(addresses, served.namespace, hub)}[title]


def run(served: Node, command: list[str], given: str | None = None, **more: str) -> None:
    """Run a program with the connection string in its variable; a failure shows the output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment: Mapping[str, str] = {
        **os.environ,
        "PATH": path,
        VARIABLE: served.emulator_connection_string,
        **more,
    }
    done = subprocess.run(
        command, env=environment, input=given, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def bodies(served: Node, hub: str) -> list[str]:
    """The bodies of a hub's events."""
    found = []
    for partition in range(4):
        path = f"/{hub}/ConsumerGroups/$Default/Partitions/{partition}/messages"
        headers = {"Authorization": f"Bearer {served.admin_token}"}
        answer = httpx.get(f"{served.http}{path}", params={"from": "first"}, headers=headers)
        answer.raise_for_status()
        found += [event["body"] for event in answer.json()["events"]]
    return found


def test_python_publishes(served: Node, tmp_path: Path) -> None:
    """It uses the Azure SDK."""
    program = tmp_path / "snippet.py"
    program.write_text(the_code(served, "Python", "for-python"))

    run(served, [sys.executable, str(program)])

    assert bodies(served, "for-python") == ["hello"]


@pytest.mark.full
def test_javascript_publishes(served: Node, tmp_path: Path) -> None:
    """It uses the Azure SDK on Node.js."""
    try:
        (tmp_path / "node_modules").symlink_to(js_clients() / "node_modules")
        executable = node()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    program = tmp_path / "snippet.js"
    program.write_text(the_code(served, "JavaScript", "for-javascript"))

    run(served, [executable, str(program)])

    assert bodies(served, "for-javascript") == ['"hello"']


@pytest.mark.full
def test_java_publishes(served: Node, tmp_path: Path) -> None:
    """It uses the Azure SDK, inside a class."""
    program = tmp_path / "Snippet.java"
    program.write_text(_JAVA_PROGRAM.format(code=the_code(served, "Java", "for-java")))
    try:
        command = [java_tool("java"), "-cp", f"{java_clients()}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    except NotInstalled as reason:
        pytest.skip(str(reason))

    run(served, [*command, "-XX:TieredStopAtLevel=1", str(program)])

    assert bodies(served, "for-java") == ["hello"]


@pytest.mark.full
def test_kafka_tools_publish(served: Node, tmp_path: Path) -> None:
    """Kafka's console producer reads these properties."""
    code = the_code(served, "Kafka", "for-kafka").replace("<the connection string>", served.connection_string)
    properties = tmp_path / "client.properties"
    properties.write_text(code)
    try:
        command = [java_tool("java"), "-cp", f"{kafka_jars(Jars.KAFKA_4)}/*", "-XX:TieredStopAtLevel=1", _PRODUCER]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    [server] = [line.partition("=")[2] for line in code.splitlines() if line.startswith("bootstrap.servers=")]
    flags = ["--bootstrap-server", server, "--topic", "for-kafka", "--command-config", str(properties)]

    run(served, [*command, *flags], given="hello\n")

    assert bodies(served, "for-kafka") == ["hello"]


def test_curl_publishes(served: Node, tmp_path: Path) -> None:
    """The token is made by the command `hubmere sas`, from the same variable."""
    script = tmp_path / "snippet.sh"
    script.write_text(the_code(served, "curl", "for-curl"))

    run(served, ["bash", "-e", str(script)])

    assert bodies(served, "for-curl") == ['{"hello": "world"}']


def test_spark_source_accepts_the_options(served: Node) -> None:
    """The program is Python, and the source knows each option; the source's own tests run it on Spark."""
    code = the_code(served, "Spark", "for-spark")

    compile(code, "snippet", "exec")
    given = dict(re.findall(r'\.option\("([\w.]+)", "?([^")]+)', code))
    options = read_options({**given, "eventhubs.connectionString": served.connection_string})

    assert 'spark.readStream.format("eventhubs")' in code
    assert set(given) == {f"eventhubs.{name}" for name in ("connectionString", "name", "endpoint", "tls")}
    assert options.hub == "for-spark"
    assert f":{options.account.address.port}" in served.kafka
    assert not options.account.address.is_secure
