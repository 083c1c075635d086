"""Revocation applies to open Kafka connections, including waiting fetches."""

from collections.abc import Callable
from dataclasses import replace

from endpoints.kafka.kafka_node import NAMESPACE, KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.broker.management.manager import Actor, Manager, OnDone
from hubmere.model.clock import SystemClock
from hubmere.model.entity import DefaultAction, KeyKind, NetworkRuleSet, Rights
from hubmere.model.names import rule_name
from hubmere.model.spec import NamespaceSpec
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest


def manage(node: KafkaNode, work: Callable[[Manager, Actor, OnDone], object]) -> None:
    """Make a management change; it is effective when this returns."""
    done: list[object] = []
    clock = SystemClock()
    actor = Actor(name="test", now_ms=clock.now_ms(), now=clock.monotonic())
    node.call(lambda: work(node.broker.manager, actor, done.append))
    node.call(node.catalog.apply)
    node.call(lambda: None)
    assert done == [None]


def rotate(node: KafkaNode, name: str, *, revokes_open_links: bool = False) -> None:
    manage(
        node,
        lambda manager, actor, done: manager.regenerate_key(
            NAMESPACE, None, name, KeyKind.PRIMARY, None, actor, done, revokes_open_links=revokes_open_links
        ),
    )


def test_open_connection_is_closed_when_its_rule_is_deleted() -> None:
    """It has a waiting fetch; connections of other rules stay open."""
    with KafkaNode() as node:
        string = node.add_rule("device", "Send", "Listen")
        with RawClient(node, string) as reader, RawClient(node, string) as writer, RawClient(node) as other:
            writer.sign_in().call(a_produce(a_batch()), 9)
            reader.sign_in().send(a_fetch(1, max_wait_ms=200_000), 11)
            other.sign_in()

            manage(node, lambda manager, actor, done: manager.delete_rule(NAMESPACE, None, "device", actor, done))

            assert (reader.is_closed_by_peer(), writer.is_closed_by_peer()) == (True, True)
            assert only(other.call(a_produce(a_batch()), 9)).error_code == ErrorCode.NONE


def test_rotated_key_keeps_used_topics_but_opens_no_others() -> None:
    """As in the service, open connections stay; new ones and new topics are checked with the current keys."""
    with KafkaNode({"orders": 1, "others": 1}) as node:
        string = node.add_rule("device", "Send", "Listen")
        with RawClient(node, string) as client, RawClient(node, string) as late:
            client.sign_in().call(a_produce(a_batch()), 9)

            rotate(node, "device")
            used = only(client.call(a_produce(a_batch()), 9)).error_code
            unused = only(client.call(a_produce(a_batch(), topic="others"), 9)).error_code
            late.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            refused = late.call(SaslAuthenticateRequest(auth_bytes=late.plain_token()), 2).error_code

    assert (used, unused) == (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert refused == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_rotation_that_revokes_open_links_closes_connections_at_once() -> None:
    """This is for a leaked key; the rule's other key is not affected."""
    with KafkaNode() as node:
        primary = node.add_rule("device", "Send")
        secondary = primary.replace("key-of-device", "other-key-of-device")
        with RawClient(node, primary) as leaked, RawClient(node, secondary) as kept:
            leaked.sign_in()
            kept.sign_in()

            rotate(node, "device", revokes_open_links=True)

            assert leaked.is_closed_by_peer()
            assert only(kept.call(a_produce(a_batch()), 9)).error_code == ErrorCode.NONE


def test_open_connections_of_a_rotated_key_end_after_the_grace_time() -> None:
    """PLAIN has no expiry of its own, so the rotation sets one."""
    with KafkaNode(rotated_key_grace_s=0) as node:
        string = node.add_rule("device", "Send")
        with RawClient(node, string) as client:
            client.sign_in().call(a_produce(a_batch()), 9)

            rotate(node, "device")
            client.send(a_produce(a_batch()), 9)

            assert client.is_closed_by_peer()


def test_only_connections_that_use_a_lost_right_are_closed() -> None:
    """A rule without Listen disconnects readers; its producers continue."""
    with KafkaNode() as node:
        string = node.add_rule("device", "Send", "Listen")
        with RawClient(node, string) as reader, RawClient(node, string) as writer:
            writer.sign_in().call(a_produce(a_batch()), 9)
            reader.sign_in().send(a_fetch(1, max_wait_ms=200_000), 11)
            node.call(lambda: None)

            manage(
                node,
                lambda manager, actor, done: manager.write_rule(
                    NAMESPACE, None, rule_name("device"), Rights.SEND, actor, done
                ),
            )

            assert reader.is_closed_by_peer()
            assert only(writer.call(a_produce(a_batch()), 9)).error_code == ErrorCode.NONE
            assert only(writer.call(a_fetch(), 11)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_network_rules_and_disabled_local_authentication_close_open_connections() -> None:
    """Both apply to open connections."""
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))
    with KafkaNode() as node, RawClient(node) as client:
        client.sign_in()
        manage(node, lambda manager, actor, done: manager.update_network(NAMESPACE, rules, actor, done))
        assert client.is_closed_by_peer()

    with KafkaNode() as node, RawClient(node) as client:
        client.sign_in()
        spec = replace(NamespaceSpec.of(node.broker._namespace(NAMESPACE).entity), disable_local_auth=True)
        manage(node, lambda manager, actor, done: manager.update_namespace(NAMESPACE, spec, actor, done))
        assert client.is_closed_by_peer()
