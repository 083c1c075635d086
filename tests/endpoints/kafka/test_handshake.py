"""What a connection may say before it has signed in, how it signs in, and what closes it."""

import ssl
import struct
import time
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_fetch
from hubmere.endpoints.kafka.endpoint import HANDLERS
from hubmere.endpoints.kafka.sasl import read_plain
from hubmere.endpoints.kafka.session import SIGN_IN_REQUEST_BYTES
from hubmere.model.addresses import AdvertisedListener
from hubmere.model.errors import MalformedToken
from hubmere.model.names import ROOT_RULE
from hubmere.model.sas import make_token
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.metadata import ApiVersionsRequest, MetadataRequest
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest


def a_naming() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="a-test", client_software_version="1.0")


# --- ApiVersions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tell_every_api_that_has_a_handler(node: KafkaNode, version: int) -> None:
    """Reference check 1: clients use the highest advertised version, so it must be served."""
    with RawClient(node) as client:
        answer = client.call(a_naming(), version)

    result = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert result == {key: (APIS[key].advertised.low, APIS[key].advertised.high) for key in HANDLERS}
    assert answer.error_code == ErrorCode.NONE


def test_unknown_version_of_api_versions_is_answered_in_version_0(node: KafkaNode) -> None:
    """Reference check 2 (KIP-511): the client learns what to ask, on the same connection."""
    with RawClient(node) as client:
        client.socket.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
        size, correlation_id, code, count, *result = struct.unpack(">iihihhh", client.socket.recv(64))

        assert (size, correlation_id, code, count, result) == (16, 7, ErrorCode.UNSUPPORTED_VERSION, 1, [18, 0, 4])
        assert client.call(a_naming(), 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-x", "a b", "x\u00e4"])
def test_invalid_software_name_is_refused(node: KafkaNode, name: str) -> None:
    """KIP-511: names end up in logs and metrics."""
    with RawClient(node) as client:
        answer = client.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)

    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_librdkafka_finds_the_versions_by_which_it_switches_features_on(node: KafkaNode) -> None:
    """Reference 2.3: without Produce 0 older ones send uncompressed, without Fetch 10 they refuse zstd."""
    with RawClient(node) as client:
        result = {entry.api_key: entry for entry in client.call(a_naming(), 3).api_keys}

    needed = [(0, 0), (0, 3), (0, 7), (1, 4), (1, 10), (2, 1), (8, 2), (9, 1), (10, 0), (11, 0), (12, 0), (22, 0)]
    assert [pair for pair in needed if not result[pair[0]].min_version <= pair[1] <= result[pair[0]].max_version] == []


# --- signing in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_plain_in_framed_tokens_signs_in(node: KafkaNode, version: int) -> None:
    """Reference check 4: what every client does today."""
    with RawClient(node) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.NONE
        answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), version)

        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (ErrorCode.NONE, b"", 0)
        assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_plain_in_a_bare_token_signs_in(node: KafkaNode) -> None:
    """Reference check 4: clients from before SaslAuthenticate."""
    with RawClient(node) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.socket.sendall(struct.pack(">i", len(client.plain_token())) + client.plain_token())

        assert client.socket.recv(4) == bytes(4)
        assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_bare_token_with_a_wrong_key_closes_the_connection(node: KafkaNode) -> None:
    """There is no frame that could say why."""
    with RawClient(node, node.connection_string(key="wrong")) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.socket.sendall(struct.pack(">i", len(client.plain_token())) + client.plain_token())

        assert client.is_closed_by_peer()


@pytest.mark.parametrize("identity", [b"", b"$ConnectionString"])
def test_identity_may_be_empty_or_the_user(identity: bytes) -> None:
    """Reference check 5: the Python clients repeat the user."""
    assert read_plain(identity + b"\0$ConnectionString\0secret") == ("$ConnectionString", "secret")


@pytest.mark.parametrize("token", [b"other\0user\0x", b"\0\0x", b"user\0x", b"", b"\0u\0p\0more", b"\0\xff\0p"])
def test_broken_plain_token_is_refused(token: bytes) -> None:
    """Reference check 5: no client signs in as another."""
    with pytest.raises(MalformedToken):
        read_plain(token)


def test_rule_and_key_sign_in_to_the_nodes_own_namespace(node: KafkaNode) -> None:
    """Tools that only have fields for user and password need no connection string."""
    token = b"\0" + ROOT_RULE.encode() + b"\0" + node.key.encode()
    with RawClient(node) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)

        assert client.call(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == ErrorCode.NONE


def test_sas_token_in_a_connection_string_ends_with_its_time(node: KafkaNode) -> None:
    """KIP-368: the client gets the lifetime of its session, so that it signs in again before."""
    expires_at_s = int(time.time()) + 60
    token = make_token("sb://localhost/", ROOT_RULE, node.key, expires_at_s=expires_at_s)
    with RawClient(node, f"Endpoint=sb://localhost/;SharedAccessSignature={token}") as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), 1)

    assert answer.error_code == ErrorCode.NONE
    assert 0 < answer.session_lifetime_ms <= 60_000


@pytest.mark.parametrize(
    "connection_string",
    [
        "Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong",
        "Endpoint=sb://localhost/;SharedAccessKeyName=nobody;SharedAccessKey=wrong",
        "Endpoint=sb://elsewhere.example/;SharedAccessKeyName=nobody;SharedAccessKey=wrong",
        "nonsense",
        "Endpoint=sb://localhost/",
    ],
)
def test_wrong_credential_gets_an_error_and_is_closed(node: KafkaNode, connection_string: str) -> None:
    """Reference check 6: the message is what a developer sees, and it holds no secret."""
    with RawClient(node, connection_string) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), 1)

        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message
        assert "wrong" not in answer.error_message
        assert client.is_closed_by_peer()


def test_unknown_mechanism_gets_the_list_of_mechanisms(node: KafkaNode) -> None:
    """Reference 1.8."""
    with RawClient(node) as client:
        answer = client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)

        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ("PLAIN", "OAUTHBEARER")
        assert client.is_closed_by_peer()


def test_oauth_token_is_refused_with_the_reason(node: KafkaNode) -> None:
    """No issuer is configured: without a reason this would be hard to find."""
    with RawClient(node) as client:
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer x\x01\x01"), 1)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "issuer" in answer.error_message


def test_authentication_without_a_handshake_is_out_of_order(node: KafkaNode) -> None:
    """There is no mechanism to read the token by."""
    with RawClient(node) as client:
        answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), 1)

        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed_by_peer()


def test_same_principal_signs_in_again_in_mid_stream(node: KafkaNode, client: RawClient) -> None:
    """KIP-368: a client renews its credential without losing its connection."""
    client.sign_in()

    assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_another_principal_cannot_take_a_connection_over(node: KafkaNode, client: RawClient) -> None:
    """KIP-368: cached rights of one principal must not serve another."""
    other = node.add_rule("reader", "Listen")

    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0$ConnectionString\0" + other.encode()), 1)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# --- what closes a connection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [MetadataRequest(topics=None), a_fetch()], ids=["metadata", "fetch"])
def test_anything_else_before_sign_in_closes_the_connection(node: KafkaNode, body: Any) -> None:
    """Reference check 3: an unauthenticated client gets no information."""
    with RawClient(node) as client:
        client.send(body, 5)

        assert client.is_closed_by_peer()


def _framed(length: int, content: bytes = b"") -> bytes:
    return struct.pack(">i", length) + content


@pytest.mark.parametrize(
    "data",
    [
        _framed(2**31 - 1),
        _framed(0),
        _framed(-1),
        _framed(4, b"abcd"),
        _framed(10, struct.pack(">hhih", 0, 1, 0, -1)),  # Produce 1: advertised for librdkafka, never served
        _framed(10, struct.pack(">hhih", 999, 0, 0, -1)),
        _framed(12, struct.pack(">hhih", 3, 12, 0, -1) + b"\x00\xff"),
        _framed(SIGN_IN_REQUEST_BYTES + 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["2-GiB", "empty", "negative", "no-header", "old-produce", "unknown-api", "cut-off", "large", "http"],
)
def test_bytes_that_are_no_request_close_the_connection(node: KafkaNode, data: bytes) -> None:
    """Reference check 54: Kafka's own policy; others are not disturbed."""
    with RawClient(node) as client, RawClient(node) as other:
        other.sign_in()
        client.socket.sendall(data)

        assert client.is_closed_by_peer()
        assert other.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_unknown_tagged_field_is_ignored(node: KafkaNode) -> None:
    """Reference check 55 (KIP-482): newer clients may say more than we understand."""
    naming = b"\x07a-test\x041.0"
    body = struct.pack(">hhih", 18, 3, 5, -1) + b"\x01\x63\x02hi" + naming + b"\x01\x63\x02hi"
    with RawClient(node) as client:
        client.socket.sendall(_framed(len(body), body))
        _, correlation_id, code = struct.unpack(">iih", client.socket.recv(4096)[:10])

    assert (correlation_id, code) == (5, ErrorCode.NONE)


def test_silent_stranger_is_closed_after_the_handshake_time() -> None:
    """A connection that proves nothing must not be held for ever."""
    with KafkaNode(handshake_timeout_s=0.1) as node, RawClient(node) as client:
        assert client.is_closed_by_peer()


def test_silent_client_is_closed_after_the_idle_time() -> None:
    """Clients reconnect."""
    with KafkaNode(handshake_timeout_s=0.05, idle_timeout_s=0.1) as node, RawClient(node) as client:
        client.sign_in()

        assert client.is_closed_by_peer()


def test_stopping_node_lets_clients_go(node: KafkaNode, client: RawClient) -> None:
    """Also those that wait for something: a stop is not held up by a long poll."""
    client.send(a_fetch(max_wait_ms=30_000), 11)

    node.stop()

    assert client.is_closed_by_peer()


# --- where the client finds us again ---------------------------------------------------------------------------------


def _advertised(node: KafkaNode, connection_string: str) -> tuple[str, int]:
    with RawClient(node, connection_string) as client:
        found = client.sign_in().call(MetadataRequest(topics=()), 5).brokers[0]
    return found.host, found.port


def test_client_is_sent_back_to_the_name_that_it_used() -> None:
    """Reference pitfall 17: after bootstrap every client connects to the advertised name."""
    with KafkaNode(hostnames=("hub.example", "localhost")) as node:
        assert _advertised(node, node.connection_string()) == ("localhost", node.port)


def test_client_with_the_services_name_is_sent_to_the_configured_one() -> None:
    """A connection string copied from the cloud names a host that is not ours."""
    with KafkaNode(hostnames=("hub.example",)) as node:
        copied = node.connection_string().replace("localhost", "hubmere.servicebus.windows.net")

        assert _advertised(node, copied) == ("hub.example", node.port)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("localhost", ("localhost", 19092)),  # the advertised name, with the port of the mapping
        ("hubmere", ("hubmere", None)),  # a neighbour that connects to the node directly
        ("127.0.0.1", ("localhost", 19092)),  # no name of the node: behind a mapping it could be anywhere
    ],
)
def test_a_client_gets_an_address_that_it_can_use(named: str, message: tuple[str, int | None]) -> None:
    """One node for its neighbours in a composition and for clients on the host, where a port has another number."""
    advertised = (AdvertisedListener("kafka", "localhost", 19092),)
    with KafkaNode(hostnames=("localhost", "hubmere"), advertised=advertised) as node:
        connection_string = node.connection_string().replace("//localhost", f"//{named}")

        assert _advertised(node, connection_string) == (message[0], message[1] or node.port)


def test_over_tls_the_tls_port_is_advertised(tls_contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A client on SASL_SSL would not understand the plain port."""
    server, trusting = tls_contexts
    with KafkaNode(tls=server) as node, RawClient(node, tls=trusting) as client:
        found = client.sign_in().call(MetadataRequest(topics=None), 5)

    assert found.brokers[0].port == node.port
    assert found.topics[0].name == "orders"
