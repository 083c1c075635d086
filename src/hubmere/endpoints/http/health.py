"""Liveness (`/health`) and readiness (`/ready`), for containers, load balancers and compose files.

`/health` has the format of the official emulator (reference: service 9), so that checks written for it keep working;
`warnings` is added while there are problems. `/ready` lists the problems in detail: offline partitions, damaged ranges,
and conditions of the machine (disk, clock). After a crash it also lists the partitions that are still being recovered:
requests for them wait. Everything else is served, so the status stays 200. A gateway that is cut off from its cluster
answers `/health` with 503.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from starlette.responses import Response

from hubmere.broker import CLUSTER_CONDITION, Broker, ConditionSeverity, HubView
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.request import Request
from hubmere.model.monitoring.damage import DamagedRange

# Enough to see what they have in common. The response has the full count.
_MAX_LISTED_PARTITIONS = 100
_MAX_LISTED_RANGES = 100
_MAX_LISTED_GATEWAYS = 100
_UNAVAILABLE = 503


async def get_health(request: Request) -> Response:
    """Liveness: the node answers. Each problem is one sentence in `warnings`."""
    broker = request.context.broker
    body: dict[str, object] = {"status": "healthy", "message": "Service is healthy."}
    if warnings := list(_warnings(broker)):
        body["warnings"] = warnings
    cluster = broker.conditions.find(CLUSTER_CONDITION)
    if cluster is not None and cluster.severity is ConditionSeverity.CRITICAL:
        # Another gateway can serve: a balancer should use it.
        return _json_response(body | {"status": "unhealthy", "message": cluster.text}, _UNAVAILABLE)
    return _json_response(body)


async def get_ready(request: Request) -> Response:
    """Readiness: ports open last, so everything can be used except what is listed here."""
    broker = request.context.broker
    hubs = _hubs(broker)
    offline = [f"{_name(hub)}/{partition}" for hub in hubs for partition in hub.offline_partitions()]
    recovering = [f"{_name(hub)}/{partition}" for hub in hubs for partition in hub.recovering_partitions]
    damaged = [_damage(hub, *found) for hub in hubs for found in hub.damaged_ranges()]
    conditions = [
        {"name": each.name, "severity": each.severity.value, "message": each.text} for each in broker.conditions.all()
    ]
    return _json_response(
        {
            "status": "degraded" if offline or damaged or conditions else "recovering" if recovering else "ready",
            "namespaces": len(broker.namespace_views()),
            "eventHubs": len(hubs),
            "offlinePartitionCount": len(offline),
            "offlinePartitions": offline[:_MAX_LISTED_PARTITIONS],
            "recoveringPartitionCount": len(recovering),
            "recoveringPartitions": recovering[:_MAX_LISTED_PARTITIONS],
            "damagedRangeCount": len(damaged),
            "damagedRanges": damaged[:_MAX_LISTED_RANGES],
            "conditions": conditions,
            **_gateways(broker),
        }
    )


def _gateways(broker: Broker) -> dict[str, object]:
    """The gateways of the cluster; nothing on a single node."""
    found = [
        {
            "address": each.address,
            "version": each.version,
            "roles": list(each.roles),
            "connections": each.connections,
            "controlLogLag": each.lag,
            "silentSeconds": None if each.silent_s is None else round(each.silent_s, 1),
            "isThis": each.is_self,
            "isGone": each.is_gone,
            "lastSeen": None if each.last_seen_ms is None else _utc(each.last_seen_ms),
        }
        for each in broker.gateways()
    ]
    return {"gatewayCount": len(found), "gateways": found[:_MAX_LISTED_GATEWAYS]} if found else {}


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _hubs(broker: Broker) -> list[HubView]:
    return [hub for namespace in broker.namespace_views() for hub in namespace.hubs()]


def _name(hub: HubView) -> str:
    return f"{hub.namespace.name}/{hub.name}"


def _warnings(broker: Broker) -> Iterator[str]:
    for condition in broker.conditions.all():
        yield condition.text
    hubs = _hubs(broker)
    if offline := sum(len(hub.offline_partitions()) for hub in hubs):
        yield f"{offline} partitions are offline; see /ready."
    if recovering := sum(len(hub.recovering_partitions) for hub in hubs):
        yield f"{recovering} partitions are being recovered after a crash; see /ready."
    if damaged := sum(len(hub.damaged_ranges()) for hub in hubs):
        yield f"{damaged} ranges of stored events cannot be read; see /ready."


def _damage(hub: HubView, partition: int, found: DamagedRange) -> dict[str, object]:
    return {
        "partition": f"{_name(hub)}/{partition}",
        "firstSequenceNumber": found.first_sequence,
        "lastSequenceNumber": found.next_sequence - 1,
        "kind": found.kind.value,
        "reason": found.reason,
        "place": found.place,
    }


def _json_response(body: dict[str, object], status: int = 200) -> Response:
    return Response(json.dumps(body).encode(), status, media_type=JSON_TYPE)
