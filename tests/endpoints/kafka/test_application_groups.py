"""Application groups over Kafka: refused producers, throttled consumers, disconnected clients of disabled groups."""

from collections.abc import Iterator

import pytest

from endpoints.kafka.kafka_node import NAMESPACE, KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.broker.management.manager import Actor
from hubmere.model.clock import SystemClock
from hubmere.model.entity import ApplicationGroup, ThrottlingMetric, ThrottlingPolicy
from hubmere.model.names import application_group_name, namespace_name
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from node_clock import NodeClock


@pytest.fixture
def node() -> Iterator[KafkaNode]:
    """A node with a tier that has application groups."""
    with KafkaNode(book=LimitsBook(profile=Profile.PREMIUM)) as running:
        yield running


def govern(node: KafkaNode, rule: str, *policies: tuple[ThrottlingMetric, int], enabled: bool = True) -> None:
    """Create an application group for a rule's clients; it is active when this returns."""
    group = ApplicationGroup(
        namespace=namespace_name(NAMESPACE),
        name=application_group_name("g"),
        client_id=f"NamespaceSASKeyName={rule}",
        is_enabled=enabled,
        policies=tuple(
            ThrottlingPolicy(name=metric.value, metric=metric, rate_per_s=rate) for metric, rate in policies
        ),
    )
    done: list[object] = []
    actor = Actor(name="test", now_ms=0, now=SystemClock().monotonic())
    node.call(lambda: node.broker.manager.write_application_group(group, actor, done.append))
    node.call(node.catalog.apply)
    node.call(lambda: None)
    assert done == [None]


def test_producer_over_the_rates_of_its_group_is_refused_and_others_are_not() -> None:
    """The service answers with POLICY_VIOLATION for each partition."""
    with KafkaNode(book=LimitsBook(profile=Profile.PREMIUM), clock=NodeClock(is_stopped=True)) as node:
        govern(node, "slow", (ThrottlingMetric.INCOMING_MESSAGES, 10))
        rules = {name: node.add_rule(name, "Send") for name in ("slow", "other")}
        with RawClient(node, rules["slow"]) as slow, RawClient(node, rules["other"]) as other:
            answers = {
                name: [only(client.call(a_produce(a_batch(*[b"x"] * 8)), 9)) for _ in range(2)]
                for name, client in (("slow", slow.sign_in()), ("other", other.sign_in()))
            }
        end = node.end_of()

    assert [answer.error_code for answer in answers["slow"]] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert [answer.error_code for answer in answers["other"]] == [ErrorCode.NONE] * 2
    assert end == 24


def test_a_consumer_over_the_rates_of_its_group_is_throttled(node: KafkaNode) -> None:
    """Reading is never refused: the answer has the events and the time to wait."""
    govern(node, "slow", (ThrottlingMetric.OUTGOING_BYTES, 100_000))
    reader = node.add_rule("slow", "Listen")
    with RawClient(node) as writer, RawClient(node, reader) as slow:
        writer.sign_in().call(a_produce(a_batch(b"x" * 150_000)), 9)

        held = slow.sign_in().call(a_fetch(), 11)
        free = writer.call(a_fetch(), 11)

    assert held.throttle_time_ms > 0
    assert free.throttle_time_ms == 0
    assert len(only(held).records) == len(only(free).records) > 150_000


def test_clients_of_a_disabled_group_are_disconnected_and_refused(node: KafkaNode) -> None:
    """The credential is refused until the group is enabled again."""
    slow = node.add_rule("slow", "Send")
    with RawClient(node, slow) as client, RawClient(node, slow) as late:
        client.sign_in()

        govern(node, "slow", enabled=False)

        is_closed = client.is_closed_by_peer()
        late.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        refused = late.call(SaslAuthenticateRequest(auth_bytes=late.plain_token()), 2)

    assert is_closed
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "disabled" in (refused.error_message or "")
