"""What readers see while a hub is managed: the checks of service 11 that need readers and managers (5, 8, 9 and 10)."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from endpoints.http.harness import HttpNode

BATCH_TYPE = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
HUB = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/orders-ns/eventhubs/orders"
LOOK = "/orders/consumergroups/$Default/partitions/1/messages"


@pytest.fixture
def arm(node: HttpNode) -> Iterator[httpx.Client]:
    """The administrator, who may also publish and read."""
    with node.manager() as client:
        yield client


def _seen(arm: httpx.Client) -> list[tuple[int, str]]:
    events: list[dict[str, Any]] = arm.get(LOOK, params={"limit": 1000}).raise_for_status().json()["events"]
    return [(event["sequenceNumber"], event["body"]) for event in events]


def _switch(arm: httpx.Client, status: str) -> None:
    arm.put(HUB, json={"properties": {"status": status}}).raise_for_status()


def test_readers_of_the_default_group_continue_when_its_deletion_is_refused(arm: httpx.Client) -> None:
    """5: the group is part of the hub."""
    arm.post("/orders/partitions/1/messages", content=b"before")

    refused = arm.delete("/orders/consumergroups/$Default")
    arm.post("/orders/partitions/1/messages", content=b"after")

    assert refused.status_code == 409
    assert _seen(arm) == [(0, "before"), (1, "after")]


def test_receiving_continues_while_sending_is_disabled(arm: httpx.Client) -> None:
    """8: a hub can be emptied in this way."""
    arm.post("/orders/partitions/1/messages", content=b"before")
    _switch(arm, "SendDisabled")

    refused = arm.post("/orders/partitions/1/messages", content=b"after")

    assert refused.status_code == 403
    assert _seen(arm) == [(0, "before")]


def test_a_hub_that_was_disabled_has_all_its_events(arm: httpx.Client) -> None:
    """9: readers are refused meanwhile, and sequence numbers continue."""
    for body in (b"a", b"b"):
        arm.post("/orders/partitions/1/messages", content=body)

    _switch(arm, "Disabled")
    meanwhile = arm.get(LOOK).status_code
    _switch(arm, "Active")
    arm.post("/orders/partitions/1/messages", content=b"c")

    assert meanwhile == 403
    assert _seen(arm) == [(0, "a"), (1, "b"), (2, "c")]


def test_a_thousand_events_of_one_key_are_in_one_partition_in_order(node: HttpNode, arm: httpx.Client) -> None:
    """10: the key guarantees the order."""
    for first in range(0, 1000, 100):
        batch = [{"Body": str(n), "BrokerProperties": {"PartitionKey": "k"}} for n in range(first, first + 100)]
        arm.post("/orders/messages", content=json.dumps(batch), headers=BATCH_TYPE).raise_for_status()

    found = [node.stored("orders", partition) for partition in range(4)]
    bodies = [[int(event.body or b"") for event in events] for events in found if events]

    assert bodies == [list(range(1000))]
