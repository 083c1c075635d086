"""A whole node as users see it: started by the command, killed, restarted, and used by an unmodified client."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

from hubmere import __version__
from hubmere.cli.exit_codes import Exit
from hubmere.settings import HubSetting
from hubmere.store.audit import AUDIT_FILE
from hubmere.testing import Node

EMULATOR_CONFIG = {
    "UserConfig": {
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Entities": [{"Name": "eh1", "PartitionCount": 2, "ConsumerGroups": [{"Name": "cg1"}]}],
            }
        ],
        "LoggingConfig": {"Type": "File"},
    }
}


@pytest.fixture
def node() -> Iterator[Node]:
    """A node with one hub."""
    with Node(hubs=["orders"]) as started:
        yield started


def a_producer(connection_string: str, hub: str = "orders") -> EventHubProducerClient:
    """The SDK's producer in emulator mode."""
    return EventHubProducerClient.from_connection_string(
        connection_string, eventhub_name=hub, retry_total=0, socket_timeout=60
    )


def received(connection_string: str, hub: str, partition: str) -> list[tuple[int, str, str]]:
    """Sequence number, offset and body of all events of a partition."""
    events: list[tuple[int, str, str]] = []
    client = EventHubConsumerClient.from_connection_string(connection_string, "$Default", eventhub_name=hub)
    done = threading.Event()
    last = client.get_partition_properties(partition)["last_enqueued_sequence_number"]

    def on_event(_context: object, event: EventData) -> None:
        events.append((event.sequence_number or 0, str(event.offset), event.body_as_str()))
        if event.sequence_number == last:
            done.set()

    reader = threading.Thread(
        target=client.receive,
        args=(on_event,),
        kwargs={"partition_id": partition, "starting_position": "-1"},
    )
    reader.start()
    assert done.wait(120)
    client.close()
    reader.join()
    return events


def up(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `hubmere up` when it is expected to end by itself."""
    ports = [f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https")]
    command = [sys.executable, "-m", "hubmere", "up", *ports, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_everything_survives_a_restart(node: Node) -> None:
    """Sequence numbers, offsets and bodies are the same, and new events follow on."""
    with a_producer(node.emulator_connection_string) as producer:
        producer.send_batch([EventData(f"first {i}") for i in range(20)], partition_id="1")
    before = received(node.emulator_connection_string, "orders", "1")

    node.restart()
    with a_producer(node.emulator_connection_string) as producer:
        producer.send_batch([EventData("after")], partition_id="1")
    after = received(node.emulator_connection_string, "orders", "1")

    assert [sequence for sequence, _, _ in before] == list(range(20))
    assert after[:20] == before
    assert (after[20][0], after[20][2]) == (20, "after")
    assert int(after[20][1]) > int(after[19][1])


# An application in a separate process: it sends one event at a time and prints accepted ones.
WRITER = """
import sys
from azure.eventhub import EventData, EventHubProducerClient
with EventHubProducerClient.from_connection_string(sys.argv[1], eventhub_name="orders", retry_total=0) as producer:
    for number in range(5000):
        producer.send_event(EventData(f"{sys.argv[2]}-{number}"), partition_id="0")
        print(f"{sys.argv[2]}-{number}", flush=True)
"""


def test_repeated_kills_lose_no_acknowledged_event(node: Node) -> None:
    """Every event that was accepted is stored after kill -9, once and in order."""
    acknowledged: list[str] = []
    for life in range(3):
        command = [sys.executable, "-c", WRITER, node.emulator_connection_string, str(life)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                acknowledged.append(line.strip())
                if len(acknowledged) % 100 == 37 * (life + 1) % 100:
                    node.kill()
        node.start()

    stored = [body for _, _, body in received(node.emulator_connection_string, "orders", "0")]

    assert len(acknowledged) > 3
    assert len(set(stored)) == len(stored)
    known = set(acknowledged)
    assert [body for body in stored if body in known] == acknowledged


def test_sigterm_and_sigint_end_with_exit_code_0(tmp_path: Path) -> None:
    """Both mean a clean stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        ready = tmp_path / f"ready-{number}.json"
        ports = [f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https")]
        command = [
            sys.executable,
            "-m",
            "hubmere",
            "up",
            f"--data={tmp_path / 'data'}",
            f"--ready-file={ready}",
            *ports,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not ready.exists() and process.poll() is None:
                threading.Event().wait(0.02)
            process.send_signal(number)
            assert process.wait(120) == Exit.OK


@pytest.mark.parametrize("output", ["closed", "without a reader", "full"])
def test_node_runs_although_its_banner_cannot_be_written(tmp_path: Path, output: str) -> None:
    """A scheduler may close the streams, and `hubmere up | head -1` ends the reader while the node starts."""
    ready = tmp_path / "ready.json"
    ports = [f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https")]
    command = [sys.executable, "-m", "hubmere", "up", "--memory", f"--ready-file={ready}", *ports]
    if output == "closed":
        command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    reading, writing = os.pipe()
    os.close(reading)

    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, stdout=full if output == "full" else writing)
    os.close(writing)
    with process:
        while not ready.exists() and process.poll() is None:
            threading.Event().wait(0.02)
        process.send_signal(signal.SIGTERM)

        assert process.wait(120) == Exit.OK


def test_a_second_node_on_the_folder_is_refused_with_the_holder_s_pid(node: Node) -> None:
    """Two writers would destroy a log."""
    ended = up(f"--data={node.ready.data}")

    assert ended.returncode == Exit.FOLDER_IN_USE
    assert str(node.ready.pid) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_port_in_use_is_reported(tmp_path: Path) -> None:
    """The error names the service, the port, its process, and the flag that selects another port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = up(f"--data={tmp_path / 'data'}", f"--http-port={port}")

    assert ended.returncode == Exit.PORT_IN_USE
    result, hint = ended.stderr.splitlines()
    assert result.startswith(f"hubmere: cannot serve http on 127.0.0.1:{port}: Address already in use, used by ")
    assert result.endswith(f"(process {os.getpid()})")
    assert "--http-port" in hint


def test_address_of_another_machine_is_reported_with_its_flag(tmp_path: Path) -> None:
    """Another port does not help."""
    ended = up(f"--data={tmp_path / 'data'}", "--host=192.0.2.1")

    assert ended.returncode == Exit.PORT_IN_USE
    result, hint = ended.stderr.splitlines()
    assert result.startswith("hubmere: cannot serve amqp on 192.0.2.1:")
    assert hint == "hubmere: choose an address of this machine by --host; 0.0.0.0 is every IPv4 address"


def test_ready_file_that_cannot_be_written_is_reported_with_its_flag(tmp_path: Path) -> None:
    """The node stops again: programs that wait for the file would wait forever."""
    path = tmp_path / "missing" / "ready.json"

    ended = up("--memory", f"--ready-file={path}")

    assert ended.returncode == Exit.FAILED
    assert ended.stderr.splitlines()[-1] == (
        f"hubmere: cannot write {path}: No such file or directory; choose another file by --ready-file"
    )


def test_data_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The error has the message of the operating system, the path and the setting, but no Python class."""
    (tmp_path / "file").touch()

    ended = up(f"--data={tmp_path / 'file' / 'data'}")

    assert ended.returncode == Exit.FAILED
    assert ended.stderr.splitlines() == [
        f"hubmere: cannot use {tmp_path / 'file' / 'data'}: Not a directory",
        "hubmere: choose a folder that this user can write to by --data",
    ]


def test_the_emulator_s_configuration_and_its_literal_key_work(tmp_path: Path) -> None:
    """An application set up for the official emulator needs no change."""
    config = tmp_path / "Config.json"
    config.write_text(json.dumps(EMULATOR_CONFIG))
    ready = tmp_path / "ready.json"
    ports = [f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https")]
    paths = [f"--config={config}", f"--data={tmp_path / 'data'}", f"--ready-file={ready}"]
    with subprocess.Popen(
        [sys.executable, "-m", "hubmere", "up", *paths, *ports], stdout=subprocess.DEVNULL
    ) as process:
        while not ready.exists() and process.poll() is None:
            threading.Event().wait(0.02)
        address = json.loads(ready.read_text())["amqp"]
        literal = (
            f"Endpoint=sb://{address};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        with a_producer(literal, "eh1") as producer:
            partitions = producer.get_partition_ids()
            producer.send_batch([EventData("hello")], partition_id="1")
        process.terminate()

    assert partitions == ["0", "1"]


def test_a_node_in_memory_writes_nothing(tmp_path: Path) -> None:
    """All protocols work, but nothing survives the process; not even the data folder is created."""
    with Node(hubs=["orders"], settings={"memory": True}, data=tmp_path / "data") as node:
        with a_producer(node.emulator_connection_string) as producer:
            producer.send_batch([EventData("x")], partition_id="0")
        events = received(node.emulator_connection_string, "orders", "0")
        ca_file = Path(node.ready.ca_file or "")
        assert ca_file.is_file()

    assert [body for _, _, body in events] == ["x"]
    assert not (tmp_path / "data").exists()
    assert not ca_file.exists()


def test_secrets_on_disk_are_readable_by_their_owner_only(node: Node) -> None:
    """Keys, tokens and the catalog hold credentials."""
    data = Path(node.ready.data)
    secrets = [data / "catalog.sqlite3", data / "admin-token", *data.glob("tls/*-key.pem")]

    assert len(secrets) == 4
    assert {oct(path.stat().st_mode & 0o777) for path in secrets} == {"0o600"}


def audited(data: Path) -> list[tuple[str, str, str, str]]:
    """Actor, action, target and outcome of each line of a data folder's audit log."""
    lines = [json.loads(line) for line in (data / AUDIT_FILE).read_text().splitlines()]
    return [(line["actor"], line["action"], line["target"], line["outcome"]) for line in lines]


def test_hubs_of_the_settings_are_audited_like_those_of_clients(tmp_path: Path) -> None:
    """An auditor must see where every entity came from, also those of a settings file."""
    orders = HubSetting(name="orders", consumer_groups=("billing",))

    with Node(hubs=[orders], data=tmp_path / "data"):
        pass
    first = audited(tmp_path / "data")
    with Node(hubs=[orders], data=tmp_path / "data"):
        pass

    assert first == [
        ("node", "create namespace", "hubmere", "done"),
        ("node", "create hub", "hubmere/orders", "done"),
        ("node", "create group", "hubmere/orders/billing", "done"),
    ]
    assert audited(tmp_path / "data") == first


def test_a_hub_of_the_settings_that_is_refused_ends_the_start(tmp_path: Path) -> None:
    """The message names the hub, and the refusal is in the audit log."""
    config = tmp_path / "hubmere.toml"
    config.write_text('[[hubs]]\nname = "orders"\nretention_hours = 48\n')

    ended = up(f"--data={tmp_path / 'data'}", f"--config={config}", "--as=basic")

    assert ended.returncode == Exit.USAGE
    assert "hubmere: event hub 'orders' of the settings: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert audited(tmp_path / "data")[-1] == ("node", "create hub", "hubmere/orders", "refused")


def test_refused_requests_and_the_stop_are_in_the_log(tmp_path: Path) -> None:
    """The log says who was refused and why, and that the node stopped cleanly."""
    with Node(hubs=["orders"], data=tmp_path / "data") as node:
        request = urllib.request.Request(f"{node.http}/orders/messages", data=b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=600)
        refused.value.close()
        node.stop()
        logs = node.logs()

    assert "refused POST /orders/messages on hubmere/orders from 127.0.0.1: MissingToken" in logs
    assert f"node {__version__} is stopping with " in logs
    assert logs.rstrip().endswith(f"node {__version__} has stopped")
