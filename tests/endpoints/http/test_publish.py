"""Publishing over HTTPS (reference: service 3); numbers in docstrings are the checks of section 11."""

import json
import logging
from collections.abc import Iterator
from xml.etree import ElementTree

import httpx
import pytest

from endpoints.http.harness import MIB, NAMESPACE, HttpNode
from hubmere.model.keys import partition_of_key
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import Profile, Tier
from log_records import lines_of

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


@pytest.fixture
def sender(node: HttpNode) -> Iterator[httpx.Client]:
    """A client that may do everything on the namespace."""
    with node.client(Authorization=node.sas()) as client:
        yield client


def test_the_body_of_a_post_is_the_event(node: HttpNode, sender: httpx.Client) -> None:
    """23: the event has exactly these bytes, and the response is that of the API."""
    body = bytes(range(10))

    response = sender.post("/orders/messages?api-version=2014-01&timeout=60", content=body)

    assert (response.status_code, response.content) == (201, b"")
    assert response.headers["content-type"] == "application/xml; charset=utf-8"
    assert response.headers["server"] == "Microsoft-HTTPAPI/2.0"
    assert [event.body for event in node.stored("orders")] == [body]


def test_custom_headers_become_typed_properties(node: HttpNode, sender: httpx.Client) -> None:
    """24: names keep their case, and numbers and booleans have their types."""
    headers = {"Alert": "Strong Wind", "N": "5", "F": "1.5", "B": "true", "Content-Type": "text/plain"}

    sender.post("/orders/messages", content=b"x", headers=headers)

    event = node.stored("orders")[0]
    assert {name: (property_.type, property_.value) for name, property_ in event.properties.items()} == {
        "Alert": ("string", "Strong Wind"),
        "N": ("int", 5),
        "F": ("double", 1.5),
        "B": ("boolean", True),
    }
    assert event.system_properties["content-type"].value == "text/plain"


def test_a_batch_is_one_publication_of_many_events(node: HttpNode, sender: httpx.Client) -> None:
    """25: sequence numbers are contiguous in one partition, and only some events have properties."""
    batch = [{"Body": "a", "UserProperties": {"x": 1}}, {"Body": "b"}, {"Body": "c"}]

    response = sender.post("/orders/messages", content=json.dumps(batch), headers=BATCH)

    events = node.stored("orders", 0)
    assert response.status_code == 201
    assert [(event.sequence, event.body) for event in events] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [list(event.properties) for event in events] == [["x"], [], []]


def test_headers_do_not_apply_to_the_events_of_a_batch(node: HttpNode, sender: httpx.Client) -> None:
    """26: this holds for BrokerProperties and custom headers."""
    headers = {**BATCH, "BrokerProperties": '{"PartitionKey":"k"}', "Custom": "1"}

    response = sender.post("/orders/messages", content='[{"Body":"a"}]', headers=headers)

    event = node.stored("orders")[0]
    assert response.status_code == 201
    assert (event.partition_key, dict(event.properties)) == (None, {})


@pytest.mark.parametrize("headers", [{"BrokerProperties": '{"PartitionKey":"k"}'}, {"PartitionKey": "k"}])
def test_a_partition_key_chooses_the_partition(node: HttpNode, sender: httpx.Client, headers: dict[str, str]) -> None:
    """27: it is the partition of an AMQP event with that key."""
    sender.post("/orders/messages", content=b"x", headers=headers)

    stored = node.stored("orders", partition_of_key("k", 4))
    assert [event.partition_key for event in stored] == ["k"]


def test_one_key_for_all_events_of_a_batch(node: HttpNode, sender: httpx.Client) -> None:
    """A batch goes to one partition, so its keys must agree."""
    batch = [{"Body": "a", "BrokerProperties": {"PartitionKey": key}} for key in ("k", "other")]

    response = sender.post("/orders/messages", content=json.dumps(batch), headers=BATCH)

    assert response.status_code == 400
    assert node.stored("orders") == []


def test_a_partition_in_the_path_receives_the_event(node: HttpNode, sender: httpx.Client) -> None:
    """28: a missing partition is refused."""
    good = sender.post("/orders/Partitions/2/messages", content=b"x")
    bad = sender.post("/orders/partitions/99/messages", content=b"x")

    assert (good.status_code, bad.status_code) == (201, 400)
    assert len(node.stored("orders", 2)) == len(node.stored("orders")) == 1


def test_a_partition_and_a_key_contradict_each_other(node: HttpNode, sender: httpx.Client) -> None:
    """Service 1.4: a request with both is refused."""
    response = sender.post("/orders/partitions/2/messages", content=b"x", headers={"PartitionKey": "k"})

    assert response.status_code == 400
    assert node.stored("orders") == []


@pytest.mark.parametrize("word", ["publishers", "publisher", "Publishers"])
def test_a_publisher_signs_its_events(node: HttpNode, sender: httpx.Client, word: str) -> None:
    """29: publisher and partition key are its name."""
    response = sender.post(f"/orders/{word}/dev-01/messages", content=b"x")

    event = node.stored("orders")[0]
    assert response.status_code == 201
    assert (event.publisher, event.partition_key) == ("dev-01", "dev-01")


def test_a_publisher_has_no_other_key(node: HttpNode, sender: httpx.Client) -> None:
    """30: 400, and nothing is stored."""
    headers = {"BrokerProperties": '{"PartitionKey":"other"}'}

    response = sender.post("/orders/publishers/dev-01/messages", content=b"x", headers=headers)

    assert response.status_code == 400
    assert node.stored("orders") == []


def test_a_revoked_publisher_is_refused_until_it_is_restored(node: HttpNode, sender: httpx.Client) -> None:
    """31: the revocation takes effect at once, and for that publisher only."""
    revoked = sender.put("/orders/revokedpublishers/dev-01?api-version=2014-05")
    refused = sender.post("/orders/publishers/DEV-01/messages", content=b"x")
    other = sender.post("/orders/publishers/dev-02/messages", content=b"x")
    restored = sender.delete("/orders/revokedpublishers/dev-01")
    accepted = sender.post("/orders/publishers/dev-01/messages", content=b"x")

    statuses = [response.status_code for response in (revoked, refused, other, restored, accepted)]
    assert statuses == [201, 401, 201, 200, 201]


def test_a_batch_that_is_not_json_is_refused(node: HttpNode, sender: httpx.Client) -> None:
    """32: 400 in XML, and nothing is stored."""
    response = sender.post("/orders/messages", content=b'[{"Body":', headers=BATCH)

    assert response.status_code == 400
    assert ElementTree.fromstring(response.content).findtext("Code") == "400"
    assert node.stored("orders") == []


@pytest.mark.parametrize(("profile", "limit"), [(Profile.BASIC, 256 * 1024), (Profile.DEVELOPER, MIB)])
def test_a_publication_over_the_limit_leaves_the_connection_usable(profile: Profile, limit: int) -> None:
    """33: 413 by the tier's limit, declared or not, and the next request is answered on the same connection."""
    with HttpNode(profile=profile) as node:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client:
            port_before = _local_port(client, "/health")
            declared = client.post("/orders/messages", content=b"x" * (limit + 1))
            chunked = client.post("/orders/messages", content=iter([b"x" * 65536] * (limit // 65536 + 1)))
            exact = client.post("/orders/messages", content=b"x" * limit)
            port_after = _local_port(client, "/health")

        stored = node.stored("orders")

    assert [r.status_code for r in (declared, chunked, exact)] == [413, 413, 201]
    assert port_before == port_after
    assert [len(event.body or b"") for event in stored] == [limit]


def _local_port(client: httpx.Client, path: str) -> int:
    response = client.get(path)
    stream = response.extensions["network_stream"]
    port: int = stream.get_extra_info("client_addr")[1]
    return port


def test_a_publication_over_an_overridden_limit_names_both_sizes() -> None:
    """The refusal has the sent and the allowed size."""
    with HttpNode(overrides={"publication_bytes": 1000}) as node:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client:
            response = client.post("/orders/messages", content=b"x" * 1001)

    assert "(size:1001 bytes) exceeds the limit (1000 bytes)" in response.text


def test_custom_headers_count_towards_the_size() -> None:
    """Service 1.3: the size is body plus properties."""
    with HttpNode(overrides={"publication_bytes": 1000}) as node:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client:
            response = client.post("/orders/messages", content=b"x" * 990, headers={"Property": "a" * 100})

    assert response.status_code == 413


def test_a_post_without_a_credential_is_refused_with_a_tracking_id(node: HttpNode) -> None:
    """34: the id is also in the log."""
    with lines_of("hubmere.http", level=logging.INFO) as lines, node.client() as client:
        response = client.post("/orders/messages", content=b"x")

    detail = ElementTree.fromstring(response.content).findtext("Detail") or ""
    tracking_id = detail.partition("TrackingId:")[2].partition(",")[0]
    assert response.status_code == 401
    assert detail.startswith("MissingToken")
    assert any(tracking_id in line for line in lines)


def test_only_authorized_senders_learn_that_a_hub_is_missing(node: HttpNode) -> None:
    """The namespace's token gets 404, the token of another hub 401."""
    with node.client() as client:
        known = client.post("/nothing/messages", headers={"Authorization": node.sas()})
        other = client.post("/nothing/messages", headers={"Authorization": node.sas("orders")})

    assert (known.status_code, other.status_code) == (404, 401)


@pytest.mark.parametrize(("status", "expected"), [("SendDisabled", 403), ("Disabled", 403), ("ReceiveDisabled", 201)])
def test_a_hub_with_sending_disabled_refuses_events(
    node: HttpNode, sender: httpx.Client, status: str, expected: int
) -> None:
    """8: a change of the status takes effect at once."""
    description = f"<EventHubDescription><Status>{status}</Status></EventHubDescription>"
    sender.put("/orders", content=description, headers={"If-Match": "*"})

    response = sender.post("/orders/messages", content=b"x")

    assert response.status_code == expected


def test_a_hub_is_found_in_any_case(node: HttpNode, sender: httpx.Client) -> None:
    """7: `Orders` and `orders` are one hub."""
    assert sender.post("/ORDERS/messages", content=b"x").status_code == 201
    assert len(node.stored("orders")) == 1


def test_events_without_a_key_are_spread_evenly(node: HttpNode, sender: httpx.Client) -> None:
    """11: each of four partitions gets a quarter."""
    for _ in range(12):
        sender.post("/orders/messages", content=b"x")

    assert [len(node.stored("orders", partition)) for partition in range(4)] == [3, 3, 3, 3]


@pytest.mark.parametrize("timeout", ["0", "abc", "-1", "99999999999"])
def test_a_timeout_is_a_number_of_seconds(sender: httpx.Client, timeout: str) -> None:
    """Anything else is refused, not ignored."""
    assert sender.post(f"/orders/messages?timeout={timeout}", content=b"x").status_code == 400


def test_an_empty_body_is_an_empty_event(node: HttpNode, sender: httpx.Client) -> None:
    """A POST without a body is an event without content."""
    assert sender.post("/orders/messages").status_code == 201
    assert [event.body for event in node.stored("orders")] == [b""]


def test_the_host_chooses_the_namespace(node: HttpNode) -> None:
    """Where host names cannot be used, the path begins with the namespace."""
    node.add_namespace("second-ns")
    node.add_hub("orders", HubSpec(partition_count=1), namespace="second-ns")
    key = node.key(namespace="second-ns")
    token = node.sas(host="second-ns.localhost", key=key)

    with node.client(Authorization=token) as client:
        by_host = client.post("/orders/messages", content=b"1", headers={"Host": "second-ns.localhost"})
        by_path = client.post("/second-ns/orders/messages", content=b"2")

    assert (by_host.status_code, by_path.status_code) == (201, 201)
    assert [event.body for event in node.stored("orders", namespace="second-ns")] == [b"1", b"2"]
    assert node.stored("orders") == []


def test_the_administrator_may_publish(node: HttpNode) -> None:
    """Tools need one credential only."""
    with node.manager() as client:
        assert client.post("/orders/messages", content=b"x").status_code == 201


def test_requests_are_counted_once(node: HttpNode, sender: httpx.Client) -> None:
    """Accepted requests count for the hub, those refused before for the namespace."""
    sender.post("/orders/messages", content=b"12345")
    sender.post("/orders/partitions/7/messages", content=b"x")
    sender.post("/missing/messages", content=b"x")

    hub, namespace = node.hub("orders").counters, node.broker._namespace(NAMESPACE).counters
    assert (hub.incoming_messages, hub.incoming_bytes, hub.successful_requests) == (1, 5, 1)
    assert (namespace.incoming_requests, namespace.user_errors) == (2, 2)


def test_a_tier_can_differ_between_namespaces(node: HttpNode) -> None:
    """The limit is that of the hub's namespace."""
    node.add_namespace("basic-ns", NamespaceSpec(tier=Tier.BASIC))
    node.add_hub("small", HubSpec(partition_count=1), namespace="basic-ns")
    token = node.sas(host="basic-ns.localhost", key=node.key(namespace="basic-ns"))

    with node.client(Authorization=token, Host="basic-ns.localhost") as client:
        response = client.post("/small/messages", content=b"x" * (256 * 1024 + 1))

    assert response.status_code == 413
