"""The checkpoint store of the Azure SDK for Go, on the storage account of the node."""

import uuid

import pytest

from conformance.conformance_node import ConformanceNode, Transport
from conformance.driver import Driver

pytestmark = pytest.mark.foreign


def test_a_processor_continues_from_its_checkpoints(go: Driver, conformance_node: ConformanceNode) -> None:
    """The second run reads only events after the first; ownership and checkpoints are blobs on the node."""
    place = conformance_node.place(Transport.PLAIN, conformance_node.new_hub(1)).as_arguments()
    storage = {"storage": conformance_node.node.blob_connection_string, "container": f"checkpoints-{uuid.uuid4().hex}"}

    go.call("event_hubs", "sendBatch", place=place, events=[{"body": "one"}, {"body": "two"}])
    first = go.call("event_hubs", "processBlobs", place=place, **storage, count=2)
    go.call("event_hubs", "sendBatch", place=place, events=[{"body": "three"}])
    second = go.call("event_hubs", "processBlobs", place=place, **storage, count=1)

    assert first["seen"] == ["one", "two"]
    assert second["seen"] == ["three"]
    assert [name.split("/")[-2] for name in sorted(second["names"])] == ["checkpoint", "ownership"]
