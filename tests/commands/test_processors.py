"""Event processors in commands and metrics, with the checkpoint store of the Azure SDK on the node."""

import threading
import urllib.request
import uuid
from typing import Any

import pytest
from azure.eventhub import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import ContainerClient

from commands.runner import at
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node


def test_processors_are_shown_with_owner_checkpoint_and_lag(node: Node, hub: str) -> None:
    """An operator sees that a processor is behind, although it keeps its state in blobs."""
    assert at(node, "send", hub, "x", "--count", "5", "--partition-id", "0").code == Exit.OK
    container = f"checkpoints-{uuid.uuid4().hex}"
    with ContainerClient.from_connection_string(node.blob_connection_string, container) as client:
        client.create_container()
    place = {
        "fully_qualified_namespace": "localhost",
        "eventhub_name": hub,
        "consumer_group": "$Default",
        "partition_id": "0",
    }
    with BlobCheckpointStore.from_connection_string(node.blob_connection_string, container) as store:
        store.claim_ownership([{**place, "owner_id": "worker-7"}])
        store.update_checkpoint({**place, "offset": "100", "sequence_number": 1})

    table = at(node, "processor", "list", "-o", "table").lines
    metrics = urllib.request.urlopen(
        urllib.request.Request(f"{node.http}/metrics", headers={"Authorization": f"Bearer {node.admin_token}"}),
        timeout=600,
    )

    [row] = [line.split() for line in table if hub in line.split()]
    assert (row[:5], row[-1]) == ([hub, "$default", "0", "worker-7", "1"], "3")
    with metrics:
        lines = metrics.read().decode().splitlines()
    assert [
        line.rpartition(" ")[2]
        for line in lines
        if line.startswith("hubmere_consumer_lag_events{") and hub in line and 'protocol="checkpoint"' in line
    ] == ["3"]


def a_store(node: Node, container: str) -> BlobCheckpointStore:
    return BlobCheckpointStore.from_connection_string(node.blob_connection_string, container)


def a_processor(node: Node, hub: str, count: int = 5, sequence: int = 1) -> tuple[str, dict[str, str]]:
    """A container with the checkpoint of a stopped processor, in a hub with a number of events."""
    assert at(node, "send", hub, "x", "--count", str(count), "--partition-id", "0").code == Exit.OK
    container = f"checkpoints-{uuid.uuid4().hex}"
    with ContainerClient.from_connection_string(node.blob_connection_string, container) as client:
        client.create_container()
    place = {
        "fully_qualified_namespace": "localhost",
        "eventhub_name": hub,
        "consumer_group": "$Default",
        "partition_id": "0",
    }
    with a_store(node, container) as store:
        store.update_checkpoint({**place, "offset": "100", "sequence_number": sequence})
    return container, place


def process(node: Node, hub: str, container: str, checkpoint_at: int | None = None) -> int:
    """Run a processor of the SDK until it has an event or a checkpoint; returns the first sequence number."""
    got: list[int] = []
    ended = threading.Event()
    store = a_store(node, container)
    client = EventHubConsumerClient.from_connection_string(
        node.emulator_connection_string(hub), "$Default", checkpoint_store=store, load_balancing_interval=1
    )

    def on_event(context: Any, event: Any) -> None:
        got.append(event.sequence_number)
        if event.sequence_number == checkpoint_at:
            context.update_checkpoint(event)
        if checkpoint_at is None or event.sequence_number >= checkpoint_at:
            ended.set()

    thread = threading.Thread(target=client.receive, args=(on_event,), kwargs={"starting_position": "-1"})
    thread.start()
    is_there = ended.wait(120)
    client.close()
    thread.join(120)
    store.close()
    assert is_there, "the processor got no event"
    return got[0]


@pytest.mark.parametrize(("target", "next_event"), [("earliest", 0), ("offset:3", 3), ("shift:-1", 1)])
def test_processor_continues_at_the_position_of_a_reset(node: Node, hub: str, target: str, next_event: int) -> None:
    """A preview before it changes nothing; a processor of the Azure SDK verifies the result."""
    assert at(node, "send", hub, "x", "--count", "5", "--partition-id", "0").code == Exit.OK
    container = f"checkpoints-{uuid.uuid4().hex}"
    with ContainerClient.from_connection_string(node.blob_connection_string, container) as client:
        client.create_container()
    process(node, hub, container, checkpoint_at=1)
    given = ("processor", "reset", "--eventhub-name", hub, "--to", target, "--partitions", "0")

    preview = at(node, *given, "--dry-run").json
    kept = at(node, "processor", "list").json
    done = at(node, *given).json

    assert preview == done
    assert [(row["partition"], row["currentOffset"], row["newOffset"]) for row in done] == [(0, 2, next_event)]
    [mine] = [row for row in kept if (row["eventHub"], row["partition"]) == (hub, 0)]
    assert mine["sequenceNumber"] == 1
    assert process(node, hub, container) == next_event


def test_reset_is_refused_while_a_processor_owns_a_partition(node: Node, hub: str) -> None:
    """The processor would overwrite the new checkpoint."""
    container, place = a_processor(node, hub)
    with a_store(node, container) as store:
        [owned] = store.claim_ownership([{**place, "owner_id": "worker-7"}])
        refused = at(node, "processor", "reset", "--eventhub-name", hub, "--to", "earliest")
        store.claim_ownership([{**owned, "owner_id": ""}])
    accepted = at(node, "processor", "reset", "--eventhub-name", hub, "--to", "earliest")

    assert refused.code == Exit.FAILED
    assert "still has members" in refused.err
    assert accepted.code == Exit.OK


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to", "nowhere"), "none of"),
        (("--to", "latest", "--partitions", "99"), "99"),
        (("--to", "latest", "--consumer-group-name", "nobody"), "There is no group"),
        (("--to", "latest", "--container-name", "nowhere"), "There is no group"),
    ],
)
def test_invalid_reset_is_refused_with_a_reason(node: Node, hub: str, arguments: tuple[str, ...], told: str) -> None:
    """The error names the wrong value."""
    a_processor(node, hub)

    run = at(node, "processor", "reset", "--eventhub-name", hub, *arguments)

    assert run.code != Exit.OK
    assert told in run.err


def test_doctor_reports_an_owner_that_moves(node: Node, hub: str) -> None:
    """Two groups of processors that compete for a partition process every event several times."""
    container, place = a_processor(node, hub)
    sound = at(node, "doctor", "--data", str(node.data), "--processors")
    with a_store(node, container) as store:
        [owned] = store.claim_ownership([{**place, "owner_id": "one"}])
        for owner in ("two", "one", "two"):
            [owned] = store.claim_ownership([{**owned, "owner_id": owner}])
    moving = at(node, "doctor", "--data", str(node.data), "--processors")

    line = f"{hub}/0 as $default in {container}"
    assert f"checked  {line}" in sound.out
    assert moving.code == Exit.FAILED
    assert f"wrong    {line}: the owner moved 3 times in a minute" in moving.out
