"""Spans of publications, deliveries and management, received by a real OTLP receiver from a real node."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from confluent_kafka import Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.testing import Node

_TRACE = "0af7651916cd43dd8448eb211c80319{}"
_PARENT = "b7ad6b7169203331"


def a_context(number: int, flags: str = "01") -> str:
    """A trace context as clients send it."""
    return f"00-{_TRACE.format(number)}-{_PARENT}-{flags}"


class Collector:
    """An OTLP receiver that stores every span."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                assert self.path == "/v1/traces"
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self, name: str, number: int) -> list[Any]:
        """The spans with a name in a trace."""
        trace_id = bytes.fromhex(_TRACE.format(number))
        return [span for span in self.spans if span.name == name and span.trace_id == trace_id]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def published_over_amqp(node: Node, *contexts: str | None) -> None:
    """One publication of an unmodified SDK with an event for each context."""
    client = EventHubProducerClient.from_connection_string(node.emulator_connection_string, eventhub_name="orders")
    with client:
        batch = client.create_batch(partition_id="0")
        for context in contexts:
            event = EventData("x")
            event.properties = {} if context is None else {"Diagnostic-Id": context}
            batch.add(event)
        client.send_batch(batch)


def read_over_amqp(node: Node, count: int) -> None:
    """Read a number of events of the first partition."""
    client = EventHubConsumerClient.from_connection_string(
        node.emulator_connection_string, "$Default", eventhub_name="orders"
    )
    seen: list[object] = []

    def on_event(_: object, event: object) -> None:
        seen.append(event)
        if len(seen) == count:
            threading.Thread(target=client.close).start()

    client.receive(on_event=on_event, partition_id="0", starting_position="-1")


def published_over_kafka(node: Node, context: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": node.connection_string,
        }
    )
    producer.produce("orders", b"x", headers={"traceparent": context.encode()})
    assert producer.flush(120) == 0


def published_over_http(node: Node, context: str) -> None:
    root = ConnectionString.parse(node.connection_string)
    assert root.key_name is not None
    assert root.key is not None
    token = make_token("http://localhost/", root.key_name, root.key, expires_at_s=4_000_000_000)
    headers = {"Authorization": token, "traceparent": context}
    httpx.post(f"{node.http}/orders/messages", content=b"x", headers=headers).raise_for_status()


def managed(node: Node, context: str) -> int:
    """Request a missing hub from the management API."""
    base = f"{node.http}/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{node.namespace}"
    headers = {"Authorization": f"Bearer {node.admin_token}", "traceparent": context}
    return httpx.get(f"{base}/eventhubs/nothing", headers=headers).status_code


@pytest.mark.foreign
def test_node_continues_the_traces_of_clients(collector: Collector) -> None:
    """This covers every protocol in both directions, below the client's span; events without a trace have no span."""
    with Node(hubs=["orders"], settings={"memory": True, "otlp_endpoint": collector.url}) as node:
        published_over_amqp(node, a_context(1), None)
        published_over_amqp(node, a_context(2), a_context(3))
        published_over_amqp(node, None)
        published_over_amqp(node, a_context(6, flags="00"))
        published_over_kafka(node, a_context(4))
        published_over_http(node, a_context(5))
        read_over_amqp(node, 6)
        status = managed(node, a_context(7))
        node.stop()

    for number in (1, 4, 5):
        [span] = collector.named("publish orders", number)
        assert span.parent_span_id == bytes.fromhex(_PARENT)
    [two] = [span for span in collector.spans if span.name == "publish orders" and len(span.links) == 2]
    assert {link.trace_id.hex() for link in two.links} == {_TRACE.format(2), _TRACE.format(3)}
    assert [span.name for span in collector.spans if span.name.startswith("publish")] == ["publish orders"] * 4
    delivered = [span for span in collector.spans if span.name == "deliver orders"]
    known = {span.trace_id.hex() for span in delivered} | {
        link.trace_id.hex() for span in delivered for link in span.links
    }
    assert {_TRACE.format(number) for number in (1, 2, 3)} <= known
    assert status == 404
    [asked] = collector.named("GET get_hub", 7)
    assert {attribute.key: attribute.value.string_value for attribute in asked.attributes}[
        "error.type"
    ] == "HubNotFound"


def test_node_stops_while_the_collector_is_unreachable() -> None:
    """Spans are exported in the background; no request waits for them."""
    with Node(hubs=["orders"], settings={"memory": True, "otlp_endpoint": "http://127.0.0.1:9"}) as node:
        published_over_http(node, a_context(1))

        node.stop()

        assert "Traceback" not in node.logs()


def test_node_without_a_collector_does_not_load_the_library() -> None:
    """Tracing is off by default, and then has no cost."""
    code = (
        "import sys, hubmere.node.node; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)

    assert shown.stdout.strip() == "[]"
