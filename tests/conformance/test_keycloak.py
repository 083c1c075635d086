"""Keycloak as a foreign issuer: discovery, its keys, roles for its ids, and key rotation."""

import base64
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from conformance.clients import NotInstalled, java_tool, keycloak
from hubmere.cli.cluster.free_ports import free_ports
from hubmere.model.security.roles import DATA_SENDER
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

# The time for a Java program that compiles its own configuration at the start, on a busy machine.
_START_SECONDS = 2400.0
_END_SECONDS = 240.0
_WAIT_S = 240.0
_ADMIN = "keycloak-admin"
_REALM: dict[str, Any] = {
    "realm": "plant",
    "enabled": True,
    "sslRequired": "none",
    # By default five minutes: a busy machine may take longer for a test.
    "accessTokenLifespan": 3600,
    "clients": [
        {
            "clientId": "meter",
            "secret": "meter-secret",
            "enabled": True,
            "publicClient": False,
            "serviceAccountsEnabled": True,
            "standardFlowEnabled": False,
            "protocolMappers": [
                {
                    "name": "audience",
                    "protocol": "openid-connect",
                    "protocolMapper": "oidc-audience-mapper",
                    "config": {"included.custom.audience": "https://eventhubs.azure.net", "access.token.claim": "true"},
                }
            ],
        }
    ],
}


class Keycloak:
    """A running Keycloak, and the actions of its administrator."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.issuer = f"{url}/realms/plant"

    def token(self) -> str:
        """A token of the application."""
        form = {"grant_type": "client_credentials", "client_id": "meter", "client_secret": "meter-secret"}
        return self._token(self.issuer, form)

    def manage(self, path: str, body: Any) -> None:
        """Create something with the admin API."""
        form = {"grant_type": "password", "client_id": "admin-cli", "username": _ADMIN, "password": _ADMIN}
        headers = {"Authorization": f"Bearer {self._token(f'{self.url}/realms/master', form)}"}
        httpx.post(f"{self.url}/admin{path}", json=body, headers=headers, timeout=_WAIT_S).raise_for_status()

    def rotate(self) -> None:
        """Sign with a new key; the old one stays published."""
        config = {"priority": ["200"], "keySize": ["2048"], "algorithm": ["RS256"]}
        provider = {"providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider", "config": config}
        self.manage("/realms/plant/components", {"name": "newer", **provider})

    def _token(self, issuer: str, form: dict[str, str]) -> str:
        answer = httpx.post(f"{issuer}/protocol/openid-connect/token", data=form, timeout=_WAIT_S)
        return str(answer.raise_for_status().json()["access_token"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    try:
        program = keycloak() / "bin" / "kc.sh"
        java_tool("java")
    except NotInstalled as reason:
        pytest.skip(str(reason))
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("keycloak") / "log"
    with _running(program, port, log):
        running = Keycloak(f"http://127.0.0.1:{port}")
        running.manage("/realms", _REALM)
        yield running


@contextmanager
def _running(program: Path, port: int, log: Path) -> Iterator[None]:
    """Keycloak with a database in memory; it ends with the block."""
    flags = ["start-dev", "--db=dev-mem", "--http-host=127.0.0.1", f"--http-port={port}"]
    variables = {
        "KC_BOOTSTRAP_ADMIN_USERNAME": _ADMIN,
        "KC_BOOTSTRAP_ADMIN_PASSWORD": _ADMIN,
        "JAVA_OPTS_KC_HEAP": "-Xmx512m",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program), *flags],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await_ready(process, f"http://127.0.0.1:{port}/realms/master", log)
        yield
    finally:
        # The script starts Java as another process while it compiles.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=_WAIT_S).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"Keycloak did not start\n{log.read_text()[-4000:]}")


@pytest.fixture
def node(server: Keycloak) -> Iterator[Node]:
    """A node for each test: a role that one test assigns would be in force in the next."""
    with Node(hubs=["orders"], settings={"identity.issuers.plant.issuer": server.issuer}) as running:
        yield running


def post(node: Node, text: str) -> int:
    headers = {"Authorization": f"Bearer {text}"}
    return httpx.post(f"{node.http}/orders/messages", content=b"x", headers=headers, timeout=_WAIT_S).status_code


def assign(node: Node, principal: str) -> None:
    scope = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{node.namespace}"
    answer = httpx.put(
        f"{node.http}{scope}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}",
        json={"properties": {"roleDefinitionId": DATA_SENDER.id, "principalId": principal}},
        headers={"Authorization": f"Bearer {node.admin_token}"},
        timeout=_WAIT_S,
    )
    assert answer.status_code == 201, answer.text


def subject(text: str) -> str:
    payload = text.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"])


def test_application_of_keycloak_can_send_after_it_has_a_role(server: Keycloak, node: Node) -> None:
    """Only the issuer's address is configured; the id is the subject of its service account."""
    text = server.token()
    before = post(node, text)
    assign(node, subject(text))
    problems: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (server.token(), time.time() + 600),
        }
    )

    producer.produce("orders", b"x", on_delivery=lambda error, _: problems.append(error))
    producer.flush(_WAIT_S)

    assert (before, post(node, text)) == (401, 201)
    assert problems == [None]


def test_rotated_key_of_keycloak_is_used(server: Keycloak, node: Node) -> None:
    """Tokens with the new key are accepted without a restart, and those with the old key still are."""
    old = server.token()
    assign(node, subject(old))
    server.rotate()
    fresh = server.token()
    deadline = time.monotonic() + _WAIT_S

    assert old.split(".")[0] != fresh.split(".")[0]
    # The node does not request unknown keys for every token.
    while post(node, fresh) != 201 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (post(node, fresh), post(node, old)) == (201, 201)


def test_token_of_another_realm_is_refused(server: Keycloak, node: Node) -> None:
    """The server is the same, but the issuer is not trusted."""
    form = {"grant_type": "password", "client_id": "admin-cli", "username": _ADMIN, "password": _ADMIN}
    answer = httpx.post(f"{server.url}/realms/master/protocol/openid-connect/token", data=form, timeout=_WAIT_S)

    assert post(node, answer.json()["access_token"]) == 401
