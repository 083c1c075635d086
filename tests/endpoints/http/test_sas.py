"""SAS over HTTP: scopes, rights, keys and expiry (checks 14 to 21 of service 11)."""

from dataclasses import replace

import pytest

from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.model.entity import DefaultAction, KeyKind, NetworkRuleSet
from hubmere.model.spec import NamespaceSpec


def _post(node: HttpNode, token: str, path: str = "/orders/messages") -> int:
    with node.client(Authorization=token) as client:
        return client.post(path, content=b"x").status_code


@pytest.mark.parametrize("scheme", ["sb://", "amqp://", "amqps://", "http://", "https://", ""])
def test_the_scheme_of_a_token_does_not_matter(node: HttpNode, scheme: str) -> None:
    """14: SDKs sign different ones for the same resource."""
    assert _post(node, node.sas("orders", scheme=scheme)) == 201


def test_a_hub_token_opens_that_hub_only(node: HttpNode) -> None:
    """15: `orders` opens neither `orders2` nor another hub."""
    node.add_hub("orders2")

    assert _post(node, node.sas("orders"), "/orders2/messages") == 401


def test_a_namespace_token_opens_every_hub(node: HttpNode) -> None:
    """16: its scope includes all hubs."""
    node.add_hub("other")

    assert [_post(node, node.sas(), f"/{hub}/messages") for hub in ("orders", "other")] == [201, 201]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/orders/publishers/a/messages", 201), ("/orders/publishers/b/messages", 401), ("/orders/messages", 401)],
)
def test_a_publisher_token_opens_its_own_path_only(node: HttpNode, path: str, status: int) -> None:
    """17: the publisher's name must match the token's scope."""
    node.add_rule("devices", "Send", hub="orders")

    assert _post(node, node.sas("orders/publishers/a", rule="devices", hub="orders"), path) == status


def test_the_refusal_of_an_expired_token_has_its_expiry(node: HttpNode) -> None:
    """18: 401 ExpiredToken."""
    with node.client(Authorization=node.sas("orders", expires_at_s=1_600_000_000)) as client:
        response = client.post("/orders/messages", content=b"x")

    assert response.status_code == 401
    assert "ExpiredToken" in response.text
    assert "2020-09-13T12:26:40Z" in response.text


def test_both_keys_work_until_one_is_regenerated(node: HttpNode) -> None:
    """19: the new key works at once, also if a token of the old one is cached."""
    view = node.broker.entities
    rule = view.rule(view.namespace(NAMESPACE), "RootManageSharedAccessKey")
    token = node.sas(key=rule.secondary_key)
    before = _post(node, token)

    node.changed(
        lambda done: node.broker.manager.regenerate_key(
            NAMESPACE, None, rule.name, KeyKind.SECONDARY, None, node.actor(), done
        )
    )

    assert (before, _post(node, token), _post(node, node.sas())) == (201, 401, 201)


def test_a_listener_may_not_send_and_a_sender_may_not_read(node: HttpNode) -> None:
    """20: the refusal names the missing claim."""
    node.add_rule("listen", "Listen")
    node.add_rule("send", "Send")

    with node.client(Authorization=node.sas(rule="listen")) as client:
        sending = client.post("/orders/messages", content=b"x")
    with node.client(Authorization=node.sas(rule="send")) as client:
        looking = client.get("/orders/consumergroups/$Default/partitions/0/messages")

    assert (sending.status_code, looking.status_code) == (401, 401)
    assert "'Send' claim(s) are required" in sending.text
    assert "'Listen' claim(s) are required" in looking.text


def test_a_namespace_without_local_auth_accepts_no_sas(node: HttpNode) -> None:
    """21: the administrator is still accepted."""
    spec = replace(NamespaceSpec.of(node.broker._namespace(NAMESPACE).entity), disable_local_auth=True)

    node.changed(lambda done: node.broker.manager.update_namespace(NAMESPACE, spec, node.actor(), done))

    assert _post(node, node.sas()) == 401
    assert _post(node, "Bearer an-admin-token-for-tests") == 201


@pytest.mark.parametrize(
    "credential",
    ["", "SharedAccessSignature", "SharedAccessSignature sr=a", "Basic YTpi", "Bearer wrong", "x" * 9000, "Bearer"],
)
def test_a_bad_credential_is_401(node: HttpNode, credential: str) -> None:
    """This covers every kind of invalid credential (service 2.4)."""
    assert _post(node, credential) == 401


def test_the_address_is_checked_before_the_credential(node: HttpNode) -> None:
    """Service 2.3: the refusal does not name the rules."""
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))
    node.changed(lambda done: node.broker.manager.update_network(NAMESPACE, rules, node.actor(), done))

    with node.client(Authorization="rubbish") as client:
        response = client.post("/orders/messages", content=b"x")

    assert response.status_code == 401
    assert "address is not allowed" in response.text
    assert "10.0.0.0" not in response.text


def test_an_address_in_a_rule_is_accepted(node: HttpNode) -> None:
    """The default is `Deny`, and a mask contains the client."""
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("127.0.0.0/8",))
    node.changed(lambda done: node.broker.manager.update_network(NAMESPACE, rules, node.actor(), done))

    assert _post(node, node.sas()) == 201


def test_a_token_for_another_host_is_refused(node: HttpNode) -> None:
    """Service 2.2: the host must be one that the listener answers to."""
    assert _post(node, node.sas("orders", host="elsewhere.example.com")) == 401


@pytest.mark.parametrize(
    "path",
    [
        "orders/messages",
        "orders/publishers/dev%2001/messages",
        "orders/publisher/a/messages",
        "orders/partitions/0/messages",
    ],
)
@pytest.mark.parametrize("query", ["", "?timeout=60&api-version=2014-01"])
def test_a_token_signed_for_the_posted_url_is_accepted(node: HttpNode, path: str, query: str) -> None:
    """Most device code signs the URL that it posts to, with or without the query."""
    token = node.sas(path + query)

    assert _post(node, token, f"/{path}{query}") == 201
    assert _post(node, token, "/orders2/messages") == 401
    assert _post(node, token, "/orders/publishers/other/messages") == 401


def test_a_token_for_the_messages_of_a_hub_reads_nothing(node: HttpNode) -> None:
    """It covers only the path that it names."""
    with node.client(Authorization=node.sas("orders/messages")) as client:
        looking = client.get("/orders/consumergroups/$Default/partitions/0/messages")

    assert looking.status_code == 401
