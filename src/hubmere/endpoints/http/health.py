"""Whether the node lives and whether it can be used: for containers, load balancers and compose files.

`/health` answers in the official emulator's shape (reference: service 9), so that checks written for it go on working.
`/ready` tells what there is to use and which partitions take nothing now; those others serve on, so it stays a 200.
"""

import json

from starlette.responses import Response

from hubmere.endpoints.http.call import Call
from hubmere.endpoints.http.errors import JSON_TYPE

# Enough to see what they have in common; the count tells the rest.
_SHOWN_PARTITIONS = 100


async def show_health(_call: Call) -> Response:
    """The node answers, so it lives."""
    return _told(200, {"status": "healthy", "message": "Service is healthy."})


async def show_ready(call: Call) -> Response:
    """Ports are opened last, so whoever is answered may use everything that is there and not named as offline."""
    namespaces = call.site.broker.namespaces.values()
    hubs = [hub for namespace in namespaces for hub in namespace.hubs.values()]
    offline = [
        f"{hub.namespace.entity.name}/{hub.name}/{partition}" for hub in hubs for partition in hub.offline_partitions()
    ]
    told: dict[str, object] = {
        "status": "degraded" if offline else "ready",
        "namespaces": len(namespaces),
        "eventHubs": len(hubs),
        "offlinePartitionCount": len(offline),
        "offlinePartitions": offline[:_SHOWN_PARTITIONS],
    }
    return _told(200, told)


def _told(status: int, body: dict[str, object]) -> Response:
    return Response(json.dumps(body).encode(), status, media_type=JSON_TYPE)
