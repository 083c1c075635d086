"""One connection that sends as fast as possible does not prevent others from being served."""

import pytest

from attack.floods import FLOODS
from attack.normal_client import PROBES, Flood, NormalClient
from hubmere.testing import Node

# The number of answers of each normal client during a flood. Without a limited share of the loop each took seconds.
_ANSWERS, _LONG_ANSWERS = 25, 2000


@pytest.mark.parametrize("name", FLOODS)
def test_normal_clients_are_answered_during_a_flood(node: Node, name: str, is_long: bool) -> None:
    """The node processes the flood in slices and serves others between them, on every protocol."""
    attack = FLOODS[name]
    wanted = _LONG_ANSWERS if is_long else _ANSWERS

    with Flood(attack.connection(node), attack.chunk, reads=not attack.is_tls) as flood:
        for probe in PROBES.values():
            with NormalClient(node, probe) as client:
                client.await_answers(wanted)
        taken_bytes = flood.sent_bytes

    assert taken_bytes > 0


def test_flood_whose_answers_are_not_read_is_not_read(node: Node) -> None:
    """Unread answers fill the socket, then a limited buffer; then the node stops reading the client's requests."""
    attack = FLOODS["Kafka ApiVersions"]

    with (
        Flood(attack.connection(node), attack.chunk, reads=False) as flood,
        NormalClient(node) as client,
    ):
        client.await_answers(_ANSWERS)
        while flood.is_served and flood.sent_bytes < flood_bound_bytes():
            before = flood.sent_bytes
            client.await_answers(_ANSWERS)
            if flood.sent_bytes == before:
                break

    # Each request of 14 bytes has an answer of some hundred: more requests than this would be gigabytes of answers.
    assert flood.sent_bytes < flood_bound_bytes()


def flood_bound_bytes() -> int:
    """More than the buffers of both sockets can hold, and much less than an unlimited flood."""
    return 64 * 1024 * 1024
