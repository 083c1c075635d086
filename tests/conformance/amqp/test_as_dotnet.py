"""Frames of Azure.Messaging.EventHubs for .NET, according to its source, because it cannot be run here.

Requests have the addresses, descriptors and types that `src/Amqp` of the SDK writes; replies must have the types of
its casts, because a failed cast is an exception for its user. A generic client sends them.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Data, Delivery, Described, Link, Message, int32, symbol, timestamp, uint, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from conformance.amqp.conftest import SharedNode

pytestmark = pytest.mark.foreign

_WAIT_SECONDS = 100
_EVENT_HUB, _CONSUMER_GROUP = int32(7), int32(8)
# The SDK distinguishes a missing hub from a broken connection only by this text.
_NOT_FOUND = re.compile("The messaging entity .* could not be found", re.IGNORECASE)


class AsDotNet(LinkOption):  # type: ignore[misc]  # proton has no types
    """Sets the link properties that the SDK sets."""

    def __init__(self, properties: dict[str, Any], filters: dict[symbol, Described] | None = None) -> None:
        self._properties = properties
        self._filters = filters

    def apply(self, link: Link) -> None:
        link.properties = {symbol(name): value for name, value in self._properties.items()}
        if link.is_receiver:
            link.snd_settle_mode = Link.SND_SETTLED
        if self._filters is not None:
            link.source.filter.put_dict(self._filters)


@pytest.fixture
def connection(shared_node: SharedNode) -> Iterator[BlockingConnection]:
    opened = BlockingConnection(
        f"amqp://127.0.0.1:{shared_node.port}",
        timeout=_WAIT_SECONDS,
        user="RootManageSharedAccessKey",
        password=shared_node.key,
        allowed_mechs="PLAIN",
        virtual_host="localhost",
        # The SDK announces one minute.
        heartbeat=60,
    )
    yield opened
    opened.close()


def a_sender(connection: BlockingConnection, address: str) -> BlockingSender:
    properties = {"com.microsoft:timeout": uint(60_000), "com.microsoft:entity-type": _EVENT_HUB}
    return connection.create_sender(address, options=AsDotNet(properties))


def a_reader(connection: BlockingConnection, hub: str, expression: str) -> BlockingReceiver:
    selector = Described(ulong(0x137000000A), expression)
    filters = {symbol("apache.org:selector-filter:string"): selector}
    properties = {"com.microsoft:entity-type": _CONSUMER_GROUP, "com.microsoft:receiver-name": "reader"}
    options = AsDotNet(properties, filters)
    address = f"/{hub}/ConsumerGroups/$Default/Partitions/0"
    return connection.create_receiver(address, credit=10, options=options)


def ask(connection: BlockingConnection, **request: str) -> Message:
    """Send one request to the management node."""
    receiver = connection.create_receiver("$management", credit=1, name="svc:replies")
    sender = connection.create_sender("$management", name="svc:requests")
    reply_to = receiver.link.target.address or "replies"
    sender.send(Message(id="1", reply_to=reply_to, properties={"operation": "READ", "security_token": "", **request}))
    reply = receiver.receive(_WAIT_SECONDS)
    receiver.close()
    sender.close()
    return reply


def kinds(values: dict[Any, Any], *names: str) -> list[type]:
    return [type(values[name]) for name in names]


def test_sender_with_a_path_as_its_address_is_accepted(connection: BlockingConnection, hub: str) -> None:
    """The SDK uses the path of a URL, which begins with a slash, and the size limit of the link."""
    sender = a_sender(connection, f"/{hub}/Partitions/0")

    assert sender.send(Message(body=b"a")).remote_state == Delivery.ACCEPTED
    assert sender.link.remote_max_message_size == 1 << 20


def test_reader_with_the_filter_code_of_the_sdk_is_accepted(connection: BlockingConnection, hub: str) -> None:
    """Deliveries are settled, and annotations have the types of its casts."""
    a_sender(connection, f"/{hub}/Partitions/0").send(Message(body=b"a"))

    reader = a_reader(connection, hub, "amqp.annotation.x-opt-offset > -1")
    event = reader.receive(_WAIT_SECONDS)

    assert reader.link.remote_snd_settle_mode == Link.SND_SETTLED
    annotations = {str(name): value for name, value in event.annotations.items()}
    assert kinds(annotations, "x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time") == [int, str, timestamp]


def test_management_replies_have_the_types_of_the_casts(connection: BlockingConnection, hub: str) -> None:
    """This covers hub and partition; a value of another type throws in the SDK."""
    described = ask(connection, name=hub, type="com.microsoft:eventhub")
    partition = ask(connection, name=hub, type="com.microsoft:partition", partition="0")

    assert kinds(described.properties, "status-code") == [int32]
    assert kinds(described.body, "name", "created_at", "georeplication_factor") == [str, timestamp, int32]
    assert described.body["partition_ids"].type == Data.STRING
    numbers = ("begin_sequence_number", "last_enqueued_sequence_number")
    assert kinds(partition.body, "name", "partition", *numbers) == [str, str, int, int]
    texts = ("last_enqueued_offset", "last_enqueued_time_utc", "is_partition_empty")
    assert kinds(partition.body, *texts) == [str, timestamp, bool]


def test_a_missing_hub_has_the_error_text_that_the_sdk_expects(connection: BlockingConnection) -> None:
    """Otherwise the SDK treats the refusal as a broken connection and retries."""
    reply = ask(connection, name="nowhere", type="com.microsoft:eventhub")

    assert (reply.properties["status-code"], reply.properties["error-condition"]) == (404, "amqp:not-found")
    assert kinds(reply.properties, "error-condition") == [symbol]
    assert _NOT_FOUND.search(reply.properties["status-description"])
