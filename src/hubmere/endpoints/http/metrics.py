"""The service's metrics in the Prometheus text format: names in snake case, labels `namespace` and `eventhub`.

Counts are read from the broker's plain numbers when asked; nothing is kept here (reference: service 8). What concerns a
namespace and no hub carries the service's own name for that.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from starlette.responses import Response

from hubmere.broker.live import LiveNamespace
from hubmere.broker.service import Broker
from hubmere.endpoints.http.call import Call

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMESPACE_ONLY = "-NamespaceOnlyMetric-"

# Counters of the broker, with the sentence that a scrape shows.
_COUNTERS: Mapping[str, str] = {
    "incoming_requests": "Requests made, a batch is one.",
    "successful_requests": "Requests that were carried out.",
    "server_errors": "Requests that failed because of the node.",
    "user_errors": "Requests that failed because of the client.",
    "throttled_requests": "Requests refused because of throughput units.",
    "quota_exceeded_errors": "Requests refused because of a quota.",
    "incoming_messages": "Events published.",
    "incoming_bytes": "Bytes published.",
    "outgoing_messages": "Events delivered.",
    "outgoing_bytes": "Bytes delivered.",
    "captured_messages": "Events written by capture.",
    "captured_bytes": "Bytes written by capture.",
}
_ESCAPES = re.compile(r'[\\"\n]')


async def show_metrics(call: Call) -> Response:
    """Every metric of the node: for scrapers on this machine, and for whoever has the administrator's token."""
    if not _is_loopback(call.peer):
        call.site.identity.require_admin(call.authorization)
    return Response("".join(f"{line}\n" for line in lines(call.site.broker)).encode(), 200, media_type=TEXT_TYPE)


def lines(broker: Broker) -> Iterator[str]:
    """The exposition, line by line."""
    namespaces = [broker.namespaces[name] for name in sorted(broker.namespaces)]
    for name, sentence in _COUNTERS.items():
        yield from _head(name, "counter", sentence)
        for namespace in namespaces:
            yield _sample(name, namespace, NAMESPACE_ONLY, getattr(namespace.counters, name))
            for hub in namespace.hubs.values():
                yield _sample(name, namespace, hub.name, getattr(hub.counters, name))
    yield from _head("size", "gauge", "Bytes that the open logs of an event hub hold.")
    for namespace in namespaces:
        for hub in namespace.hubs.values():
            yield _sample("size", namespace, hub.name, sum(log.state.size_bytes for log in hub.open_logs()))
    yield from _connections(broker)


def _connections(broker: Broker) -> Iterator[str]:
    """Connections belong to the node: a client may speak to several namespaces over one."""
    counters = broker.counters
    for name, kind, sentence, value in (
        ("active_connections", "gauge", "Connections that are open.", counters.active_connections),
        ("connections_opened", "counter", "Connections opened.", counters.connections_opened),
        ("connections_closed", "counter", "Connections closed.", counters.connections_closed),
    ):
        yield from _head(name, kind, sentence)
        yield f"{name} {value}"


def _head(name: str, kind: str, sentence: str) -> Iterator[str]:
    yield f"# HELP {name} {sentence}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, namespace: LiveNamespace, hub: str, value: int) -> str:
    return f'{name}{{namespace="{_escaped(namespace.entity.name)}",eventhub="{_escaped(hub)}"}} {value}'


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _escaped(text: str) -> str:
    return _ESCAPES.sub(lambda found: {"\\": r"\\", '"': r"\"", "\n": r"\n"}[found.group()], text)
