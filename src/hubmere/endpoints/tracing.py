"""OpenTelemetry spans of publications, deliveries and HTTP requests, exported by OTLP over HTTP.

- Events may carry a trace context: `traceparent`, or `Diagnostic-Id` of the Azure SDKs. A publication or delivery is a
  child span of the one context that its events share, or has links to all contexts if there are several.
- Events without a context make no span: a hundred thousand spans a second would be useless.
- A publish request over HTTP is a child span of its `traceparent` header. A management request is always a span.
- The client's sampling decision is respected; without one the SDK's settings decide (`OTEL_TRACES_SAMPLER`).

This module is imported only if tracing is enabled.
"""

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context
from starlette.responses import Response

from hubmere import __version__
from hubmere.broker import EndSpan
from hubmere.endpoints.http.context import Scope, path_for_log
from hubmere.endpoints.http.publish.timeouts import OnDone
from hubmere.endpoints.http.request import Handler, Request
from hubmere.model.errors import Refusal
from hubmere.records.header import Buffer
from hubmere.translate import trace_parents

# The SDK's limit of links per span.
MAX_LINKS = 128
_ALL = 2**63
_TRACES_PATH = "/v1/traces"
_SYSTEM = {"messaging.system": "eventhubs"}


class Spans:
    """Creates and exports the spans of a node (`broker.monitoring.tracing`). Thread rule: the loop's; `close`: any."""

    def __init__(self, exporter: SpanExporter, namespace: str) -> None:
        resource = Resource.create(
            {"service.name": "hubmere", "service.version": __version__, "service.namespace": namespace}
        )
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("hubmere", __version__)

    @classmethod
    def to_collector(cls, url: str, namespace: str) -> "Spans":
        """Export to a collector at an OTLP address such as http://localhost:4318."""
        return cls(OTLPSpanExporter(endpoint=url.rstrip("/") + _TRACES_PATH), namespace)

    def close(self) -> None:
        """Export pending spans; blocks until that is done or has failed."""
        self._provider.shutdown()

    # --- events ---

    def publishing(self, namespace: str, hub: str, batch: Buffer, count: int) -> EndSpan:
        """Begin the span of a publication. The result is called when it is durable or refused."""
        contexts = _contexts(trace_parents(batch, -1, _ALL, MAX_LINKS))
        if not contexts:
            return _nothing
        span = self._begin(f"publish {hub}", contexts, namespace, hub)
        span.set_attribute("messaging.operation.type", "publish")
        span.set_attribute("messaging.batch.message_count", count)

        def on_end(error: Exception | None) -> None:
            _end(span, error)

        return on_end

    def record_delivery(
        self,
        namespace: str,
        hub: str,
        partition: int,
        group: str,
        data: Buffer,
        first_sequence: int,
        next_sequence: int,
    ) -> None:
        """Record a delivery of the events between two sequence numbers."""
        contexts = _contexts(trace_parents(data, first_sequence, next_sequence, MAX_LINKS))
        if not contexts:
            return
        span = self._begin(f"deliver {hub}", contexts, namespace, hub)
        span.set_attribute("messaging.operation.type", "receive")
        span.set_attribute("messaging.batch.message_count", next_sequence - first_sequence)
        span.set_attribute("messaging.destination.partition.id", str(partition))
        if group:
            span.set_attribute("messaging.consumer.group.name", group)
        span.end()

    def _begin(self, name: str, contexts: Sequence[SpanContext], namespace: str, hub: str) -> Span:
        is_one = len(contexts) == 1
        attributes = {**_SYSTEM, "messaging.destination.name": hub}
        if namespace:
            attributes["hubmere.namespace"] = namespace
        return self._tracer.start_span(
            name,
            context=_below(contexts[0]) if is_one else None,
            kind=SpanKind.SERVER,
            links=None if is_one else [Link(context) for context in contexts],
            attributes=attributes,
        )

    # --- HTTP ---

    def trace_publish(self, scope: Scope, on_done: OnDone) -> OnDone:
        """Begin a span for a publish request with a `traceparent` header. Returns the callback that ends it."""
        header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        contexts = _contexts([header.decode("latin-1")])
        if not contexts:
            return on_done
        hub = path_for_log(scope).strip("/").partition("/")[0]
        span = self._begin(f"publish {hub}", contexts, "", hub)
        span.set_attribute("messaging.operation.type", "publish")

        def end_span(error: Exception | None) -> None:
            _end(span, error)
            on_done(error)

        return end_span

    async def trace_request(self, handler: Handler, request: Request) -> Response:
        """Answer a management request within a span."""
        parent = next(iter(_contexts([request.header("traceparent") or ""])), None)
        method = request.scope["method"]
        span = self._tracer.start_span(
            f"{method} {handler.__name__}",
            context=None if parent is None else _below(parent),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "client.address": request.peer},
        )
        try:
            response = await handler(request)
        except Refusal as refusal:
            _end(span, refusal)
            raise
        span.set_attribute("http.response.status_code", response.status_code)
        _end(span, None)
        return response


def _end(span: Span, error: Exception | None) -> None:
    if error is not None:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, error.text() if isinstance(error, Refusal) else ""))
    span.end()


def _contexts(texts: Sequence[str]) -> list[SpanContext]:
    """The valid trace contexts among some texts; one of all zeros is invalid (W3C Trace Context, 3.2.2.3)."""
    parsed = (_context(text) for text in texts)
    return [context for context in parsed if context is not None and context.is_valid]


def _context(text: str) -> SpanContext | None:
    parts = text.strip().lower().split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:4])
    except ValueError:
        return None
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def _below(parent: SpanContext) -> Context:
    return set_span_in_context(trace.NonRecordingSpan(parent))


def _nothing(_: Exception | None) -> None:
    """There is no span to end."""
