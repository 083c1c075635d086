"""Credentials are used on every port and shown nowhere: not in the log, the audit log, spans, metrics or answers."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from confluent_kafka import KafkaException, Producer

from endpoints.test_tracing import Collector, a_context
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.testing import Node

_SECRET, _PASSWORD, _CHOSEN_KEY = "meter-secret-7316", "anna-password-5521", "chosen-key-8842"
_SETTINGS: dict[str, Any] = {
    "local_identity": True,
    "log_level": "debug",
    "identity.applications.meter.secret": _SECRET,
    "identity.users.anna.password": _PASSWORD,
}
_WAIT_S = 240.0
_ACCOUNT = "hubmerestorage"


class Witness:
    """A node on which credentials are used, and everything that it has written or answered."""

    def __init__(self, node: Node, collector: Collector) -> None:
        self.node = node
        self._collector = collector
        self.secrets: dict[str, str] = {}
        self.answers: list[str] = []

    def use(self, name: str, secret: str) -> str:
        """Remember a secret that must not appear."""
        self.secrets[name] = secret
        return secret

    def request(self, method: str, path: str, authorization: str | None = None, **more: Any) -> httpx.Response:
        """Send a traced request; its answer is searched too, unless it returns a secret by design."""
        headers = {"traceparent": a_context(len(self.answers) % 10), **more.pop("headers", {})}
        if authorization is not None:
            headers["Authorization"] = authorization
        answer = httpx.request(method, f"{self.node.http}{path}", headers=headers, timeout=_WAIT_S, **more)
        if not answer.is_success:
            self.answers.append(f"{answer.headers}\n{answer.text}")
        return answer

    def written(self) -> str:
        """The log, the audit, the metrics, all spans and the refusals; the node is stopped, so nothing is missing."""
        metrics = self.request("GET", "/metrics", f"Bearer {self.node.admin_token}").text
        self.node.stop()
        audit = (self.node.data / "audit.log").read_text()
        assert self._collector.spans
        spans = "\n".join(str(span) for span in self._collector.spans)
        return "\n".join((self.node.logs(), audit, metrics, spans, *self.answers))


@pytest.fixture
def witness() -> Iterator[Witness]:
    collector = Collector()
    try:
        with Node(hubs=["orders"], settings={**_SETTINGS, "otlp_endpoint": collector.url}) as node:
            yield Witness(node, collector)
    finally:
        collector.close()


def test_no_credential_is_written_anywhere(witness: Witness) -> None:
    """Valid and invalid credentials of every kind are used; the secrets and all usable parts are searched for."""
    for use in (_use_sas, _use_keys, _use_admin_token, _use_tokens, _use_local_issuer, _use_blobs, _use_management):
        use(witness)

    written = witness.written()

    assert "refused" in written
    assert witness.answers
    shown = {name for name, secret in witness.secrets.items() if secret in written}
    assert shown == set()


def _use_sas(witness: Witness) -> None:
    root = ConnectionString.parse(witness.node.connection_string)
    key = witness.use("key of the root rule", str(root.key))
    for name, used in (("right", key), ("wrong", "bm90LXRoZS1rZXktNzczMQ==")):
        text = make_token("http://localhost/", str(root.key_name), used, expires_at_s=4_000_000_000)
        witness.use(f"{name} signature", text.partition("sig=")[2].partition("&")[0])
        witness.request("POST", "/orders/messages", text, content=b"x")
        witness.request("GET", "/nothing", text)


def _use_keys(witness: Witness) -> None:
    wrong = witness.use("wrong key", "d3Jvbmcta2V5LTk5MTI=")
    node = witness.node
    for text in (
        node.connection_string,
        node.connection_string.replace(witness.secrets["key of the root rule"], wrong),
    ):
        producer = Producer(
            {
                "bootstrap.servers": node.kafka,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "$ConnectionString",
                "sasl.password": text,
                "log_level": 0,
            }
        )
        try:
            producer.list_topics(timeout=5)
        except KafkaException as refusal:
            witness.answers.append(str(refusal))
    for text in (
        node.emulator_connection_string,
        node.emulator_connection_string.replace(witness.secrets["key of the root rule"], wrong),
    ):
        client = EventHubProducerClient.from_connection_string(text, eventhub_name="orders", retry_total=0)
        try:
            with client:
                client.send_batch([EventData("x")])
        except EventHubError as refusal:
            witness.answers.append(str(refusal))


def _use_admin_token(witness: Witness) -> None:
    for name, text in (("right", witness.node.admin_token), ("wrong", "wrong-admin-token-6623")):
        witness.use(f"{name} administrator's token", text)
        witness.request("GET", "/subscriptions/s/providers/Microsoft.EventHub/namespaces", f"Bearer {text}")
        witness.request("GET", f"/orders?api-version=2014-01&token={text}", f"Bearer {text}")


def _use_tokens(witness: Witness) -> None:
    env = witness.node.identity.env
    form = {
        "grant_type": "client_credentials",
        "client_id": env["AZURE_CLIENT_ID"],
        "client_secret": witness.use("secret of the owner", env["AZURE_CLIENT_SECRET"]),
        "scope": "https://eventhubs.azure.net/.default",
    }
    good = witness.request("POST", "/adfs/oauth2/token", data=form).json()["access_token"]
    head, payload, signature = good.split(".")
    # Another claim with the same signature.
    forged = f"{head}.{payload[:-4]}{'AAAA' if payload[-4:] != 'AAAA' else 'BBBB'}.{signature}"
    for name, text in (("right", good), ("forged", forged)):
        witness.use(f"{name} token", text)
        witness.use(f"payload of the {name} token", text.split(".")[1])
        witness.use(f"signature of the {name} token", text.split(".")[2])
        witness.request("POST", "/orders/messages", f"Bearer {text}", content=b"x")
        witness.request("DELETE", "/nothing", f"Bearer {text}")
        witness.request("GET", f"/{_ACCOUNT}?comp=list", f"Bearer {text}")


def _use_local_issuer(witness: Witness) -> None:
    identity = witness.node.identity
    wrong = witness.use("wrong client secret", "wrong-client-secret-1187")
    basic = base64.b64encode(f"meter:{wrong}".encode()).decode()
    witness.use("basic credentials", basic)
    form = {"grant_type": "client_credentials"}
    witness.request("POST", "/adfs/oauth2/token", data={**form, "client_id": "meter", "client_secret": wrong})
    witness.request("POST", "/adfs/oauth2/token", f"Basic {basic}", data=form)
    file = Path(identity.workload_identity_env["AZURE_FEDERATED_TOKEN_FILE"])
    assertion = witness.use("federated token", file.read_text(encoding="ascii"))
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    for client_id in (identity.env["AZURE_CLIENT_ID"], "meter"):
        answers = {**form, "client_id": client_id, "client_assertion_type": kind, "client_assertion": assertion}
        witness.request("POST", "/adfs/oauth2/token", data=answers)
    header = witness.use("identity header", identity.managed_identity_env["IDENTITY_HEADER"])
    for text in (header, witness.use("wrong identity header", "wrong-header-3349")):
        witness.request(
            "GET", "/adfs/msi/token?resource=https://eventhubs.azure.net", headers={"X-IDENTITY-HEADER": text}
        )
    begun = witness.request("POST", "/adfs/oauth2/devicecode", data={"client_id": "x", "scope": "openid"}).json()
    witness.use("device code", begun["device_code"])
    witness.use("secret of the settings", _SECRET)
    witness.use("password", _PASSWORD)
    witness.use("wrong password", "wrong-password-4410")
    for password in (witness.secrets["wrong password"], _PASSWORD):
        page = {"user_code": begun["user_code"], "username": "anna", "password": password}
        witness.request("POST", "/adfs/device", data=page)
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    for code in (begun["device_code"], witness.use("wrong device code", "wrong-device-code-7765")):
        witness.request("POST", "/adfs/oauth2/token", data={"grant_type": grant, "client_id": "x", "device_code": code})


def _use_blobs(witness: Witness) -> None:
    connection = witness.node.blob_connection_string
    key = witness.use("key of the storage account", connection.partition("AccountKey=")[2].partition(";")[0])
    wrong = witness.use("wrong key of the storage account", base64.b64encode(b"not the key" * 5).decode())
    for used in (key, wrong):
        with BlobServiceClient.from_connection_string(connection.replace(key, used), retry_total=0) as service:
            try:
                service.create_container("box")
            except HttpResponseError as refusal:
                witness.answers.append(str(refusal))
        sas = generate_container_sas(
            _ACCOUNT,
            "box",
            account_key=used,
            permission=ContainerSasPermissions(list=True),
            expiry="2100-01-01T00:00:00Z",
        )
        witness.use(f"storage signature {len(witness.secrets)}", sas.partition("sig=")[2].partition("&")[0])
        witness.request("GET", f"/{_ACCOUNT}/box?restype=container&comp=list&{sas}")
        witness.request("DELETE", f"/{_ACCOUNT}/box?restype=container&{sas}")


def _use_management(witness: Witness) -> None:
    scope = "/subscriptions/s/resourceGroups/g/providers"
    rule = (
        f"{scope}/Microsoft.EventHub/namespaces/{witness.node.namespace}/authorizationRules/RootManageSharedAccessKey"
    )
    admin = f"Bearer {witness.node.admin_token}"
    witness.use("chosen key", _CHOSEN_KEY)
    for key_type in ("SecondaryKey", "NoSuchKey"):
        witness.request("POST", f"{rule}/regenerateKeys", admin, json={"keyType": key_type, "key": _CHOSEN_KEY})
    account = f"{scope}/Microsoft.Storage/storageAccounts/{_ACCOUNT}"
    for action, body in (("listKeys", {}), ("regenerateKey", {"keyName": "key2"})):
        answer = witness.request("POST", f"{account}/{action}", admin, json=body)
        for number, key in enumerate(json.loads(answer.text)["keys"]):
            witness.use(f"{action} {number}", key["value"])
