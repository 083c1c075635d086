"""What a connection may send before sign-in, how it signs in, and what closes it."""

import ssl
import struct
import time
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_fetch
from hubmere.endpoints.kafka.admin.served_versions import advertised_versions
from hubmere.endpoints.kafka.endpoint import HANDLERS
from hubmere.endpoints.kafka.sasl import read_plain
from hubmere.endpoints.kafka.session import SIGN_IN_REQUEST_BYTES
from hubmere.endpoints.refusal_log import LINES_PER_INTERVAL, RefusalLog
from hubmere.model.addresses import AdvertisedListener
from hubmere.model.errors import MalformedToken
from hubmere.model.names import ROOT_RULE
from hubmere.model.security.sas import make_token
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.metadata import ApiVersionsRequest, MetadataRequest
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from node_clock import NodeClock


def a_naming() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="a-test", client_software_version="1.0")


# --- ApiVersions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_every_api_with_a_handler(node: KafkaNode, version: int) -> None:
    """Reference check 1: clients use the highest advertised version, so it must be served."""
    with RawClient(node) as client:
        answer = client.call(a_naming(), version)

    result = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert result == {key: (served.low, served.high) for key, served in advertised_versions(HANDLERS).items()}
    assert not answer.finalized_features
    assert answer.error_code == ErrorCode.NONE


def test_unknown_version_of_api_versions_is_answered_in_version_0(node: KafkaNode) -> None:
    """Reference check 2 (KIP-511): the client learns the supported versions, on the same connection."""
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


def test_librdkafka_finds_the_versions_that_enable_its_features(node: KafkaNode) -> None:
    """Reference 2.3: without Produce 0 older ones send uncompressed, without Fetch 10 they refuse zstd."""
    with RawClient(node) as client:
        result = {entry.api_key: entry for entry in client.call(a_naming(), 3).api_keys}

    needed = [(0, 0), (0, 3), (0, 7), (1, 4), (1, 10), (2, 1), (8, 2), (9, 1), (10, 0), (11, 0), (12, 0), (22, 0)]
    assert [pair for pair in needed if not result[pair[0]].min_version <= pair[1] <= result[pair[0]].max_version] == []


# --- signing in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_plain_with_sasl_authenticate_signs_in(node: KafkaNode, version: int) -> None:
    """Reference check 4: all current clients do this."""
    with RawClient(node) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.NONE
        answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), version)

        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (ErrorCode.NONE, b"", 0)
        assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_plain_with_a_raw_token_signs_in(node: KafkaNode) -> None:
    """Reference check 4: this is for clients from before SaslAuthenticate."""
    with RawClient(node) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.socket.sendall(struct.pack(">i", len(client.plain_token())) + client.plain_token())

        assert client.socket.recv(4) == bytes(4)
        assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_raw_token_with_a_wrong_key_closes_the_connection(node: KafkaNode) -> None:
    """There is no response that could carry the reason."""
    with RawClient(node, node.connection_string(key="wrong")) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.socket.sendall(struct.pack(">i", len(client.plain_token())) + client.plain_token())

        assert client.is_closed_by_peer()


@pytest.mark.parametrize("identity", [b"", b"$ConnectionString"])
def test_authorization_id_may_be_empty_or_the_user(identity: bytes) -> None:
    """Reference check 5: the Python clients repeat the user name."""
    assert read_plain(identity + b"\0$ConnectionString\0secret") == ("$ConnectionString", "secret")


@pytest.mark.parametrize("token", [b"other\0user\0x", b"\0\0x", b"user\0x", b"", b"\0u\0p\0more", b"\0\xff\0p"])
def test_malformed_plain_token_is_refused(token: bytes) -> None:
    """Reference check 5: a client cannot sign in as another user."""
    with pytest.raises(MalformedToken):
        read_plain(token)


def test_name_and_key_of_a_rule_sign_in_to_the_nodes_own_namespace(node: KafkaNode) -> None:
    """Tools that only have fields for user and password need no connection string."""
    token = b"\0" + ROOT_RULE.encode() + b"\0" + node.key.encode()
    with RawClient(node) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)

        assert client.call(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == ErrorCode.NONE


def test_session_with_a_sas_token_ends_with_the_token(node: KafkaNode) -> None:
    """KIP-368: the answer has the lifetime of the session, so that the client signs in again before its end."""
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
    """Reference check 6: a developer sees the message, and it contains no secret."""
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
    """No issuer is configured; without a reason this would be hard to find."""
    with RawClient(node) as client:
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer x\x01\x01"), 1)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "issuer" in answer.error_message


def test_authentication_without_a_handshake_is_refused(node: KafkaNode) -> None:
    """The mechanism of the token is not known."""
    with RawClient(node) as client:
        answer = client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), 1)

        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed_by_peer()


def test_same_principal_can_sign_in_again_on_an_open_connection(node: KafkaNode, client: RawClient) -> None:
    """KIP-368: a client renews its credential without losing its connection."""
    client.sign_in()

    assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_another_principal_cannot_sign_in_on_an_open_connection(node: KafkaNode, client: RawClient) -> None:
    """KIP-368: cached rights of one principal must not serve another."""
    other = node.add_rule("reader", "Listen")

    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0$ConnectionString\0" + other.encode()), 1)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# --- what closes a connection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [MetadataRequest(topics=None), a_fetch()], ids=["metadata", "fetch"])
def test_any_other_request_before_sign_in_closes_the_connection(node: KafkaNode, body: Any) -> None:
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
def test_invalid_bytes_close_the_connection(node: KafkaNode, data: bytes) -> None:
    """Reference check 54: Kafka does the same; other clients are not affected."""
    with RawClient(node) as client, RawClient(node) as other:
        other.sign_in()
        client.socket.sendall(data)

        assert client.is_closed_by_peer()
        assert other.call(MetadataRequest(topics=None), 5).topics[0].name == "orders"


def test_unknown_tagged_field_is_ignored(node: KafkaNode) -> None:
    """Reference check 55 (KIP-482): newer clients may send more fields."""
    naming = b"\x07a-test\x041.0"
    body = struct.pack(">hhih", 18, 3, 5, -1) + b"\x01\x63\x02hi" + naming + b"\x01\x63\x02hi"
    with RawClient(node) as client:
        client.socket.sendall(_framed(len(body), body))
        _, correlation_id, code = struct.unpack(">iih", client.socket.recv(4096)[:10])

    assert (correlation_id, code) == (5, ErrorCode.NONE)


def test_connection_that_does_not_sign_in_is_closed_after_the_handshake_timeout() -> None:
    """An unauthenticated connection must not stay open for ever."""
    with KafkaNode(handshake_timeout_s=0.1) as node, RawClient(node) as client:
        assert client.is_closed_by_peer()


def test_idle_connection_is_closed_after_the_idle_timeout() -> None:
    """Clients reconnect."""
    clock = NodeClock()
    with KafkaNode(idle_timeout_s=600.0, clock=clock) as node, RawClient(node) as client:
        client.sign_in()
        clock.advance(600)

        assert client.is_closed_by_peer()


def test_stopping_node_disconnects_clients(node: KafkaNode, client: RawClient) -> None:
    """This includes clients with a waiting fetch, which must not delay the stop."""
    client.send(a_fetch(max_wait_ms=200_000), 11)

    node.stop()

    assert client.is_closed_by_peer()


# --- where the client finds us again ---------------------------------------------------------------------------------


def _advertised(node: KafkaNode, connection_string: str) -> tuple[str, int]:
    with RawClient(node, connection_string) as client:
        found = client.sign_in().call(MetadataRequest(topics=()), 5).brokers[0]
    return found.host, found.port


def test_advertised_host_is_the_name_that_the_client_used() -> None:
    """Reference pitfall 17: after bootstrap every client connects to the advertised name."""
    with KafkaNode(hostnames=("hub.example", "localhost")) as node:
        assert _advertised(node, node.connection_string()) == ("localhost", node.port)


def test_client_with_a_host_name_of_the_service_gets_the_configured_one() -> None:
    """A connection string copied from Azure names a host that is not ours."""
    with KafkaNode(hostnames=("hub.example",)) as node:
        copied = node.connection_string().replace("localhost", "hubmere.servicebus.windows.net")

        assert _advertised(node, copied) == ("hub.example", node.port)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("localhost", ("localhost", 19092)),  # the advertised name, with the mapped port
        ("hubmere", ("hubmere", None)),  # a neighbour that connects to the node directly
        ("127.0.0.1", ("localhost", 19092)),  # not a name of the node: behind a mapping it could be anywhere
    ],
)
def test_client_gets_an_address_that_it_can_use(named: str, message: tuple[str, int | None]) -> None:
    """One node serves its neighbours in a composition and clients on the host, where the port is different."""
    advertised = (AdvertisedListener("kafka", "localhost", 19092),)
    with KafkaNode(hostnames=("localhost", "hubmere"), advertised=advertised) as node:
        connection_string = node.connection_string().replace("//localhost", f"//{named}")

        assert _advertised(node, connection_string) == (message[0], message[1] or node.port)


def test_tls_port_is_advertised_over_tls(tls_contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A client with SASL_SSL cannot use the plain port."""
    server, trusting = tls_contexts
    with KafkaNode(tls=server) as node, RawClient(node, tls=trusting) as client:
        found = client.sign_in().call(MetadataRequest(topics=None), 5)

    assert found.brokers[0].port == node.port
    assert found.topics[0].name == "orders"


# --- the log ---------------------------------------------------------------------------------------------------------


def test_failed_sign_ins_of_a_client_are_a_few_lines_each_with_its_reason(
    node: KafkaNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka connects again twenty times a second, and would fill the disk."""
    monkeypatch.setattr("hubmere.endpoints.kafka.client.REFUSALS", RefusalLog())
    caplog.set_level("INFO", logger="hubmere.kafka")

    for _ in range(2 * LINES_PER_INTERVAL):
        with RawClient(node, node.connection_string(key="AAAA")) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.call(SaslAuthenticateRequest(auth_bytes=client.plain_token()), 2)
            assert client.is_closed_by_peer()

    closed = [record for record in caplog.records if " is closed: " in record.getMessage()]
    assert len(closed) == LINES_PER_INTERVAL
    assert "failed to authenticate: InvalidSignature" in closed[0].getMessage()


def test_client_without_authentication_is_logged_with_the_setting_that_it_lacks(
    node: KafkaNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's default is PLAINTEXT, and clients only report a closed connection."""
    monkeypatch.setattr("hubmere.endpoints.kafka.client.REFUSALS", RefusalLog())
    caplog.set_level("INFO", logger="hubmere.kafka")

    with RawClient(node) as client:
        client.send(MetadataRequest(topics=None), 12)
        assert client.is_closed_by_peer()

    [line] = [record.getMessage() for record in caplog.records if " is closed: " in record.getMessage()]
    assert line.endswith("Metadata before sign-in; set security.protocol to SASL_PLAINTEXT or SASL_SSL")
