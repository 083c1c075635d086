"""Pairing of namespaces on two nodes: replication over the network, and behaviour when one of them is down."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from endpoints.http.harness import ADMIN_TOKEN, NAMESPACE, PATIENCE_S, HttpNode
from hubmere.broker.management.outbox import Outbox, copies_of
from hubmere.endpoints.http.errors import PartnerUnreachable
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
        """Pair the namespace of the east with one of the west."""
        return self.east_arm.put(f"{PRIMARY}/{ALIAS}", json={"properties": {"partnerNamespace": partner}})

    def state(self) -> dict[str, Any]:
        """The pairing as the primary shows it."""
        properties: dict[str, Any] = self.east_arm.get(f"{PRIMARY}/{ALIAS}").json()["properties"]
        return properties

    def await_step(self) -> None:
        """Wait until the secondary has everything."""
        awaited(
            lambda: (self.state()["provisioningState"], self.state()["pendingReplicationOperationsCount"]) == IN_STEP
        )

    def names(self, path: str) -> list[str]:
        """The names that the secondary lists."""
        return [one["name"] for one in self.west_arm.get(f"{SECONDARY}/{path}").json()["value"]]


IN_STEP = ("Succeeded", 0)


def awaited(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
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


def test_existing_and_later_entities_are_replicated(pair: Pair) -> None:
    """Hubs have the same settings and groups, and rules the same keys."""
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


def test_deletions_are_replicated(pair: Pair) -> None:
    """This holds for hubs, groups and rules; a re-created hub is re-created on the partner."""
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


def test_a_secondary_is_read_only_and_names_the_primary(pair: Pair) -> None:
    """Managers and clients of the alias must use the primary."""
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


def test_failover_moves_the_alias_and_the_old_primary_releases_it(pair: Pair) -> None:
    """The same token opens the new primary; the old one notices the failover."""
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


def test_an_unreachable_partner_gets_all_changes_later(pair: Pair) -> None:
    """The primary shows how many copies are pending and why."""
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


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_closing_the_connection_ends_a_request_that_waits(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """A node that stops does not wait for a partner that never responds, nor for its part of the handshake."""
    monkeypatch.setattr(partners, "_ANSWER_TIMEOUT_S", 600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        connection = partners._PartnerConnection(Partner(name="west-ns", url=url, token="t"))
        request = pool.submit(connection.request, "PUT", "shop", "", {})
        accepted, _ = silent.accept()
        with accepted:
            accepted.recv(1)

            connection.close()

            refusal = request.exception(timeout=120)
    assert isinstance(refusal, PartnerUnreachable)


def test_request_on_a_closed_connection_opens_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header was sent when the node stopped: the body must not go to a new connection, which nobody closes."""
    monkeypatch.setattr(partners, "_ANSWER_TIMEOUT_S", 600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        connection = partners._PartnerConnection(Partner(name="west-ns", url=url, token="t"))
        with connection._use():
            opened = connection._open()
            connection.close()

            with pytest.raises(OSError, match="Broken pipe"):
                opened.request("PUT", "/shop", b"{}")
        accepted, _ = silent.accept()
        accepted.close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert opened.sock is None


def test_breaking_a_pairing_makes_both_sides_independent(pair: Pair) -> None:
    """The primary keeps the alias and may delete it; the secondary is writable again."""
    pair.paired()
    pair.await_step()

    early = pair.east_arm.delete(f"{PRIMARY}/{ALIAS}").status_code
    broken = pair.east_arm.post(f"{PRIMARY}/{ALIAS}/breakPairing").status_code
    role = pair.state()["role"]
    deleted = pair.east_arm.delete(f"{PRIMARY}/{ALIAS}").status_code

    assert (early, broken, role, deleted) == (409, 200, "PrimaryNotReplicating", 200)
    assert pair.west_arm.get(f"{SECONDARY}/{ALIAS}").status_code == 404
    assert pair.west_arm.put(f"{SECONDARY}/eventhubs/mine", json={}).status_code == 200


def test_a_secondary_can_leave_a_lost_primary(pair: Pair) -> None:
    """The primary keeps the alias, and shows that it does not replicate."""
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
def test_the_refusal_of_a_partner_prevents_the_pairing(pair: Pair, arrange: Callable[[Pair], Any], status: int) -> None:
    """The client gets the partner's reason, and nothing changes."""
    arrange(pair)

    refused = pair.paired()

    assert refused.status_code == status
    assert "west-ns" in refused.json()["error"]["message"]
    assert pair.east_arm.get(f"{PRIMARY}/{ALIAS}").status_code == 404


def test_a_failed_pairing_is_undone_on_the_partner(pair: Pair) -> None:
    """The partner must not stay a secondary without a primary."""
    pair.east.add_namespace("other-ns")
    pair.east_arm.put(f"{BASE}/other-ns/{ALIAS}", json={})

    refused = pair.paired()

    assert refused.status_code == 409
    assert pair.west_arm.get(f"{SECONDARY}/{ALIAS}").status_code == 404


def test_copies_need_the_administrator_and_the_current_pairing(pair: Pair) -> None:
    """Neither a manager of the namespace nor an old primary can write copies."""
    pair.paired()
    pair.await_step()
    body: dict[str, list[str]] = {"rules": [], "hubs": []}
    door = f"{SECONDARY}/{ALIAS}/replica"

    by_manager = {"Authorization": pair.west.sas(key=pair.west.key(namespace="west-ns"))}
    as_manager = pair.west_arm.put(f"{door}/0123456789abcdef", json=body, headers=by_manager)
    wrong_pairing = pair.west_arm.put(f"{door}/0123456789abcdef", json=body)

    assert (as_manager.status_code, wrong_pairing.status_code) == (401, 404)
    assert pair.names("eventhubs") == ["orders"]


def test_confirmed_copies_are_sent_again_after_a_failure(pair: Pair) -> None:
    """Otherwise only changed copies are sent."""
    pair.east.add_hub("later")
    view = pair.east.broker.entities
    copies = copies_of(pair.east.broker.entities, view.namespace(NAMESPACE))
    outbox = Outbox()

    first = outbox.pending(copies)
    for copy in copies:
        outbox.confirm(copy)
    then = outbox.pending(copies)
    outbox.on_failed("the line is down")

    assert ([copy.key for copy in first], then, outbox.pending(copies)) == (["", "later", "orders"], [], copies)
