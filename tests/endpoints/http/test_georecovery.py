"""Pairing of namespaces under an alias: replication, failover, and connection strings that keep working (service 8)."""

from collections.abc import Iterator

import httpx
import pytest

from endpoints.http.harness import NAMESPACE, HttpNode

BASE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"
PRIMARY = f"{BASE}/{NAMESPACE}"
SECONDARY = f"{BASE}/second-ns"
ALIAS = "disasterRecoveryConfigs/shop"


@pytest.fixture
def arm(node: HttpNode) -> Iterator[httpx.Client]:
    """The administrator of a node with an empty second namespace."""
    node.add_namespace("second-ns")
    with node.manager() as client:
        yield client


def _paired(arm: httpx.Client) -> httpx.Response:
    return arm.put(f"{PRIMARY}/{ALIAS}", json={"properties": {"partnerNamespace": f"{SECONDARY}"}})


def test_a_pairing_replicates_metadata(arm: httpx.Client) -> None:
    """Existing and later hubs and groups are copied; events are not."""
    paired = _paired(arm)
    arm.put(f"{PRIMARY}/eventhubs/later", json={"properties": {"partitionCount": 2}})
    arm.put(f"{PRIMARY}/eventhubs/orders/consumergroups/mine", json={})
    arm.delete(f"{PRIMARY}/eventhubs/later")
    arm.put(f"{PRIMARY}/eventhubs/last", json={})

    hubs = [hub["name"] for hub in arm.get(f"{SECONDARY}/eventhubs").json()["value"]]
    groups = [group["name"] for group in arm.get(f"{SECONDARY}/eventhubs/orders/consumergroups").json()["value"]]

    assert (paired.status_code, paired.json()["properties"]["role"]) == (201, "Primary")
    assert arm.get(f"{SECONDARY}/{ALIAS}").json()["properties"]["role"] == "Secondary"
    assert hubs == ["last", "orders"]
    assert groups == ["$Default", "mine"]


def test_a_secondary_is_changed_through_its_primary(arm: httpx.Client) -> None:
    """A paired secondary is read-only."""
    _paired(arm)

    assert arm.put(f"{SECONDARY}/eventhubs/mine", json={}).status_code == 409
    assert arm.delete(f"{SECONDARY}/eventhubs/orders").status_code == 409


def test_an_alias_follows_the_primary_and_moves_at_failover(node: HttpNode, arm: httpx.Client) -> None:
    """The same connection string works before and after."""
    _paired(arm)
    rule = f"{PRIMARY}/{ALIAS}/authorizationRules/RootManageSharedAccessKey"
    keys = arm.post(f"{rule}/listKeys").json()
    token = node.sas(host="shop.localhost", key=keys["primaryKey"])

    with node.client(Authorization=token, Host="shop.localhost") as client:
        before = client.post("/orders/messages", content=b"before")
        failed_over = arm.post(f"{SECONDARY}/{ALIAS}/failover")
        after = client.post("/orders/messages", content=b"after")

    assert "Endpoint=sb://shop." in keys["aliasPrimaryConnectionString"]
    assert [response.status_code for response in (before, failed_over, after)] == [201, 200, 201]
    assert [event.body for event in node.stored("orders")] == [b"before"]
    assert [event.body for event in node.stored("orders", namespace="second-ns")] == [b"after"]
    assert arm.get(f"{PRIMARY}/{ALIAS}").status_code == 404


def test_a_key_regenerated_on_the_primary_is_the_secondarys_too(node: HttpNode, arm: httpx.Client) -> None:
    """Otherwise a failover would lock clients out."""
    _paired(arm)
    rule = "authorizationRules/RootManageSharedAccessKey"

    fresh = arm.post(f"{PRIMARY}/{rule}/regenerateKeys", json={"keyType": "PrimaryKey"}).json()
    arm.put(f"{PRIMARY}/eventhubs/orders/authorizationRules/send", json={"properties": {"rights": ["Send"]}})
    mirrored = arm.get(f"{SECONDARY}/eventhubs/orders/authorizationRules").json()["value"]

    assert arm.post(f"{SECONDARY}/{rule}/listKeys").json()["primaryKey"] == fresh["primaryKey"]
    assert [rule["name"] for rule in mirrored] == ["send"]


def test_a_pairing_is_broken_on_the_primary_and_then_deleted(arm: httpx.Client) -> None:
    """Neither an alias nor its namespace can be deleted while it replicates."""
    _paired(arm)

    early = [arm.delete(f"{PRIMARY}/{ALIAS}").status_code, arm.delete(SECONDARY).status_code]
    wrong_side = arm.post(f"{SECONDARY}/{ALIAS}/breakPairing").status_code
    broken = arm.post(f"{PRIMARY}/{ALIAS}/breakPairing").status_code
    role = arm.get(f"{PRIMARY}/{ALIAS}").json()["properties"]["role"]
    deleted = arm.delete(f"{PRIMARY}/{ALIAS}").status_code

    assert (early, wrong_side, broken, role, deleted) == ([409, 409], 409, 200, "PrimaryNotReplicating", 200)
    assert arm.put(f"{SECONDARY}/eventhubs/mine", json={}).status_code == 200


def test_the_same_pairing_twice_is_one(arm: httpx.Client) -> None:
    """PUT can be repeated."""
    assert [_paired(arm).status_code, _paired(arm).status_code] == [201, 200]
    assert [alias["name"] for alias in arm.get(f"{PRIMARY}/disasterRecoveryConfigs").json()["value"]] == ["shop"]


@pytest.mark.parametrize("partner", [NAMESPACE, "nobody-ns"])
def test_a_pairing_needs_another_namespace(arm: httpx.Client, partner: str) -> None:
    """The partner must exist and be another namespace."""
    response = arm.put(f"{PRIMARY}/{ALIAS}", json={"properties": {"partnerNamespace": partner}})

    assert response.status_code in (404, 409)


def test_a_secondary_must_be_empty(arm: httpx.Client) -> None:
    """Its hubs would clash with the primary's."""
    arm.put(f"{SECONDARY}/eventhubs/mine", json={})

    assert _paired(arm).status_code == 409


@pytest.mark.parametrize(("name", "is_free"), [("shop", False), ("second-ns", False), ("other", True)])
def test_aliases_and_namespaces_share_their_names(arm: httpx.Client, name: str, is_free: bool) -> None:
    """Both are DNS names."""
    _paired(arm)

    answer = arm.post(f"{PRIMARY}/disasterRecoveryConfigs/checkNameAvailability", json={"name": name}).json()

    assert answer["nameAvailable"] is is_free
