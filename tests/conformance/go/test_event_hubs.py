"""The unmodified Azure SDK for Go: producer, partition readers, properties and processors, over every transport."""

import time
from typing import Any

import pytest

from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import ClientError, Driver
from conformance.matrix import Feature, Name

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(client=Name.GO)]

# The SDK's own prefetch is 300 events.
_PREFETCH = 300


class GoSdk:
    """azeventhubs at one place."""

    def __init__(self, driver: Driver, place: HubLocation, ca_file: str) -> None:
        ca = "" if place.transport is Transport.PLAIN else ca_file
        self._driver = driver
        self._place = place.as_arguments() | {"ca": ca}

    def call(self, name: str, **arguments: Any) -> Any:
        return self._driver.call("event_hubs", name, place=self._place, **arguments)

    def send(self, *texts: str, **target: str) -> Any:
        """One batch of events that are nothing but a body."""
        return self.call("sendBatch", events=bodies_only(*texts), **target)

    def receive(self, count: int, partition: str = "0", **more: Any) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.call("receive", partition=partition, count=count, **more)
        return events


@pytest.fixture
def sdk(go: Driver, place: HubLocation, conformance_node: ConformanceNode) -> GoSdk:
    return GoSdk(go, place, conformance_node.node.ca_file)


def bodies_only(*texts: str) -> list[dict[str, str]]:
    return [{"body": text} for text in texts]


def bodies(events: list[dict[str, Any]]) -> list[str]:
    return [event["body"] for event in events]


# --- sending ---------------------------------------------------------------------------------------------------------


@judges(feature=Feature.BATCHES)
def test_a_batch_arrives_as_it_was_sent(sdk: GoSdk) -> None:
    """Body, properties and the annotations of the service."""
    full = {"body": "a", "messageId": "id", "correlationId": "other", "contentType": "text/plain"}

    sent = sdk.call("sendBatch", events=[full | {"properties": {"text": "größe", "yes": True}}, {"body": "b"}])
    partition = next(one["id"] for one in sdk.call("describe")["partitions"] if not one["isEmpty"])
    first, second = sdk.receive(2, partition)

    assert sent["fitted"] == 2
    assert {name: first[name] for name in full} == full
    assert first["properties"] == {"text": "größe", "yes": True}
    assert (first["sequence"], second["sequence"]) == (0, 1)
    assert int(second["offset"]) > int(first["offset"])
    assert abs(first["enqueuedMs"] / 1000 - time.time()) < 60


@judges(feature=Feature.SINGLES)
def test_batches_of_one_arrive_in_order(sdk: GoSdk) -> None:
    """Each is acknowledged before the next is sent, all over one link."""
    numbers = [str(number) for number in range(20)]

    sdk.call("sendBatches", events=bodies_only(*numbers), partition="0")

    assert bodies(sdk.receive(20)) == numbers


@judges(feature=Feature.PARTITION)
def test_events_go_to_the_partition_that_is_named(sdk: GoSdk) -> None:
    """And to no other."""
    sdk.send("a", partition="1")

    filled = [one["id"] for one in sdk.call("describe")["partitions"] if not one["isEmpty"]]

    assert filled == ["1"]


@judges(feature=Feature.KEY)
def test_a_key_keeps_events_together(sdk: GoSdk) -> None:
    """Readers get the key with the event."""
    for number in range(3):
        sdk.send(str(number), key="device-7")

    filled = [one["id"] for one in sdk.call("describe")["partitions"] if not one["isEmpty"]]
    events = sdk.receive(3, filled[0])

    assert len(filled) == 1
    assert bodies(events) == ["0", "1", "2"]
    assert {event["key"] for event in events} == {"device-7"}


@judges(feature=Feature.LARGE)
def test_an_event_larger_than_a_frame_arrives(sdk: GoSdk) -> None:
    """Several frames in, several frames out."""
    body = "0123456789" * 50_000

    sdk.send(body, "small", partition="0")

    assert bodies(sdk.receive(2)) == [body, "small"]


# --- receiving -------------------------------------------------------------------------------------------------------


@judges(feature=Feature.PREFETCH)
@pytest.mark.parametrize("prefetch", [-1, 1, 0], ids=["none", "one", "default"])
def test_a_reader_does_not_stall_behind_its_prefetch(sdk: GoSdk, prefetch: int) -> None:
    """The SDK never sends a disposition, so only settled deliveries free its credit: 3 times its own prefetch."""
    numbers = [str(number) for number in range(3 * _PREFETCH)]
    sdk.send(*numbers, partition="0")

    assert bodies(sdk.receive(len(numbers), prefetch=prefetch)) == numbers


@judges(feature=Feature.POSITIONS)
@pytest.mark.parametrize(
    ("start", "first"),
    [({}, 0), ({"sequence": 2}, 3), ({"sequence": 2, "inclusive": True}, 2), ({"offset": ""}, 3), ({"timeMs": 0}, 0)],
    ids=["first", "after sequence", "at sequence", "after offset", "at time"],
)
def test_a_reader_starts_where_it_asks(sdk: GoSdk, start: dict[str, Any], first: int) -> None:
    """Beginning, sequence number, offset and time; at or after."""
    sdk.send(*"01234", partition="0")
    third = sdk.receive(5)[2]
    start = {"offset": third["offset"]} if "offset" in start else start

    events = sdk.receive(5 - first, start=start)

    assert bodies(events) == list("01234"[first:])


@judges(feature=Feature.LATEST)
def test_a_reader_starts_at_the_end_by_default(sdk: GoSdk) -> None:
    """What was there before does not come."""
    sdk.send("old", partition="0")

    events = sdk.call("receiveLatest")

    assert bodies(events) == ["new"]


@judges(feature=Feature.GROUPS)
def test_a_consumer_group_reads_for_itself(
    go: Driver, conformance_node: ConformanceNode, place: HubLocation, sdk: GoSdk
) -> None:
    """By the name that it was given."""
    conformance_node.write_group(place.hub, "audit")
    sdk.send("a", partition="0")

    assert bodies(sdk.receive(1)) == bodies(sdk.receive(1, group="audit")) == ["a"]


@judges(feature=Feature.OWNER)
def test_the_higher_owner_level_reads(sdk: GoSdk) -> None:
    """The other learns that it has lost the partition."""
    sdk.send("a", partition="0")

    result = sdk.call("contend")

    assert result == {"owner": "ownershiplost", "newcomerReads": True}


# --- asking and processing -------------------------------------------------------------------------------------------


@judges(feature=Feature.PROPERTIES)
def test_properties_of_hub_and_partitions(sdk: GoSdk, place: HubLocation) -> None:
    """In the types of the SDK."""
    sdk.send("a", "b", partition="0")

    hub = sdk.call("describe")
    filled, empty = hub["partitions"]

    assert (hub["name"], hub["isGeoReplicated"]) == (place.hub, False)
    assert abs(hub["createdMs"] / 1000 - time.time()) < 300
    assert (filled["id"], filled["isEmpty"], filled["beginning"], filled["last"]) == ("0", False, 0, 1)
    assert abs(filled["lastMs"] / 1000 - time.time()) < 60
    assert (empty["id"], empty["isEmpty"]) == ("1", True)


@judges(feature=Feature.PROCESSOR)
def test_a_processor_goes_on_from_its_checkpoints(sdk: GoSdk) -> None:
    """The second one reads the events that the first has not read."""
    sdk.send("a", "b", partition="0")

    result = sdk.call("process", count=2, events=bodies_only("c", "d"), partition="0")

    assert result == {"first": ["a", "b"], "second": ["c", "d"]}


@judges(feature=Feature.FAIL_OVER)
def test_two_processors_share_the_partitions(sdk: GoSdk) -> None:
    """The second takes its part from the first by its owner level."""
    shares = sdk.call("shareHub", count=2)

    assert shares == [1, 1]


# --- refusals --------------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sendBatch", {"events": [{"body": "a"}]}), ("receive", {"partition": "0", "count": 1}), ("describe", {})],
    ids=["sender", "reader", "properties"],
)
def test_a_hub_that_is_not_there(
    go: Driver, conformance_node: ConformanceNode, transport: Transport, name: str, arguments: dict[str, Any]
) -> None:
    """Senders, readers and questions are refused with the same condition."""
    nowhere = GoSdk(go, conformance_node.place(transport, "nowhere"), conformance_node.node.ca_file)

    with pytest.raises(ClientError) as refusal:
        nowhere.call(name, **arguments)

    assert "not-found" in refusal.value.message.lower() or "404" in refusal.value.message


@judges(feature=Feature.REFUSALS)
def test_a_right_that_is_missing(go: Driver, conformance_node: ConformanceNode, place: HubLocation) -> None:
    """A reader may not send."""
    limited = GoSdk(
        go,
        conformance_node.place(place.transport, place.hub, conformance_node.new_key("Listen")),
        conformance_node.node.ca_file,
    )

    with pytest.raises(ClientError) as refusal:
        limited.send("a")

    assert refusal.value.code == "unauthorized"


@judges(feature=Feature.REFUSALS)
def test_an_event_too_large_for_a_batch_is_refused_by_the_client(sdk: GoSdk) -> None:
    """By the limit that the link announces."""
    with pytest.raises(ClientError) as refusal:
        sdk.send("x" * (1 << 20))

    assert refusal.value.code == "too large for the batch"
