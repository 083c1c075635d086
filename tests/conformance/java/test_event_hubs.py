"""The unmodified Azure SDK for Java: producers, consumers, properties and a processor, plain and over TLS."""

import time
from typing import Any

import pytest

from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import ClientError, Driver
from conformance.matrix import Feature, Name

pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.JAVA)]

judges = pytest.mark.judges


def call(java: Driver, name: str, place: HubLocation, **arguments: Any) -> Any:
    return java.call("Driver", name, place=place.as_arguments(), **arguments)


def bodies(events: list[dict[str, Any]]) -> list[str]:
    return [event["body"] for event in events]


@judges(feature=Feature.BATCHES)
def test_a_batch_arrives_as_it_was_sent(java: Driver, place: HubLocation) -> None:
    """It has the body, the properties and the annotations of the service."""
    sent = call(java, "sendBatch", place, bodies=["a", "b"], partition="1")
    first, second = call(java, "receive", place, partition="1", count=2)

    assert (sent["fitted"], sent["limitBytes"]) == (2, 1 << 20)
    assert (first["body"], first["messageId"], first["contentType"]) == ("a", "id", "text/plain")
    assert first["properties"] == {"text": "größe", "number": 7, "yes": True}
    assert (first["partition"], first["sequence"], second["sequence"]) == ("1", 0, 1)
    assert int(second["offset"]) > int(first["offset"])
    assert abs(first["enqueuedMs"] / 1000 - time.time()) < 60


@judges(feature=Feature.SINGLES)
def test_single_events_arrive_in_order(java: Driver, place: HubLocation) -> None:
    """Each is acknowledged before the next is sent."""
    numbers = [str(number) for number in range(20)]

    call(java, "sendSingles", place, bodies=numbers, partition="0")

    assert bodies(call(java, "receive", place, partition="0", count=20)) == numbers


@judges(feature=Feature.KEY)
def test_events_with_a_key_are_in_one_partition(java: Driver, place: HubLocation) -> None:
    """Readers get the key."""
    for number in range(3):
        call(java, "sendBatch", place, bodies=[str(number)], key="device-7")

    filled = [p["id"] for p in call(java, "describe", place)["partitions"] if not p["isEmpty"]]
    received = call(java, "receive", place, partition=filled[0], count=3)

    assert len(filled) == 1
    assert bodies(received) == ["0", "1", "2"]
    assert {event["key"] for event in received} == {"device-7"}


@judges(feature=Feature.LARGE)
def test_an_event_larger_than_a_frame_arrives(java: Driver, place: HubLocation) -> None:
    """It needs several frames in both directions."""
    body = "0123456789" * 50_000

    call(java, "sendBatch", place, bodies=[body, "small"], partition="0")

    assert bodies(call(java, "receive", place, partition="0", count=2)) == [body, "small"]


@judges(feature=Feature.BUFFERED)
def test_buffered_producer_delivers_everything(java: Driver, place: HubLocation) -> None:
    """The partition does not matter."""
    sent = call(java, "sendBuffered", place, count=50)

    partitions = call(java, "describe", place)["partitions"]

    assert (sent["sent"], sent["errors"]) == (50, [])
    assert sum(partition["last"] + 1 for partition in partitions) == 50


@judges(feature=Feature.POSITIONS)
@pytest.mark.parametrize(
    ("start", "first"),
    [({}, 0), ({"sequence": 2}, 3), ({"sequence": 2, "inclusive": True}, 2), ({"offset": ""}, 3), ({"timeMs": 0}, 0)],
    ids=["first", "after sequence", "at sequence", "after offset", "at time"],
)
def test_consumer_starts_at_the_requested_position(
    java: Driver, place: HubLocation, start: dict[str, Any], first: int
) -> None:
    """The position is the beginning, a sequence number, an offset or a time, inclusive or exclusive."""
    call(java, "sendBatch", place, bodies=list("01234"), partition="0")
    third = call(java, "receive", place, partition="0", count=5)[2]
    start = {"offset": third["offset"]} if "offset" in start else start

    received = call(java, "receive", place, partition="0", count=5 - first, start=start)

    assert bodies(received) == list("01234"[first:])


@judges(feature=Feature.PREFETCH)
@pytest.mark.parametrize("prefetch", [1, 8000])
def test_all_events_are_received_with_any_prefetch(java: Driver, place: HubLocation, prefetch: int) -> None:
    """Little credit makes it slower, but no event is lost."""
    numbers = [str(number) for number in range(20)]
    call(java, "sendBatch", place, bodies=numbers, partition="0")

    received = call(java, "receive", place, partition="0", count=20, prefetch=prefetch)

    assert bodies(received) == numbers


@judges(feature=Feature.LAST_ENQUEUED)
def test_last_enqueued_information_is_sent_with_events(java: Driver, place: HubLocation) -> None:
    """A program computes its lag from it without a request."""
    call(java, "sendBatch", place, bodies=list("abc"), partition="0")

    received = call(java, "receive", place, partition="0", count=3)

    assert received[0]["lastSequence"] == 2


@judges(feature=Feature.OWNER)
def test_higher_owner_level_reads(java: Driver, place: HubLocation) -> None:
    """The other reader gets the error that its link was stolen."""
    call(java, "sendBatch", place, bodies=["a"], partition="0")

    result = call(java, "contend", place)

    assert result == {"owner": "LINK_STOLEN", "newcomerReads": True}


@judges(feature=Feature.PROPERTIES)
def test_properties_of_hub_and_partitions_are_returned(java: Driver, place: HubLocation) -> None:
    """They have the types of the SDK."""
    call(java, "sendBatch", place, bodies=["a", "b"], partition="0")

    result = call(java, "describe", place)
    filled, empty = result["partitions"]

    assert result["name"] == place.hub
    assert abs(result["createdMs"] / 1000 - time.time()) < 300
    assert (filled["id"], filled["isEmpty"], filled["beginning"], filled["last"]) == ("0", False, 0, 1)
    assert (empty["id"], empty["isEmpty"], empty["lastOffset"]) == ("1", True, "-1")


@judges(feature=Feature.PROCESSOR)
def test_processor_continues_from_its_checkpoints(java: Driver, place: HubLocation) -> None:
    """The second reads the events that the first has not read; repeats are allowed with at-least-once delivery."""
    call(java, "sendBatch", place, bodies=["a", "b"], partition="0")

    result = call(java, "process", place, count=2, bodies=["c", "d"], partition="0")

    assert (result["first"][:2], result["second"][:2]) == (["a", "b"], ["c", "d"])


@judges(feature=Feature.REFUSALS)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sendBatch", {"bodies": ["a"]}), ("receive", {"partition": "0", "count": 1}), ("describe", {})],
)
def test_unknown_hub_is_refused(
    java: Driver, conformance_node: ConformanceNode, transport: Transport, name: str, arguments: dict[str, Any]
) -> None:
    """This holds for senders, readers and requests for properties."""
    with pytest.raises(ClientError) as result:
        call(java, name, conformance_node.place(transport, "nowhere"), **arguments)

    assert result.value.code == "NOT_FOUND"


@judges(feature=Feature.REFUSALS)
def test_missing_right_is_refused(java: Driver, conformance_node: ConformanceNode, place: HubLocation) -> None:
    """A reader may not send."""
    limited = conformance_node.place(place.transport, place.hub, conformance_node.new_key("Listen"))

    with pytest.raises(ClientError) as result:
        call(java, "sendBatch", limited, bodies=["a"])

    assert result.value.code == "UNAUTHORIZED_ACCESS"
