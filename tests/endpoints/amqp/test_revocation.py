"""Revocation applies to open AMQP connections: links are detached, connections closed, new links refused."""

from dataclasses import replace

import pytest

from endpoints.amqp.amqp_node import NAMESPACE, AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import RawClient, Refused
from hubmere.model.entity import DefaultAction, KeyKind, NetworkRuleSet, Rights
from hubmere.model.names import rule_name
from hubmere.model.spec import NamespaceSpec
from hubmere.wire.amqp.sasl import ClientCredentials

ADDRESS = "orders/Partitions/0"


def delete_rule(node: AmqpNode, name: str) -> None:
    node.manage(lambda manager, actor, done: manager.delete_rule(NAMESPACE, None, name, actor, done))


def rotate(node: AmqpNode, name: str, *, revokes_open_links: bool = False) -> None:
    node.manage(
        lambda manager, actor, done: manager.regenerate_key(
            NAMESPACE, None, name, KeyKind.PRIMARY, None, actor, done, revokes_open_links=revokes_open_links
        )
    )


def by_key(node: AmqpNode, rule: str) -> RawClient:
    """A client that signs in with the name and the key of a rule."""
    key = node.rule(rule).primary_key
    return RawClient(node, credentials=ClientCredentials.plain(rule, key))


def test_open_links_are_detached_when_their_rule_is_deleted(node: AmqpNode) -> None:
    """A deleted rule is invalid, also for open connections; links of other rules stay."""
    node.add_rule("device", "Send", "Listen")
    with RawClient(node) as client, RawClient(node) as other:
        client.authorize("orders", rule="device")
        other.authorize("orders")
        sender, reader, unaffected = client.sender(ADDRESS), client.reader(), other.sender(ADDRESS)

        delete_rule(node, "device")
        endings = [client.detached(link).condition for link in (sender, reader)]
        with pytest.raises(Refused) as refusal:
            client.sender(ADDRESS)
        other.publish(unaffected, an_event("still here"))

    assert endings == ["amqp:unauthorized-access"] * 2
    assert refusal.value.condition == "amqp:unauthorized-access"


def test_connection_by_sasl_plain_is_closed_when_its_rule_is_deleted(node: AmqpNode) -> None:
    """Such a client cannot put another token, so the connection is useless."""
    node.add_rule("device", "Send")
    with by_key(node, "device") as client:
        client.sender(ADDRESS)

        delete_rule(node, "device")

        assert client.closed().condition == "amqp:connection:forced"


def test_only_links_that_need_a_lost_right_are_detached(node: AmqpNode) -> None:
    """A rule without Listen detaches readers; its senders continue."""
    node.add_rule("device", "Send", "Listen")
    with RawClient(node) as client:
        client.authorize("orders", rule="device")
        sender, reader = client.sender(ADDRESS), client.reader()

        node.manage(
            lambda manager, actor, done: manager.write_rule(
                NAMESPACE, None, rule_name("device"), Rights.SEND, actor, done
            )
        )

        assert client.detached(reader).condition == "amqp:unauthorized-access"
        client.publish(sender, an_event("after"))


def test_rotated_key_keeps_open_links_but_opens_no_new_ones(node: AmqpNode) -> None:
    """The service keeps open links until their token expires; new ones are checked by the current keys."""
    node.add_rule("device", "Send", "Listen")
    with RawClient(node) as client:
        client.authorize("orders", rule="device")
        sender = client.sender(ADDRESS)

        rotate(node, "device")
        client.publish(sender, an_event("after"))
        with pytest.raises(Refused) as refusal:
            client.reader()
        client.authorize("orders", rule="device")  # with the new key
        client.reader()

    assert refusal.value.condition == "amqp:unauthorized-access"


def test_open_links_of_a_rotated_key_end_after_the_grace_time() -> None:
    """SASL PLAIN has no expiry of its own, so the rotation sets one."""
    with AmqpNode(token_grace_s=0.0, rotated_key_grace_s=0) as node:
        node.add_rule("device", "Send")
        with by_key(node, "device") as client:
            sender = client.sender(ADDRESS)

            rotate(node, "device")

            ending = client.detached(sender)

    assert ending.condition in {"amqp:link:detach-forced", "amqp:unauthorized-access"}


def test_rotation_that_revokes_open_links_detaches_them_at_once(node: AmqpNode) -> None:
    """This is for a leaked key; links with the rule's other key are not affected."""
    node.add_rule("device", "Send")
    with RawClient(node) as client, RawClient(node) as other:
        client.authorize("orders", rule="device")
        secondary = ClientCredentials.plain("device", node.rule("device").secondary_key)
        with RawClient(node, credentials=secondary) as by_secondary:
            sender, kept = client.sender(ADDRESS), by_secondary.sender(ADDRESS)
            other.authorize("orders")

            rotate(node, "device", revokes_open_links=True)

            assert client.detached(sender).condition == "amqp:unauthorized-access"
            by_secondary.publish(kept, an_event("after"))


def test_network_rule_closes_open_connections(node: AmqpNode) -> None:
    """Connections from a denied address are closed."""
    with RawClient(node) as client:
        client.authorize("orders")
        client.sender(ADDRESS)
        rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))

        node.manage(lambda manager, actor, done: manager.update_network(NAMESPACE, rules, actor, done))

        assert client.closed().condition == "amqp:connection:forced"


def test_disabling_local_authentication_invalidates_every_signature(node: AmqpNode) -> None:
    """Shared access keys and signatures are refused, and open links are detached."""
    with RawClient(node) as client, by_key(node, "RootManageSharedAccessKey") as plain:
        client.authorize("orders")
        sender = client.sender(ADDRESS)
        entity = node.broker._namespace(NAMESPACE).entity
        spec = replace(NamespaceSpec.of(entity), disable_local_auth=True)

        node.manage(lambda manager, actor, done: manager.update_namespace(NAMESPACE, spec, actor, done))

        assert client.detached(sender).condition == "amqp:unauthorized-access"
        assert plain.closed().condition == "amqp:connection:forced"


def test_recreated_hub_refuses_the_keys_of_the_old_one(node: AmqpNode) -> None:
    """The rules of a hub are deleted with it, even if the new hub has the same name."""
    node.add_hub("brief", 1)
    node.manage(
        lambda manager, actor, done: manager.write_rule(NAMESPACE, "brief", rule_name("own"), Rights.SEND, actor, done)
    )
    hub = node.hub("brief").entity
    key = node.broker.entities.rule(hub, "own").primary_key
    with RawClient(node, credentials=ClientCredentials.plain("own", key)) as client:
        client.sender("brief")

        node.manage(lambda manager, actor, done: manager.delete_hub(NAMESPACE, "brief", actor, done))
        node.add_hub("brief", 1)

        assert client.closed().condition == "amqp:connection:forced"
