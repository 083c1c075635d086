"""Whether the node lives and whether it can be used: for containers, load balancers and compose files.

`/health` answers in the official emulator's shape (reference: service 9), so that checks written for it go on working.
`/ready` tells what there is to use.
"""

import json

from starlette.responses import Response

from hubmere.endpoints.http.call import Call
from hubmere.endpoints.http.errors import JSON_TYPE


async def show_health(_call: Call) -> Response:
    """The node answers, so it lives."""
    return _told(200, {"status": "healthy", "message": "Service is healthy."})


async def show_ready(call: Call) -> Response:
    """Ports are opened last, so whoever is answered may use everything; tells what there is to use."""
    namespaces = call.site.broker.namespaces.values()
    hubs = sum(len(namespace.hubs) for namespace in namespaces)
    return _told(200, {"status": "ready", "namespaces": len(namespaces), "eventHubs": hubs})


def _told(status: int, body: dict[str, object]) -> Response:
    return Response(json.dumps(body).encode(), status, media_type=JSON_TYPE)
