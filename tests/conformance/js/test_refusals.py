"""Refusals in the Azure SDK for JavaScript: each condition of the service as the SDK's own error code."""

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
def test_a_hub_that_is_not_there(
    js: Driver, conformance_node: ConformanceNode, transport: Transport, name: str, arguments: dict[str, Any]
) -> None:
    """To senders, readers and who asks."""
    place = conformance_node.place(transport, "nowhere")

    assert refused(js, name, place, **arguments).code == "MessagingEntityNotFoundError"


def test_a_group_that_is_not_there(js: Driver, place: HubLocation) -> None:
    """The hub is, the group is not."""
    refusal = refused(js, "receive", place, group="nobody", partition="0", count=1)

    assert refusal.code == "MessagingEntityNotFoundError"


def test_a_wrong_key(js: Driver, conformance_node: ConformanceNode, place: HubLocation) -> None:
    """The name of the rule is right."""
    name, _ = conformance_node.root
    wrong = conformance_node.place(place.transport, place.hub, (name, "d3Jvbmc="))

    refusal = refused(js, "sendBatch", wrong, events=_EVENT)

    assert refusal.code == "UnauthorizedError"


@pytest.mark.parametrize(
    ("right", "name", "arguments"),
    [("Listen", "sendBatch", {"events": _EVENT}), ("Send", "receive", {"partition": "0", "count": 1})],
)
def test_a_right_that_is_missing(
    js: Driver, conformance_node: ConformanceNode, place: HubLocation, right: str, name: str, arguments: dict[str, Any]
) -> None:
    """A reader may not send, a sender may not read; the text says which right is needed."""
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
def test_a_hub_that_is_shut(
    js: Driver,
    conformance_node: ConformanceNode,
    transport: Transport,
    status: str,
    name: str,
    arguments: dict[str, Any],
) -> None:
    """By an operator."""
    place = conformance_node.place(transport, conformance_node.new_hub(status=status))

    assert refused(js, name, place, **arguments).code == "MessagingEntityDisabledError"


def test_a_partition_that_is_not_there(js: Driver, place: HubLocation) -> None:
    """The hub has two."""
    refusal = refused(js, "sendBatch", place, events=_EVENT, target={"partitionId": "99"})

    assert refusal.code == "ArgumentOutOfRangeError"


@pytest.mark.parametrize("start", [{"offset": "999999"}, {"sequenceNumber": 999999}, {"offset": "not a number"}])
def test_a_position_that_cannot_be(js: Driver, place: HubLocation, start: dict[str, Any]) -> None:
    """Past the end, or none at all."""
    refusal = refused(js, "receive", place, partition="0", count=1, start=start)

    assert refusal.code == "ArgumentError"


def test_an_event_that_is_too_large(js: Driver, place: HubLocation) -> None:
    """The link stays attached, but this event is too large."""
    refusal = refused(js, "sendLarge", place, sizeBytes=1_100_000)

    assert refusal.code == "MessageTooLargeError"
    assert "1048576" in refusal.message


def test_the_sixth_reader_of_a_partition(js: Driver, place: HubLocation) -> None:
    """A group has five readers of a partition at most."""
    js.call("event_hubs", "sendBatch", place=place.as_arguments(), events=_EVENT, target={"partitionId": "0"})

    result = js.call("event_hubs", "crowd", place=place.as_arguments(), readers=6)

    assert result["served"] == 5
    assert result["codes"] == [None] * 5 + ["QuotaExceededError"]


def test_a_producer_that_was_superseded(js: Driver, place: HubLocation) -> None:
    """The next thing that it sends is refused, and not repeated."""
    refusal = refused(js, "takeOverProducer", place)

    assert refusal.code == "ProducerDisconnectedError"


def test_an_old_number_on_new_events(js: Driver, place: HubLocation) -> None:
    """A producer with a stale state must not lose events silently."""
    events = {"bodies": list("abcde"), "together": True}
    state = js.call("event_hubs", "sendIdempotent", place=place.as_arguments(), state={}, **events)
    stale = {"producerGroupId": state["producerGroupId"], "startingSequenceNumber": 1}

    refusal = refused(js, "sendIdempotent", place, state=stale, bodies=["other"])

    assert refusal.code == "SequenceOutOfOrderError"
