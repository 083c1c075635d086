"""The SDKs of 2019, unmodified: azure-eventhub 1.3 for Python, @azure/event-hubs 2.1, azure-eventhubs 2.3 for Java."""

import time
import uuid
from typing import Any

import pytest

from conformance.conformance_node import ConformanceNode, Transport
from conformance.driver import ClientError, Driver
from conformance.matrix import Feature, Name

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(transport=Transport.TLS)]

_EVERY = (Name.PYTHON_1, Name.JS_2, Name.JAVA_2)
# The error of each SDK for a lost partition, and for an unknown hub.
_LOST = {
    Name.PYTHON_1: "LinkStolen",
    Name.JS_2: "ReceiverDisconnectedError",
    Name.JAVA_2: "ReceiverDisconnectedException",
}
_NOT_FOUND = {
    Name.PYTHON_1: "EventHubError",
    Name.JS_2: "MessagingEntityNotFoundError",
    Name.JAVA_2: "IllegalEntityException",
}


class Sdk:
    """One SDK with one hub."""

    def __init__(self, name: Name, driver: Driver, conformance_node: ConformanceNode, hub: str) -> None:
        rule, key = conformance_node.root
        self.name = name
        self.hub = hub
        self._driver = driver
        self._place = {"host": conformance_node.node.amqps.rpartition(":")[0], "hub": hub, "name": rule, "key": key}

    def call(self, operation: str, **arguments: Any) -> Any:
        return self._driver.call("", operation, place=self._place, **arguments)

    def receive(self, count: int, partition: str = "0", **more: Any) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.call("receive", partition=partition, count=count, **more)
        return events


@pytest.fixture(params=[pytest.param(name, marks=judges(client=name)) for name in _EVERY])
def sdk(request: pytest.FixtureRequest, drivers: dict[Name, Driver], conformance_node: ConformanceNode) -> Sdk:
    """Each SDK in turn, with its own hub of two partitions."""
    return Sdk(request.param, drivers[request.param], conformance_node, conformance_node.new_hub())


def bodies(events: list[dict[str, Any]]) -> list[str]:
    return [event["body"] for event in events]


@judges(feature=Feature.SINGLES)
def test_single_events_arrive_as_they_were_sent(sdk: Sdk) -> None:
    """They have the body, the properties and the annotations of the service."""
    sdk.call("send", texts=["a", "b"], partition="1")

    first, second = sdk.receive(2, "1")

    assert bodies([first, second]) == ["a", "b"]
    assert first["properties"] == {"text": "größe"}
    assert (first["sequence"], second["sequence"]) == (0, 1)
    assert int(second["offset"]) > int(first["offset"])
    assert abs(first["enqueuedMs"] / 1000 - time.time()) < 60


@judges(feature=Feature.BATCHES)
def test_a_batch_arrives_in_order(sdk: Sdk) -> None:
    """These SDKs use the same message format as current ones."""
    texts = [str(number) for number in range(50)]

    sdk.call("send_batch", texts=texts, partition="0")

    assert bodies(sdk.receive(50)) == texts


@judges(feature=Feature.KEY)
def test_events_with_a_key_are_in_one_partition(sdk: Sdk) -> None:
    """Readers get the key with the event."""
    sdk.call("send", texts=["a", "b", "c"], key="device-7")

    sdk.call("send_batch", texts=["end"], partition="0")
    sdk.call("send_batch", texts=["end"], partition="1")
    parts = [_until_end(sdk, partition) for partition in ("0", "1")]

    keyed = [event for part in parts for event in part if event["body"] != "end"]
    assert sorted(len(part) for part in parts) == [1, 4]
    assert [(event["body"], event["key"]) for event in keyed] == [(text, "device-7") for text in "abc"]


def _until_end(sdk: Sdk, partition: str) -> list[dict[str, Any]]:
    """All events of a partition, which has one or four."""
    first = sdk.receive(1, partition)
    return first if first[0]["body"] == "end" else first + sdk.receive(3, partition, after=first[0]["offset"])


@judges(feature=Feature.POSITIONS)
def test_reader_starts_after_an_offset(sdk: Sdk) -> None:
    """The offset was stored with a checkpoint."""
    sdk.call("send_batch", texts=list("01234"), partition="0")
    third = sdk.receive(5)[2]

    assert bodies(sdk.receive(2, after=third["offset"])) == ["3", "4"]


@judges(feature=Feature.OWNER)
def test_higher_epoch_reads(sdk: Sdk) -> None:
    """The other reader gets the error that it has lost the partition."""
    sdk.call("send", texts=["a"], partition="0")

    result = sdk.call("contend", partition="0")

    assert result["newcomerReads"] is True
    assert _LOST[sdk.name] in result["owner"]


@judges(feature=Feature.PROPERTIES)
def test_runtime_information_of_the_hub_is_returned(sdk: Sdk) -> None:
    """It has the types of the SDK."""
    described = sdk.call("describe")

    assert (described["name"], described["partitions"]) == (sdk.hub, ["0", "1"])
    assert abs(described["createdMs"] / 1000 - time.time()) < 300


@judges(feature=Feature.REFUSALS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=judges(client=name)) for name in _EVERY])
def test_unknown_hub_is_refused(drivers: dict[Name, Driver], conformance_node: ConformanceNode, name: Name) -> None:
    """The SDK has its own error."""
    with pytest.raises(ClientError) as refusal:
        Sdk(name, drivers[name], conformance_node, "nowhere").call("send", texts=["a"])

    assert refusal.value.name == _NOT_FOUND[name]


@judges(feature=Feature.PROCESSOR, client=Name.EPH)
def test_the_event_processor_host_reads_and_checkpoints(
    drivers: dict[Name, Driver], conformance_node: ConformanceNode
) -> None:
    """It uses its own managers in memory; each event is checkpointed."""
    sdk = Sdk(Name.JAVA_2, drivers[Name.JAVA_2], conformance_node, conformance_node.new_hub())
    sdk.call("send_batch", texts=["a", "b", "c"], partition="0")

    result = sdk.call("process", count=3)

    assert result == {"bodies": ["a", "b", "c"], "checkpoint": 2}


@judges(feature=Feature.PROCESSOR, client=Name.EPH)
def test_event_processor_host_stores_leases_and_checkpoints_on_the_node(
    drivers: dict[Name, Driver], conformance_node: ConformanceNode
) -> None:
    """It uses its own blob managers: leases are acquired and renewed, and a second host continues after the first."""
    sdk = Sdk(Name.JAVA_2, drivers[Name.JAVA_2], conformance_node, conformance_node.new_hub())
    storage = {"storage": conformance_node.node.blob_connection_string, "container": f"leases-{uuid.uuid4().hex}"}
    sdk.call("send_batch", texts=["a", "b", "c"], partition="0")

    first = sdk.call("process_blobs", count=3, **storage)
    sdk.call("send_batch", texts=["d"], partition="0")
    second = sdk.call("process_blobs", count=1, **storage)

    assert (first["bodies"], second["bodies"]) == (["a", "b", "c"], ["d"])
