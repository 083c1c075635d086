"""The metrics of a node: the Azure service's in snake case with labels `namespace` and `eventhub`, and the node's own.

Values are read from the broker for each scrape; nothing is stored here (reference: service 8). A metric of a namespace
without a hub has the hub name that the Azure service uses for that. Names start with `hubmere_`, except those of the
process, which have the names of Prometheus client libraries.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence

from starlette.responses import Response

from hubmere import __version__
from hubmere.broker import (
    CONDITION_NAMES,
    LAG_BOUNDS_S,
    Broker,
    ConditionSeverity,
    HubCaptureStatus,
    JobState,
    NamespaceView,
)
from hubmere.endpoints.http.metrics.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    Family,
    Metric,
    Sample,
    histogram_samples,
    lines,
    wants_openmetrics,
)
from hubmere.endpoints.http.metrics.lag import LAG, OMITTED, ConsumerLags, consumer_lags
from hubmere.endpoints.http.metrics.process import PROCESS_METRICS, process_families
from hubmere.endpoints.http.request import Request
from hubmere.model.monitoring.pulse import GatewayStatus

NAMESPACE_ONLY = "-NamespaceOnlyMetric-"
_PER_HUB = ("namespace", "eventhub")

# Counters of the broker by their names there, with their help texts.
_COUNTERS: Mapping[str, Metric] = {
    name: Metric(f"hubmere_{name}_total", COUNTER, sentence, _PER_HUB)
    for name, sentence in {
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
    }.items()
}
_SIZE = Metric("hubmere_size_bytes", GAUGE, "Size of the open logs of an event hub in bytes.", _PER_HUB)
_RECOVERING = Metric(
    "hubmere_recovering_partitions", GAUGE, "Partitions that are still being recovered after a crash.", _PER_HUB
)
_DAMAGED_RANGES = Metric("hubmere_damaged_ranges", GAUGE, "Ranges of stored events that cannot be read.", _PER_HUB)
_DAMAGED_EVENTS = Metric("hubmere_damaged_events", GAUGE, "Stored events that cannot be read.", _PER_HUB)
_CONDITION = Metric("hubmere_node_condition", GAUGE, "1 while a condition of the machine exists.", ("name", "severity"))
# Measures of the machine by their names in the broker.
_MEASURES: Mapping[str, Metric] = {
    name: Metric(f"hubmere_{name}", GAUGE, sentence)
    for name, sentence in {
        "disk_free_bytes": "Free bytes on the disk of the data folder.",
        "disk_total_bytes": "Size of the disk of the data folder.",
        "clock_step_seconds": "Difference in seconds between the machine's clock and the node's own.",
    }.items()
}
_COMMIT = Metric(
    "hubmere_publish_commit_seconds",
    HISTOGRAM,
    "Time from the append of a publication to its acknowledgement; all of a group commit count as its oldest.",
)
_FETCH = Metric(
    "hubmere_kafka_fetch_wait_seconds",
    HISTOGRAM,
    "Time from the arrival of a Kafka fetch to its answer; a fetch waits for events on purpose.",
)
_LOOP_LAG = Metric(
    "hubmere_event_loop_lag_seconds", HISTOGRAM, "How late the node's event loop runs what is due; delays every client."
)
_LONGEST_LAG = Metric(
    "hubmere_event_loop_longest_lag_seconds", GAUGE, "The longest delay of the node's event loop in the last minute."
)
# A job that is starting, or has nothing to do, is not failing.
_HEALTHY_STATES = frozenset({JobState.RUNNING, JobState.STARTING, JobState.SLEEPING, JobState.ELSEWHERE})
_CAPTURE_GAUGES: tuple[tuple[Metric, Callable[[HubCaptureStatus], int]], ...] = (
    (
        Metric("hubmere_capture_backlog_bytes", GAUGE, "Bytes that wait to be captured.", _PER_HUB),
        lambda hub: hub.backlog_bytes,
    ),
    (
        Metric("hubmere_capture_lag_messages", GAUGE, "Events that wait to be captured.", _PER_HUB),
        lambda hub: hub.lag_events,
    ),
    (
        Metric("hubmere_capture_held_bytes", GAUGE, "Bytes beyond retention that wait to be captured.", _PER_HUB),
        lambda hub: hub.held_bytes,
    ),
    (
        Metric("hubmere_capture_failing", GAUGE, "1 while a captured hub is not being captured.", _PER_HUB),
        lambda hub: int(hub.state not in _HEALTHY_STATES),
    ),
)
_RESTARTS = Metric("hubmere_capture_job_restarts_total", COUNTER, "Restarts of the capture job.")
# Counters of connections by their names in the broker.
_CONNECTIONS: Mapping[str, Metric] = {
    "active_connections": Metric("hubmere_active_connections", GAUGE, "Open connections."),
    "connections_opened": Metric("hubmere_connections_opened_total", COUNTER, "Connections opened."),
    "connections_closed": Metric("hubmere_connections_closed_total", COUNTER, "Connections closed."),
    "memory_refusals": Metric(
        "hubmere_memory_refusals_total",
        COUNTER,
        "Connections and requests refused because the memory budget was used up.",
    ),
}
_PER_GATEWAY = ("gateway", "session")
# Metrics of each gateway of a cluster, as this one sees it; omitted on a single node.
_GATEWAYS: tuple[tuple[Metric, Callable[[GatewayStatus], float | None]], ...] = (
    (
        Metric(
            "hubmere_gateway_up",
            GAUGE,
            "1 for a gateway of the cluster that is alive, 0 for one that has died in the last 15 minutes.",
            _PER_GATEWAY,
        ),
        lambda each: int(not each.is_gone),
    ),
    (
        Metric("hubmere_gateway_connections", GAUGE, "Open connections of a gateway of the cluster.", _PER_GATEWAY),
        lambda each: each.connections,
    ),
    (
        Metric(
            "hubmere_gateway_control_log_lag",
            GAUGE,
            "Entries of the control log that a gateway of the cluster has not read.",
            _PER_GATEWAY,
        ),
        lambda each: each.lag,
    ),
    (
        Metric(
            "hubmere_gateway_silence_seconds",
            GAUGE,
            "Time since the last report of a gateway of the cluster.",
            _PER_GATEWAY,
        ),
        lambda each: None if each.silent_s is None else round(each.silent_s, 3),
    ),
)
_GATEWAY = Metric(
    "hubmere_gateway_info",
    GAUGE,
    "1; the labels are the version and the roles of a gateway of the cluster.",
    (*_PER_GATEWAY, "version", "roles"),
)
_BUILD = Metric("hubmere_build_info", GAUGE, "1; the label is the version of the node.", ("version",))

# Every metric, in the order of the output. The capture metrics are omitted while no hub is captured.
METRICS: tuple[Metric, ...] = (
    *_COUNTERS.values(), _SIZE, LAG, OMITTED, _COMMIT, _FETCH, _RECOVERING, _DAMAGED_RANGES, _DAMAGED_EVENTS,
    _CONDITION, *_MEASURES.values(), _LOOP_LAG, _LONGEST_LAG, *(metric for metric, _ in _CAPTURE_GAUGES), _RESTARTS,
    *_CONNECTIONS.values(), _GATEWAY, *(metric for metric, _ in _GATEWAYS), _BUILD, *PROCESS_METRICS,
)  # fmt: skip


async def get_metrics(request: Request) -> Response:
    """All metrics of the node, for scrapers on this machine and for the administrator."""
    if not _is_loopback(request.peer):
        request.sign_in_admin()
    broker, clock = request.context.broker, request.context.clock
    lags = await consumer_lags(broker, clock)
    is_openmetrics = wants_openmetrics(request.header("accept"))
    text = "".join(
        f"{line}\n" for line in lines(_families(broker, lags, clock.monotonic()), is_openmetrics=is_openmetrics)
    )
    return Response(text.encode(), 200, media_type=OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE)


def _families(broker: Broker, lags: ConsumerLags, now: float) -> Iterator[Family]:
    namespaces = broker.namespace_views()
    yield from _traffic(namespaces)
    yield from lags.families()
    yield _COMMIT, histogram_samples(broker.latencies.commit)
    yield _FETCH, histogram_samples(broker.latencies.fetch_wait)
    yield from _damage(namespaces)
    yield from _machine(broker)
    yield _LOOP_LAG, _loop_lag(broker)
    yield _LONGEST_LAG, (Sample((), round(broker.loop_lag.longest_s(now), 6)),)
    yield from _capture(broker, now)
    for name, metric in _CONNECTIONS.items():
        # Counted for the node: a client may use several namespaces on one connection.
        yield metric, (Sample((), getattr(broker.counters, name)),)
    yield from _gateways(broker.gateways())
    yield _BUILD, (Sample((__version__,), 1),)
    yield from process_families()


def _gateways(gateways: Sequence[GatewayStatus]) -> Iterator[Family]:
    """The gateways of a cluster; a value that is not known is omitted."""
    if not gateways:
        return
    yield (
        _GATEWAY,
        [Sample((each.address, each.session, each.version, ",".join(each.roles)), 1) for each in gateways],
    )
    for metric, value in _GATEWAYS:
        known = [(each, number) for each in gateways if (number := value(each)) is not None]
        yield metric, [Sample((each.address, each.session), number) for each, number in known]


def _traffic(namespaces: list[NamespaceView]) -> Iterator[Family]:
    counters = [
        (namespace.name, name, counted)
        for namespace in namespaces
        for name, counted in (
            (NAMESPACE_ONLY, namespace.counters),
            *((hub.name, hub.counters) for hub in namespace.hubs()),
        )
    ]
    for field, metric in _COUNTERS.items():
        yield metric, [Sample((namespace, hub), getattr(counted, field)) for namespace, hub, counted in counters]
    yield (
        _SIZE,
        [Sample((namespace.name, hub.name), hub.size_bytes) for namespace in namespaces for hub in namespace.hubs()],
    )


def _damage(namespaces: list[NamespaceView]) -> Iterator[Family]:
    """Recovery and damage: a value above 0 means that clients wait, or that readers skip stored events."""
    found = [
        ((namespace.name, hub.name), [each for _, each in hub.damaged_ranges()])
        for namespace in namespaces
        for hub in namespace.hubs()
    ]
    yield (
        _RECOVERING,
        [
            Sample((namespace.name, hub.name), len(hub.recovering_partitions))
            for namespace in namespaces
            for hub in namespace.hubs()
        ],
    )
    yield _DAMAGED_RANGES, [Sample(labels, len(ranges)) for labels, ranges in found]
    yield _DAMAGED_EVENTS, [Sample(labels, sum(each.event_count for each in ranges)) for labels, ranges in found]


def _machine(broker: Broker) -> Iterator[Family]:
    """Disk and clock of the machine."""
    active = [broker.conditions.find(name) for name in CONDITION_NAMES]
    yield (
        _CONDITION,
        [
            Sample((name, severity.value), int(found is not None and found.severity is severity))
            for name, found in zip(CONDITION_NAMES, active, strict=True)
            for severity in ConditionSeverity
        ],
    )
    for name, metric in _MEASURES.items():
        yield metric, (Sample((), round(broker.conditions.measures.get(name, 0))),)


def _loop_lag(broker: Broker) -> Iterator[Sample]:
    """Event-loop lag, as `broker.monitoring.loop_lag` has it."""
    lag = broker.loop_lag
    for bound_s, count in zip(LAG_BOUNDS_S, lag.cumulative_counts(), strict=True):
        yield Sample((), count, "_bucket", f"{bound_s:g}")
    yield Sample((), lag.count, "_bucket", "+Inf")
    yield Sample((), round(lag.total_s, 6), "_sum")
    yield Sample((), lag.count, "_count")


def _capture(broker: Broker, now: float) -> Iterator[Family]:
    """Capture: events that are not captured yet, and those that retention keeps for it (should be 0)."""
    statuses = [(hub, broker.captures.hub_status(hub, now)) for hub in broker.captures.hubs()]
    for metric, value in _CAPTURE_GAUGES if statuses else ():
        yield metric, [Sample((hub.namespace.name, hub.name), value(status)) for hub, status in statuses]
    yield _RESTARTS, (Sample((), broker.captures.supervision.restarts),)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
