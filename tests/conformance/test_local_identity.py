"""The node's own issuer (`local_identity`) with unmodified identity libraries: environment variables only."""

import os
import re
import ssl
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from azure.identity import (
    ClientSecretCredential,
    CredentialUnavailableError,
    DefaultAzureCredential,
    DeviceCodeCredential,
    EnvironmentCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from confluent_kafka import Consumer, KafkaException, Producer

from hubmere.testing import Node

SCOPE = "https://eventhubs.azure.net/.default"
PATIENCE_S = 240.0
SETTINGS: dict[str, Any] = {
    "local_identity": True,
    "identity.applications.meter.secret": "meter-secret-7316",
    "identity.applications.meter.client_id": "6f1d7c9a-3a52-4f53-9a3b-6d5d0a7d1f00",
    "identity.applications.meter.roles": ["Azure Event Hubs Data Sender"],
    "identity.users.anna.password": "anna-password-1",
    "identity.users.anna.roles": ["Azure Event Hubs Data Receiver"],
    "identity.users.guest.password": "guest-password-1",
}
METER = str(SETTINGS["identity.applications.meter.client_id"])


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(hubs=["orders"], settings=SETTINGS) as running:
        yield running


def environment(variables: Mapping[str, str]) -> Any:
    """Only these variables for Azure, as in a new shell."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "IDENTITY_", "MSI_"))}
    return patch.dict(os.environ, plain | dict(variables), clear=True)


def producer(node: Node, credential: Any) -> EventHubProducerClient:
    return EventHubProducerClient(
        "localhost",
        "orders",
        credential,
        custom_endpoint_address=f"sb://{node.amqps}",
        connection_verify=node.ca_file,
        transport_type=TransportType.Amqp,
        retry_total=0,
    )


def send(node: Node, credential: Any) -> None:
    with producer(node, credential) as client:
        client.send_batch([EventData("x")])


def post(node: Node, url: str, form: dict[str, str]) -> httpx.Response:
    trusted = ssl.create_default_context(cafile=node.ca_file)
    return httpx.post(url, data=form, verify=trusted, timeout=PATIENCE_S)


def meter(node: Node, **changes: Any) -> ClientSecretCredential:
    values = {"client_secret": "meter-secret-7316", "authority": node.identity.env["AZURE_AUTHORITY_HOST"]} | changes
    return ClientSecretCredential("adfs", METER, connection_verify=node.ca_file, **values)


def test_default_credential_needs_only_the_variables_of_the_ready_file(node: Node) -> None:
    """The code of an application is not changed."""
    with environment(node.identity.env):
        credential = DefaultAzureCredential()
        body = str(uuid.uuid4())
        with producer(node, credential) as client:
            client.send_batch([EventData(body)], partition_id="0")
        received: list[str] = []
        consumer = EventHubConsumerClient(
            "localhost",
            "orders",
            "$Default",
            credential,
            custom_endpoint_address=f"sb://{node.amqps}",
            connection_verify=node.ca_file,
            transport_type=TransportType.Amqp,
        )

        def on_event(_context: Any, event: Any) -> None:
            received.append(event.body_as_str())
            if body in received:
                consumer.close()

        consumer.receive(on_event, partition_id="0", starting_position="-1")

    assert body in received


def test_environment_credential_gets_the_owner(node: Node) -> None:
    """It is the first credential of the default chain."""
    with environment(node.identity.env):
        send(node, EnvironmentCredential())


@pytest.mark.parametrize("shape", ["app service", "virtual machine"])
def test_managed_identity_gets_the_owner(node: Node, shape: str) -> None:
    """App Service has an endpoint and a secret; a virtual machine has the metadata service."""
    app_service = node.identity.managed_identity_env
    machine = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": node.http}
    with environment(app_service if shape == "app service" else machine):
        send(node, ManagedIdentityCredential())
        send(node, ManagedIdentityCredential(client_id=METER))


def test_workload_identity_gets_the_owner(node: Node) -> None:
    """A pod authenticates with the token in a file."""
    with environment(node.identity.workload_identity_env):
        send(node, WorkloadIdentityCredential())
        assert DefaultAzureCredential().get_token(SCOPE).token


def test_client_secret_credential_gets_the_declared_application(node: Node) -> None:
    """Its role in the settings allows sending, but not receiving."""
    send(node, meter(node))

    headers = {"Authorization": f"Bearer {meter(node).get_token(SCOPE).token}"}
    path = "orders/consumergroups/$Default/partitions/0/messages"
    assert httpx.get(f"{node.http}/{path}", headers=headers, timeout=PATIENCE_S).status_code == 401


def test_device_code_signs_a_user_in(node: Node) -> None:
    """The program shows a code, the user enters it on a page, and the token has the user's roles."""
    answers: list[int] = []

    def prompt(uri: str, code: str, _expires: Any) -> None:
        def enter() -> None:
            with httpx.Client(verify=ssl.create_default_context(cafile=node.ca_file), timeout=PATIENCE_S) as browser:
                wrong = {"user_code": code, "username": "anna", "password": "wrong"}
                right = {
                    "user_code": f"{code[:4]}-{code[4:].lower()}",
                    "username": "ANNA",
                    "password": "anna-password-1",
                }
                answers.append(browser.get(uri).status_code)
                answers.extend(browser.post(uri, data=form).status_code for form in (wrong, right))

        threading.Thread(target=enter).start()

    with environment({"REQUESTS_CA_BUNDLE": node.ca_file}):
        credential = DeviceCodeCredential(
            client_id="04b07795-8ddb-461a-bbee-02f9e1bf7b46",
            tenant_id="adfs",
            authority=node.identity.env["AZURE_AUTHORITY_HOST"],
            prompt_callback=prompt,
        )
        token = credential.get_token(SCOPE).token

    headers = {"Authorization": f"Bearer {token}"}
    assert answers == [200, 401, 200]
    assert httpx.get(f"{node.http}/orders", headers=headers, timeout=PATIENCE_S).status_code == 200
    assert (
        httpx.post(f"{node.http}/orders/messages", content=b"x", headers=headers, timeout=PATIENCE_S).status_code == 401
    )


def test_wrong_secrets_are_refused_by_the_library(node: Node) -> None:
    """The error is that of the protocol and contains no secret."""
    with environment({}), pytest.raises(ClientAuthenticationError, match="secret or assertion is wrong"):
        meter(node, client_secret="wrong").get_token(SCOPE)
    wrong = node.identity.managed_identity_env | {"IDENTITY_HEADER": "wrong"}
    with environment(wrong), pytest.raises((ClientAuthenticationError, CredentialUnavailableError)):
        ManagedIdentityCredential().get_token(SCOPE)


@pytest.mark.parametrize(
    ("path", "form", "error"),
    [
        ("oauth2/token", {}, "unsupported_grant_type"),
        ("oauth2/token", {"grant_type": "password"}, "unsupported_grant_type"),
        ("oauth2/token", {"grant_type": "client_credentials"}, "invalid_client"),
        (
            "oauth2/token",
            {"grant_type": "client_credentials", "client_id": METER, "client_secret": ""},
            "invalid_client",
        ),
        ("oauth2/token", {"grant_type": "device_code", "device_code": "x", "client_id": "y"}, "expired_token"),
        ("oauth2/devicecode", {}, "invalid_request"),
        ("oauth2/elsewhere", {}, "not_found"),
    ],
)
def test_bad_request_gets_the_error_of_the_protocol(node: Node, path: str, form: dict[str, str], error: str) -> None:
    """RFC 6749, 5.2."""
    answer = httpx.post(
        f"{node.identity.issuer}/{path}",
        data=form,
        verify=ssl.create_default_context(cafile=node.ca_file),
        timeout=PATIENCE_S,
    )

    assert answer.json()["error"] == error


def test_access_token_is_not_accepted_as_a_federated_token(node: Node) -> None:
    """A client of the hub must not be able to become the application."""
    with environment(node.identity.env):
        token = EnvironmentCredential().get_token(SCOPE).token
    form = {
        "grant_type": "client_credentials",
        "client_id": node.identity.env["AZURE_CLIENT_ID"],
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": token,
    }
    answer = httpx.post(
        node.identity.token_endpoint,
        data=form,
        verify=ssl.create_default_context(cafile=node.ca_file),
        timeout=PATIENCE_S,
    )

    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


def test_metadata_service_requires_its_header(node: Node) -> None:
    """A page in a browser cannot send it."""
    url = f"{node.http}/metadata/identity/oauth2/token?resource=https://eventhubs.azure.net"

    statuses = [
        httpx.get(url, headers=headers, timeout=PATIENCE_S).status_code
        for headers in ({}, {"Metadata": "true", "X-Forwarded-For": "203.0.113.7"}, {"Metadata": "true"})
    ]

    assert statuses == [400, 400, 200]


def test_librdkafka_fetches_tokens_by_itself(node: Node) -> None:
    """`sasl.oauthbearer.method=oidc` needs no code."""
    settings = {
        "bootstrap.servers": node.kafkas,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": node.ca_file,
        "https.ca.location": node.ca_file,
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": METER,
        "sasl.oauthbearer.client.secret": "meter-secret-7316",
        "sasl.oauthbearer.scope": SCOPE,
        "sasl.oauthbearer.token.endpoint.url": node.identity.token_endpoint,
    }
    problems: list[object] = []
    client = Producer(settings)
    client.produce("orders", b"x", on_delivery=lambda error, _: problems.append(error))
    client.flush(PATIENCE_S)

    assert problems == [None]
    consumer = Consumer(settings | {"group.id": "x", "sasl.oauthbearer.client.secret": "wrong"})
    with pytest.raises(KafkaException):
        consumer.list_topics(timeout=5)


def test_no_log_contains_secrets_and_tokens(node: Node) -> None:
    """The log says who got a token, but not the token."""
    with environment(node.identity.env):
        token = EnvironmentCredential().get_token(SCOPE).token

    written = node.logs() + (node.data / "audit.log").read_text()
    assert "issued a token of 'hubmere-owner'" in written
    for secret in (
        token,
        token.split(".")[2],
        node.identity.env["AZURE_CLIENT_SECRET"],
        "meter-secret-7316",
        "anna-password-1",
    ):
        assert secret not in written


def test_banner_says_that_the_issuer_is_enabled(node: Node) -> None:
    """An operator must notice it."""
    assert re.search(r"Identity +local issuer https://localhost:\d+/adfs, for development only", node.logs())


def test_tokens_survive_a_restart_and_are_invalid_on_another_node() -> None:
    """The key is stored in the data folder; another node has another one."""
    with (
        Node(hubs=["orders"], settings={"local_identity": True}) as first,
        Node(hubs=["orders"], settings={"local_identity": True}) as second,
    ):
        with environment(first.identity.env):
            token = EnvironmentCredential().get_token(SCOPE).token
        headers = {"Authorization": f"Bearer {token}"}
        first.restart()

        statuses = [
            httpx.post(f"{one.http}/orders/messages", content=b"x", headers=headers, timeout=PATIENCE_S).status_code
            for one in (first, second)
        ]

        assert statuses == [201, 401]


def test_issuer_is_disabled_by_default(tmp_path: Any) -> None:
    """A node without the setting has no such paths, and its ready file has nothing about identities."""
    with Node(hubs=["orders"]) as plain:
        answers = [
            httpx.get(f"{plain.http}/{path}", timeout=PATIENCE_S).status_code
            for path in ("adfs/.well-known/openid-configuration", "metadata/identity/oauth2/token")
        ]

        assert plain.ready.identity is None
        assert answers == [401, 401] or set(answers) <= {401, 404}


def test_issuer_without_https_is_a_bad_setting() -> None:
    """Identity libraries refuse an authority without TLS."""
    run = subprocess.run(
        [sys.executable, "-m", "hubmere", "up", "--local-identity", "--https-port=off", "--memory"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert run.returncode == 2
    assert "https_port" in run.stderr
