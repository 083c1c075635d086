"""The checkpoint store of the Azure SDK for Java, on the storage account of the node."""

import uuid

import pytest

from conformance.conformance_node import ConformanceNode, Transport
from conformance.driver import Driver

pytestmark = pytest.mark.foreign


def test_a_processor_continues_from_its_checkpoints(java: Driver, conformance_node: ConformanceNode) -> None:
    """The second run reads only events after the first; ownership and checkpoints are blobs on the node."""
    place = conformance_node.place(Transport.PLAIN, conformance_node.new_hub(1)).as_arguments()
    storage = {"storage": conformance_node.node.blob_connection_string, "container": f"checkpoints-{uuid.uuid4().hex}"}

    java.call("", "sendBatch", place=place, bodies=["one", "two"], partition="0")
    first = java.call("", "processWithBlobs", place=place, **storage, count=2)
    java.call("", "sendBatch", place=place, bodies=["three"], partition="0")
    second = java.call("", "processWithBlobs", place=place, **storage, count=1)

    assert first["seen"] == ["one", "two"]
    assert second["seen"] == ["three"]
    assert [name.split("/")[-2] for name in sorted(second["names"])] == ["checkpoint", "ownership"]
