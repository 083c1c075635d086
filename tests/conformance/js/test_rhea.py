"""Plain rhea, an AMQP 1.0 client without support for Event Hubs: features that any AMQP library can use."""

from typing import Any

import pytest

from conformance.conformance_node import ConformanceNode, HubLocation, Transport
from conformance.driver import ClientError, Driver
from conformance.matrix import Feature, Name

pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.RHEA)]

judges = pytest.mark.judges


class Rhea:
    """rhea with a hub, signed in with a rule's name and key."""

    def __init__(
        self, js: Driver, conformance_node: ConformanceNode, place: HubLocation, password: str | None = None
    ) -> None:
        name, key = conformance_node.root
        self._js = js
        self._place = {
            "host": "localhost",
            "port": place.port,
            "user": name,
            "password": password or key,
            "ca": conformance_node.node.ca_file if place.transport is Transport.TLS else None,
            "webSocket": place.transport is Transport.WEB_SOCKET,
        }
        self._hub = place.hub

    def send(self, *messages: dict[str, Any], target: str = "/Partitions/0") -> list[str]:
        outcomes: list[str] = self._call("send", address=f"{self._hub}{target}", messages=messages)
        return outcomes

    def read(self, name: str, group: str = "$Default", **arguments: Any) -> Any:
        return self._call(name, address=f"{self._hub}/ConsumerGroups/{group}/Partitions/0", **arguments)

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._js.call("rhea", name, place=self._place, **arguments)


@pytest.fixture
def rhea(js: Driver, conformance_node: ConformanceNode, place: HubLocation) -> Rhea:
    return Rhea(js, conformance_node, place)


@judges(feature=Feature.SINGLES)
def test_messages_are_accepted_and_read_back(rhea: Rhea) -> None:
    """Bodies may have any type; there are application properties, and the key is an annotation."""
    messages: list[dict[str, Any]] = [
        {"body": "text"},
        {"body": {"a": [1, True, None]}},
        {"body": 7, "application_properties": {"x": "y"}},
        {"body": "keyed", "message_annotations": {"x-opt-partition-key": "device-7"}},
    ]

    outcomes = rhea.send(*messages)
    received = rhea.read("receive", count=4, selector="amqp.annotation.x-opt-offset > '-1'")

    assert outcomes == ["accepted"] * 4
    assert [event["body"] for event in received] == [message["body"] for message in messages]
    assert [event["sequence"] for event in received] == [0, 1, 2, 3]
    assert (received[2]["properties"], received[3]["key"]) == ({"x": "y"}, "device-7")


@judges(feature=Feature.SINGLES)
def test_many_messages_use_one_link(rhea: Rhea) -> None:
    """They are more than its credit."""
    outcomes = rhea.send(*({"body": number} for number in range(1000)), target="")

    assert outcomes == ["accepted"] * 1000


@judges(feature=Feature.LARGE)
def test_message_of_several_frames_is_read_completely(rhea: Rhea) -> None:
    """This holds in both directions."""
    body = "x" * 600_000

    rhea.send({"body": body})
    received = rhea.read("receive", count=1, selector="amqp.annotation.x-opt-offset > '-1'")

    assert [event["body"] for event in received] == [body]


@judges(feature=Feature.POSITIONS)
@pytest.mark.parametrize(
    ("selector", "first"),
    [
        ("amqp.annotation.x-opt-offset > '-1'", 0),
        ("amqp.annotation.x-opt-sequence-number > '1'", 2),
        ("amqp.annotation.x-opt-sequence-number >= '1'", 1),
        ("amqp.annotation.x-opt-sequence-number > 1", 2),
        ("amqp.annotation.x-opt-enqueued-time > '0'", 0),
    ],
)
def test_selector_sets_the_start_position(rhea: Rhea, selector: str, first: int) -> None:
    """It has the service's syntax, under the filter key of rhea."""
    rhea.send(*({"body": number} for number in range(4)))

    received = rhea.read("receive", count=4 - first, selector=selector)

    assert [event["body"] for event in received] == list(range(first, 4))


@judges(feature=Feature.PREFETCH)
def test_credit_is_never_exceeded(rhea: Rhea) -> None:
    """The client grants one, then three, then two credits."""
    rhea.send(*({"body": number} for number in range(10)))

    counts = rhea.read("step", credits=[1, 3, 2])

    assert counts == [1, 3, 2]


@judges(feature=Feature.DRAIN)
def test_drain_returns_existing_events_and_the_remaining_credit(rhea: Rhea) -> None:
    """The drain is completed."""
    rhea.send(*({"body": number} for number in range(3)))

    received = rhea.read("drain", credit=100)

    assert received == {"received": 3, "creditLeft": 0}


@judges(feature=Feature.REFUSALS)
def test_message_that_is_too_large_is_rejected_alone(rhea: Rhea) -> None:
    """The link stays attached."""
    outcomes = rhea.send({"body": "before"}, {"sizeBytes": 1_200_000}, {"body": "after"})

    assert outcomes == ["accepted", "rejected amqp:link:message-size-exceeded", "accepted"]


@judges(feature=Feature.REFUSALS)
def test_a_wrong_password_is_refused(js: Driver, conformance_node: ConformanceNode, place: HubLocation) -> None:
    """It is refused at sign-in, before any link."""
    with pytest.raises(ClientError) as result:
        Rhea(js, conformance_node, place, password="wrong").send({"body": "a"})

    assert result.value.code == "amqp:unauthorized-access"


@judges(feature=Feature.REFUSALS)
def test_unknown_consumer_group_is_refused(rhea: Rhea) -> None:
    """The detach has the condition."""
    with pytest.raises(ClientError) as result:
        rhea.read("receive", group="nobody", count=1)

    assert result.value.code == "amqp:not-found"
