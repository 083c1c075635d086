"""The checkpoint store of the Azure SDK for JavaScript, on the storage account of the node."""

import uuid

import pytest

from conformance.conformance_node import ConformanceNode, Transport
from conformance.driver import Driver

pytestmark = pytest.mark.foreign


def test_a_processor_continues_from_its_checkpoints(js: Driver, conformance_node: ConformanceNode) -> None:
    """The second run reads only events after the first; ownership and checkpoints are blobs on the node."""
    place = conformance_node.place(Transport.PLAIN, conformance_node.new_hub(1))
    container = f"checkpoints-{uuid.uuid4().hex}"
    arguments = {
        "place": place.as_arguments(),
        "storage": conformance_node.node.blob_connection_string,
        "container": container,
    }

    js.call("event_hubs", "sendBatch", place=place.as_arguments(), events=[{"body": "one"}, {"body": "two"}])
    first = js.call("checkpoints", "process", **arguments, count=2)
    js.call("event_hubs", "sendBatch", place=place.as_arguments(), events=[{"body": "three"}])
    second = js.call("checkpoints", "process", **arguments, count=1)

    assert first["seen"] == ["one", "two"]
    assert second["seen"] == ["three"]
    assert [name.rpartition("/")[0].rpartition("/")[2] for name in sorted(second["names"])] == [
        "checkpoint",
        "ownership",
    ]
