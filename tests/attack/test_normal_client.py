"""Tests of the normal client, on which the other attack tests rely."""

import contextlib

import pytest

from attack.normal_client import PROBES, NormalClient, http_health, kafka_produce
from hubmere.testing import Node


@pytest.mark.parametrize("protocol", PROBES)
def test_normal_client_is_answered_by_a_quiet_node(node: Node, protocol: str) -> None:
    """Without an attack every request is answered, on each protocol."""
    with NormalClient(node, PROBES[protocol]) as client:
        client.await_answers(20)

    assert len(client.latencies_s) >= 20


def test_normal_client_produces_to_a_quiet_node(node: Node) -> None:
    """The producer gets every record acknowledged."""
    with NormalClient(node, kafka_produce("orders")) as client:
        client.await_answers(20)


def test_normal_client_reports_a_request_that_fails() -> None:
    """If the node ends, the client reports an error."""
    with Node() as node, contextlib.suppress(AssertionError), NormalClient(node, http_health) as client:
        client.await_answers(1)
        node.kill()
        client.await_answers(1)

    assert client.error is not None
