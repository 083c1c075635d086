"""Tokens on the claims node, and which links they allow (reference: AMQP 2, checks 14 to 19 and 45)."""

import logging
import uuid

import pytest

from broker.issuers import OWNER_ID, a_trusted_issuer, claims, token
from endpoints.amqp.amqp_node import NAMESPACE, AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import RawClient, Refused
from endpoints.amqp.raw_frames import DISPOSITION, TRANSFER, frames_of
from hubmere.endpoints.amqp.cbs import MAX_LOGGED_REFUSALS
from hubmere.model.entity import KeyKind, RoleAssignment
from hubmere.model.names import namespace_name
from hubmere.model.security.roles import DATA_SENDER
from hubmere.model.security.sas import make_token
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.message import AmqpValue, Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import Properties, Source, Target
from hubmere.wire.amqp.codec.types import Int, Timestamp, ULong, Value
from hubmere.wire.amqp.signals import DeliveriesReceived, LinkDetached
from log_records import messages_of
from node_clock import NodeClock

# Of a token that expires during the test: the clock of the node is advanced by so much.
_LIFETIME_S = 600
# An idle timeout that does not pass meanwhile.
_LONG_S = 36_000.0
PUT = {"operation": "put-token", "type": "servicebus.windows.net:sastoken"}


def a_put(client: RawClient, *, path: str = "orders", message_id: Value = "1", reply_to: str | None = None) -> bytes:
    return write_message(
        Message(
            properties=Properties(message_id=message_id, reply_to=reply_to),
            application_properties={**PUT, "name": f"sb://localhost/{path}", "expiration": Timestamp(0)},
            body=AmqpValue(client.token(path)),
        )
    )


def claims_links(client: RawClient, *, target: str | None = None, name: str | None = None) -> tuple[Link, Link]:
    """A pair of links to the claims node; the caller grants credit."""
    receiver, _ = client.attach(name, is_sender=False, source=Source(address="$cbs"), target=Target(address=target))
    sender = client.sender("$cbs")
    client.await_window(sender)
    return sender, receiver


@pytest.mark.parametrize(
    "message_id", ["text", ULong(1), uuid.UUID(int=7), b"binary"], ids=lambda value: type(value).__name__
)
def test_reply_has_the_message_id_of_the_request_with_its_type(node: AmqpNode, message_id: Value) -> None:
    """SDKs look up the request by value and type."""
    with RawClient(node) as client:
        sender, receiver = claims_links(client)
        receiver.grant(1)
        sender.send(a_put(client, message_id=message_id))

        reply = read_message(client.expect(DeliveriesReceived).payloads[0])

    assert reply.properties is not None
    assert reply.properties.correlation_id == message_id
    assert type(reply.properties.correlation_id) is type(message_id)
    assert reply.application_properties == {"status-code": Int(202), "status-description": "Accepted"}
    assert type(reply.application_properties["status-code"]) is Int
    assert reply.body == AmqpValue(None)


@pytest.mark.parametrize(
    ("target", "name", "reply_to"),
    [(None, "cbs-receiver", None), (None, "cbs-1234", "cbs-1234"), ("cbs-client-reply-to", "x", "cbs-client-reply-to")],
    ids=["none, as Python", "link name, as JavaScript", "target, as Java"],
)
def test_reply_is_sent_on_the_link_that_the_request_names(
    node: AmqpNode, target: str | None, name: str, reply_to: str | None
) -> None:
    """Every SDK names the reply link differently."""
    with RawClient(node) as client:
        other, _ = client.attach("other", is_sender=False, source=Source(address="$management"))
        other.grant(10)
        sender, receiver = claims_links(client, target=target, name=name)
        receiver.grant(10)
        sender.send(a_put(client, reply_to=reply_to))

        assert client.expect(DeliveriesReceived).link is receiver


def test_a_reply_waits_for_credit(node: AmqpNode) -> None:
    """Java gives one credit per request."""
    with RawClient(node) as client:
        sender, receiver = claims_links(client)
        receiver.grant(1)
        sender.send(a_put(client, message_id="1"))
        sender.send(a_put(client, message_id="2"))
        first = client.expect(DeliveriesReceived)
        assert len(first.ids) == 1
        assert not client.poll(0.2) or not client.pending(DeliveriesReceived)

        receiver.grant(1)
        second = read_message(client.expect(DeliveriesReceived).payloads[0])

    assert second.properties is not None
    assert second.properties.correlation_id == "2"


def test_reply_is_settled_if_the_receiver_asks_for_it(node: AmqpNode) -> None:
    """Java and .NET expect settled replies; Python and JavaScript accept both."""
    with RawClient(node) as client:
        receiver, answer = client.attach(is_sender=False, source=Source(address="$cbs"), snd_settle_mode=1)
        receiver.grant(1)
        sender = client.sender("$cbs")
        client.send(sender, a_put(client), settled=True)

        assert client.expect(DeliveriesReceived).settled
        assert answer.snd_settle_mode == 1


def test_bad_signature_is_unauthorized(node: AmqpNode) -> None:
    """The status is an int, and the text is that of the service."""
    with RawClient(node) as client:
        bad = make_token("sb://localhost/orders", "RootManageSharedAccessKey", "wrong", expires_at_s=2**40)

        status, text = client.put_token("orders", bad)

    assert (status, text) == (401, "InvalidSignature: The token has an invalid signature.")


@pytest.mark.parametrize(
    "token",
    ["nonsense", "SharedAccessSignature sr=x", "SharedAccessSignature sr=fake&sig=foo&se=1786000000.25&skn=FakeKey"],
)
def test_malformed_token_is_unauthorized(node: AmqpNode, token: str) -> None:
    """Clients tell a bad credential by 401, and take 400 for a wrong operation."""
    with RawClient(node) as client:
        status, text = client.put_token("orders", token)

    assert status == 401
    assert text.startswith("MalformedToken:")


def test_expired_token_is_unauthorized(node: AmqpNode) -> None:
    """The text names the expiry."""
    with RawClient(node) as client:
        status, text = client.put_token("orders", client.token("orders", seconds=-60))

    assert status == 401
    assert text.startswith("ExpiredToken:")


def test_token_for_another_resource_is_unauthorized(node: AmqpNode) -> None:
    """A token for one hub does not open another."""
    with RawClient(node) as client:
        status, text = client.put_token("orders", client.token("invoices"))

    assert status == 401
    assert text.startswith("InvalidAudience:")


@pytest.mark.parametrize("token", ["nonsense", "SharedAccessSignature sr=x", "", Int(5), None])
def test_unreadable_token_is_a_bad_request(node: AmqpNode, token: Value) -> None:
    """A retry would never succeed."""
    with RawClient(node) as client:
        status, _ = client.put_token("orders", token)

    assert status in (400, 401)


def test_a_jwt_is_refused_with_a_reason(node: AmqpNode) -> None:
    """No issuer is configured, and the client gets this reason."""
    with RawClient(node) as client:
        status, text = client.put_token("orders", "eyJhbGciOi", kind="jwt")

    assert status == 400
    assert "issuer" in text


def test_an_unknown_hub_is_not_found(node: AmqpNode) -> None:
    """JavaScript, Java and .NET decide by this text that a retry is useless."""
    with RawClient(node) as client:
        status, text = client.put_token("nowhere", client.token(""))

    assert status == 404
    assert text.startswith(
        "The messaging entity 'sb://localhost/nowhere' could not be found. "
        "To know more visit https://aka.ms/sbResourceMgrExceptions.  TrackingId:"
    )
    assert ", SystemTracker:localhost:nowhere, Timestamp:" in text


def test_a_request_is_settled_before_its_reply(node: AmqpNode) -> None:
    """The order is that of the service, on both service nodes."""
    with RawClient(node) as client:
        client.authorize()
        client.ask("$management", {"operation": "READ", "type": "com.microsoft:eventhub", "name": "orders"})

    codes = [found.code for found in frames_of(bytes(client.transcript)) if found.code in (DISPOSITION, TRANSFER)]
    assert codes == [DISPOSITION, TRANSFER, DISPOSITION, TRANSFER]


def test_a_second_sender_to_the_claims_node_is_refused(node: AmqpNode) -> None:
    """Claims belong to the connection, so one link is enough; after its detach another one is accepted."""
    with RawClient(node) as client:
        first = client.sender("$cbs")
        with pytest.raises(Refused) as refused:
            client.sender("$cbs", session=client.begin())
        first.detach()
        client.expect(LinkDetached, lambda signal: signal.link is first)
        client.authorize()

    assert refused.value.condition == "amqp:not-allowed"
    assert first.name in refused.value.description


def test_refused_token_is_logged_without_the_token(node: AmqpNode, caplog: pytest.LogCaptureFixture) -> None:
    """The operator sees which rule was used for what, from where, and why it was refused; limited for each link."""
    caplog.set_level(logging.INFO, "hubmere.amqp")
    with RawClient(node) as client:
        bad = make_token("sb://localhost/orders", "RootManageSharedAccessKey", "wrong", expires_at_s=2**40)
        for _ in range(MAX_LOGGED_REFUSALS + 3):
            client.put_token("orders", bad)
        lines = [text for text in messages_of(caplog, "hubmere.amqp") if "is refused" in text]

    assert len(lines) == MAX_LOGGED_REFUSALS
    assert lines[0] == (
        "a token of rule 'RootManageSharedAccessKey' for 'sb://localhost/orders' from 127.0.0.1 is refused: "
        "InvalidSignature: The token has an invalid signature."
    )
    assert not [line for line in lines if "sig=" in line]


def test_refused_unreadable_token_is_logged(node: AmqpNode, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the text in place of a token nor its type is repeated."""
    caplog.set_level(logging.INFO, "hubmere.amqp")
    with RawClient(node) as client:
        client.put_token("orders", "secret-1", kind="secret-2")
        client.put_token("orders", "secret-3")
        lines = [text for text in messages_of(caplog, "hubmere.amqp") if "is refused" in text]

    assert len(lines) == 2
    assert not [line for line in lines if "secret" in line]


def test_other_operations_are_not_supported(node: AmqpNode) -> None:
    """Only put-token is supported."""
    with RawClient(node) as client:
        reply = client.ask("$cbs", {"operation": "delete-token", "type": "x", "name": "y"})

    assert reply.application_properties is not None
    assert reply.application_properties["status-code"] == 501


def test_without_a_claim_an_attach_is_refused(node: AmqpNode) -> None:
    """The answer is an attach of nulls and a detach, with the text that SDKs show."""
    with RawClient(node) as client, pytest.raises(Refused) as refused:
        client.sender("orders")

    assert refused.value.condition == "amqp:unauthorized-access"
    assert "'Send' claim(s) are required to perform this operation. Resource: 'sb://hubmere/orders'" in str(
        refused.value.description
    )


def test_token_may_cover_more_than_its_audience(node: AmqpNode) -> None:
    """.NET signs for the hub and puts the token for a partition of a group."""
    with RawClient(node) as client:
        token = make_token("amqps://localhost/orders", "RootManageSharedAccessKey", node.key, expires_at_s=2**40)
        status, _ = client.put_token("orders/ConsumerGroups/$Default/Partitions/0", token)
        assert status == 202

        client.reader("/orders/ConsumerGroups/$Default/Partitions/0")
        with pytest.raises(Refused):
            client.reader("/orders/ConsumerGroups/$Default/Partitions/1")


def test_claim_covers_everything_below_it_in_any_case(node: AmqpNode) -> None:
    """Python puts a token for the group in lower case and attaches to a partition of it."""
    with RawClient(node) as client:
        client.authorize("orders/consumergroups/$default")

        client.reader("amqps://localhost/orders/ConsumerGroups/$Default/Partitions/0")
        with pytest.raises(Refused):
            client.reader("orders/ConsumerGroups/second/Partitions/0")


def test_javascript_management_audience_covers_the_hub(node: AmqpNode) -> None:
    """It puts a token for `{hub}/$management` and then asks about the hub."""
    with RawClient(node) as client:
        client.authorize("orders/$management")

        reply = client.ask("$management", {"operation": "READ", "type": "com.microsoft:eventhub", "name": "orders"})

    assert reply.application_properties is not None
    assert reply.application_properties["status-code"] == 200


def test_link_is_detached_when_its_token_expires_and_the_connection_stays() -> None:
    """The service detaches for renewal; SDKs put a new token and attach again."""
    clock = NodeClock()
    with AmqpNode(token_grace_s=0.0, idle_timeout_s=_LONG_S, clock=clock) as node, RawClient(node) as client:
        client.authorize("orders", seconds=_LIFETIME_S)
        sender = client.sender("orders/Partitions/0")
        client.publish(sender, an_event("before"))
        clock.advance(_LIFETIME_S)

        refused = client.detached(sender)
        client.authorize("orders", seconds=2 * _LIFETIME_S)
        client.publish(client.sender("orders/Partitions/0"), an_event("after"))

    assert refused.condition == "amqp:link:detach-forced"
    assert "Code: RenewToken" in refused.description


def test_link_is_detached_when_its_oauth_token_expires() -> None:
    """As with a SAS token, the link is detached for renewal; after another token it can be attached again."""
    clock = NodeClock()
    with AmqpNode(token_grace_s=0.0, idle_timeout_s=_LONG_S, clock=clock) as node, RawClient(node) as client:
        node.call(lambda: node.broker.access.identities.trust(a_trusted_issuer()))
        wanted = RoleAssignment(
            namespace=namespace_name(NAMESPACE),
            name="0b5c1b0e-0000-0000-0000-000000000000",
            role_id=DATA_SENDER.id,
            principal_id=OWNER_ID,
        )
        node.manage(lambda manager, actor, done: manager.assign_role(wanted, actor, done))
        first, _ = client.put_token("orders", token(claims(exp=clock.now_ms() // 1000 + _LIFETIME_S)), kind="jwt")
        sender = client.sender("orders/Partitions/0")
        client.publish(sender, an_event("before"))
        clock.advance(_LIFETIME_S)

        refused = client.detached(sender)
        second, _ = client.put_token("orders", token(claims(exp=clock.now_ms() // 1000 + 600)), kind="jwt")
        client.publish(client.sender("orders/Partitions/0"), an_event("after"))

    assert (first, second) == (202, 202)
    assert refused.condition == "amqp:link:detach-forced"
    assert "Code: RenewToken" in refused.description


def test_renewed_token_keeps_the_link() -> None:
    """A renewal is another put-token with the same name."""
    clock = NodeClock()
    with AmqpNode(token_grace_s=0.0, idle_timeout_s=_LONG_S, clock=clock) as node, RawClient(node) as client:
        client.authorize("orders", seconds=_LIFETIME_S)
        sender = client.sender("orders/Partitions/0")
        client.authorize("orders", seconds=10 * _LIFETIME_S)
        clock.advance(_LIFETIME_S + 1)
        node.call(lambda: None)

        client.publish(sender, an_event())


def test_open_link_outlives_its_regenerated_key_but_new_tokens_of_it_are_refused(node: AmqpNode) -> None:
    """Service 11, check 19: an open link stays until its token expires; new clients are refused."""
    root = "RootManageSharedAccessKey"
    with RawClient(node) as client:
        client.authorize("orders")
        sender = client.sender("orders/Partitions/0")
        old = client.token("orders")

        node.manage(
            lambda manager, actor, done: manager.regenerate_key(
                NAMESPACE, None, root, KeyKind.PRIMARY, None, actor, done
            )
        )
        client.publish(sender, an_event("after"))
        status, text = client.put_token("orders", old)

    assert (status, text.partition(":")[0]) == (401, "InvalidSignature")


@pytest.mark.parametrize("audience", ["orders", "orders/messages"])
def test_token_for_the_messages_path_of_a_hub_is_valid_for_sending_only(node: AmqpNode, audience: str) -> None:
    """Devices sign the URL that they post to over HTTPS, and use the same token here."""
    with RawClient(node) as client:
        status, _ = client.put_token(audience, client.token("orders/messages"))
        sender = client.sender("orders")
        client.publish(sender, an_event("by its very URL"))
        with pytest.raises(Refused) as reading:
            client.reader()
        with pytest.raises(Refused) as partition:
            client.sender("orders/Partitions/0")

    assert status == 202
    assert reading.value.condition == partition.value.condition == "amqp:unauthorized-access"


def test_token_of_a_publisher_is_valid_for_its_path_only(node: AmqpNode) -> None:
    """The token may be for the path with or without `/messages`."""
    with RawClient(node) as client:
        status, _ = client.put_token("orders/publishers/a", client.token("orders/publishers/a/messages"))
        client.publish(client.sender("orders/Publishers/a"), an_event("a"))
        with pytest.raises(Refused):
            client.sender("orders/Publishers/ab")
        wide, _ = client.put_token("orders", client.token("orders/publishers/a/messages"))

    assert (status, wide) == (202, 401)
