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
    """azeventhubs with one hub."""

    def __init__(self, driver: Driver, place: HubLocation, ca_file: str) -> None:
        ca = "" if place.transport is Transport.PLAIN else ca_file
        self._driver = driver
        self._place = place.as_arguments() | {"ca": ca}

    def call(self, name: str, **arguments: Any) -> Any:
        return self._driver.call("event_hubs", name, place=self._place, **arguments)

    def send(self, *texts: str, **target: str) -> Any:
        """Send one batch of events with only a body."""
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
    """It has the body, the properties and the annotations of the service."""
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
def test_events_are_stored_in_the_named_partition(sdk: GoSdk) -> None:
    """No other partition has them."""
    sdk.send("a", partition="1")

    filled = [one["id"] for one in sdk.call("describe")["partitions"] if not one["isEmpty"]]

    assert filled == ["1"]


@judges(feature=Feature.KEY)
def test_events_with_a_key_are_in_one_partition(sdk: GoSdk) -> None:
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
    """It needs several frames in both directions."""
    body = "0123456789" * 50_000

    sdk.send(body, "small", partition="0")

    assert bodies(sdk.receive(2)) == [body, "small"]


# --- receiving -------------------------------------------------------------------------------------------------------


@judges(feature=Feature.PREFETCH)
@pytest.mark.parametrize("prefetch", [-1, 1, 0], ids=["none", "one", "default"])
def test_reader_is_not_limited_by_its_prefetch(sdk: GoSdk, prefetch: int) -> None:
    """The SDK never sends a disposition, so only settled deliveries free its credit: it reads 3 times its prefetch."""
    numbers = [str(number) for number in range(3 * _PREFETCH)]
    sdk.send(*numbers, partition="0")

    assert bodies(sdk.receive(len(numbers), prefetch=prefetch)) == numbers


@judges(feature=Feature.POSITIONS)
@pytest.mark.parametrize(
    ("start", "first"),
    [({}, 0), ({"sequence": 2}, 3), ({"sequence": 2, "inclusive": True}, 2), ({"offset": ""}, 3), ({"timeMs": 0}, 0)],
    ids=["first", "after sequence", "at sequence", "after offset", "at time"],
)
def test_reader_starts_at_the_requested_position(sdk: GoSdk, start: dict[str, Any], first: int) -> None:
    """The position is the beginning, a sequence number, an offset or a time, inclusive or exclusive."""
    sdk.send(*"01234", partition="0")
    third = sdk.receive(5)[2]
    start = {"offset": third["offset"]} if "offset" in start else start

    events = sdk.receive(5 - first, start=start)

    assert bodies(events) == list("01234"[first:])


@judges(feature=Feature.LATEST)
def test_a_reader_starts_at_the_end_by_default(sdk: GoSdk) -> None:
    """Earlier events are not delivered."""
    sdk.send("old", partition="0")

    events = sdk.call("receiveLatest")

    assert bodies(events) == ["new"]


@judges(feature=Feature.GROUPS)
def test_consumer_group_reads_independently(
    go: Driver, conformance_node: ConformanceNode, place: HubLocation, sdk: GoSdk
) -> None:
    """It is used by its name."""
    conformance_node.write_group(place.hub, "audit")
    sdk.send("a", partition="0")

    assert bodies(sdk.receive(1)) == bodies(sdk.receive(1, group="audit")) == ["a"]


@judges(feature=Feature.OWNER)
def test_higher_owner_level_reads(sdk: GoSdk) -> None:
    """The other reader gets the error that it has lost the partition."""
    sdk.send("a", partition="0")

    result = sdk.call("contend")

    assert result == {"owner": "ownershiplost", "newcomerReads": True}


# --- asking and processing -------------------------------------------------------------------------------------------


@judges(feature=Feature.PROPERTIES)
def test_properties_of_hub_and_partitions_are_returned(sdk: GoSdk, place: HubLocation) -> None:
    """They have the types of the SDK."""
    sdk.send("a", "b", partition="0")

    hub = sdk.call("describe")
    filled, empty = hub["partitions"]

    assert (hub["name"], hub["isGeoReplicated"]) == (place.hub, False)
    assert abs(hub["createdMs"] / 1000 - time.time()) < 300
    assert (filled["id"], filled["isEmpty"], filled["beginning"], filled["last"]) == ("0", False, 0, 1)
    assert abs(filled["lastMs"] / 1000 - time.time()) < 60
    assert (empty["id"], empty["isEmpty"]) == ("1", True)


@judges(feature=Feature.PROCESSOR)
def test_processor_continues_from_its_checkpoints(sdk: GoSdk) -> None:
    """The second one reads the events that the first has not read."""
    sdk.send("a", "b", partition="0")

    result = sdk.call("process", count=2, events=bodies_only("c", "d"), partition="0")

    assert result == {"first": ["a", "b"], "second": ["c", "d"]}


@judges(feature=Feature.FAIL_OVER)
def test_two_processors_share_the_partitions(sdk: GoSdk) -> None:
    """The second one takes its share from the first by its owner level."""
    shares = sdk.call("shareHub", count=2)

    assert shares == [1, 1]


# --- refusals --------------------------------------------------------------------------------------------------------


@judges(feature=Feature.REFUSALS)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sendBatch", {"events": [{"body": "a"}]}), ("receive", {"partition": "0", "count": 1}), ("describe", {})],
    ids=["sender", "reader", "properties"],
)
def test_unknown_hub_is_refused(
    go: Driver, conformance_node: ConformanceNode, transport: Transport, name: str, arguments: dict[str, Any]
) -> None:
    """Senders, readers and requests for properties get the same condition."""
    nowhere = GoSdk(go, conformance_node.place(transport, "nowhere"), conformance_node.node.ca_file)

    with pytest.raises(ClientError) as refusal:
        nowhere.call(name, **arguments)

    assert "not-found" in refusal.value.message.lower() or "404" in refusal.value.message


@judges(feature=Feature.REFUSALS)
def test_missing_right_is_refused(go: Driver, conformance_node: ConformanceNode, place: HubLocation) -> None:
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
    """The limit is the one that the link announces."""
    with pytest.raises(ClientError) as refusal:
        sdk.send("x" * (1 << 20))

    assert refusal.value.code == "too large for the batch"
