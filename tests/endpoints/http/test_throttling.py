"""Throughput units over HTTP: refused whole with 503 and a time to come back (service 5, 13)."""

from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.model.tier import Profile

NAMESPACE_PATH = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{NAMESPACE}"


def test_over_its_units_a_namespace_refuses_and_says_when_to_come_back() -> None:
    """42: one unit is 1 MB/s; the refused publication leaves no trace."""
    with HttpNode(profile=Profile.STANDARD) as node:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client:
            answers = [client.post("/orders/messages", content=b"x" * 900_000) for _ in range(4)]
        stored = node.stored("orders")

    refused = [answer for answer in answers if answer.status_code == 503]
    assert answers[0].status_code == 201
    assert refused
    assert refused[0].headers["retry-after"] == "4"
    assert "50002" in refused[0].text
    assert len(stored) == len(answers) - len(refused)


def test_more_units_help_at_once() -> None:
    """Scaling is live: no restart, no new connection."""
    with HttpNode(profile=Profile.STANDARD) as node:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client, node.manager() as manager:
            while client.post("/orders/messages", content=b"x" * 900_000).status_code != 503:
                pass
            manager.patch(NAMESPACE_PATH, json={"sku": {"name": "Standard", "capacity": 40}}).raise_for_status()
            tries = 0
            while client.post("/orders/messages", content=b"x" * 900_000).status_code != 201:
                tries += 1
                assert tries < 1000

        assert node.broker.namespace(NAMESPACE).entity.capacity == 40
