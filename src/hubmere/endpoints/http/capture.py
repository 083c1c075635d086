"""The capture job's door: what it is to do, and how far it has come. For the administrator's token only.

The job may run on this machine or on any other that reaches the node: it is told to read where it asked, under the same
name and with TLS if it asked over TLS, so what let it in here lets it in there.
"""

import json
import logging

from starlette.responses import Response

from hubmere.broker import NewFile
from hubmere.endpoints.http.arm.capture_models import ProgressBody, file_json, plan_json
from hubmere.endpoints.http.arm.models import parse_body
from hubmere.endpoints.http.arm.request import json_response
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.capture import PLAN_PATH, PROGRESS_PATH
from hubmere.model.errors import NotSupported

log = logging.getLogger("hubmere.capture")

# Routes have no leading slash.
PLAN_ROUTE = PLAN_PATH.lstrip("/")
PROGRESS_ROUTE = PROGRESS_PATH.lstrip("/")
# Ten thousand partitions with their last file each; only the administrator's token gets as far as that.
_MAX_REPORT_BYTES = 16 * 1024 * 1024


async def get_plan(request: Request) -> Response:
    """What is to be captured, and where to: for the capture job."""
    request.sign_in_admin()
    bootstrap, security = _way_in(request)
    broker, addresses = request.context.broker, request.context.addresses
    shape = plan_json(
        broker.captures.plan(),
        addresses,
        broker.access.capture_credential,
        bootstrap=bootstrap,
        security=security,
        ca_file=addresses.ca_file,
    )
    return json_response(shape)


async def report_progress(request: Request) -> Response:
    """How far the capture job has come; answered once it is durable."""
    request.sign_in_admin()
    body = parse_body(ProgressBody, await request.body(_MAX_REPORT_BYTES))
    context, hubs = request.context, [hub.value() for hub in body.hubs]
    now, now_ms = context.clock.monotonic(), context.clock.now_ms()
    files = await await_change(
        lambda done: context.broker.captures.take(body.job.value(), hubs, now=now, now_ms=now_ms, done=done)
    )
    for file in files:
        _tell(file)
    return Response(b"", 204)


def _way_in(request: Request) -> tuple[str, str]:
    """Host and port to read from, and Kafka's word for how."""
    addresses, host = request.context.addresses, _host_of(request)
    ways = (("SASL_PLAINTEXT", addresses.kafka), ("SASL_SSL", addresses.kafkas))
    if request.scope["scheme"] == "https":
        ways = (ways[1], ways[0])
    for security, port in ways:
        if port is not None:
            return f"{host}:{port}", security
    raise NotSupported("Capture on a node without a Kafka port")


def _host_of(request: Request) -> str:
    """The name under which the job found the node, without the port."""
    host = request.host or request.context.addresses.host
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _tell(new: NewFile) -> None:
    """One line for each file, with what the service tells Event Grid (reference: service 6)."""
    told = {"fileType": "AzureBlockBlob", "partitionId": str(new.partition), **file_json(new.file)}
    told.pop("name")
    log.info(
        "CaptureFileCreated eventhubs/%s %s",
        new.hub,
        json.dumps(told, ensure_ascii=False),
        extra={"namespace": new.namespace, "hub": new.hub},
    )


OWN: Routes = {PLAN_ROUTE: {"GET": get_plan}, PROGRESS_ROUTE: {"POST": report_progress}}
