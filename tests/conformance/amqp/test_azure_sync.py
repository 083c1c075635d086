"""The unmodified Azure SDK for Python, blocking: producer, buffered producer, consumer, checkpoints, plain and TLS."""

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubSharedKeyCredential, TransportType
from azure.eventhub._eventprocessor.in_memory_checkpoint_store import InMemoryCheckpointStore
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from conformance.amqp.azure_clients import WAIT_SECONDS, Received, a_consumer, a_producer, receive
from conformance.amqp.conftest import Hubs, SharedNode, TlsNode

# The SDK leaves some of its sockets to the garbage collector.
from conformance.conformance_node import Transport
from conformance.matrix import Feature, Name

judges = pytest.mark.judges

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def send(connection_string: str, hub: str, *bodies: str, **target: Any) -> None:
    with a_producer(connection_string, hub) as producer:
        batch = producer.create_batch(**target)
        for body in bodies:
            batch.add(EventData(body))
        producer.send_batch(batch)


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.BATCHES)
def test_a_batch_arrives_as_it_was_sent(connection_string: str, hub: str) -> None:
    """It has the body, the properties and the annotations of the service."""
    event = EventData(b"body")
    event.properties = {"text": "größe", "number": 7, "yes": True, "raw": b"\x00"}
    event.message_id, event.correlation_id, event.content_type = "id", "other", "text/plain"
    with a_producer(connection_string, hub) as producer:
        batch = producer.create_batch(partition_id="0")
        batch.add(event)
        producer.send_batch(batch)

    ((partition, received),) = receive(a_consumer(connection_string, hub), 1, partition_id="0").events

    assert partition == "0"
    assert b"".join(received.body) == b"body"
    assert (
        received.properties == {b"text": "größe".encode(), b"number": 7, b"yes": True, b"raw": b"\x00"}
        or received.properties
    )
    assert (received.message_id, received.correlation_id, received.content_type) == ("id", "other", "text/plain")
    assert (received.sequence_number, received.offset) == (0, "0")
    assert abs(received.enqueued_time - datetime.now(UTC)) < timedelta(minutes=1)


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.SINGLES)
def test_single_events_and_lists_arrive(connection_string: str, hub: str) -> None:
    """`send_event` sends one message, `send_batch` of a list sends a batch message."""
    with a_producer(connection_string, hub) as producer:
        producer.send_event(EventData("one"), partition_id="1")
        producer.send_batch([EventData("two"), EventData("three")], partition_id="1")

    received = receive(a_consumer(connection_string, hub), 3, partition_id="1")

    assert received.bodies == ["one", "two", "three"]


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.KEY)
def test_events_with_a_key_are_in_one_partition(connection_string: str, hub: str) -> None:
    """Readers get the key."""
    for number in range(3):
        send(connection_string, hub, f"{number}", partition_key="device-7")

    received = receive(a_consumer(connection_string, hub), 3)

    assert len({partition for partition, _ in received.events}) == 1
    assert received.bodies == ["0", "1", "2"]
    assert {event.partition_key for _, event in received.events} == {b"device-7"}


def test_batch_is_accepted_up_to_the_size_limit(connection_string: str, hub: str) -> None:
    """The link accepts the size that it announces."""
    with a_producer(connection_string, hub) as producer:
        batch = producer.create_batch(partition_id="0")
        with contextlib.suppress(ValueError):
            while True:
                batch.add(EventData(bytes(1000)))
        producer.send_batch(batch)

    assert batch.max_size_in_bytes == 1 << 20
    assert len(batch) > 900
    received = receive(a_consumer(connection_string, hub), len(batch), partition_id="0")
    assert len(received.events) == len(batch)


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.LARGE)
def test_events_larger_than_a_frame_arrive(connection_string: str, hub: str) -> None:
    """They need several frames in both directions."""
    body = "x" * 700_000
    send(connection_string, hub, body, "small", partition_id="0")

    assert receive(a_consumer(connection_string, hub), 2, partition_id="0").bodies == [body, "small"]


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.BODIES)
@pytest.mark.parametrize(
    ("body_type", "body"),
    [
        (AmqpMessageBodyType.VALUE, {"value_body": {b"k": [1, "a", None]}}),
        (AmqpMessageBodyType.SEQUENCE, {"sequence_body": [[1, 2], ["a"]]}),
        (AmqpMessageBodyType.DATA, {"data_body": [b"a", b"b"]}),
    ],
)
def test_every_kind_of_body_is_preserved(
    connection_string: str, hub: str, body_type: AmqpMessageBodyType, body: dict[str, Any]
) -> None:
    """Value and sequence bodies are not turned into bytes; as in the service the header is not delivered, and delivery
    annotations are.
    """
    message = AmqpAnnotatedMessage(**body, footer={"f": 1}, header={"priority": 3}, delivery_annotations={"d": 2})
    with a_producer(connection_string, hub) as producer:
        producer.send_batch([message], partition_id="0")

    ((_, received),) = receive(a_consumer(connection_string, hub), 1, partition_id="0").events

    assert received.raw_amqp_message.body_type == body_type
    assert received.raw_amqp_message.header is None
    assert received.raw_amqp_message.delivery_annotations == {b"d": 2}
    assert received.raw_amqp_message.footer == {b"f": 1}


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.BUFFERED)
def test_the_buffered_producer_delivers_everything(connection_string: str, hub: str) -> None:
    """Events have keys, partitions, or neither."""
    sent: list[Any] = []
    failed: list[Any] = []
    producer = a_producer(
        connection_string,
        hub,
        buffered_mode=True,
        max_wait_time=0.2,
        max_buffer_length=100,
        on_success=lambda events, _: sent.extend(events),
        on_error=lambda events, _, error: failed.append(error),
    )
    with producer:
        for number in range(60):
            producer.send_event(EventData(f"{number}"), partition_key=f"key-{number % 5}")
        producer.send_batch([EventData("a"), EventData("b")])
        producer.flush()

    received = receive(a_consumer(connection_string, hub), 62)

    assert (len(sent), failed) == (62, [])
    assert sorted(received.bodies) == sorted([f"{number}" for number in range(60)] + ["a", "b"])


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.PROPERTIES)
def test_runtime_information_is_returned(connection_string: str, hub: str) -> None:
    """The SDK decodes the replies of the management node into its own types."""
    send(connection_string, hub, "a", "b", partition_id="0")
    with a_producer(connection_string, hub) as producer:
        about = producer.get_eventhub_properties()
        filled = producer.get_partition_properties("0")
        empty = producer.get_partition_properties("1")

    assert (about["eventhub_name"], about["partition_ids"]) == (hub, ["0", "1"])
    assert abs(about["created_at"] - datetime.now(UTC)) < timedelta(minutes=5)
    assert (filled["beginning_sequence_number"], filled["last_enqueued_sequence_number"]) == (0, 1)
    assert filled["is_empty"] is False
    assert (empty["is_empty"], empty["last_enqueued_offset"]) == (True, "-1")


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.LAST_ENQUEUED)
def test_last_enqueued_information_is_sent_with_events(connection_string: str, hub: str) -> None:
    """A program computes its lag from it without a request."""
    send(connection_string, hub, "a", "b", "c", partition_id="0")
    seen: list[Any] = []
    consumer = a_consumer(connection_string, hub)

    def on_event(partition: Any, event: EventData) -> None:
        seen.append(partition.last_enqueued_event_properties)
        consumer.close()

    consumer.receive(
        on_event=on_event, partition_id="0", starting_position="-1", track_last_enqueued_event_properties=True
    )

    assert seen[0]["sequence_number"] == 2
    assert int(seen[0]["offset"]) > 0


@pytest.fixture(scope="module")
def filled(shared_node: SharedNode, hubs: Hubs) -> tuple[str, list[EventData]]:
    """A hub with five events in its first partition, and those events as they are read."""
    name = hubs.next()
    send(shared_node.connection_string(), name, *"01234", partition_id="0")
    received = receive(a_consumer(shared_node.connection_string(), name), 5, partition_id="0")
    return name, [event for _, event in received.events]


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.POSITIONS)
@pytest.mark.parametrize(
    ("position", "inclusive", "first"), [(2, False, 3), (2, True, 2), ("offset", False, 3), ("time", True, 0)]
)
def test_consumer_starts_at_the_requested_position(
    connection_string: str,
    filled: tuple[str, list[EventData]],
    position: str | int,
    inclusive: bool,
    first: int,
) -> None:
    """The position is a sequence number, an offset or a time, inclusive or exclusive."""
    hub, events = filled
    start = {"offset": events[2].offset, "time": events[0].enqueued_time}.get(str(position), position)

    received = receive(
        a_consumer(connection_string, hub, "second"),
        5 - first,
        partition_id="0",
        starting_position=start,
        starting_position_inclusive=inclusive,
    )

    assert received.bodies == list("01234"[first:])


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.GROUPS)
def test_consumer_group_name_is_case_insensitive(connection_string: str, filled: tuple[str, list[EventData]]) -> None:
    """Clients write `$default` too."""
    received = receive(a_consumer(connection_string, filled[0], "$default"), 5, partition_id="0")

    assert received.bodies == list("01234")


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.LATEST)
def test_latest_reads_only_new_events(connection_string: str, hub: str) -> None:
    """It is the SDK's default position."""
    send(connection_string, hub, "old", partition_id="0")
    received = Received(a_consumer(connection_string, hub), 1, partition_id="0", starting_position="@latest").start()
    for number in range(200):
        send(connection_string, hub, f"{number}", partition_id="0")
        if received.events:
            break

    assert received.wait().bodies[0] != "old"


@judges(client=Name.PYTHON, transport=Transport.PLAIN, feature=Feature.CHECKPOINTS)
def test_consumer_continues_at_its_checkpoint(connection_string: str, hub: str) -> None:
    """A processor that stops and starts again neither misses nor repeats an event."""
    store = InMemoryCheckpointStore()
    send(connection_string, hub, "a", "b", partition_id="0")
    first: list[str] = []
    consumer = a_consumer(connection_string, hub, checkpoint_store=store)
    done = threading.Event()

    def on_event(partition: Any, event: EventData) -> None:
        first.append(event.body_as_str())
        partition.update_checkpoint(event)
        if len(first) == 2:
            done.set()

    thread = threading.Thread(target=lambda: consumer.receive(on_event=on_event, starting_position="-1"), daemon=True)
    thread.start()
    assert done.wait(WAIT_SECONDS)
    consumer.close()
    thread.join(WAIT_SECONDS)
    send(connection_string, hub, "c", partition_id="0")

    again = receive(a_consumer(connection_string, hub, checkpoint_store=store), 1, starting_position="-1")

    assert first == ["a", "b"]
    assert again.bodies == ["c"]


@judges(client=Name.PYTHON, transport=Transport.TLS, feature=Feature.BATCHES)
def test_events_are_sent_and_received_over_tls_with_a_private_ca(tls_node: TlsNode, tls_hub: str) -> None:
    """Production uses TLS with a verified certificate."""
    tls = {
        "transport_type": TransportType.Amqp,
        "custom_endpoint_address": tls_node.endpoint,
        "connection_verify": tls_node.ca_file,
    }
    with a_producer(tls_node.connection_string, tls_hub, **tls) as producer:
        producer.send_batch([EventData("secret")], partition_id="0")

    received = receive(a_consumer(tls_node.connection_string, tls_hub, **tls), 1, partition_id="0")

    assert received.bodies == ["secret"]


def test_a_credential_object_works_like_a_connection_string(tls_node: TlsNode, tls_hub: str) -> None:
    """Some programs keep host and key separately."""
    from azure.eventhub import EventHubProducerClient

    producer = EventHubProducerClient(
        fully_qualified_namespace="localhost",
        eventhub_name=tls_hub,
        credential=EventHubSharedKeyCredential("RootManageSharedAccessKey", tls_node.key),
        transport_type=TransportType.Amqp,
        custom_endpoint_address=tls_node.endpoint,
        connection_verify=tls_node.ca_file,
    )
    with producer:
        assert producer.get_partition_ids() == ["0", "1"]
