"""Event processors as ARM resources: checkpoint, owner and lag of each partition, from the blobs that they keep here.

The Azure service has no such path; it is for the command line and other tools, and needs the Manage right on the
namespace.
"""

from starlette.responses import Response

from hubmere.broker import ProcessorPosition
from hubmere.endpoints.http.arm.paths import NAMESPACE
from hubmere.endpoints.http.arm.request import ArmRequest, json_response
from hubmere.endpoints.http.arm.serializer import PROVIDER, Json, iso_time
from hubmere.endpoints.http.request import Request, Routes


def processor_routes() -> Routes:
    """Handlers by path and method."""
    return {f"{NAMESPACE}/processors": {"GET": list_processors}}


async def list_processors(request: Request) -> Response:
    """The partitions of event processors that keep checkpoints on this node."""
    namespace = ArmRequest(request).caller.namespace.name
    found = [each for each in request.context.broker.processor_positions() if each.namespace == namespace]
    page, next_url = request.page(found)
    body: Json = {"value": [_item(position) for position in page]}
    if next_url is not None:
        body["nextLink"] = next_url
    return json_response(body)


def _item(position: ProcessorPosition) -> Json:
    stored = position.stored
    return {
        "name": f"{position.hub}/{stored.group}/{position.partition}",
        "type": f"{PROVIDER}/Namespaces/Processors",
        "properties": {
            "eventHub": position.hub,
            "consumerGroup": stored.group,
            "partition": position.partition,
            "owner": stored.owner,
            "ownedAt": None if stored.owned_ms is None else iso_time(stored.owned_ms),
            "sequenceNumber": stored.sequence,
            "checkpointAt": None if stored.checkpoint_ms is None else iso_time(stored.checkpoint_ms),
            "lag": position.lag,
            "container": stored.container,
        },
    }
