"""The Azure service's metrics in the Prometheus text format: snake case names, labels `namespace` and `eventhub`.

Values are read from the broker's counters for each scrape; nothing is stored here (reference: service 8). A metric of a
namespace without a hub has the hub name that the Azure service uses for that.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from starlette.responses import Response

from hubmere.broker import (
    CONDITION_NAMES,
    LAG_BOUNDS_S,
    Broker,
    ConditionSeverity,
    HubCaptureStatus,
    JobState,
    NamespaceView,
)
from hubmere.endpoints.http.request import Request

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMESPACE_ONLY = "-NamespaceOnlyMetric-"

# Counters of the broker with their help texts.
_COUNTERS: Mapping[str, str] = {
    "incoming_requests": "Requests; a batch is one request.",
    "successful_requests": "Requests that succeeded.",
    "server_errors": "Requests that failed because of the node.",
    "user_errors": "Requests that failed because of the client.",
    "throttled_requests": "Requests refused or delayed by throughput units or an application group.",
    "quota_exceeded_errors": "Requests refused because of a quota.",
    "incoming_messages": "Events published.",
    "incoming_bytes": "Bytes published.",
    "outgoing_messages": "Events delivered.",
    "outgoing_bytes": "Bytes delivered.",
    "captured_messages": "Events written by capture.",
    "captured_bytes": "Bytes written by capture.",
    "capture_lost_messages": "Events that retention deleted before they were captured.",
}
# A job that is starting is not failing.
_HEALTHY_STATES = frozenset({JobState.RUNNING, JobState.STARTING})
_CAPTURE_GAUGES: tuple[tuple[str, str, Callable[[HubCaptureStatus], int]], ...] = (
    ("capture_backlog", "Bytes that wait to be captured.", lambda hub: hub.backlog_bytes),
    ("capture_lag_messages", "Events that wait to be captured.", lambda hub: hub.lag_events),
    ("capture_held_bytes", "Bytes beyond retention that wait to be captured.", lambda hub: hub.held_bytes),
    (
        "capture_failing",
        "1 while a captured hub is not being captured.",
        lambda hub: int(hub.state not in _HEALTHY_STATES),
    ),
)
_CONNECTIONS: tuple[tuple[str, str, str], ...] = (
    ("active_connections", "gauge", "Open connections."),
    ("connections_opened", "counter", "Connections opened."),
    ("connections_closed", "counter", "Connections closed."),
    ("memory_refusals", "counter", "Connections and requests refused because the memory budget was used up."),
)
_MEASURES: Mapping[str, str] = {
    "disk_free_bytes": "Free bytes on the disk of the data folder.",
    "disk_total_bytes": "Size of the disk of the data folder.",
    "clock_step_seconds": "Difference in seconds between the machine's clock and the node's own.",
}
# Event-loop lag; a histogram has the series `_bucket`, `_sum` and `_count`.
_LAG, _LONGEST_LAG = "event_loop_lag_seconds", "event_loop_longest_lag_seconds"
_ESCAPES = re.compile(r'[\\"\n]')


class Metric(NamedTuple):
    """The declaration of a metric."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


_PER_HUB = ("namespace", "eventhub")
# Every metric, in the order of the output. The capture metrics are omitted while no hub is captured.
METRICS: tuple[Metric, ...] = (
    *(Metric(name, "counter", sentence, _PER_HUB) for name, sentence in _COUNTERS.items()),
    Metric("size", "gauge", "Size of the open logs of an event hub in bytes.", _PER_HUB),
    Metric("damaged_ranges", "gauge", "Ranges of stored events that cannot be read.", _PER_HUB),
    Metric("damaged_events", "gauge", "Stored events that cannot be read.", _PER_HUB),
    Metric("node_condition", "gauge", "1 while a condition of the machine exists.", ("name", "severity")),
    *(Metric(name, "gauge", sentence) for name, sentence in _MEASURES.items()),
    Metric(_LAG, "histogram", "How late the node's event loop runs what is due; delays every client.", ("le",)),
    Metric(_LONGEST_LAG, "gauge", "The longest delay of the node's event loop in the last minute."),
    *(Metric(name, "gauge", sentence, _PER_HUB) for name, sentence, _ in _CAPTURE_GAUGES),
    Metric("capture_job_restarts", "counter", "Restarts of the capture job."),
    *(Metric(*declared) for declared in _CONNECTIONS),
)
_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


async def get_metrics(request: Request) -> Response:
    """All metrics of the node, for scrapers on this machine and for the administrator."""
    if not _is_loopback(request.peer):
        request.sign_in_admin()
    metrics = lines(request.context.broker, request.context.clock.monotonic())
    return Response("".join(f"{line}\n" for line in metrics).encode(), 200, media_type=TEXT_TYPE)


def lines(broker: Broker, now: float) -> Iterator[str]:
    """The output, line by line."""
    namespaces = broker.namespace_views()
    counters = [
        (namespace, name, counted)
        for namespace in namespaces
        for name, counted in (
            (NAMESPACE_ONLY, namespace.counters),
            *((hub.name, hub.counters) for hub in namespace.hubs()),
        )
    ]
    for name in _COUNTERS:
        yield from _header_lines(name)
        for namespace, hub_name, counted in counters:
            yield _sample(name, namespace, hub_name, getattr(counted, name))
    yield from _header_lines("size")
    for namespace in namespaces:
        for hub in namespace.hubs():
            yield _sample("size", namespace, hub.name, hub.size_bytes)
    yield from _damage(namespaces)
    yield from _machine(broker)
    yield from _loop_lag(broker, now)
    yield from _capture(broker, now)
    yield from _connections(broker)


def _damage(namespaces: list[NamespaceView]) -> Iterator[str]:
    """Damage: a value above 0 means that readers skip stored events."""
    found = [
        (namespace, hub.name, [each for _, each in hub.damaged_ranges()])
        for namespace in namespaces
        for hub in namespace.hubs()
    ]
    yield from _header_lines("damaged_ranges")
    for namespace, hub, ranges in found:
        yield _sample("damaged_ranges", namespace, hub, len(ranges))
    yield from _header_lines("damaged_events")
    for namespace, hub, ranges in found:
        yield _sample("damaged_events", namespace, hub, sum(each.event_count for each in ranges))


def _machine(broker: Broker) -> Iterator[str]:
    """Disk and clock of the machine."""
    yield from _header_lines("node_condition")
    for name in CONDITION_NAMES:
        found = broker.conditions.find(name)
        for severity in ConditionSeverity:
            is_active = found is not None and found.severity is severity
            yield f'node_condition{{name="{name}",severity="{severity.value}"}} {int(is_active)}'
    for name in _MEASURES:
        yield from _header_lines(name)
        yield f"{name} {broker.conditions.measures.get(name, 0):.0f}"


def _loop_lag(broker: Broker, now: float) -> Iterator[str]:
    """Event-loop lag, as `broker.loop_lag` has it."""
    lag = broker.loop_lag
    yield from _header_lines(_LAG)
    for bound_s, count in zip(LAG_BOUNDS_S, lag.cumulative_counts(), strict=True):
        yield f'{_LAG}_bucket{{le="{bound_s:g}"}} {count}'
    yield f'{_LAG}_bucket{{le="+Inf"}} {lag.count}'
    yield f"{_LAG}_sum {lag.total_s:.6f}"
    yield f"{_LAG}_count {lag.count}"
    yield from _header_lines(_LONGEST_LAG)
    yield f"{_LONGEST_LAG} {lag.longest_s(now):.6f}"


def _capture(broker: Broker, now: float) -> Iterator[str]:
    """Capture: what waits for it, and what retention keeps for it, which should be 0."""
    statuses = [(hub, broker.captures.hub_status(hub, now)) for hub in broker.captures.hubs()]
    for name, _, value in _CAPTURE_GAUGES if statuses else ():
        yield from _header_lines(name)
        for hub, status in statuses:
            yield _sample(name, hub.namespace, hub.name, value(status))
    yield from _header_lines("capture_job_restarts")
    yield f"capture_job_restarts {broker.captures.supervision.restarts}"


def _connections(broker: Broker) -> Iterator[str]:
    """Connections, counted for the node: a client may use several namespaces on one connection."""
    for name, _, _ in _CONNECTIONS:
        yield from _header_lines(name)
        yield f"{name} {getattr(broker.counters, name)}"


def _header_lines(name: str) -> Iterator[str]:
    metric = _BY_NAME[name]
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"


def _sample(name: str, namespace: NamespaceView, hub: str, value: int) -> str:
    return f'{name}{{namespace="{_escape(namespace.name)}",eventhub="{_escape(hub)}"}} {value}'


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _escape(text: str) -> str:
    return _ESCAPES.sub(lambda found: {"\\": r"\\", '"': r"\"", "\n": r"\n"}[found.group()], text)
