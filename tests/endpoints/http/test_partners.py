"""Pairing of namespaces on two nodes: in step over the network, and what happens when one of them is not there."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from endpoints.http.harness import ADMIN_TOKEN, NAMESPACE, HttpNode
from hubmere.broker.management.outbox import Outbox, copies_of
from hubmere.endpoints.http.pairing import partners
from hubmere.endpoints.http.pairing.partners import Partner

BASE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"
PRIMARY = f"{BASE}/{NAMESPACE}"
SECONDARY = f"{BASE}/west-ns"
ALIAS = "disasterRecoveryConfigs/shop"
ROOT = "authorizationRules/RootManageSharedAccessKey"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes and their administrators."""

    east: HttpNode
    west: HttpNode
    east_arm: httpx.Client
    west_arm: httpx.Client

    def paired(self, partner: str = "west-ns") -> httpx.Response:
        """Ask the east to pair its namespace with one of the west."""
        return self.east_arm.put(f"{PRIMARY}/{ALIAS}", json={"properties": {"partnerNamespace": partner}})

    def state(self) -> dict[str, Any]:
        """The pairing as the primary shows it."""
        properties: dict[str, Any] = self.east_arm.get(f"{PRIMARY}/{ALIAS}").json()["properties"]
        return properties

    def await_step(self) -> None:
        """Return once the secondary has everything."""
        awaited(
            lambda: (self.state()["provisioningState"], self.state()["pendingReplicationOperationsCount"]) == IN_STEP
        )

    def names(self, path: str) -> list[str]:
        """The names of what the secondary lists."""
        return [one["name"] for one in self.west_arm.get(f"{SECONDARY}/{path}").json()["value"]]


IN_STEP = ("Succeeded", 0)


def awaited(is_so: Callable[[], bool]) -> None:
    """Return once something is so."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A node with the hub `orders` whose partner, `west-ns` on another node, is empty."""
    monkeypatch.setattr(partners, "CHECK_SECONDS", 0.05)
    with HttpNode() as west:
        west.add_namespace("west-ns")
        partner = Partner(name="west-ns", url=west.url, token=ADMIN_TOKEN)
        with HttpNode(partners=[partner]) as east, east.manager() as east_arm, west.manager() as west_arm:
            east.add_hub("orders")
            yield Pair(east, west, east_arm, west_arm)


def test_what_was_there_and_what_comes_later_is_on_the_other_node(pair: Pair) -> None:
    """Hubs with their settings, groups, and rules with their keys."""
    pair.east_arm.put(f"{PRIMARY}/eventhubs/orders/consumergroups/mine", json={"properties": {"userMetadata": "m"}})

    paired = pair.paired(SECONDARY)
    pair.await_step()
    pair.east_arm.put(f"{PRIMARY}/eventhubs/later", json={"properties": {"partitionCount": 2, "userMetadata": "x"}})
    pair.east_arm.put(f"{PRIMARY}/eventhubs/orders/authorizationRules/send", json={"properties": {"rights": ["Send"]}})
    fresh = pair.east_arm.post(f"{PRIMARY}/{ROOT}/regenerateKeys", json={"keyType": "PrimaryKey"}).json()
    pair.await_step()

    later = pair.west_arm.get(f"{SECONDARY}/eventhubs/later").json()["properties"]
    assert (paired.status_code, pair.state()["role"]) == (201, "Primary")
    assert pair.state()["partnerNamespace"].endswith("/namespaces/west-ns")
    assert (pair.names("eventhubs"), later["partitionCount"], later["userMetadata"]) == (["later", "orders"], 2, "x")
    assert pair.names("eventhubs/orders/consumergroups") == ["$Default", "mine"]
    assert pair.names("eventhubs/orders/authorizationRules") == ["send"]
    assert pair.west_arm.post(f"{SECONDARY}/{ROOT}/listKeys").json()["primaryKey"] == fresh["primaryKey"]


def test_what_goes_on_the_primary_goes_on_the_other_node(pair: Pair) -> None:
    """Hubs, groups and rules; and a hub that was made anew is made anew there."""
    send = {"properties": {"rights": ["Send"]}}
    pair.east_arm.put(f"{PRIMARY}/eventhubs/gone", json={})
    pair.east_arm.put(f"{PRIMARY}/eventhubs/orders/consumergroups/mine", json={})
    pair.east_arm.put(f"{PRIMARY}/authorizationRules/send", json=send)
    pair.paired()
    pair.await_step()

    pair.east_arm.delete(f"{PRIMARY}/eventhubs/gone")
    pair.east_arm.delete(f"{PRIMARY}/eventhubs/orders/consumergroups/mine")
    pair.east_arm.delete(f"{PRIMARY}/authorizationRules/send")
    pair.east_arm.put(f"{PRIMARY}/eventhubs/fewer", json={"properties": {"partitionCount": 4}})
    pair.await_step()
    pair.east_arm.delete(f"{PRIMARY}/eventhubs/fewer")
    pair.east_arm.put(f"{PRIMARY}/eventhubs/fewer", json={"properties": {"partitionCount": 1}})
    pair.await_step()

    fewer = pair.west_arm.get(f"{SECONDARY}/eventhubs/fewer").json()["properties"]
    assert (pair.names("eventhubs"), fewer["partitionCount"]) == (["fewer", "orders"], 1)
    assert pair.names("eventhubs/orders/consumergroups") == ["$Default"]
    assert pair.names("authorizationRules") == ["RootManageSharedAccessKey"]


def test_a_secondary_is_read_only_and_says_who_is_not(pair: Pair) -> None:
    """Managers are sent to the primary, and so are clients that use the alias."""
    pair.paired()
    pair.await_step()
    token = pair.west.sas(host="shop.localhost")

    with pair.west.client(Authorization=token, Host="shop.localhost") as client:
        misdirected = client.post("/orders/messages", content=b"x")

    refused = [
        pair.west_arm.put(f"{SECONDARY}/eventhubs/mine", json={}).status_code,
        pair.west_arm.put(f"{SECONDARY}/authorizationRules/a", json={"properties": {"rights": ["Send"]}}).status_code,
        pair.west_arm.post(f"{SECONDARY}/{ROOT}/regenerateKeys", json={"keyType": "PrimaryKey"}).status_code,
    ]
    assert refused == [409, 409, 409]
    assert misdirected.status_code == 421
    assert f"served by the namespace '{NAMESPACE}'" in misdirected.text


def test_the_alias_moves_at_failover_and_the_old_primary_lets_it_go(pair: Pair) -> None:
    """The same token opens the new primary; the old one finds out by itself."""
    pair.paired()
    pair.await_step()
    token = pair.east.sas(host="shop.localhost")

    failed_over = pair.west_arm.post(f"{SECONDARY}/{ALIAS}/failover")
    with pair.west.client(Authorization=token, Host="shop.localhost") as client:
        after = client.post("/orders/messages", content=b"after")

    assert (failed_over.status_code, after.status_code) == (200, 201)
    assert [event.body for event in pair.west.stored("orders", namespace="west-ns")] == [b"after"]
    assert pair.west_arm.get(f"{SECONDARY}/{ALIAS}").json()["properties"]["role"] == "PrimaryNotReplicating"
    assert pair.west_arm.put(f"{SECONDARY}/eventhubs/mine", json={}).status_code == 200
    awaited(lambda: pair.east_arm.get(f"{PRIMARY}/{ALIAS}").status_code == 404)


def test_a_partner_that_was_away_gets_everything_when_it_is_back(pair: Pair) -> None:
    """Nothing is lost of what changed meanwhile, and the primary shows what it owes and why."""
    pair.paired()
    pair.await_step()

    pair.west.run(pair.west.stop_serving())
    pair.east_arm.put(f"{PRIMARY}/eventhubs/later", json={})
    pair.east_arm.delete(f"{PRIMARY}/eventhubs/orders")
    awaited(lambda: pair.state()["provisioningState"] == "Failed")
    owed = pair.state()
    pair.west.run(pair.west.serve_again())
    pair.await_step()

    assert owed["pendingReplicationOperationsCount"] == 2
    assert "cannot be reached" in owed["replicationProblem"]
    assert pair.names("eventhubs") == ["later"]
    assert "replicationProblem" not in pair.state()


def test_a_pairing_that_is_broken_leaves_both_alone(pair: Pair) -> None:
    """The alias stays with the primary, the secondary may be changed again, and the alias can go."""
    pair.paired()
    pair.await_step()

    early = pair.east_arm.delete(f"{PRIMARY}/{ALIAS}").status_code
    broken = pair.east_arm.post(f"{PRIMARY}/{ALIAS}/breakPairing").status_code
    role = pair.state()["role"]
    deleted = pair.east_arm.delete(f"{PRIMARY}/{ALIAS}").status_code

    assert (early, broken, role, deleted) == (409, 200, "PrimaryNotReplicating", 200)
    assert pair.west_arm.get(f"{SECONDARY}/{ALIAS}").status_code == 404
    assert pair.west_arm.put(f"{SECONDARY}/eventhubs/mine", json={}).status_code == 200


def test_a_secondary_whose_primary_is_lost_can_leave(pair: Pair) -> None:
    """Without taking the alias: the primary shows that it is alone, and keeps it."""
    pair.paired()
    pair.await_step()

    left = pair.west_arm.post(f"{SECONDARY}/{ALIAS}/breakPairing").status_code
    awaited(lambda: pair.state()["provisioningState"] == "Failed")

    assert left == 200
    assert (pair.state()["role"], pair.names("eventhubs")) == ("Primary", ["orders"])


@pytest.mark.parametrize(
    ("arrange", "status"),
    [
        (lambda pair: pair.west_arm.put(f"{SECONDARY}/eventhubs/mine", json={}), 409),
        (lambda pair: pair.west.run(pair.west.stop_serving()), 503),
        (lambda pair: pair.west_arm.delete(SECONDARY), 409),
    ],
    ids=["not empty", "not there", "no such namespace"],
)
def test_a_partner_that_does_not_agree_is_no_partner(pair: Pair, arrange: Callable[[Pair], Any], status: int) -> None:
    """The refusal is told to whoever asked, and nothing has changed."""
    arrange(pair)

    refused = pair.paired()

    assert refused.status_code == status
    assert "west-ns" in refused.json()["error"]["message"]
    assert pair.east_arm.get(f"{PRIMARY}/{ALIAS}").status_code == 404


def test_an_alias_that_is_taken_here_releases_the_partner(pair: Pair) -> None:
    """What the partner agreed to is taken back when this node cannot go on."""
    pair.east.add_namespace("other-ns")
    pair.east_arm.put(f"{BASE}/other-ns/{ALIAS}", json={})

    refused = pair.paired()

    assert refused.status_code == 409
    assert pair.west_arm.get(f"{SECONDARY}/{ALIAS}").status_code == 404


def test_copies_are_for_administrators_and_for_the_pairing_that_they_name(pair: Pair) -> None:
    """A manager of the namespace cannot pose as its primary, nor can another pairing."""
    pair.paired()
    pair.await_step()
    body: dict[str, list[str]] = {"rules": [], "hubs": []}
    door = f"{SECONDARY}/{ALIAS}/replica"

    by_manager = {"Authorization": pair.west.sas(key=pair.west.key(namespace="west-ns"))}
    as_manager = pair.west_arm.put(f"{door}/0123456789abcdef", json=body, headers=by_manager)
    wrong_pairing = pair.west_arm.put(f"{door}/0123456789abcdef", json=body)

    assert (as_manager.status_code, wrong_pairing.status_code) == (401, 404)
    assert pair.names("eventhubs") == ["orders"]


def test_what_was_confirmed_is_not_owed_until_a_failure(pair: Pair) -> None:
    """Only what changed goes over the line; after a failure everything does."""
    pair.east.add_hub("later")
    view = pair.east.broker.catalog.view
    copies = copies_of(pair.east.broker.entities, view.namespace(NAMESPACE))
    outbox = Outbox()

    first = outbox.pending(copies)
    for copy in copies:
        outbox.confirm(copy)
    then = outbox.pending(copies)
    outbox.on_failed("the line is down")

    assert ([copy.key for copy in first], then, outbox.pending(copies)) == (["", "later", "orders"], [], copies)
