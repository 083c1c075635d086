"""Apache Qpid Proton: a generic AMQP 1.0 client without support for Event Hubs."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from proton import Delivery, Described, Message, SSLDomain, symbol
from proton.reactor import Copy, Filter, LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached

from conformance.amqp.conftest import SharedNode, TlsNode
from conformance.conformance_node import Transport
from conformance.matrix import Feature, Name

judges = pytest.mark.judges

pytestmark = pytest.mark.foreign

WAIT_SECONDS = 100
ROOT = "RootManageSharedAccessKey"


@pytest.fixture
def connection(shared_node: SharedNode) -> Iterator[BlockingConnection]:
    opened = BlockingConnection(
        f"amqp://127.0.0.1:{shared_node.port}",
        timeout=WAIT_SECONDS,
        user=ROOT,
        password=shared_node.key,
        allowed_mechs="PLAIN",
        virtual_host="localhost",
    )
    yield opened
    opened.close()


def reader(hub: str, partition: int = 0) -> str:
    return f"{hub}/ConsumerGroups/$Default/Partitions/{partition}"


def send(connection: BlockingConnection, address: str, *bodies: str) -> None:
    sender = connection.create_sender(address)
    for body in bodies:
        assert sender.send(Message(body=body)).remote_state == Delivery.ACCEPTED
    sender.close()


def receive(
    connection: BlockingConnection, address: str, count: int, options: LinkOption | None = None
) -> list[Message]:
    receiver = connection.create_receiver(address, credit=count, options=options)
    # Events are settled, so the client must not accept them.
    received = [receiver.receive(WAIT_SECONDS) for _ in range(count)]
    receiver.close()
    return received


@judges(client=Name.PROTON, transport=Transport.PLAIN, feature=Feature.SINGLES)
def test_messages_are_sent_and_received(connection: BlockingConnection, hub: str) -> None:
    """It uses the rule's name and key over SASL PLAIN; no claims node is needed."""
    sender = connection.create_sender(f"{hub}/Partitions/0")
    message = Message(body={"a": [1, "x"]}, id="7", subject="s", properties={"n": 1, "t": "text", "f": 1.5})
    sender.send(message)

    (received,) = receive(connection, reader(hub), 1)

    assert (received.body, received.id, received.subject) == ({"a": [1, "x"]}, "7", "s")
    assert received.properties == {"n": 1, "t": "text", "f": 1.5}
    assert received.annotations[symbol("x-opt-sequence-number")] == 0


@judges(client=Name.PROTON, transport=Transport.PLAIN, feature=Feature.POSITIONS)
def test_selector_sets_the_start_position(connection: BlockingConnection, hub: str) -> None:
    """Proton writes filters in its own form."""
    send(connection, f"{hub}/Partitions/0", *"0123")

    received = receive(connection, reader(hub), 2, Selector("amqp.annotation.x-opt-sequence-number > '1'"))

    assert [message.body for message in received] == ["2", "3"]


def test_filter_with_a_numeric_descriptor_is_accepted(connection: BlockingConnection, hub: str) -> None:
    """The number is that of the registry of filters."""
    from proton import ulong

    send(connection, f"{hub}/Partitions/0", *"0123")
    selector = Described(ulong(0x468C00000004), "amqp.annotation.x-opt-sequence-number >= 3")

    received = receive(connection, reader(hub), 1, Filter({symbol("whatever"): selector}))

    assert [message.body for message in received] == ["3"]


@judges(client=Name.PROTON, transport=Transport.PLAIN, feature=Feature.DRAIN)
def test_drain_is_answered(connection: BlockingConnection, hub: str) -> None:
    """A fetch with drain ends when no event is left, without a time-out."""
    send(connection, f"{hub}/Partitions/0", "a", "b")
    receiver = connection.create_receiver(reader(hub), credit=0)
    receiver.link.flow(10)
    assert [receiver.receive(WAIT_SECONDS).body for _ in range(2)] == ["a", "b"]

    receiver.link.drain(0)
    connection.wait(lambda: receiver.link.credit == 0, timeout=WAIT_SECONDS)

    assert receiver.link.credit == 0


@judges(client=Name.PROTON, transport=Transport.PLAIN, feature=Feature.LARGE)
def test_large_messages_are_split_both_ways(connection: BlockingConnection, hub: str) -> None:
    """Proton accepts frames of 32 KB."""
    body = "x" * 300_000
    send(connection, f"{hub}/Partitions/0", body)

    (received,) = receive(connection, reader(hub), 1)

    assert received.body == body


def test_many_messages_keep_their_order(connection: BlockingConnection, hub: str) -> None:
    """Many deliveries need several credits and windows; all of them are settled by the sender."""
    send(connection, f"{hub}/Partitions/0", *[f"{number}" for number in range(300)])

    received = receive(connection, reader(hub), 300, Copy())

    assert [message.body for message in received] == [f"{number}" for number in range(300)]


@judges(client=Name.PROTON, transport=Transport.PLAIN, feature=Feature.REFUSALS)
def test_refusal_has_condition_and_text(connection: BlockingConnection) -> None:
    """A generic client can show them."""
    with pytest.raises(LinkDetached, match="could not be found"):
        connection.create_sender("nowhere")


def test_anonymous_client_has_no_rights(shared_node: SharedNode, hub: str) -> None:
    """Without a key and without a token a link is refused."""
    anonymous = BlockingConnection(
        f"amqp://127.0.0.1:{shared_node.port}",
        timeout=WAIT_SECONDS,
        allowed_mechs="ANONYMOUS",
        virtual_host="localhost",
    )
    with pytest.raises(LinkDetached, match="'Send' claim"):
        anonymous.create_sender(hub)
    anonymous.close()


def test_a_connection_without_sasl_is_anonymous(shared_node: SharedNode, hub: str) -> None:
    """The SASL layer is optional."""
    bare = BlockingConnection(
        f"amqp://127.0.0.1:{shared_node.port}", timeout=WAIT_SECONDS, sasl_enabled=False, virtual_host="localhost"
    )
    with pytest.raises(LinkDetached, match="'Send' claim"):
        bare.create_sender(hub)
    bare.close()


@judges(client=Name.PROTON, transport=Transport.TLS, feature=Feature.SINGLES)
def test_messages_are_sent_and_received_over_tls(tls_node: TlsNode, tls_hub: str) -> None:
    """The node's certificate is checked against its CA."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(tls_node.ca_file)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    secure = BlockingConnection(
        f"amqps://{ROOT}:{quote(tls_node.key, safe='')}@localhost:{tls_node.port}",
        timeout=WAIT_SECONDS,
        ssl_domain=domain,
        allowed_mechs="PLAIN",
    )
    send(secure, f"{tls_hub}/Partitions/0", "proton over TLS")
    received = receive(secure, reader(tls_hub), 1, Selector("amqp.annotation.x-opt-offset > '-1'"))
    secure.close()

    assert received
