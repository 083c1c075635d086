"""Fixtures and snapshots for tests of applications: each test gets its own hub, or the same populated node again."""

import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.eventhub import EventData, EventHubProducerClient
from confluent_kafka import Consumer, Producer

from hubmere.settings import HubSetting
from hubmere.testing import AsyncNode, Node, NodeFailed, Snapshot, StoredEvent

DOCS = Path(__file__).parents[1] / "docs" / "how-to" / "testing.md"
pytest_plugins = ["pytester"]


def publish(node: Node, hub: str, *bodies: str, key: str | None = None) -> None:
    with EventHubProducerClient.from_connection_string(node.emulator_connection_string(hub)) as producer:
        producer.send_batch([EventData(body) for body in bodies], partition_key=key)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node on disk with small segments, so that some are sealed."""
    hubs = [HubSetting(name="orders", partition_count=1, consumer_groups=("billing",))]
    with Node(hubs=hubs, settings={"durability": "os", "segment_bytes": 1024 * 1024}) as node:
        yield node


# --- helpers of a node ---


def test_events_of_a_hub_have_key_body_and_properties(node: Node) -> None:
    """A test asserts on them, for every protocol and over all partitions."""
    hub = node.create_hub(partitions=2, groups=["readers"])
    publish(node, hub, '{"a": 1}', key="k")
    producer = Producer(node.kafka_config())
    producer.produce(hub, b"\xff", key=b"till", headers=[("h", b"v")], partition=1)
    assert producer.flush(240) == 0

    events = node.wait_for_events(hub, 2)
    node.delete_hub(hub)

    by_key = {event.key: event for event in events}
    assert by_key["k"].json == {"a": 1}
    assert (by_key["till"].body, by_key["till"].partition) == (b"\xff", 1)
    assert [event.enqueued_time for event in events] == sorted(event.enqueued_time for event in events)
    with pytest.raises(NodeFailed, match="was refused"):
        node.events(hub)


def test_long_partition_is_returned_completely(node: Node) -> None:
    """The node returns a thousand events at a time."""
    hub = node.create_hub()
    for _ in range(3):
        publish(node, hub, *(str(number) for number in range(800)))

    assert [event.sequence_number for event in node.events(hub)] == list(range(2400))
    node.delete_hub(hub)


def test_kafka_settings_are_accepted_by_a_client_with_and_without_tls(node: Node) -> None:
    """They have the names of librdkafka, which most clients use."""
    hub = node.create_hub()
    publish(node, hub, "x")

    for tls in (False, True):
        consumer = Consumer(node.kafka_config(f"group-{tls}", tls=tls, client_id="me"))
        consumer.subscribe([hub])
        message = consumer.poll(240)
        consumer.close()
        assert message is not None
        assert message.value() == b"x"
    node.delete_hub(hub)


def test_waiting_for_missing_events_fails_with_their_number(node: Node) -> None:
    """The test must not hang."""
    with pytest.raises(NodeFailed, match="orders has 0 of 1 events after 0 s"):
        node.wait_for_events("orders", 1, timeout_s=0)


# --- snapshots ---


def state(node: Node, hub: str) -> tuple[list[StoredEvent], str, str]:
    """Everything that a client could compare."""
    return node.events(hub), str(node.connection_string), node.amqp


def commit_one(node: Node, hub: str) -> None:
    consumer = Consumer(node.kafka_config("billing"))
    consumer.subscribe([hub])
    message = consumer.poll(240)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    consumer.close()


def committed(node: Node, hub: str) -> int:
    from confluent_kafka import TopicPartition

    consumer = Consumer(node.kafka_config("billing"))
    [position] = consumer.committed([TopicPartition(hub, 0)], timeout=600)
    consumer.close()
    return int(position.offset)


def test_restored_node_equals_the_snapshot(node: Node) -> None:
    """Events with times and numbers, hubs, groups, offsets, keys and ports are equal after every restore.

    The log has several sealed segments, which the copies share.
    """
    hub = node.create_hub("kept")
    for _ in range(6):
        publish(node, hub, *("x" * 10_000 for _ in range(60)))
    commit_one(node, hub)
    before = state(node, hub)
    taken = node.snapshot()
    sealed = [path for path in taken.folder.rglob("*.log") if path.stat().st_nlink > 1]

    for round_ in range(3):
        publish(node, hub, *(f"{round_}" * 10_000 for _ in range(60)))
        node.create_hub("extra")
        if round_ == 1:
            node.delete_hub(hub)
        if round_ == 2:
            node.restart()
        node.restore(taken)

        assert state(node, hub) == before
        assert committed(node, hub) == 1
        with pytest.raises(NodeFailed):
            node.events("extra")
    publish(node, hub, "next")

    assert node.events(hub)[-1].sequence_number == before[0][-1].sequence_number + 1
    assert len(sealed) >= 2


def test_several_snapshots_are_restored_in_any_order(node: Node) -> None:
    """Each snapshot is complete."""
    hub = node.create_hub("layers")
    taken: list[Snapshot] = []
    for number in range(3):
        publish(node, hub, str(number))
        taken.append(node.snapshot())

    found = []
    for index in (1, 0, 2, 0):
        node.restore(taken[index])
        found.append([event.text for event in node.events(hub)])

    assert found == [["0", "1"], ["0"], ["0", "1", "2"], ["0"]]


def test_refused_and_unanswered_requests_fail_with_their_reason() -> None:
    """A test that fails in its fixtures shows what the node says, or that there is no node any more, and its log."""
    with Node(settings={"memory": True}) as node:
        with pytest.raises(NodeFailed, match=r"eventhubs/none was refused: [^{]*none"):
            node.events("none")
        node.kill()
        with pytest.raises(NodeFailed, match="the node does not answer: ") as failure:
            node.create_hub("late")

    assert "is ready" in failure.value.logs


def test_a_snapshot_that_cannot_be_restored_is_refused() -> None:
    """It is refused before anything is stopped."""
    with Node(settings={"memory": True}) as node:
        with pytest.raises(NodeFailed, match="a node in memory has no snapshots"):
            node.snapshot()
        with pytest.raises(NodeFailed, match="there is no snapshot"):
            node.restore(Snapshot(Path("/nowhere")))
        assert node.events(node.create_hub()) == []


@pytest.mark.parametrize(("number", "snapshots"), [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGHUP, 0)])
def test_node_ends_with_the_test_run(tmp_path: Path, number: signal.Signals, snapshots: int) -> None:
    """This holds however the run ends, and before and after a snapshot: no process may stay behind."""
    program = (
        "import os\nfrom hubmere.testing import Node\n"
        f"node = Node(data=__import__('pathlib').Path({str(tmp_path / 'data')!r}))\nnode.start()\n"
        f"for _ in range({snapshots}): node.snapshot()\n"
        f"print(node.pid, flush=True)\nos.kill(os.getpid(), {int(number)})\n"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)

    pid = int(run.stdout)
    deadline = time.monotonic() + 240
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_ctrl_c_reaches_the_test_run_and_not_its_node(node: Node) -> None:
    """The tear-down of fixtures still needs the node, before and after a snapshot; it stops the node at its end."""
    sessions = [os.getsid(node.pid)]
    node.snapshot()
    sessions.append(os.getsid(node.pid))

    assert os.getsid(0) not in sessions


def test_async_node_has_the_same_methods_as_coroutines() -> None:
    """The names are the same; addresses are plain values."""

    async def use() -> list[str]:
        async with AsyncNode(Node(settings={"memory": True})) as node:
            hub = await node.create_hub()
            publish(node.node, hub, "x")
            found = await node.wait_for_events(hub, 1)
            assert node.kafka_config()["bootstrap.servers"] == node.kafka
            assert await node.events(hub) == found
            await node.delete_hub(hub)
            return [event.text for event in found]

    assert asyncio.run(use()) == ["x"]


def test_async_node_is_restarted_and_stopped_in_an_event_loop() -> None:
    """`await node.restart()` waited in the loop's thread before, and then failed."""

    async def use() -> tuple[bool, str]:
        node = AsyncNode(Node(settings={"durability": "os"}))
        try:
            await node.start()
            hub, before = await node.create_hub(), node.pid
            await node.kill()
            await node.start()
            await node.restart()
            assert await node.events(hub) == []
            await node.stop()
            return node.pid != before, node.logs()
        finally:
            await node.close()

    is_another, logs = asyncio.run(use())

    assert is_another
    assert logs.count("is ready") >= 3


def test_async_node_declares_every_member_of_a_node() -> None:
    """Type checkers then know the members; methods that wait for a process or for the network are coroutines."""
    at_once = {"logs", "kafka_config"}
    members = {name: member for name, member in inspect.getmembers(Node) if not name.startswith("_")}

    missing = members.keys() - vars(AsyncNode).keys() - vars(AsyncNode.__base__ or object).keys()
    blocking = {
        name
        for name, member in members.items()
        if inspect.isfunction(member) and not inspect.iscoroutinefunction(getattr(AsyncNode, name, None))
    }

    assert missing == set()
    assert blocking == at_once


# --- the page ---


def test_examples_of_the_page_run(pytester: pytest.Pytester) -> None:
    """They are copied unchanged into a test suite; pytest with pytest-asyncio runs them."""
    # This file ends pytest's search for settings in parent folders.
    pytester.makeini("[pytest]")
    text = DOCS.read_text(encoding="utf-8")
    blocks = re.findall(r"```python title=\"([\w.]+)\"\n(.*?)```", text, re.DOTALL)
    for name, content in blocks:
        path = pytester.path / name
        path.write_text((path.read_text() if path.exists() else "") + content, encoding="utf-8")

    run = pytester.runpytest_subprocess("-q", "-p", "no:randomly")

    run.assert_outcomes(passed=6)
    assert {name for name, _ in blocks} == {"conftest.py", "test_orders.py", "test_async.py", "test_snapshots.py"}


CONFIG = {
    "UserConfig": {
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Entities": [{"Name": "orders", "PartitionCount": 1, "ConsumerGroups": []}],
            }
        ],
        "LoggingConfig": {"Type": "File"},
    }
}
# The page uses the default ports; tests use other ones.
FREE_PORTS = {f"HUBMERE_{name}_PORT": "0" for name in ("AMQP", "AMQPS", "KAFKA", "KAFKAS", "HTTP", "HTTPS")}


def test_command_and_connection_string_of_the_container_work(tmp_path: Path) -> None:
    """The arguments of `withCommand` start a node that accepts the connection string of the example."""
    text = DOCS.read_text(encoding="utf-8")
    [command] = re.findall(r"\.withCommand\((.*)\)", text)
    [suffix] = re.findall(r'\+ "(;SharedAccessKeyName.*)";', text)
    config, ready = tmp_path / "Config.json", tmp_path / "ready.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    arguments = [word.replace("/etc/hubmere/Config.json", str(config)) for word in json.loads(f"[{command}]")]
    with subprocess.Popen(
        [sys.executable, "-m", "hubmere", *arguments, "--ready-file", str(ready)],
        env={**os.environ, **FREE_PORTS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as node:
        try:
            port = ready_content(ready)["amqp"].rpartition(":")[2]
            connection_string = f"Endpoint=sb://localhost:{port}{suffix}"
            with EventHubProducerClient.from_connection_string(connection_string, eventhub_name="orders") as producer:
                producer.send_batch([EventData("x")])
                found = producer.get_partition_properties("0")["last_enqueued_sequence_number"]
        finally:
            node.terminate()

    assert found == 0


def test_steps_of_the_workflow_start_a_node(tmp_path: Path) -> None:
    """The last step runs the tests of the application, which find a node that is ready."""
    text = DOCS.read_text(encoding="utf-8")
    jobs, steps = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    subprocess.run(
        ["bash", "-e", "-c", steps[0]["run"]],
        cwd=tmp_path, env={**os.environ, **FREE_PORTS, "PATH": path}, timeout=1200, check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ready = json.loads((tmp_path / "ready.json").read_text(encoding="utf-8"))
    os.kill(ready["pid"], signal.SIGTERM)

    assert ready["connection_string"].startswith("Endpoint=sb://")
    assert [step["run"].split()[0] for step in jobs["jobs"]["test"]["steps"] if "run" in step] == ["pip", "pytest"]


def ready_content(path: Path) -> dict[str, Any]:
    """The content of the ready file, when it exists."""
    deadline = time.monotonic() + 600
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
