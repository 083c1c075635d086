"""Event processors by command and metric: what a checkpoint store of the Azure SDK keeps on the node."""

import urllib.request
import uuid

from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import ContainerClient

from commands.runner import at
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node


def test_processors_are_shown_with_owner_checkpoint_and_lag(node: Node, hub: str) -> None:
    """An operator sees a processor that is behind although it keeps its state in blobs."""
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
        timeout=60,
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
