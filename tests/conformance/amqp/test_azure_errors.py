"""Every refusal as the Azure SDK for Python reports it (reference: AMQP 6, checks 17, 18, 23, 41, 42, 49)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.eventhub import EventData
from azure.eventhub.exceptions import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    EventDataSendError,
    EventHubError,
)

from conformance.amqp.azure_clients import Received, a_consumer, a_producer, receive
from conformance.amqp.conftest import Hubs, SharedNode

# The SDK leaves some of its sockets to the garbage collector.
from conformance.conformance_node import Transport
from conformance.matrix import Feature, Name
from endpoints.amqp.amqp_node import NAMESPACE, AmqpNode
from hubmere.model.entity import ApplicationGroup, ThrottlingMetric, ThrottlingPolicy
from hubmere.model.errors import PartitionOffline
from hubmere.model.names import application_group_name, namespace_name
from hubmere.model.tier import LimitsBook, Profile
from node_clock import NodeClock

judges = pytest.mark.judges

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def send(
    connection_string: str, hub: str, body: str | bytes = "x", *, retries: int = 0, partition: str | None = "0"
) -> None:
    with a_producer(connection_string, hub, retry_total=retries) as producer:
        producer.send_event(EventData(body), partition_id=partition)


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.REFUSALS)
def test_a_wrong_key_is_an_authentication_error(shared_node: SharedNode, hub: str) -> None:
    """The claims node answers with status 401."""
    with pytest.raises(AuthenticationError, match="InvalidSignature"):
        send(shared_node.connection_string(key="d3Jvbmc="), hub)


def test_error_names_the_missing_right(shared_node: SharedNode, hub: str) -> None:
    """`amqp:unauthorized-access` on the attach."""
    listen_only = shared_node.add_rule(f"listen-{hub}", "Listen")

    with pytest.raises(EventHubError, match=r"'Send' claim\(s\) are required"):
        send(listen_only, hub)


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.REFUSALS)
def test_unknown_hub_is_not_found(connection_string: str) -> None:
    """The claims node refuses it before the attach."""
    with pytest.raises(AuthenticationError, match="could not be found"):
        send(connection_string, "nowhere")


def test_properties_of_an_unknown_hub_are_refused(connection_string: str) -> None:
    """Status 404 of the management node, or of the claims node before it."""
    with a_producer(connection_string, "nowhere") as producer, pytest.raises(ConnectError, match="could not be found"):
        producer.get_eventhub_properties()


def test_an_unknown_partition_is_out_of_range(connection_string: str, hub: str) -> None:
    """`com.microsoft:argument-out-of-range` in the management node's reply; the SDK asks before it attaches."""
    with a_producer(connection_string, hub) as producer, pytest.raises(ConnectError, match="between 0 and 1"):
        producer.get_partition_properties("9")


def test_unknown_consumer_group_is_not_found(connection_string: str, hub: str) -> None:
    """`amqp:not-found` on the attach."""
    (error, *_) = receive(a_consumer(connection_string, hub, "nobody"), 1, partition_id="0").errors

    assert isinstance(error, EventHubError)
    assert "could not be found" in str(error)


def test_invalid_position_is_an_argument_error(connection_string: str, hub: str) -> None:
    """`com.microsoft:argument-error`."""
    consumer = a_consumer(connection_string, hub)
    (error, *_) = receive(consumer, 1, partition_id="0", starting_position="not an offset").errors

    assert isinstance(error, ConnectError)
    assert "is not a valid position" in str(error)


def test_event_that_is_too_large_is_a_send_error(connection_string: str, hub: str) -> None:
    """`amqp:link:message-size-exceeded` as a rejected outcome; the description reaches the program."""
    with pytest.raises(EventDataSendError, match="exceeds the limit"):
        send(connection_string, hub, bytes((1 << 20) + 100))


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.OWNER)
def test_higher_owner_level_disconnects_the_reader(connection_string: str, hub: str) -> None:
    """`amqp:link:stolen`, which the SDK does not retry."""
    send(connection_string, hub)
    old = Received(a_consumer(connection_string, hub), 99, partition_id="0", owner_level=1).start()
    while not old.events:
        assert not old.errors
    receive(a_consumer(connection_string, hub), 1, partition_id="0", owner_level=2)

    (error, *_) = old.wait().errors

    assert isinstance(error, ConnectionLostError)
    assert "New receiver" in str(error)


def test_lower_owner_level_is_refused(connection_string: str, hub: str) -> None:
    """The owner stays attached."""
    send(connection_string, hub)
    owner = Received(a_consumer(connection_string, hub), 99, partition_id="0", owner_level=5).start()
    while not owner.events:
        assert not owner.errors

    (error, *_) = receive(a_consumer(connection_string, hub), 1, partition_id="0", owner_level=1).errors
    assert not owner.errors
    owner._done.set()
    owner.wait()

    assert isinstance(error, ConnectionLostError)
    assert "higher epoch '5' already exists" in str(error)


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.REFUSALS)
def test_a_sixth_reader_is_refused(connection_string: str, hub: str) -> None:
    """`amqp:resource-limit-exceeded`."""
    send(connection_string, hub)
    readers = [Received(a_consumer(connection_string, hub), 99, partition_id="0").start() for _ in range(5)]
    for reader in readers:
        while not reader.events:
            assert not reader.errors

    (error, *_) = receive(a_consumer(connection_string, hub), 1, partition_id="0").errors
    for reader in readers:
        reader._done.set()
        reader.wait()

    assert isinstance(error, EventHubError)
    assert "maximum number of allowed receivers" in str(error)


@pytest.fixture
def stopped() -> NodeClock:
    """A clock that stands still: a busy machine is not too slow to be throttled."""
    return NodeClock(is_stopped=True)


@pytest.fixture
def small(stopped: NodeClock) -> Iterator[AmqpNode]:
    """A throttled namespace: five events a second."""
    book = LimitsBook(profile=Profile.STANDARD, overrides={"ingress_events_per_unit": 5})
    with AmqpNode(book=book, clock=stopped) as node:
        yield node


def test_throttling_is_retried_by_the_sdk_and_nothing_is_lost(small: AmqpNode, stopped: NodeClock) -> None:
    """`com.microsoft:server-busy` detaches the link; the SDK backs off and sends again."""

    def send_all() -> None:
        with a_producer(small.connection_string(), "orders", retry_total=8, retry_backoff_factor=0.4) as producer:
            for number in range(12):
                producer.send_event(EventData(f"{number}"), partition_id="0")

    with ThreadPoolExecutor(1) as background:
        sending = background.submit(send_all)
        while not small.call(lambda: small.hub().counters.throttled_requests) and not sending.done():
            pass
        stopped.resume()
        sending.result()

    received = receive(a_consumer(small.connection_string(), "orders"), 12, partition_id="0")

    assert received.bodies == [f"{number}" for number in range(12)]
    assert small.call(lambda: small.hub().counters.throttled_requests) > 0


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.THROTTLING)
def test_throttling_without_retries_is_reported(small: AmqpNode) -> None:
    """The program sees the text of the service."""

    def flood() -> None:
        with a_producer(small.connection_string(), "orders") as producer:
            for _ in range(20):
                producer.send_event(EventData("x"), partition_id="0")

    with pytest.raises(ConnectError, match="being throttled"):
        flood()


@pytest.fixture
def grouped() -> Iterator[AmqpNode]:
    """A tier with application groups: the clients of the rule `slow` are one group, with five events a second."""
    with AmqpNode(book=LimitsBook(profile=Profile.PREMIUM), clock=NodeClock(is_stopped=True)) as node:
        govern(node)
        yield node


def govern(node: AmqpNode, *, enabled: bool = True) -> None:
    few = ThrottlingPolicy(name="few", metric=ThrottlingMetric.INCOMING_MESSAGES, rate_per_s=5)
    group = ApplicationGroup(
        namespace=namespace_name(NAMESPACE),
        name=application_group_name("night-jobs"),
        client_id="NamespaceSASKeyName=slow",
        is_enabled=enabled,
        policies=(few,),
    )
    node.manage(lambda manager, actor, done: manager.write_application_group(group, actor, done))


def test_only_the_rule_of_a_limited_application_group_is_throttled(grouped: AmqpNode) -> None:
    """Service check 49: the refusal names group and policy, and clients of another rule of the hub continue."""
    slow, other = (grouped.add_rule(name, "Send") for name in ("slow", "other"))

    def flood(connection_string: str) -> None:
        with a_producer(connection_string, "orders") as producer:
            for _ in range(20):
                producer.send_event(EventData("x"), partition_id="0")

    with pytest.raises(ConnectError, match=r"'night-jobs' is throttled by its policy 'few'.*SubCode:50013"):
        flood(slow)
    flood(other)

    assert grouped.call(lambda: grouped.hub().log(0).state.committed) >= 25


def test_clients_of_a_disabled_application_group_are_disconnected_and_refused(grouped: AmqpNode) -> None:
    """The connection is closed by the service, and the claims node refuses the next token."""
    slow, other = (grouped.add_rule(name, "Send") for name in ("slow", "other"))

    with a_producer(slow, "orders") as producer:
        producer.send_event(EventData("x"), partition_id="0")
        govern(grouped, enabled=False)
        with pytest.raises(EventHubError):
            producer.send_event(EventData("y"), partition_id="0")
    with pytest.raises(AuthenticationError, match="'night-jobs' is disabled"):
        send(slow, "orders")
    send(other, "orders")

    assert grouped.call(lambda: grouped.hub().log(0).state.committed) == 2


def test_a_disabled_hub_is_reported(hubs: Hubs, connection_string: str, hub: str) -> None:
    """`com.microsoft:entity-disabled`."""
    hubs.disable_sending(hub)

    with pytest.raises(ConnectError, match="disabled"):
        send(connection_string, hub)


def test_deleting_a_hub_detaches_its_links(hubs: Hubs, connection_string: str, hub: str) -> None:
    """A program that continues to send gets the error that the hub was deleted."""
    with a_producer(connection_string, hub, retry_total=0) as producer:
        producer.send_event(EventData("x"), partition_id="0")
        hubs.delete(hub)

        with pytest.raises(EventHubError, match="could not be found"):
            producer.send_event(EventData("x"), partition_id="0")


def test_event_for_an_offline_partition_is_retried(
    shared_node: AmqpNode, connection_string: str, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is sent again when the partition is online."""
    log = shared_node.call(lambda: shared_node.hub(hub).log(0))
    append = type(log).append
    failures = iter([None, PartitionOffline("being verified")])

    def sometimes(self: object, *args: object, **kwargs: object) -> object:
        failure = next(failures, None) if self is log else None
        if failure is not None:
            raise failure
        return append(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(type(log), "append", sometimes)
    with a_producer(connection_string, hub, retry_total=4, retry_backoff_factor=0.4) as producer:
        producer.send_event(EventData("first"), partition_id="0")
        producer.send_event(EventData("survivor"), partition_id="0")

    assert receive(a_consumer(connection_string, hub), 2, partition_id="0").bodies == ["first", "survivor"]


def test_clients_continue_after_a_restart(tmp_path: Path) -> None:
    """Clients reconnect to the new process on the same port and data, and continue."""
    with AmqpNode(data=tmp_path) as first:
        port, connection_string = first.port, first.connection_string()
        producer = a_producer(connection_string, "orders", retry_total=8, retry_backoff_factor=0.2)
        producer.send_event(EventData("before"), partition_id="0")
    with AmqpNode(data=tmp_path, port=port), producer:
        producer.send_event(EventData("after"), partition_id="0")

        received = receive(a_consumer(connection_string, "orders"), 2, partition_id="0")

    assert received.bodies == ["before", "after"]


def test_reader_continues_by_itself_after_its_hub_was_changed(hubs: Hubs, connection_string: str, hub: str) -> None:
    """After a detach with `com.microsoft:entity-updated` the SDK attaches again."""
    send(connection_string, hub, "before")
    reader = Received(a_consumer(connection_string, hub, retry_total=3), 2, partition_id="0").start().wait_for_first()
    hubs.change_retention(hub, 3)
    send(connection_string, hub, "after")

    result = reader.wait()

    assert result.bodies == ["before", "after"]
    assert result.errors == []
