"""Event processors as ARM resources: checkpoint, owner and lag of each partition, from the blobs that they keep here.

A reset stores other checkpoints, as a reset of a Kafka group commits other offsets; with `preview` it changes nothing.
The Azure service has no such path; it is for the command line and other tools, and needs the Manage right on the
namespace.
"""

from starlette.responses import Response

from hubmere.broker import ProcessorGroup, ProcessorState
from hubmere.endpoints.http.arm.kafka_groups import ResetBody, planned_json
from hubmere.endpoints.http.arm.models import ShortText, parse_body
from hubmere.endpoints.http.arm.paths import NAMESPACE
from hubmere.endpoints.http.arm.request import ArmRequest, json_response
from hubmere.endpoints.http.arm.serializer import PROVIDER, Json, iso_time
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.names import DEFAULT_GROUP


def processor_routes() -> Routes:
    """Handlers by path and method."""
    return {
        f"{NAMESPACE}/processors": {"GET": list_processors},
        f"{NAMESPACE}/processors/reset": {"POST": reset_processor},
    }


async def list_processors(request: Request) -> Response:
    """The partitions of event processors that keep checkpoints on this node."""
    namespace = ArmRequest(request).caller.namespace.name
    context = request.context
    page, next_url = request.page(context.broker.processors.states(namespace, context.clock.now_ms()))
    body: Json = {"value": [_item(state) for state in page]}
    if next_url is not None:
        body["nextLink"] = next_url
    return json_response(body)


class ProcessorResetBody(ResetBody):
    """POST of reset. `container` is needed if several containers have checkpoints of the consumer group."""

    event_hub: ShortText
    consumer_group: ShortText = DEFAULT_GROUP
    container: ShortText | None = None


async def reset_processor(request: Request) -> Response:
    """Store other checkpoints for processors that do not run, or only preview them."""
    arm = ArmRequest(request)
    body = parse_body(ProcessorResetBody, await request.body())
    group = ProcessorGroup(hub=body.event_hub, group=body.consumer_group, container=body.container)
    processors, namespace, reset = request.context.broker.processors, arm.namespace.name, body.reset()
    planned = processors.plan_reset(namespace, group, reset)
    if not body.preview:
        await await_change(lambda on_done: processors.reset(namespace, group, reset, arm.actor, on_done))
    return json_response({"value": [planned_json(each) for each in planned]})


def _item(position: ProcessorState) -> Json:
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
            "ownerMovesPerMinute": position.owner_moves,
            "problems": list(position.problems),
            "container": stored.container,
        },
    }
