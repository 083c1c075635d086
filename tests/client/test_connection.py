"""Sign-in, and refusals, of a real node."""

import socket
from dataclasses import replace

import pytest

from client.hubs import Hubs, an_account
from hubmere.client.connection import PLAIN_PORT, TLS_PORT, Client, KafkaAddress
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost, Refused, SignInRefused, Unreachable
from hubmere.model.connection_string import ConnectionString
from hubmere.wire.kafka.errors import ErrorCode


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_client_signs_in_with_a_connection_string(hubs: Hubs, secure: bool) -> None:
    """Both ports accept the connection string that other clients use."""
    hub = hubs.new(partitions=3)

    with Client(an_account(hubs.node, secure=secure)) as client:
        count = HubReader(client, hub).partition_count()

    assert count == 3


def test_certificate_of_an_unknown_authority_is_not_trusted(hubs: Hubs) -> None:
    """Without the node's CA file the system's store decides."""
    account = an_account(hubs.node, secure=True, patience_s=0.0)
    account = replace(account, address=replace(account.address, ca_file=None))

    with Client(account) as client, pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        HubReader(client, "any").partition_count()


def test_wrong_key_is_refused_at_once_and_not_repeated_in_the_text(hubs: Hubs) -> None:
    """A key that does not fit will not fit later; logs must not learn it."""
    right = ConnectionString.parse(hubs.node.connection_string)
    wrong = replace(right, key="d3Jvbmcga2V5IHdpdGggYSBsb3Qgb2YgYnl0ZXM=")
    account = replace(an_account(hubs.node), connection_string=wrong.text())

    with Client(account) as client, pytest.raises(SignInRefused) as refusal:
        HubReader(client, "any").partition_count()

    assert str(wrong.key) not in str(refusal.value)
    assert str(wrong.key) not in repr(account)


def test_hub_that_is_not_there_is_refused_by_name(hubs: Hubs) -> None:
    """Looking at a hub must not make it, and a typing error should not wait for five minutes."""
    with pytest.raises(Refused, match="no-such-hub") as refusal:
        hubs.reader("no-such-hub").partition_count()

    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not refusal.value.is_transient


def test_place_where_nobody_listens_is_unreachable(hubs: Hubs) -> None:
    """The failure names the address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        account = replace(
            an_account(hubs.node, patience_s=0.0), address=KafkaAddress(host="127.0.0.1", port=port, is_secure=False)
        )

        with Client(account) as client, pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
            HubReader(client, "any").partition_count()


@pytest.mark.parametrize(
    ("text", "port", "is_secure"),
    [
        ("Endpoint=sb://ns.example.net/", TLS_PORT, True),
        ("Endpoint=sb://localhost:5672;UseDevelopmentEmulator=true", PLAIN_PORT, False),
    ],
    ids=["service", "emulator"],
)
def test_connection_string_says_where_kafka_is(text: str, port: int, is_secure: bool) -> None:
    """The port in a connection string is that of AMQP; Kafka clients know theirs."""
    address = KafkaAddress.of(ConnectionString.parse(f"{text};SharedAccessKeyName=n;SharedAccessKey=k"), ca_file=None)

    assert (address.port, address.is_secure) == (port, is_secure)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (RangeLost("h", 1, 5, 7, 9), "partition 1 of 'h' was to be read from sequence number 5, but it holds 7 to 8"),
        (RangeLost("h", 1, 5, 9, 9), "but it is empty and continues at 9"),
        (Refused("it", ErrorCode.MESSAGE_TOO_LARGE), "larger than the server accepts. (MESSAGE_TOO_LARGE)"),
        (Refused("it", 999, "no"), "it: no (code 999)"),
    ],
)
def test_failure_says_what_happened(failure: Exception, text: str) -> None:
    """A person reads this in the log of a Spark job."""
    assert text in str(failure)
