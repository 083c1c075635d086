"""Sign-in to a real node, and its refusals."""

import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from client.hubs import Hubs, an_account
from hubmere.client.connection import PLAIN_PORT, TLS_PORT, Client, KafkaAddress
from hubmere.client.consumer import HubReader
from hubmere.client.failures import RangeLost, Refused, SignInRefused, Unreachable
from hubmere.model.security.connection_string import ConnectionString
from hubmere.wire.kafka.errors import ErrorCode


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_client_signs_in_with_a_connection_string(hubs: Hubs, secure: bool) -> None:
    """Both ports accept the connection string that other clients use."""
    hub = hubs.new(partitions=3)

    with Client(an_account(hubs.node, secure=secure)) as client:
        count = HubReader(client, hub).partition_count()

    assert count == 3


def test_certificate_of_an_unknown_authority_is_not_trusted(hubs: Hubs) -> None:
    """Without the node's CA file, the authorities of the system are trusted."""
    account = an_account(hubs.node, secure=True, patience_s=0.0)
    account = replace(account, address=replace(account.address, ca_file=None))

    with Client(account) as client, pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        HubReader(client, "any").partition_count()


def test_wrong_key_is_refused_at_once_and_not_repeated_in_the_text(hubs: Hubs) -> None:
    """A wrong key will not become valid, and must not appear in logs."""
    right = ConnectionString.parse(hubs.node.connection_string)
    wrong = replace(right, key="d3Jvbmcga2V5IHdpdGggYSBsb3Qgb2YgYnl0ZXM=")
    account = replace(an_account(hubs.node), connection_string=wrong.text())

    with Client(account) as client, pytest.raises(SignInRefused) as refusal:
        HubReader(client, "any").partition_count()

    assert str(wrong.key) not in str(refusal.value)
    assert str(wrong.key) not in repr(account)


def test_unknown_hub_is_refused_by_name(hubs: Hubs) -> None:
    """Reading a hub must not create it, and a typing error must fail at once."""
    with pytest.raises(Refused, match="no-such-hub") as refusal:
        hubs.reader("no-such-hub").partition_count()

    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not refusal.value.is_transient


def test_address_without_a_listener_is_unreachable(hubs: Hubs) -> None:
    """The failure names the address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        account = replace(
            an_account(hubs.node, patience_s=0.0), address=KafkaAddress(host="127.0.0.1", port=port, is_secure=False)
        )

        with Client(account) as client, pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
            HubReader(client, "any").partition_count()


def unused_addresses(stack: ExitStack, count: int) -> list[KafkaAddress]:
    """Addresses that refuse connections."""
    ports = []
    for _ in range(count):
        unused = stack.enter_context(socket.socket())
        unused.bind(("127.0.0.1", 0))
        ports.append(unused.getsockname()[1])
    return [KafkaAddress(host="127.0.0.1", port=port, is_secure=False) for port in ports]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_client_uses_the_gateway_that_can_be_reached(hubs: Hubs, place: int) -> None:
    """Two of three gateways are gone: whichever comes first, the client finds the third without a pause."""
    hub = hubs.new(partitions=3)
    with ExitStack() as stack:
        addresses = unused_addresses(stack, 2)
        account = an_account(hubs.node, patience_s=0.0)
        addresses.insert(place, account.address)
        account = replace(account, address=addresses[0], other_addresses=tuple(addresses[1:]))

        with Client(account) as client:
            assert HubReader(client, hub).partition_count() == 3


def test_client_continues_with_the_next_gateway_if_its_own_is_lost(hubs: Hubs) -> None:
    """A gateway is killed between two requests: the client tries another one next."""
    hub = hubs.new(partitions=3)
    account = an_account(hubs.node)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = KafkaAddress(host="127.0.0.1", port=silent.getsockname()[1], is_secure=False)
        account = replace(account, address=other, other_addresses=(account.address,))
        accepted: list[str] = []

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = silent.accept()
                    accepted.append("one")
                    connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with Client(account) as one, Client(account) as another:
            another._turn = one._turn + 1
            counts = [HubReader(client, hub).partition_count() for client in (one, another)]
        silent.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert counts == [3, 3]
    assert accepted == ["one"]


def test_all_gateways_are_gone(hubs: Hubs) -> None:
    """The failure names the last address that was tried."""
    with ExitStack() as stack:
        first, *others = unused_addresses(stack, 3)
        account = replace(an_account(hubs.node, patience_s=0.0), address=first, other_addresses=tuple(others))

        with Client(account) as client, pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            HubReader(client, "any").partition_count()


@pytest.mark.parametrize(
    ("text", "port", "is_secure"),
    [
        ("Endpoint=sb://ns.example.net/", TLS_PORT, True),
        ("Endpoint=sb://localhost:5672;UseDevelopmentEmulator=true", PLAIN_PORT, False),
    ],
    ids=["service", "emulator"],
)
def test_connection_string_gives_the_kafka_address(text: str, port: int, is_secure: bool) -> None:
    """The port in a connection string is that of AMQP; Kafka has its own default port."""
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
def test_failure_describes_what_happened(failure: Exception, text: str) -> None:
    """A user reads it in the log of a Spark job."""
    assert text in str(failure)
