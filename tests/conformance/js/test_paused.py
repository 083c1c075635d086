"""A program that sleeps longer than the idle time-out, and how its client continues."""

import pytest

from conformance.clients import NotInstalled, js_clients, node
from conformance.driver import Driver
from conformance.js.conftest import PROGRAM
from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import body_of
from endpoints.amqp.raw_client import RawClient
from node_clock import NodeClock

pytestmark = pytest.mark.foreign

# A silent peer is closed after twice this time.
_IDLE_SECONDS = 600.0


@pytest.fixture
def js() -> Driver:
    """A separate process, because it is paused."""
    try:
        return Driver([node(), str(PROGRAM)], {"HUBMERE_JS_CLIENTS": str(js_clients())})
    except NotInstalled as reason:
        pytest.skip(str(reason))


def test_producer_that_slept_past_the_idle_time_out_sends_again(js: Driver) -> None:
    """Because of the condition of the close the SDK connects again; with another one it would hang."""
    clock = NodeClock()
    with AmqpNode(idle_timeout_s=_IDLE_SECONDS, clock=clock) as server, js:
        place = {"connection": server.connection_string(), "hub": "orders", "webSocket": False}
        js.call("event_hubs", "sendKept", place=place, body="before")
        with js.paused():
            while server.call(lambda: len(server.connections.streams)):
                clock.advance(_IDLE_SECONDS)

        js.call("event_hubs", "sendKept", place=place, body="after", last=True)

        with RawClient(server) as client:
            client.authorize()
            received = [body_of(message) for message in client.receive(client.reader(), 2)]
    assert received == [b'"before"', b'"after"']
