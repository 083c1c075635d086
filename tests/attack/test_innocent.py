"""Tests of the measuring client, on which the other attack tests rely."""

import contextlib

import pytest

from attack.innocent import PROBES, InnocentClient, http_health, kafka_produce
from hubmere.testing import Node


@pytest.mark.parametrize("protocol", PROBES)
def test_innocent_client_is_answered_by_a_quiet_node(node: Node, protocol: str) -> None:
    """Without an attack every request is answered, on each protocol."""
    with InnocentClient(node, PROBES[protocol]) as innocent:
        innocent.await_answers(20)

    assert len(innocent.latencies_s) >= 20


def test_innocent_client_produces_to_a_quiet_node(node: Node) -> None:
    """The producer gets every record acknowledged."""
    with InnocentClient(node, kafka_produce("orders")) as innocent:
        innocent.await_answers(20)


def test_innocent_client_reports_a_request_that_fails() -> None:
    """A node that ends is an error of the client, not silence."""
    with Node() as node, contextlib.suppress(AssertionError), InnocentClient(node, http_health) as innocent:
        innocent.await_answers(1)
        node.kill()
        innocent.await_answers(1)

    assert innocent.error is not None
