"""The Java client of Apache Kafka with OAUTHBEARER: it fetches tokens by itself and authenticates again in time."""

import json
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.issuers import claims, token
from conformance.clients import Jars, NotInstalled
from conformance.kafka.apache import SHORT_LIVED, TRUST_PASSWORD, Ended, Program, make_trust_store, run, write_settings
from endpoints.identity_issuer import HttpIssuer
from hubmere.model.security.roles import DATA_OWNER
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
# Shorter than the producer runs, so that its session is extended; long enough for a JVM that starts on a busy machine.
_TOKEN_SECONDS = 40
_SENDER = "producer-id"


class TokenIssuer(HttpIssuer):
    """An issuer that also issues tokens with a lifetime of seconds, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.issued = 0

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(super()._handler()):  # type: ignore[misc]
            def do_POST(self) -> None:  # noqa: N802  as http.server names it
                issuer.issue(self)

        return Handler

    def issue(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request for a token (RFC 6749, 4.4)."""
        request.rfile.read(int(request.headers["Content-Length"]))
        now = int(time.time())
        text = token(claims(iss=self.url, oid=_SENDER, iat=now, nbf=now - 5, exp=now + _TOKEN_SECONDS))
        self.issued += 1
        body = json.dumps({"access_token": text, "token_type": "Bearer", "expires_in": _TOKEN_SECONDS}).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        yield running


@pytest.fixture(scope="module")
def node(issuer: TokenIssuer) -> Iterator[Node]:
    settings: dict[str, Any] = {"local_identity": True, "identity.issuers.foreign.issuer": issuer.url}
    with Node(hubs=["orders", "invoices"], settings=settings) as running:
        scope = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{running.namespace}"
        httpx.put(
            f"{running.http}{scope}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}",
            json={"properties": {"roleDefinitionId": DATA_OWNER.id, "principalId": _SENDER}},
            headers={"Authorization": f"Bearer {running.admin_token}"},
            timeout=240,
        ).raise_for_status()
        yield running


def settings_of(node: Node, endpoint: str, client_id: str, secret: str, trusted: Path) -> dict[str, str]:
    login = f'clientId="{client_id}" clientSecret="{secret}" scope="https://eventhubs.azure.net/.default"'
    return {
        "bootstrap.servers": node.kafkas,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": TRUST_PASSWORD,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.login.callback.handler.class": _HANDLER,
        "sasl.jaas.config": f"{_MODULE} required {login};",
        # The client's default pause before it renews a token is longer than the lifetime of these tokens.
        "sasl.login.refresh.min.period.seconds": "1",
        # It renews a token in the middle of its lifetime.
        "sasl.login.refresh.window.factor": "0.5",
        "sasl.login.refresh.buffer.seconds": "1",
    }


def java(main: str, endpoint: str, trusted: Path, *arguments: str, text: str = "") -> Ended:
    """Run a program of Apache Kafka that may use this token endpoint."""
    flags = (
        *SHORT_LIVED,
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint}",
        f"-Djavax.net.ssl.trustStore={trusted}",
        f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD}",
    )
    try:
        return run(Program(jars=Jars.KAFKA_4, main=main, arguments=arguments, flags=flags), text=text)
    except NotInstalled as reason:
        pytest.skip(str(reason))


def test_java_client_fetches_its_tokens_from_the_local_issuer(node: Node, tmp_path: Path) -> None:
    """Only properties are set: the client uses the token endpoint, signs in, produces and consumes."""
    try:
        trusted = make_trust_store(tmp_path, node.ca_file)
    except NotInstalled as reason:
        pytest.skip(str(reason))
    endpoint, env, body = node.identity.token_endpoint, node.identity.env, uuid.uuid4().hex
    settings = settings_of(node, endpoint, env["AZURE_CLIENT_ID"], env["AZURE_CLIENT_SECRET"], trusted)
    file = str(write_settings(tmp_path / "client.properties", settings))
    # No other test publishes there: the first event is ours.
    server = ("--bootstrap-server", node.kafkas, "--topic", "invoices")

    patience = ("--request-timeout-ms", "100000")
    java(_PRODUCER, endpoint, trusted, *server, *patience, "--command-config", file, text=f"{body}\n").lines()
    options = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "240000")
    found = java(_CONSUMER, endpoint, trusted, *server, *options, "--command-config", file).lines()

    assert body in found


def test_java_client_authenticates_again_before_its_session_ends(
    node: Node, issuer: TokenIssuer, tmp_path: Path
) -> None:
    """KIP-368: tokens have a lifetime of seconds, the producer runs longer, and no event is lost or refused."""
    try:
        trusted = make_trust_store(tmp_path, node.ca_file)
    except NotInstalled as reason:
        pytest.skip(str(reason))
    endpoint = f"{issuer.url}/token"
    file = write_settings(tmp_path / "client.properties", settings_of(node, endpoint, "x", "y", trusted))
    count, rate = 1000, 20
    events = ("--topic", "orders", "--num-records", str(count), "--record-size", "10", "--throughput", str(rate))

    lines = java(_PERFORMANCE, endpoint, trusted, *events, "--command-config", str(file)).lines()

    assert any(line.startswith(f"{count} records sent") for line in lines)
    assert issuer.issued >= 2
