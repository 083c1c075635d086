"""Revocation over HTTP: requests that began before a rule was deleted are checked again before they take effect."""

import socket
import threading

import httpx

from endpoints.http.harness import NAMESPACE, PATIENCE_S, HttpNode
from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.revocation import Judge
from hubmere.model.errors import Refusal


def delete_rule(node: HttpNode, name: str) -> None:
    node.changed(lambda done: node.broker.manager.delete_rule(NAMESPACE, None, name, node.actor(), done))


def test_a_body_that_arrives_after_its_rule_was_deleted_is_refused(node: HttpNode) -> None:
    """Otherwise a slow body would keep a deleted rule valid."""
    node.add_rule("device", "Send")
    head = (
        "POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        f"Authorization: {node.sas(rule='device')}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", node.port), PATIENCE_S) as client:
        client.sendall(head.encode() + b"ab")
        node.await_requests_under_way(1)

        delete_rule(node, "device")
        client.sendall(b"cd")
        answer = client.recv(4096)

    assert answer.startswith(b"HTTP/1.1 401 ")


def test_an_open_connection_is_refused_once_its_rule_is_deleted(node: HttpNode) -> None:
    """A cached head is valid for one version of the rules."""
    node.add_rule("device", "Send")
    with node.client(Authorization=node.sas(rule="device")) as client:
        before = [client.post("/orders/messages", content=b"x").status_code for _ in range(3)]

        delete_rule(node, "device")

        assert (before, client.post("/orders/messages", content=b"x").status_code) == ([201] * 3, 401)


def test_a_waiting_request_shows_nothing_once_its_rule_is_deleted(node: HttpNode) -> None:
    """A long poll is authorized again before it is answered."""
    node.add_rule("reader", "Listen")
    answers: list[httpx.Response] = []

    def wait() -> None:
        with node.client(Authorization=node.sas(rule="reader")) as client:
            path = "/orders/consumergroups/$Default/partitions/0/messages?from=latest&wait=30"
            answers.append(client.get(path))

    waiting = threading.Thread(target=wait)
    waiting.start()
    node.await_requests_under_way(1)
    delete_rule(node, "reader")
    with node.client(Authorization=node.sas()) as client:
        client.post("/orders/partitions/0/messages", content=b"secret")
    waiting.join(PATIENCE_S)

    assert answers[0].status_code == 401
    assert "secret" not in answers[0].text


class OpenConnection:
    """A connection that was opened with the primary key of a rule."""

    def __init__(self, principal: Principal) -> None:
        self.principal: Principal | None = principal

    def review(self, judge: Judge) -> None:
        """Review the connection like an endpoint."""
        assert self.principal is not None
        try:
            self.principal = judge(self.principal, 0.0)
        except Refusal:
            self.principal = None


def test_a_rotation_by_arm_closes_open_links_only_on_request(node: HttpNode) -> None:
    """Without `revokeOpenLinks` open links keep their grace period."""
    node.add_rule("device", "Send")
    rule = (
        f"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{NAMESPACE}"
        "/authorizationRules/device/regenerateKeys?api-version=2024-01-01"
    )
    entity = node.broker._namespace(NAMESPACE).entity
    kept, ended = (OpenConnection(node.broker.access.by_key(entity, "device", node.key("device"))) for _ in range(2))
    with node.manager() as arm:
        node.broker.revocation._connections = lambda: [kept]
        first = arm.post(rule, json={"keyType": "PrimaryKey"})
        ended.principal = node.broker.access.by_key(entity, "device", node.key("device"))
        node.broker.revocation._connections = lambda: [ended]
        second = arm.post(rule, json={"keyType": "PrimaryKey", "revokeOpenLinks": True})

    assert (first.status_code, second.status_code) == (200, 200)
    assert kept.principal is not None
    assert kept.principal.is_rotated
    assert ended.principal is None
