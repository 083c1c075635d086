"""Regular expressions that are designed to be slow, in subscriptions of Kafka consumer groups."""

from typing import Any

import pytest

from attack.normal_client import NormalClient, connect, http_health
from hubmere.testing import Node
from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

# Long names that each expression must match to the end.
HUBS = [f"{'ab' * 20}-{number:03}" for number in range(100)]
# Expressions that back-tracking engines never finish, that need many automaton states, or that are large.
EVIL = [
    "(a+)+$",
    "(a|a)*c",
    "(.*.*.*b){200}c",
    "([ab]*a[ab]{250}|x)*",
    "(.{0,200}){2}",
    "(((a{0,10}){0,10}){0,10})",
    "a{1000}" * 10,
    "(" * 500 + "a" + ")" * 500,
    "(?i)" + "|".join(f"{name}x" for name in HUBS[:80]),
]


class Attacker:
    """A signed-in Kafka connection."""

    def __init__(self, node: Node) -> None:
        self.socket = connect(node.kafka)
        self._engine = ClientConnection(client_id="attacker")
        self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0$ConnectionString\0" + node.connection_string.encode()
        assert self.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0

    def call(self, body: Any, version: int) -> Any:
        self._engine.request(body, version)
        self.socket.sendall(b"".join(self._engine.data_to_send()))
        while not (answers := self._engine.receive_data(self.socket.recv(1 << 16))):
            pass
        return answers[0].body

    def subscribe(self, group_id: str, regex: str) -> Any:
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=regex,
            topic_partitions=(),
        )
        return self.call(beat, 1)


def test_slow_expressions_do_not_delay_other_clients(is_long: bool) -> None:
    """Each is answered, the others are answered meanwhile, and an ordinary expression is evaluated after them."""
    rounds = 50 if is_long else 3
    with Node(hubs=HUBS, settings={"as": "unlimited"}) as node, NormalClient(node, http_health) as client:
        attacker = Attacker(node)
        with attacker.socket:
            codes = {
                attacker.subscribe(f"g-{number}-{index}", f"{regex}|x{number}").error_code
                for number in range(rounds)
                for index, regex in enumerate(EVIL)
            }
            client.await_answers(20)
            ordinary = attacker.subscribe("ordinary", "(ab)+-00[0-4]")

    assert codes <= {ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION}
    assert ordinary.error_code == ErrorCode.NONE
    assert client.error is None


@pytest.mark.parametrize("regex", ["a(", "[z-a]", "(?<=a)b", r"(a)\1", "a**", "\x00(", "(?P<n"])
def test_invalid_expressions_are_refused_with_a_reason(node: Node, regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION with the reason; the connection continues."""
    attacker = Attacker(node)
    with attacker.socket:
        answer = attacker.subscribe("g", regex)
        after = attacker.subscribe("g", "orders")

    assert (answer.error_code, bool(answer.error_message)) == (ErrorCode.INVALID_REGULAR_EXPRESSION, True)
    assert (after.error_code, after.member_epoch) == (ErrorCode.NONE, 1)
