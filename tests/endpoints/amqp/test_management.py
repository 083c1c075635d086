"""Replies of the management node (reference: AMQP 3, checks 20 to 23)."""

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import RawClient
from hubmere.model.security.sas import make_token
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.amqp.codec.message import AmqpValue, Message
from hubmere.wire.amqp.codec.types import Array, Int, Long, Symbol, Timestamp, Value
from node_clock import NodeClock

READ_HUB: dict[Value, Value] = {"operation": "READ", "type": "com.microsoft:eventhub", "name": "orders"}
READ_PARTITION: dict[Value, Value] = READ_HUB | {"type": "com.microsoft:partition", "partition": "0"}


def status_of(reply: Message) -> int:
    """The status, which must be present in both spellings as an int."""
    properties = reply.application_properties or {}
    assert type(properties["status-code"]) is Int
    assert properties["status-code"] == properties["statusCode"]
    assert properties["status-description"] == properties["statusDescription"]
    return int(properties["status-code"])


def map_of(reply: Message) -> dict[str, Value]:
    assert status_of(reply) == 200
    assert isinstance(reply.body, AmqpValue)
    assert all(type(key) is str for key in reply.body.value)
    return dict(reply.body.value)


def test_a_token_in_the_request_is_enough(node: AmqpNode) -> None:
    """Java and .NET attach to the node without put-token."""
    with RawClient(node) as client:
        reply = client.ask("$management", READ_HUB | {"security_token": client.token("orders")})

    assert map_of(reply)["name"] == "orders"


@pytest.mark.parametrize("token", [None, "SharedAccessSignature sr=x", Int(7), "eyJ0eXAi"])
def test_a_request_without_a_valid_token_is_refused(node: AmqpNode, token: Value) -> None:
    """The status is always 401, which the SDKs handle."""
    with RawClient(node) as client:
        reply = client.ask("$management", READ_HUB | ({} if token is None else {"security_token": token}))

    assert status_of(reply) == 401
    assert (reply.application_properties or {})["error-condition"] == Symbol("amqp:unauthorized-access")


def test_a_bad_token_is_refused_although_the_connection_has_a_claim(client: RawClient) -> None:
    """JavaScript keeps its connection when the user changes the credential, and presents the new one here first."""
    bad = make_token("sb://localhost/orders", "RootManageSharedAccessKey", "wrong", expires_at_s=2**40)

    reply = client.ask("$management", READ_HUB | {"security_token": bad})

    assert status_of(reply) == 401
    assert (reply.application_properties or {})["error-condition"] == Symbol("amqp:unauthorized-access")


@pytest.mark.parametrize("more", [{}, {"security_token": ""}], ids=["no token", "empty token"])
def test_a_request_without_a_token_uses_the_claims_of_the_connection(
    client: RawClient, more: dict[Value, Value]
) -> None:
    """Some versions of the Azure SDK for Python send no text here after they have put a token."""
    assert map_of(client.ask("$management", READ_HUB | more))


def test_a_token_of_less_scope_adds_to_the_claims_of_the_connection(client: RawClient) -> None:
    """A valid token never takes a right away."""
    token = client.token("orders/consumergroups/$default")

    assert map_of(client.ask("$management", READ_HUB | {"security_token": token}))


def test_any_right_on_the_hub_is_enough(node: AmqpNode) -> None:
    """A sender also needs the list of partitions."""
    node.add_rule("sender", "Send")
    with RawClient(node) as client:
        token = client.token("orders", rule="sender")

        assert map_of(client.ask("$management", READ_HUB | {"security_token": token}))


def test_partition_ids_are_an_array(client: RawClient) -> None:
    """Java and .NET cast the ids to an array of strings, and times to timestamps."""
    body = map_of(client.ask("$management", READ_HUB))

    assert body["partition_ids"] == Array(("0", "1"), 0xB1)
    assert type(body["created_at"]) is Timestamp
    assert type(body["partition_count"]) is Int
    assert body["type"] == "com.microsoft:eventhub"


def test_empty_partition_is_reported_as_empty(client: RawClient) -> None:
    """-1 and the year 1 mean "no event" for the SDKs."""
    body = map_of(client.ask("$management", READ_PARTITION))

    assert body["is_partition_empty"] is True
    assert (type(body["begin_sequence_number"]), body["begin_sequence_number"]) == (Long, -1)
    assert (type(body["last_enqueued_sequence_number"]), body["last_enqueued_sequence_number"]) == (Long, -1)
    assert body["last_enqueued_offset"] == "-1"
    assert body["last_enqueued_time_utc"] == Timestamp(-62_135_596_800_000)


def test_last_event_of_a_partition_is_returned(client: RawClient) -> None:
    """Sequence numbers are longs, offsets texts, times timestamps."""
    client.publish(client.sender("orders/Partitions/0"), an_event(), an_event(), an_event())

    body = map_of(client.ask("$management", READ_PARTITION))

    assert body["is_partition_empty"] is False
    assert (type(body["begin_sequence_number"]), body["begin_sequence_number"]) == (Long, 0)
    assert body["last_enqueued_sequence_number"] == 2
    for epoch in ("begin_sequence_number_epoch", "last_enqueued_sequence_number_epoch"):
        assert (type(body[epoch]), body[epoch]) == (Int, -1)
    assert int(body["last_enqueued_offset"]) > 0
    assert type(body["last_enqueued_time_utc"]) is Timestamp
    assert body["last_enqueued_time_utc"] > 1_600_000_000_000
    assert (body["name"], body["partition"]) == ("orders", "0")


def test_an_unknown_hub_is_not_found(client: RawClient) -> None:
    """Three SDKs decide by the text whether they retry."""
    reply = client.ask("$management", READ_HUB | {"name": "nowhere"})

    assert status_of(reply) == 404
    assert "The messaging entity 'sb://hubmere/nowhere' could not be found" in str(
        (reply.application_properties or {})["status-description"]
    )


@pytest.mark.parametrize("partition", ["2", "x", "-1", "007", ""])
def test_an_unknown_partition_is_out_of_range(client: RawClient, partition: str) -> None:
    """400 and the condition that SDKs map to their argument errors."""
    reply = client.ask("$management", READ_PARTITION | {"partition": partition})

    assert status_of(reply) == 400
    assert (reply.application_properties or {})["errorCondition"] == Symbol("com.microsoft:argument-out-of-range")


@pytest.mark.parametrize(
    ("request_properties", "status"),
    [
        ({}, 400),
        ({"operation": "READ"}, 400),
        ({"operation": "READ", "type": "com.microsoft:eventhub"}, 400),
        ({"operation": Int(1), "type": "com.microsoft:eventhub", "name": "orders"}, 400),
        ({"operation": "DELETE", "type": "com.microsoft:eventhub", "name": "orders"}, 501),
        ({"operation": "READ", "type": "com.microsoft:queue", "name": "orders"}, 501),
        ({"operation": "READ", "type": "com.microsoft:partition", "name": "orders"}, 400),
    ],
)
def test_a_bad_request_is_answered(client: RawClient, request_properties: dict[Value, Value], status: int) -> None:
    """A request without an answer hangs the Azure SDK for Python."""
    assert status_of(client.ask("$management", request_properties)) == status


def test_too_many_requests_are_throttled() -> None:
    """The tier's limit on runtime information is 503 with the busy condition."""
    book = LimitsBook(profile=Profile.STANDARD, overrides={"runtime_information_per_second": 2})
    with AmqpNode(book=book, clock=NodeClock(is_stopped=True)) as node, RawClient(node) as client:
        client.authorize()

        replies = [client.ask("$management", READ_HUB) for _ in range(6)]

    busy = [reply for reply in replies if status_of(reply) == 503]
    assert busy
    assert (busy[0].application_properties or {})["error-condition"] == Symbol("com.microsoft:server-busy")
