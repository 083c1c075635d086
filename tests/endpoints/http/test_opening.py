"""HTTP requests for a partition whose log is being opened: they wait, and are refused with 503 in the end."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from broker.gates import Gate, expire
from endpoints.http.harness import HttpNode

PATIENCE_S = 240.0
MESSAGES = "/orders/partitions/0/messages"
EVENTS = "/orders/consumergroups/$Default/partitions/0/messages"
PARTITION = "/orders/consumergroups/$Default/partitions/0?api-version=2014-01"
PARTITIONS = "/orders/consumergroups/$Default/partitions?api-version=2014-01"

REQUESTS = {
    "publish": ("POST", MESSAGES),
    "browse": ("GET", EVENTS),
    "partition": ("GET", PARTITION),
    "partitions": ("GET", PARTITIONS),
}


def a_gate(node: HttpNode) -> Gate:
    """Hold back partition 0 of `orders`; the others are open at once."""
    return node.call(lambda: Gate(node.hub("orders"), 0))


def await_waiting(node: HttpNode, gate: Gate, count: int) -> None:
    """Wait until so many requests wait."""
    deadline = time.monotonic() + PATIENCE_S
    while node.call(lambda: gate.waiting.count) != count:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_answered_when_the_log_is_open(node: HttpNode, name: str) -> None:
    """Another client's request for another partition is answered meanwhile."""
    gate = a_gate(node)
    with node.client(Authorization=node.sas()) as client, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.request, *REQUESTS[name])
        await_waiting(node, gate, 1)

        with node.client(Authorization=node.sas()) as other:
            published = other.post("/orders/partitions/1/messages", content=b"other")
        node.call(gate.release)

        assert published.status_code == 201
        assert waiting.result(PATIENCE_S).status_code == (201 if name == "publish" else 200)
    assert node.call(lambda: gate.waiting.count) == 0


@pytest.mark.parametrize("name", REQUESTS)
def test_request_that_waited_too_long_is_refused_with_a_time_to_retry(
    node: HttpNode, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 with Retry-After, which every HTTP client understands."""
    monkeypatch.setattr("hubmere.endpoints.opening.MAX_OPENING_WAIT_S", 0.001)
    gate = a_gate(node)
    answered = threading.Event()

    def request() -> httpx.Response:
        try:
            with node.client(Authorization=node.sas()) as client:
                return client.request(*REQUESTS[name])
        finally:
            answered.set()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(request)
        while not answered.wait(0.05):
            node.call(lambda: expire(node.broker.upkeep, node.clock.monotonic()))
        answer = waiting.result()

    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert "is still being opened" in answer.text
    assert node.call(lambda: gate.waiting.count) == 0
