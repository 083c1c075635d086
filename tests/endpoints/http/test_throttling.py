"""Throughput units over HTTP: a publication is refused as a whole, with 503 and Retry-After (service 5, 13)."""

from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.model.tier import Profile
from node_clock import NodeClock

NAMESPACE_PATH = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{NAMESPACE}"


def test_namespace_over_its_units_refuses_and_names_the_retry_time() -> None:
    """42: one unit is 1 MB/s; a refused publication stores nothing."""
    with HttpNode(profile=Profile.STANDARD, clock=NodeClock(is_stopped=True)) as node:
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


def test_added_units_apply_at_once() -> None:
    """Scaling needs no restart and no new connection."""
    clock = NodeClock(is_stopped=True)
    with HttpNode(profile=Profile.STANDARD, clock=clock) as node:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client, node.manager() as manager:
            while client.post("/orders/messages", content=b"x" * 900_000).status_code != 503:
                pass
            manager.patch(NAMESPACE_PATH, json={"sku": {"name": "Standard", "capacity": 40}}).raise_for_status()
            clock.advance(0.1)
            status = client.post("/orders/messages", content=b"x" * 900_000).status_code

        assert status == 201
        assert node.broker._namespace(NAMESPACE).entity.capacity == 40


# --- application groups ----------------------------------------------------------------------------------------------

GROUPS_PATH = f"{NAMESPACE_PATH}/applicationGroups"


def a_group(rule: str, rate: int = 10, *, enabled: bool = True, kind: str = "NamespaceSASKeyName") -> dict[str, object]:
    """A group of one rule's clients, as `az` writes it."""
    policy = {"name": "few", "type": "ThrottlingPolicy", "metricId": "IncomingMessages", "rateLimitThreshold": rate}
    return {"properties": {"clientAppGroupIdentifier": f"{kind}={rule}", "isEnabled": enabled, "policies": [policy]}}


def test_only_the_rule_of_a_limited_application_group_is_throttled() -> None:
    """49: two rules send at the same time; one of them belongs to a group with ten messages a second."""
    with HttpNode(profile=Profile.PREMIUM, clock=NodeClock(is_stopped=True)) as node, node.manager() as manager:
        node.add_hub("orders")
        node.add_rule("slow", "Send")
        node.add_rule("other", "Send")
        made = manager.put(f"{GROUPS_PATH}/g", json=a_group("slow"))
        with (
            node.client(Authorization=node.sas(rule="slow")) as slow,
            node.client(Authorization=node.sas(rule="other")) as other,
        ):
            answers = [(slow.post("/orders/messages"), other.post("/orders/messages")) for _ in range(60)]
        stored = node.stored("orders")

    refused = [answer for answer, _ in answers if answer.status_code == 503]
    assert made.status_code == 200
    assert answers[0][0].status_code == 201
    assert refused
    assert refused[0].headers["retry-after"] == "4"
    assert all(word in refused[0].text for word in ("SubCode:50013", "'g'", "'few'"))
    assert {answer.status_code for _, answer in answers} == {201}
    assert len(stored) == 120 - len(refused)


def test_application_group_applies_to_an_open_connection() -> None:
    """A device keeps its connection, and its cached head, for days."""
    with HttpNode(profile=Profile.PREMIUM, clock=NodeClock(is_stopped=True)) as node, node.manager() as manager:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client:
            before = {client.post("/orders/messages").status_code for _ in range(5)}
            manager.put(f"{GROUPS_PATH}/g", json=a_group("RootManageSharedAccessKey", 1)).raise_for_status()
            during = [client.post("/orders/messages").status_code for _ in range(5)]
            manager.delete(f"{GROUPS_PATH}/g").raise_for_status()
            after = {client.post("/orders/messages").status_code for _ in range(5)}

    assert (before, after) == ({201}, {201})
    assert 503 in during


def test_unknown_identifier_and_identifier_of_another_group_are_refused() -> None:
    """A rule belongs to at most one group."""
    with HttpNode(profile=Profile.PREMIUM) as node, node.manager() as manager:
        first = manager.put(f"{GROUPS_PATH}/a", json=a_group("slow", kind="EntitySASKeyName"))
        strange = manager.put(f"{GROUPS_PATH}/b", json=a_group("slow", kind="Password"))
        same = manager.put(f"{GROUPS_PATH}/b", json=a_group("slow", kind="EntitySASKeyName"))

    assert [answer.status_code for answer in (first, strange, same)] == [200, 400, 409]
