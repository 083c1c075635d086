"""Paths for the capture job, which needs the administrator's token: its plan, and reports of its progress.

The job may run on any machine that reaches the node. The plan names the Kafka endpoint under the host name that the job
used for this request, and with TLS if the request used TLS, so the job can reach it.
"""

import json
import logging
from base64 import b64encode
from dataclasses import replace

from starlette.responses import Response

from hubmere.broker import NewFile, blob_storage
from hubmere.endpoints.http.arm.capture_models import ProgressBody, file_json, plan_json
from hubmere.endpoints.http.arm.models import parse_body
from hubmere.endpoints.http.arm.request import json_response
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.capture.targets import PLAN_PATH, PROGRESS_PATH, CapturePlace
from hubmere.model.errors import NotSupported

log = logging.getLogger("hubmere.capture")

# Routes have no leading slash.
PLAN_ROUTE = PLAN_PATH.lstrip("/")
PROGRESS_ROUTE = PROGRESS_PATH.lstrip("/")
# Enough for ten thousand partitions with their last files. Only the administrator can send so much.
_MAX_REPORT_BYTES = 16 * 1024 * 1024


async def get_plan(request: Request) -> Response:
    """What the capture job has to capture, and where to."""
    request.sign_in_admin()
    bootstrap, security = _kafka_endpoint(request)
    broker, addresses = request.context.broker, request.context.addresses
    hubs = [replace(hub, place=await _with_credentials(request, hub.place)) for hub in broker.captures.plan()]
    shape = plan_json(
        hubs,
        addresses,
        broker.access.capture_credential,
        bootstrap=bootstrap,
        security=security,
        ca_file=addresses.ca_file,
    )
    return json_response(shape)


async def report_progress(request: Request) -> Response:
    """Store the progress of the capture job; answered once it is durable."""
    request.sign_in_admin()
    body = parse_body(ProgressBody, await request.body(_MAX_REPORT_BYTES))
    context, hubs = request.context, [hub.value() for hub in body.hubs]
    now, now_ms = context.clock.monotonic(), context.clock.now_ms()
    files = await await_change(
        lambda on_done: context.broker.captures.record_report(
            body.job.value(), hubs, now=now, now_ms=now_ms, on_done=on_done
        )
    )
    for file in files:
        _log_file(file)
    return Response(b"", 204)


async def _with_credentials(request: Request, place: CapturePlace) -> CapturePlace:
    """A place with all that the job needs to write there: for the node's own storage account, its address and a key.

    The container is created, so that Capture into the node needs no other step.
    """
    if not place.is_own_storage:
        return place
    context, (account, container) = request.context, place.container
    storage, now_ms = context.broker.blob_accounts, context.clock.now_ms()
    await await_change(lambda done: storage.ensure_container(account, container, now_ms, done))
    endpoint = f"{request.scope['scheme']}://{request.host or context.addresses.host}/{account}"
    key = b64encode(storage.keys.of(account)[blob_storage.StorageKeyName.KEY1]).decode()
    trust = {"ca_file": context.addresses.ca_file} if context.addresses.ca_file else {}
    return replace(place, options={"endpoint": endpoint, "account_key": key, **trust})


def _kafka_endpoint(request: Request) -> tuple[str, str]:
    """Host and port of the Kafka endpoint, and its security protocol."""
    addresses, host = request.context.addresses, _host_of(request)
    ports = (("SASL_PLAINTEXT", addresses.kafka), ("SASL_SSL", addresses.kafkas))
    if request.scope["scheme"] == "https":
        ports = (ports[1], ports[0])
    for security, port in ports:
        if port is not None:
            return f"{host}:{port}", security
    raise NotSupported("Capture on a node without a Kafka port")


def _host_of(request: Request) -> str:
    """The host name that the job used, without the port."""
    host = request.host or request.context.addresses.host
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _log_file(new: NewFile) -> None:
    """Log a captured file with the fields that the Azure service sends to Event Grid (reference: service 6)."""
    fields = {"fileType": "AzureBlockBlob", "partitionId": str(new.partition), **file_json(new.file)}
    fields.pop("name")
    log.info(
        "CaptureFileCreated eventhubs/%s %s",
        new.hub,
        json.dumps(fields, ensure_ascii=False),
        extra={"namespace": new.namespace, "hub": new.hub},
    )


OWN: Routes = {PLAN_ROUTE: {"GET": get_plan}, PROGRESS_ROUTE: {"POST": report_progress}}
