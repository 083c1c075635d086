"""Capture into the storage account of the node itself, and what readers of captured blobs find there."""

from collections.abc import Iterator
from io import BytesIO

import fastavro
import httpx
import pytest
from azure.storage.blob import ContainerClient

from hubmere.pipeline.capture.destinations.delta import table_files
from hubmere.testing import Node
from pipeline.captured_hubs import CapturedHubs, a_capturing_node

ACCOUNT = "hubmerestorage"
KEYS = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}"


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedHubs]:
    """A node without any capture target in its settings."""
    with a_capturing_node(tmp_path_factory.mktemp("files")) as running:
        yield running


def storage_of(node: Node) -> str:
    """The connection string of the account with a key that is in force now."""
    listed = httpx.post(f"{node.http}{KEYS}/listKeys", headers={"Authorization": f"Bearer {node.admin_token}"})
    return str(listed.json()["keys"][0]["connectionString"])


def captured(node: Node, container: str) -> list[bytes]:
    """The bodies of all captured Avro files of a container, as a reader of Azure Blob Storage gets them."""
    found: list[bytes] = []
    with ContainerClient.from_connection_string(storage_of(node), container) as client:
        for blob in client.list_blobs():
            records = fastavro.reader(BytesIO(client.download_blob(blob.name).readall()))
            found += [record["Body"] for record in records if isinstance(record, dict)]
    return found


def destination(container: str) -> dict[str, object]:
    """A destination of the service's own form."""
    properties = {"storageAccountResourceId": ACCOUNT, "blobContainer": container}
    return {"name": "EventHubArchive.AzureBlockBlob", "properties": properties}


def test_captured_events_are_blobs_of_the_node_without_any_setting(hubs: CapturedHubs) -> None:
    """The node creates the container and gives the job its own address and key."""
    hub = hubs.new_captured(destination=destination("captured"))
    bodies = [b"%d" % number for number in range(100)]
    hubs.publish(hub, 0, bodies)

    files = hubs.capture(hub)

    assert files == 1
    assert captured(hubs.node, "captured") == bodies


def test_the_job_gets_the_renewed_key(hubs: CapturedHubs) -> None:
    """Nobody has to copy a key into the settings."""
    hub = hubs.new_captured(destination=destination("renewed"))
    first = hubs.plan(hub)

    renewed = httpx.post(
        f"{hubs.node.http}{KEYS}/regenerateKey",
        json={"keyName": "key1"},
        headers={"Authorization": f"Bearer {hubs.node.admin_token}"},
    )
    second = hubs.plan(hub)

    assert renewed.status_code == 200
    assert first.target.options["account_key"] != second.target.options["account_key"]
    assert first.target.url == second.target.url == f"az://{ACCOUNT}/renewed"


def test_a_delta_table_can_be_in_the_account_of_the_node(hubs: CapturedHubs) -> None:
    """The Delta library uses the same endpoint."""
    pytest.importorskip("deltalake")
    hub = hubs.new_captured(destination=destination("tables"), encoding="Delta")
    hubs.publish(hub, 0, [b"one", b"two"])
    target = hubs.plan(hub).target

    hubs.capture(hub)
    table = f"{target.url}/{hubs.node.namespace}/{hub}"

    assert len(table_files(table, target.options)) == 1
