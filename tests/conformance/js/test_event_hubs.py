"""The unmodified Azure SDK for JavaScript: producers, consumers and properties, plain, over TLS and over WebSocket."""

import time
from typing import Any

import pytest

from conformance.conformance_node import HubLocation
from conformance.driver import Driver
from conformance.matrix import Feature, Name

pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.JS)]

judges = pytest.mark.judges


def call(js: Driver, name: str, place: HubLocation, **arguments: Any) -> Any:
    return js.call("event_hubs", name, place=place.as_arguments(), **arguments)


def send(js: Driver, place: HubLocation, *bodies: object, **target: str) -> None:
    call(js, "sendBatch", place, events=[{"body": body} for body in bodies], target=target)


def bodies(events: list[dict[str, Any]]) -> list[Any]:
    return [event["body"] for event in events]


@judges(feature=Feature.BATCHES)
def test_a_batch_arrives_as_it_was_sent(js: Driver, place: HubLocation) -> None:
    """It has the body, the properties and the annotations of the service."""
    event = {
        "body": {"temperature": 21.5},
        "properties": {"text": "größe", "number": 7, "yes": True},
        "messageId": "id",
        "correlationId": "other",
        "contentType": "application/json",
    }

    sent = call(js, "sendBatch", place, events=[event, {"body": "second"}], target={"partitionId": "0"})
    first, second = call(js, "receive", place, partition="0", count=2)

    assert (sent["fitted"], sent["limitBytes"]) == (2, 1 << 20)
    assert {key: first[key] for key in event} == event
    assert (first["sequence"], second["sequence"], second["body"]) == (0, 1, "second")
    assert int(second["offset"]) > int(first["offset"])
    assert abs(first["enqueuedMs"] / 1000 - time.time()) < 60


@judges(feature=Feature.BATCHES)
def test_batch_is_accepted_up_to_the_size_limit(js: Driver, place: HubLocation) -> None:
    """The link accepts the size that it announces."""
    events = [{"body": "x" * 10_000}] * 120

    sent = call(js, "sendBatch", place, events=events, target={"partitionId": "1"})
    received = call(js, "receive", place, partition="1", count=sent["fitted"])

    assert 95 < sent["fitted"] < 105
    assert len(received) == sent["fitted"]


@judges(feature=Feature.SINGLES)
def test_single_events_arrive_in_order(js: Driver, place: HubLocation) -> None:
    """More events are in flight than the link has credit."""
    numbers = list(range(350))

    call(js, "sendSingles", place, events=[{"body": number} for number in numbers], target={"partitionId": "0"})
    received = call(js, "receive", place, partition="0", count=350)

    assert bodies(received) == numbers


@judges(feature=Feature.KEY)
def test_events_with_a_key_are_in_one_partition(js: Driver, place: HubLocation) -> None:
    """Readers get the key."""
    for number in range(3):
        send(js, place, number, partitionKey="device-7")

    received = call(js, "receive", place, count=3)

    assert bodies(received) == [0, 1, 2]
    assert len({event["partition"] for event in received}) == 1
    assert {event["key"] for event in received} == {"device-7"}


@judges(feature=Feature.PARTITION)
def test_events_are_stored_in_the_named_partition(js: Driver, place: HubLocation) -> None:
    """No other partition has them."""
    send(js, place, "zero", partitionId="0")
    send(js, place, "one", partitionId="1")

    received = [call(js, "receive", place, partition=partition, count=1) for partition in ("0", "1")]

    assert [[event["body"] for event in events] for events in received] == [["zero"], ["one"]]


@judges(feature=Feature.LARGE)
def test_an_event_larger_than_a_frame_arrives(js: Driver, place: HubLocation) -> None:
    """It needs several frames in both directions, and the link continues."""
    body = "0123456789" * 70_000

    send(js, place, body, "small", partitionId="0")
    received = call(js, "receive", place, partition="0", count=2)

    assert bodies(received) == [body, "small"]


@pytest.mark.parametrize(
    "idempotent",
    [
        pytest.param(False, marks=judges(feature=Feature.BUFFERED)),
        pytest.param(True, marks=judges(feature=Feature.IDEMPOTENT)),
    ],
)
def test_buffered_producer_delivers_everything(js: Driver, place: HubLocation, idempotent: bool) -> None:
    """Each event is delivered once, with and without idempotence."""
    sent = call(js, "sendBuffered", place, count=100, idempotent=idempotent)

    received = call(js, "receive", place, count=100)

    assert (sent["sent"], sent["errors"]) == (100, [])
    assert sorted(bodies(received)) == list(range(100))


@judges(feature=Feature.IDEMPOTENT)
def test_idempotent_producer_continues_from_its_state(js: Driver, place: HubLocation) -> None:
    """A new producer with the state of an old one continues its sequence numbers."""
    first = call(js, "sendIdempotent", place, state={}, bodies=["a", "b"])
    state = {
        "producerGroupId": first["producerGroupId"],
        "ownerLevel": first["ownerLevel"] + 1,
        "startingSequenceNumber": first["lastPublishedSequenceNumber"],
    }

    second = call(js, "sendIdempotent", place, state=state, bodies=["c"])

    assert (first["lastPublishedSequenceNumber"], second["lastPublishedSequenceNumber"]) == (2, 3)
    assert second["producerGroupId"] == first["producerGroupId"]
    assert bodies(call(js, "receive", place, partition="0", count=3)) == ["a", "b", "c"]


@judges(feature=Feature.IDEMPOTENT)
def test_repeated_send_after_a_lost_connection_is_stored_once(js: Driver, place: HubLocation) -> None:
    """The repeated events have sequence numbers that the node has stored."""
    last = call(js, "sendIdempotentThroughDisconnect", place)

    received = call(js, "receive", place, partition="0", count=3)

    assert last == 3
    assert bodies(received) == ["before", "cut off", "after"]


@judges(feature=Feature.POSITIONS)
@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"offset": "-1"}, 0),
        ({"sequenceNumber": 2}, 3),
        ({"sequenceNumber": 2, "isInclusive": True}, 2),
        ({"offset": "of the third"}, 3),
        ({"offset": "of the third", "isInclusive": True}, 2),
        ({"enqueuedOn": "of the first"}, 0),
    ],
    ids=["first", "after sequence", "at sequence", "after offset", "at offset", "at time"],
)
def test_consumer_starts_at_the_requested_position(
    js: Driver, place: HubLocation, start: dict[str, Any], first: int
) -> None:
    """The position is the beginning, a sequence number, an offset or a time, inclusive or exclusive."""
    send(js, place, *"01234", partitionId="0")
    events = call(js, "receive", place, partition="0", count=5)
    known = {"of the third": events[2]["offset"], "of the first": events[0]["enqueuedMs"] - 1}
    start = {key: known.get(value, value) if isinstance(value, str) else value for key, value in start.items()}

    received = call(js, "receive", place, partition="0", count=5 - first, start=start)

    assert bodies(received) == list("01234"[first:])


@judges(feature=Feature.LATEST)
def test_latest_reads_only_new_events(js: Driver, place: HubLocation) -> None:
    """Earlier events are not delivered."""
    send(js, place, "old", partitionId="0")

    received = call(js, "receiveLatest", place)

    assert received
    assert "old" not in bodies(received)


@judges(feature=Feature.PREFETCH)
@pytest.mark.parametrize(("prefetch", "batch"), [(1, 1), (10, 3), (1000, 100)])
def test_all_events_are_received_with_any_prefetch(js: Driver, place: HubLocation, prefetch: int, batch: int) -> None:
    """Little credit makes it slower, but no event is lost."""
    send(js, place, *range(30), partitionId="0")

    more = {"prefetchCount": prefetch, "maxBatchSize": batch}
    received = call(js, "receive", place, partition="0", count=30, more=more)

    assert bodies(received) == list(range(30))


@judges(feature=Feature.GROUPS)
def test_consumer_group_names_are_case_insensitive(js: Driver, place: HubLocation) -> None:
    """The same holds in the service."""
    send(js, place, "a", partitionId="0")

    received = [call(js, "receive", place, group=group, partition="0", count=1) for group in ("$Default", "$default")]

    assert [bodies(events) for events in received] == [["a"], ["a"]]


@judges(feature=Feature.OWNER)
@pytest.mark.parametrize(
    ("owner", "newcomer", "outcome"),
    [
        (1, 2, {"owner": "ReceiverDisconnectedError", "newcomer": None}),
        (2, 1, {"owner": None, "newcomer": "ReceiverDisconnectedError"}),
        (1, None, {"owner": None, "newcomer": "ReceiverDisconnectedError"}),
        (None, 1, {"owner": "ReceiverDisconnectedError", "newcomer": None}),
    ],
)
def test_higher_owner_level_reads(
    js: Driver, place: HubLocation, owner: int | None, newcomer: int | None, outcome: dict[str, str | None]
) -> None:
    """A reader with an owner level displaces one without."""
    send(js, place, "a", partitionId="0")

    result = call(js, "contend", place, owner=owner, newcomer=newcomer)

    assert result == outcome


@judges(feature=Feature.LAST_ENQUEUED)
def test_last_enqueued_information_is_sent_with_events(js: Driver, place: HubLocation) -> None:
    """A program computes its lag from it without a request."""
    send(js, place, *"abc", partitionId="0")

    more = {"trackLastEnqueuedEventProperties": True}
    received = call(js, "receive", place, partition="0", count=3, more=more)

    assert received[-1]["last"]["sequenceNumber"] == 2
    assert received[-1]["last"]["offset"] == received[-1]["offset"]


@judges(feature=Feature.PROPERTIES)
def test_properties_of_hub_and_partitions_are_returned(js: Driver, place: HubLocation) -> None:
    """They have the types of the SDK."""
    send(js, place, "a", "b", partitionId="0")

    result = call(js, "describe", place)
    filled, empty = result["partitions"]

    assert (result["hub"]["name"], result["hub"]["partitionIds"]) == (place.hub, ["0", "1"])
    assert abs(result["hub"]["createdMs"] / 1000 - time.time()) < 300
    assert (filled["beginningSequenceNumber"], filled["lastEnqueuedSequenceNumber"], filled["isEmpty"]) == (0, 1, False)
    assert (empty["isEmpty"], empty["lastEnqueuedOffset"]) == (True, "-1")


@judges(feature=Feature.PROCESSOR)
def test_a_subscription_to_all_partitions_reads_them_all(js: Driver, place: HubLocation) -> None:
    """The SDK claims the partitions one by one and reads each."""
    for partition in ("0", "1"):
        send(js, place, *range(5), partitionId=partition)

    received = call(js, "receive", place, count=10)

    by_partition = {partition: [e["body"] for e in received if e["partition"] == partition] for partition in ("0", "1")}
    assert by_partition == {"0": [0, 1, 2, 3, 4], "1": [0, 1, 2, 3, 4]}
