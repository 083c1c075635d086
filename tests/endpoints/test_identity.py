"""OAuth tokens on every port of a real node: accepted, refused with the protocol's own error, expired and revoked."""

import asyncio
import json
import ssl
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import websocket
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from azure.eventhub.exceptions import EventHubError
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.eventhub import EventHubManagementClient
from confluent_kafka import Consumer, KafkaException, Producer

from broker.issuers import ISSUER, OWNER_ID, claims, forged, jwks, token
from endpoints.amqp.raw_client import RawClient as AmqpClient
from endpoints.amqp.raw_client import Refused
from endpoints.http.test_websocket_tokens import WebSocketStream
from endpoints.identity_issuer import HttpIssuer
from endpoints.kafka.raw_client import RawClient as KafkaClient
from endpoints.kafka.raw_client import a_fetch, only
from hubmere.model.security.roles import DATA_OWNER, DATA_RECEIVER, DATA_SENDER, READER, ROLES
from hubmere.testing import Node
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

SENDER, RECEIVER, OBSERVER, NOBODY = "sender-id", "receiver-id", "reader-id", "nobody-id"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hubmere/providers/Microsoft.EventHub/namespaces/hubmere"
PATIENCE_S = 240.0
# Of a token that expires during the test: long enough for a first request on a busy machine.
_SHORT_S = 20
_GUID = "7a4f3c1e-0000-0000-0000-000000000000"


def fresh(**changes: Any) -> str:
    """A token of the pinned issuer that is valid now."""
    now = int(time.time())
    return token(claims(**({"iat": now - 5, "nbf": now - 5, "exp": now + 3600} | changes)))


class Static:
    """A credential of the Azure SDK that always has the same token."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
        """The method that azure-core calls."""
        return AccessToken(self.text, int(time.time()) + 3600)


class IdentityHarness:
    """A node that trusts an issuer with pinned keys and one whose keys it fetches."""

    def __init__(self, node: Node, issuer: HttpIssuer) -> None:
        self.node = node
        self.issuer = issuer

    # The attributes that raw clients need.
    @property
    def port(self) -> int:
        return int(self.node.amqp.rpartition(":")[2])

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.node.ca_file)

    def roles(self) -> AuthorizationManagementClient:
        return AuthorizationManagementClient(
            Static(self.node.admin_token),
            SUBSCRIPTION,
            base_url=self.node.https,
            credential_scopes=["x/.default"],
            connection_verify=self.node.ca_file,
        )

    def assign(self, role_id: str, principal: str, scope: str = SCOPE) -> str:
        name = str(uuid.uuid4())
        properties = {
            "roleDefinitionId": f"{SCOPE}/providers/Microsoft.Authorization/roleDefinitions/{role_id}",
            "principalId": principal,
            "principalType": "ServicePrincipal",
        }
        self.roles().role_assignments.create(scope, name, {"properties": properties})
        return name

    def producer(self, text: str) -> EventHubProducerClient:
        return EventHubProducerClient(
            "localhost",
            "orders",
            Static(text),
            custom_endpoint_address=f"sb://{self.node.amqps}",
            connection_verify=self.node.ca_file,
            transport_type=TransportType.Amqp,
            retry_total=0,
        )

    def send(self, text: str) -> None:
        with self.producer(text) as producer:
            producer.send_batch([EventData("x")])

    def post(self, text: str, hub: str = "orders", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {text}"}
        return httpx.post(f"{self.node.http}/{hub}/messages", content=b"x", headers=headers, timeout=PATIENCE_S, **more)

    def get(self, path: str, text: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {text}"}
        return httpx.get(f"{self.node.http}{path}", headers=headers, timeout=PATIENCE_S)

    def kafka(self) -> "KafkaAddress":
        return KafkaAddress(self.node)


class KafkaAddress:
    """The members of a node that the raw Kafka client uses."""

    def __init__(self, node: Node) -> None:
        self.port = int(node.kafka.rpartition(":")[2])

    def connection_string(self) -> str:
        return ""


def bearer(text: str, **extensions: str) -> bytes:
    """The client's response for OAUTHBEARER."""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,,\x01auth=Bearer {text}\x01{pairs}\x01".encode()


def kafka_sign_in(client: KafkaClient, text: str, **extensions: str) -> Any:
    client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    return client.call(SaslAuthenticateRequest(auth_bytes=bearer(text, **extensions)), 2)


@contextmanager
def over_websocket(harness: IdentityHarness) -> Iterator[AmqpClient]:
    """An AMQP client over a WebSocket."""
    url = f"ws://{harness.node.http.removeprefix('http://')}/$servicebus/websocket"
    stream = WebSocketStream(websocket.create_connection(url, subprotocols=["AMQPWSB10"], timeout=PATIENCE_S))
    with AmqpClient(harness, stream=stream) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityHarness]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(jwks())
    with HttpIssuer() as issuer:
        settings: dict[str, Any] = {
            "identity.issuers.pinned.issuer": ISSUER,
            "identity.issuers.pinned.keys_file": str(keys),
            "identity.issuers.live.issuer": issuer.url,
        }
        with Node(hubs=["orders", "invoices"], settings=settings) as node:
            made = IdentityHarness(node, issuer)
            made.assign(DATA_OWNER.id, OWNER_ID)
            made.assign(DATA_SENDER.id, SENDER, f"{SCOPE}/eventhubs/orders")
            made.assign(DATA_RECEIVER.id, RECEIVER, f"{SCOPE}/eventhubs/orders/consumergroups/$Default")
            made.assign(READER.id, OBSERVER)
            yield made


# --- who may ---------------------------------------------------------------------------------------------------------


def test_events_are_sent_and_received_over_amqp(harness: IdentityHarness) -> None:
    """The Python SDK uses a token credential; a sender and a receiver have one role each."""
    received: list[str] = []
    body = str(uuid.uuid4())
    with harness.producer(fresh(oid=SENDER)) as producer:
        producer.send_batch([EventData(body)], partition_id="0")
    consumer = EventHubConsumerClient(
        "localhost",
        "orders",
        "$Default",
        Static(fresh(oid=RECEIVER)),
        custom_endpoint_address=f"sb://{harness.node.amqps}",
        connection_verify=harness.node.ca_file,
        transport_type=TransportType.Amqp,
    )

    def on_event(_context: Any, event: Any) -> None:
        received.append(event.body_as_str())
        if body in received:
            consumer.close()

    consumer.receive(on_event, partition_id="0", starting_position="-1")

    assert body in received


@pytest.mark.parametrize("who", [RECEIVER, OBSERVER, NOBODY])
def test_identity_without_the_role_cannot_send_over_amqp(harness: IdentityHarness, who: str) -> None:
    """The attach is refused with the service's condition, and the text names the claim."""
    with pytest.raises(EventHubError, match="Send"):
        harness.send(fresh(oid=who))


@pytest.mark.parametrize(
    ("who", "hub", "status"), [(SENDER, "orders", 201), (SENDER, "invoices", 401), (NOBODY, "orders", 401)]
)
def test_role_on_a_hub_applies_over_https(harness: IdentityHarness, who: str, hub: str, status: int) -> None:
    """A role on one hub opens that hub."""
    assert harness.post(fresh(oid=who), hub).status_code == status


def test_kafka_client_produces_and_consumes_with_oauthbearer(harness: IdentityHarness) -> None:
    """librdkafka with a token callback, against a role on the namespace."""
    settings = {
        "bootstrap.servers": harness.node.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (fresh(), time.time() + 3600),
    }
    body = str(uuid.uuid4())
    problems: list[object] = []
    producer = Producer(settings)
    producer.produce("invoices", body, on_delivery=lambda error, _: problems.append(error))
    producer.flush(PATIENCE_S)
    consumer = Consumer(settings | {"group.id": body, "auto.offset.reset": "earliest"})
    consumer.subscribe(["invoices"])
    found = b""
    deadline = time.monotonic() + PATIENCE_S
    while found != body.encode() and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        found = (message.value() or b"") if message is not None and message.error() is None else b""
    consumer.close()

    assert problems == [None]
    assert found == body.encode()


def test_kafka_client_without_the_role_is_not_authorized(harness: IdentityHarness) -> None:
    """The sign-in succeeds, but the topic is refused.

    librdkafka raises the error at once if the metadata arrived before the call, and reports the delivery otherwise.
    """
    problems: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": harness.node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (fresh(oid=SENDER), time.time() + 3600),
            "message.timeout.ms": 60_000,
        }
    )
    try:
        producer.produce("invoices", b"x", on_delivery=lambda error, _: problems.append(error))
    except KafkaException as error:
        problems.append(error.args[0])
    producer.flush(PATIENCE_S)

    assert [problem.name() for problem in problems] == ["TOPIC_AUTHORIZATION_FAILED"]


def test_management_follows_the_roles_of_the_management_plane(harness: IdentityHarness) -> None:
    """The management SDK uses tokens: a Reader can read but not write, and a sender can do neither."""
    now = int(time.time())

    def client(who: str) -> EventHubManagementClient:
        text = token(claims(oid=who, iat=now, nbf=now - 5, exp=now + 3600, aud="https://management.azure.com"))
        return EventHubManagementClient(
            Static(text),
            SUBSCRIPTION,
            base_url=harness.node.https,
            credential_scopes=["x/.default"],
            connection_verify=harness.node.ca_file,
        )

    assert {hub.name for hub in client(OBSERVER).event_hubs.list_by_namespace("g", "hubmere")} >= {"orders", "invoices"}
    client(OWNER_ID).event_hubs.create_or_update("g", "hubmere", "made-by-owner", {"properties": {"partitionCount": 1}})
    attempts: list[Callable[[], object]] = [
        lambda: client(OBSERVER).event_hubs.create_or_update("g", "hubmere", "x", {"properties": {}}),
        lambda: client(OBSERVER).namespaces.list_keys("g", "hubmere", "RootManageSharedAccessKey"),
        lambda: client(SENDER).event_hubs.get("g", "hubmere", "invoices"),
    ]
    for attempt in attempts:
        with pytest.raises(HttpResponseError) as refusal:
            attempt()
        assert refusal.value.status_code == 403
        assert refusal.value.error.code == "AuthorizationFailed"


def test_atom_follows_the_roles_of_the_data_plane(harness: IdentityHarness) -> None:
    """Data Owner includes Manage."""
    assert harness.get("/orders", fresh()).status_code == 200
    assert harness.get("/orders", fresh(oid=NOBODY)).status_code in (401, 404)


# --- who may not -----------------------------------------------------------------------------------------------------


def test_forged_tokens_are_refused_over_amqp(harness: IdentityHarness) -> None:
    """The claims node answers with 400 or 401 and the connection stays open for a better token."""
    with AmqpClient(harness) as client:  # type: ignore[arg-type]
        answers = {
            what: client.put_token("orders", text, kind="jwt")[0] for what, text in forged(int(time.time())).items()
        }
        last, _ = client.put_token("orders", fresh(), kind="jwt")

    assert {what: status for what, status in answers.items() if status not in (400, 401)} == {}
    assert last == 202


@pytest.mark.parametrize("path", ["/orders/messages", "/orders", f"{SCOPE}/eventhubs?api-version=2024-01-01"])
def test_forged_tokens_are_refused_over_http(harness: IdentityHarness, path: str) -> None:
    """401 in the format of each interface; a header that is too large is 431."""
    answers = {}
    with httpx.Client(timeout=PATIENCE_S) as client:
        for what, text in forged(int(time.time())).items():
            method = "POST" if path.endswith("messages") else "GET"
            headers = {"Authorization": f"Bearer {text}"}
            answers[what] = client.request(method, harness.node.http + path, headers=headers).status_code

    assert {what: status for what, status in answers.items() if status not in (401, 431)} == {}


def test_forged_tokens_are_refused_over_websocket(harness: IdentityHarness) -> None:
    """The claims node answers in the same way as on the AMQP ports."""
    with over_websocket(harness) as client:
        answers = {
            what: client.put_token("orders", text, kind="jwt")[0] for what, text in forged(int(time.time())).items()
        }
        last, _ = client.put_token("orders", fresh(), kind="jwt")

    assert {what: status for what, status in answers.items() if status not in (400, 401)} == {}
    assert last == 202


def test_forged_tokens_are_refused_by_the_blob_endpoint(harness: IdentityHarness) -> None:
    """403 and the code of the Blob service; a header that is too large is 431."""
    now = int(time.time())
    tokens = forged(now)
    # Storage is the right audience here.
    tokens["another audience"] = fresh(aud="https://graph.microsoft.com")
    answers = {}
    with httpx.Client(timeout=PATIENCE_S) as client:
        for what, text in tokens.items():
            headers = {"Authorization": f"Bearer {text}"}
            answer = client.get(f"{harness.node.http}/hubmerestorage?comp=list", headers=headers)
            answers[what] = (answer.status_code, answer.headers.get("x-ms-error-code"))
        good = client.get(
            f"{harness.node.http}/hubmerestorage?comp=list", headers={"Authorization": f"Bearer {fresh()}"}
        )

    refusals = ((403, "AuthenticationFailed"), (431, None))
    assert {what: found for what, found in answers.items() if found not in refusals} == {}
    assert good.status_code == 200


def test_portal_takes_no_bearer_token(harness: IdentityHarness) -> None:
    """A browser signs in by its provider; a page that accepted headers would be open to every forged token."""
    with httpx.Client(timeout=PATIENCE_S) as client:
        for text in (fresh(), *forged(int(time.time())).values()):
            answer = client.get(f"{harness.node.http}/portal/n/hubmere", headers={"Authorization": f"Bearer {text}"})
            assert answer.status_code in (303, 302, 307, 431)
            assert answer.status_code == 431 or "/portal/sign-in" in answer.headers["location"]


def test_forged_tokens_are_refused_over_kafka(harness: IdentityHarness) -> None:
    """SASL_AUTHENTICATION_FAILED with a reason, then the connection is closed."""
    answers = {}
    for what, text in forged(int(time.time())).items():
        with KafkaClient(harness.kafka()) as client:  # type: ignore[arg-type]
            answer = kafka_sign_in(client, text)
            answers[what] = (answer.error_code, bool(answer.error_message), client.is_closed_by_peer())

    assert {what: found for what, found in answers.items() if found != (58, True, True)} == {}


@pytest.mark.parametrize(
    "response", [b"", b"\x01", b"n,,\x01\x01", b"auth=Bearer x", b"n,,\x01auth=Basic x\x01\x01", b"\xff" * 9]
)
def test_malformed_oauthbearer_response_is_refused(harness: IdentityHarness, response: bytes) -> None:
    """RFC 7628, 3.1."""
    with KafkaClient(harness.kafka()) as client:  # type: ignore[arg-type]
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=response), 2)

    assert answer.error_code == 58


def test_no_token_appears_in_the_log_or_the_audit(harness: IdentityHarness) -> None:
    """No valid or invalid token appears, nor a usable part of one."""
    good, bad = fresh(), forged(int(time.time()))["another audience"]
    for text in (good, bad):
        harness.post(text)
        harness.get(f"{SCOPE}/eventhubs?api-version=2024-01-01", text)
        httpx.put(
            f"{harness.node.http}{SCOPE}/eventhubs/x", headers={"Authorization": f"Bearer {text}"}, timeout=PATIENCE_S
        )
        with AmqpClient(harness) as amqp:  # type: ignore[arg-type]
            amqp.put_token("orders", text, kind="jwt")
        with KafkaClient(harness.kafka()) as client:  # type: ignore[arg-type]
            kafka_sign_in(client, text)

    written = harness.node.logs() + (harness.node.data / "audit.log").read_text()
    for text in (good, bad):
        for part in text.split("."):
            assert part not in written


# --- how long --------------------------------------------------------------------------------------------------------


def test_kafka_session_ends_with_its_token_unless_it_authenticates_again(harness: IdentityHarness) -> None:
    """KIP-368: the response has the lifetime of the session, and another token extends it."""
    with KafkaClient(harness.kafka()) as client, KafkaClient(harness.kafka()) as renewed:  # type: ignore[arg-type]
        expiry = int(time.time()) + _SHORT_S
        first = kafka_sign_in(client, fresh(exp=expiry))
        kafka_sign_in(renewed, fresh(exp=expiry))
        again = kafka_sign_in(renewed, fresh())
        deadline = time.monotonic() + PATIENCE_S
        is_closed = False
        while not is_closed and time.monotonic() < deadline:
            try:
                client.call(MetadataRequest(topics=()), 9)
                time.sleep(0.2)
            except ConnectionError:
                is_closed = True

        assert 0 < first.session_lifetime_ms <= 1000 * _SHORT_S
        assert again.session_lifetime_ms > 3_000_000
        assert is_closed
        assert renewed.call(MetadataRequest(topics=()), 9) is not None


def test_expired_token_is_refused_over_https(harness: IdentityHarness) -> None:
    """This includes a connection that has published with it before."""
    text = fresh(exp=int(time.time()) + _SHORT_S)
    headers = {"Authorization": f"Bearer {text}"}
    deadline = time.monotonic() + PATIENCE_S
    with httpx.Client(timeout=PATIENCE_S) as client:
        statuses = [201]
        while statuses[-1] == 201 and time.monotonic() < deadline:
            answer = client.post(f"{harness.node.http}/orders/messages", content=b"x", headers=headers)
            statuses.append(answer.status_code)
            time.sleep(0.2)

    assert len(statuses) > 2
    assert statuses[-1] == 401
    assert "ExpiredToken" in answer.text


def test_open_kafka_connection_loses_the_rights_of_a_deleted_role(harness: IdentityHarness) -> None:
    """The first request after the deletion is refused, or the connection is closed."""
    who = str(uuid.uuid4())
    name = harness.assign(DATA_SENDER.id, who)
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))
    with KafkaClient(harness.kafka()) as client:  # type: ignore[arg-type]
        kafka_sign_in(client, fresh(oid=who))
        before = client.call(wanted, 9).topics[0].error_code

        harness.roles().role_assignments.delete(SCOPE, name)

        assert before == 0
        try:
            after = client.call(wanted, 9).topics[0].error_code
        except ConnectionError:
            after = None
        # 29: TOPIC_AUTHORIZATION_FAILED.
        assert after in (None, 29)


def test_deleting_a_role_assignment_closes_links_and_connections(harness: IdentityHarness) -> None:
    """AMQP links are detached and Kafka connections closed, while the token is still valid."""
    who = str(uuid.uuid4())
    name = harness.assign(DATA_SENDER.id, who)
    with AmqpClient(harness) as amqp, KafkaClient(harness.kafka()) as kafka:  # type: ignore[arg-type]
        amqp.put_token("orders", fresh(oid=who), kind="jwt")
        link = amqp.sender("orders")
        amqp.await_window(link)
        before = harness.post(fresh(oid=who)).status_code

        harness.roles().role_assignments.delete(SCOPE, name)
        refused = amqp.detached(link)

        assert before == 201
        assert (refused.condition, "Send" in refused.description) == ("amqp:unauthorized-access", True)
        assert harness.post(fresh(oid=who)).status_code == 401
        assert kafka_sign_in(kafka, fresh(oid=who)).error_code == 0


def test_deleting_a_role_assignment_closes_readers_of_every_protocol(harness: IdentityHarness) -> None:
    """They send nothing at that time: the node itself ends links of AMQP and AMQP over WebSocket, and Kafka readers."""
    who = str(uuid.uuid4())
    name = harness.assign(DATA_RECEIVER.id, who)
    with (
        AmqpClient(harness) as amqp,  # type: ignore[arg-type]
        over_websocket(harness) as websocket_client,
        KafkaClient(harness.kafka()) as kafka,  # type: ignore[arg-type]
    ):
        links = []
        for client in (amqp, websocket_client):
            client.put_token("orders", fresh(oid=who), kind="jwt")
            links.append((client, client.reader()))
        kafka_sign_in(kafka, fresh(oid=who))
        before = only(kafka.call(a_fetch(), 11)).error_code

        harness.roles().role_assignments.delete(SCOPE, name)
        refused = [client.detached(link).condition for client, link in links]

        assert before == 0
        assert refused == ["amqp:unauthorized-access"] * 2
        assert kafka.is_closed_by_peer()


def test_role_on_a_consumer_group_opens_no_other_group(harness: IdentityHarness) -> None:
    """The receiver has a role on `$Default` only."""
    path = f"{SCOPE}/eventhubs/orders/consumergroups/billing?api-version=2024-01-01"
    headers = {"Authorization": f"Bearer {harness.node.admin_token}"}
    httpx.put(f"{harness.node.http}{path}", json={"properties": {}}, headers=headers, timeout=PATIENCE_S)
    with AmqpClient(harness) as client:  # type: ignore[arg-type]
        client.put_token("orders", fresh(oid=RECEIVER), kind="jwt")
        mine = client.reader()
        with pytest.raises(Refused) as refusal:
            client.reader("orders/ConsumerGroups/billing/Partitions/0")

    assert mine is not None
    assert refusal.value.condition == "amqp:unauthorized-access"


def test_role_of_a_group_counts_for_its_members_until_it_is_deleted(harness: IdentityHarness) -> None:
    """The token of a user names the groups of the user."""
    group, who = str(uuid.uuid4()), str(uuid.uuid4())
    name = harness.assign(DATA_SENDER.id, group)
    member, other = fresh(oid=who, groups=["another", group]), fresh(oid=who, groups=["another"])
    with AmqpClient(harness) as client:  # type: ignore[arg-type]
        client.put_token("orders", member, kind="jwt")
        link = client.sender("orders")
        before = (harness.post(member).status_code, harness.post(other).status_code)

        harness.roles().role_assignments.delete(SCOPE, name)
        refused = client.detached(link)

    assert before == (201, 401)
    assert refused.condition == "amqp:unauthorized-access"
    assert harness.post(member).status_code == 401


# --- keys of an issuer -----------------------------------------------------------------------------------------------


def test_many_sign_ins_with_an_empty_cache_cause_one_request_for_keys(harness: IdentityHarness) -> None:
    """All protocols wait for the same fetch; the broker's test has ten thousand."""
    text = fresh(iss=harness.issuer.url)

    async def burst() -> list[int]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(limits=limits, timeout=PATIENCE_S) as client:
            headers = {"Authorization": f"Bearer {text}"}
            posts = [
                client.post(f"{harness.node.http}/orders/messages", content=b"x", headers=headers) for _ in range(200)
            ]
            gets = [client.get(f"{harness.node.http}/orders", headers=headers) for _ in range(20)]
            answers = await asyncio.gather(*posts, *gets)
            return [answer.status_code for answer in answers]

    statuses = asyncio.run(burst())
    with AmqpClient(harness) as amqp:  # type: ignore[arg-type]
        amqp_status, _ = amqp.put_token("orders", text, kind="jwt")

    assert set(statuses) == {200, 201}
    assert amqp_status == 202
    assert harness.issuer.key_requests == 1


@pytest.mark.parametrize("protocol", ["amqp", "kafka", "http"])
def test_sign_in_waits_for_keys_on_every_protocol(harness: IdentityHarness, protocol: str, tmp_path: Any) -> None:
    """The first client after a start must not be refused because the keys are missing."""
    with HttpIssuer() as issuer:
        settings: dict[str, Any] = {"identity.issuers.live.issuer": issuer.url}
        with Node(hubs=["orders"], settings=settings) as node:
            cold = IdentityHarness(node, issuer)
            cold.assign(DATA_OWNER.id, OWNER_ID)
            text = fresh(iss=issuer.url)
            if protocol == "amqp":
                with AmqpClient(cold) as amqp:  # type: ignore[arg-type]
                    assert amqp.put_token("orders", text, kind="jwt")[0] == 202
            elif protocol == "kafka":
                with KafkaClient(cold.kafka()) as kafka:  # type: ignore[arg-type]
                    assert kafka_sign_in(kafka, text).error_code == 0
                    assert kafka.call(MetadataRequest(topics=()), 9) is not None
            else:
                assert cold.get(f"{SCOPE}/eventhubs?api-version=2024-01-01", text).status_code == 200
            assert issuer.key_requests == 1


def test_unreachable_issuer_is_a_temporary_refusal() -> None:
    """Clients retry; a token that cannot be verified now is not invalid."""
    with HttpIssuer() as issuer:
        issuer.is_failing = True
        with Node(hubs=["orders"], settings={"identity.issuers.live.issuer": issuer.url}) as node:
            cold = IdentityHarness(node, issuer)
            text = fresh(iss=issuer.url)
            with AmqpClient(cold) as amqp:  # type: ignore[arg-type]
                status, reason = amqp.put_token("orders", text, kind="jwt")

            assert (status, "keys" in reason) == (503, True)
            assert cold.post(text).status_code == 503
            assert text not in node.logs()


# --- role assignments by the SDK for management ----------------------------------------------------------------------


def test_role_assignments_are_managed_by_the_azure_sdk(harness: IdentityHarness) -> None:
    """azure-mgmt-authorization creates, shows, lists and deletes them at every scope."""
    roles, who = harness.roles(), str(uuid.uuid4())
    scope = f"{SCOPE}/eventhubs/invoices"
    name = harness.assign(DATA_SENDER.id, who, scope)

    found = roles.role_assignments.get(scope, name)
    at_hub = {one.name for one in roles.role_assignments.list_for_scope(scope, filter=f"principalId eq '{who}'")}
    at_namespace = {one.name for one in roles.role_assignments.list_for_scope(SCOPE, filter="atScope()")}
    definitions = {one.role_name: one.name for one in roles.role_definitions.list(SCOPE)}
    with pytest.raises(HttpResponseError) as conflict:
        harness.assign(DATA_SENDER.id, who, scope)
    roles.role_assignments.delete(scope, name)

    assert (found.principal_id, found.scope) == (who, scope)
    assert found.role_definition_id.endswith(DATA_SENDER.id)
    assert at_hub == {name}
    assert name not in at_namespace
    assert definitions == {role.name: role.id for role in ROLES.values()}
    assert conflict.value.status_code == 409
    assert who not in {one.principal_id for one in roles.role_assignments.list_for_scope(scope)}


@pytest.mark.parametrize(
    ("path", "properties", "status"),
    [
        ("no-guid", {}, 400),
        (_GUID, {"roleDefinitionId": "unknown"}, 400),
        (_GUID, {"condition": "@Resource[x] == 'y'"}, 400),
        (_GUID, {"principalId": ""}, 400),
    ],
)
def test_bad_role_assignment_is_refused(
    harness: IdentityHarness, path: str, properties: dict[str, str], status: int
) -> None:
    """A condition that is not enforced would give more rights than intended."""
    body = {"properties": {"roleDefinitionId": DATA_SENDER.id, "principalId": "somebody"} | properties}
    answer = httpx.put(
        f"{harness.node.http}{SCOPE}/providers/Microsoft.Authorization/roleAssignments/{path}?api-version=2022-04-01",
        json=body,
        headers={"Authorization": f"Bearer {harness.node.admin_token}"},
        timeout=PATIENCE_S,
    )

    assert answer.status_code == status


def test_data_owner_may_not_assign_roles(harness: IdentityHarness) -> None:
    """As in Azure: otherwise every owner of data could make others owners."""
    body = {"properties": {"roleDefinitionId": DATA_SENDER.id, "principalId": "somebody"}}
    answer = httpx.put(
        f"{harness.node.http}{SCOPE}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}",
        json=body,
        headers={"Authorization": f"Bearer {fresh()}"},
        timeout=PATIENCE_S,
    )

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "AuthorizationFailed")


# --- disableLocalAuth ------------------------------------------------------------------------------------------------


def test_namespace_without_local_authentication_refuses_sas_everywhere() -> None:
    """`disableLocalAuth` is set over ARM; then only tokens open the namespace, on every protocol."""
    with HttpIssuer() as issuer, Node(hubs=["orders"], settings={"identity.issuers.live.issuer": issuer.url}) as node:
        harness = IdentityHarness(node, issuer)
        harness.assign(DATA_OWNER.id, OWNER_ID)
        sas = EventHubProducerClient.from_connection_string(
            node.emulator_connection_string, eventhub_name="orders", retry_total=0, socket_timeout=60
        )
        with sas:
            sas.send_batch([EventData("x")])
            _disable_local_auth(node)

            with pytest.raises(EventHubError):
                sas.send_batch([EventData("x")])
        with pytest.raises(KafkaException):
            Consumer(_plain(node)).list_topics(timeout=5)
        assert (
            httpx.post(f"{node.http}/orders/messages", content=b"x", headers={"Authorization": _sas(node)}).status_code
            == 401
        )
        assert httpx.get(f"{node.http}/orders", headers={"Authorization": _sas(node)}).status_code == 401
        text = fresh(iss=issuer.url)
        assert harness.post(text).status_code == 201
        with KafkaClient(harness.kafka()) as kafka:  # type: ignore[arg-type]
            assert kafka_sign_in(kafka, text).error_code == 0
        harness.send(text)


def _disable_local_auth(node: Node) -> None:
    request = urllib.request.Request(
        f"{node.http}{SCOPE}?api-version=2024-01-01",
        data=json.dumps({"properties": {"disableLocalAuth": True}}).encode(),
        headers={"Authorization": f"Bearer {node.admin_token}", "Content-Type": "application/json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["properties"]["disableLocalAuth"] is True


def _plain(node: Node) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": node.connection_string,
        "group.id": "x",
    }


def _sas(node: Node) -> str:
    from hubmere.model.security.connection_string import ConnectionString
    from hubmere.model.security.sas import make_token

    parts = ConnectionString.parse(node.connection_string)
    assert parts.key_name is not None
    assert parts.key is not None
    return make_token("http://localhost/orders", parts.key_name, parts.key, expires_at_s=int(time.time()) + 600)
