"""Refusals in the Azure SDK for JavaScript: each condition of the service has its own error code."""

from typing import Any

import pytest

from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import ClientError, Driver
from conformance.matrix import Feature, Name

pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.JS, feature=Feature.REFUSALS)]

_EVENT = [{"body": "a"}]


def refused(js: Driver, name: str, place: HubLocation, **arguments: Any) -> ClientError:
    """The SDK's error for a refused operation."""
    with pytest.raises(ClientError) as result:
        js.call("event_hubs", name, place=place.as_arguments(), **arguments)
    return result.value


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sendBatch", {"events": _EVENT}),
        ("receive", {"partition": "0", "count": 1}),
        ("describe", {}),
    ],
)
def test_unknown_hub_is_refused(
    js: Driver, conformance_node: ConformanceNode, transport: Transport, name: str, arguments: dict[str, Any]
) -> None:
    """This holds for senders, readers and requests for properties."""
    place = conformance_node.place(transport, "nowhere")

    assert refused(js, name, place, **arguments).code == "MessagingEntityNotFoundError"


def test_unknown_consumer_group_is_refused(js: Driver, place: HubLocation) -> None:
    """The hub exists, but not the group."""
    refusal = refused(js, "receive", place, group="nobody", partition="0", count=1)

    assert refusal.code == "MessagingEntityNotFoundError"


def test_wrong_key_is_refused(js: Driver, conformance_node: ConformanceNode, place: HubLocation) -> None:
    """The name of the rule is correct."""
    name, _ = conformance_node.root
    wrong = conformance_node.place(place.transport, place.hub, (name, "d3Jvbmc="))

    refusal = refused(js, "sendBatch", wrong, events=_EVENT)

    assert refusal.code == "UnauthorizedError"


@pytest.mark.parametrize(
    ("right", "name", "arguments"),
    [("Listen", "sendBatch", {"events": _EVENT}), ("Send", "receive", {"partition": "0", "count": 1})],
)
def test_missing_right_is_refused(
    js: Driver, conformance_node: ConformanceNode, place: HubLocation, right: str, name: str, arguments: dict[str, Any]
) -> None:
    """A reader may not send, and a sender may not read; the text names the missing right."""
    limited = conformance_node.place(place.transport, place.hub, conformance_node.new_key(right))

    refusal = refused(js, name, limited, **arguments)

    assert refusal.code == "UnauthorizedError"
    assert "claim(s) are required" in refusal.message


@pytest.mark.parametrize(
    ("status", "name", "arguments"),
    [
        ("Disabled", "sendBatch", {"events": _EVENT}),
        ("Disabled", "receive", {"partition": "0", "count": 1}),
        ("SendDisabled", "sendBatch", {"events": _EVENT}),
    ],
)
def test_disabled_hub_is_refused(
    js: Driver,
    conformance_node: ConformanceNode,
    transport: Transport,
    status: str,
    name: str,
    arguments: dict[str, Any],
) -> None:
    """An operator has disabled it."""
    place = conformance_node.place(transport, conformance_node.new_hub(status=status))

    assert refused(js, name, place, **arguments).code == "MessagingEntityDisabledError"


def test_unknown_partition_is_refused(js: Driver, place: HubLocation) -> None:
    """The hub has two partitions."""
    refusal = refused(js, "sendBatch", place, events=_EVENT, target={"partitionId": "99"})

    assert refusal.code == "ArgumentOutOfRangeError"


@pytest.mark.parametrize("start", [{"offset": "999999"}, {"sequenceNumber": 999999}, {"offset": "not a number"}])
def test_invalid_position_is_refused(js: Driver, place: HubLocation, start: dict[str, Any]) -> None:
    """It is past the end, or not a position."""
    refusal = refused(js, "receive", place, partition="0", count=1, start=start)

    assert refusal.code == "ArgumentError"


def test_event_that_is_too_large_is_refused(js: Driver, place: HubLocation) -> None:
    """The link stays attached, but this event is too large."""
    refusal = refused(js, "sendLarge", place, sizeBytes=1_100_000)

    assert refusal.code == "MessageTooLargeError"
    assert "1048576" in refusal.message


def test_sixth_reader_of_a_partition_is_refused(js: Driver, place: HubLocation) -> None:
    """A group has at most five readers of a partition."""
    js.call("event_hubs", "sendBatch", place=place.as_arguments(), events=_EVENT, target={"partitionId": "0"})

    result = js.call("event_hubs", "crowd", place=place.as_arguments(), readers=6)

    assert result["served"] == 5
    assert result["codes"] == [None] * 5 + ["QuotaExceededError"]


def test_superseded_producer_is_refused(js: Driver, place: HubLocation) -> None:
    """Its next send is refused, and not retried."""
    refusal = refused(js, "takeOverProducer", place)

    assert refusal.code == "ProducerDisconnectedError"


def test_old_sequence_number_on_new_events_is_refused(js: Driver, place: HubLocation) -> None:
    """A producer with an outdated state must not lose events silently."""
    events = {"bodies": list("abcde"), "together": True}
    state = js.call("event_hubs", "sendIdempotent", place=place.as_arguments(), state={}, **events)
    stale = {"producerGroupId": state["producerGroupId"], "startingSequenceNumber": 1}

    refusal = refused(js, "sendIdempotent", place, state=stale, bodies=["other"])

    assert refusal.code == "SequenceOutOfOrderError"
