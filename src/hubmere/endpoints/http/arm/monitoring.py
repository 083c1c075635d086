"""Monitoring as ARM resources: open connections with their links, and the latest lines of the audit log.

The Azure service has no such paths; they are for the command line and other tools. A manager of a namespace sees and
closes its connections. Connections that are not authenticated yet, and the audit log, are for the administrator.
"""

from starlette.responses import Response

from hubmere.broker import AuditLine, Caller, ConnectionView, LinkView
from hubmere.endpoints.http.arm.paths import NAMESPACE, RESOURCE_GROUP
from hubmere.endpoints.http.arm.request import ArmRequest, json_response, page_response
from hubmere.endpoints.http.arm.serializer import PROVIDER, Json, iso_time
from hubmere.endpoints.http.context import await_audit_lines
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.errors import NotFound

CLOSED_BY_MANAGER = "The connection was closed by a manager of the namespace."
_MAX_DIGITS = 15


async def list_connections(request: Request) -> Response:
    """The open connections of a namespace."""
    arm = ArmRequest(request)
    return page_response(request, request.context.broker.connections.snapshots(arm.namespace.key[0]), _connection)


async def list_all_connections(request: Request) -> Response:
    """The open connections of the node, including those that are not authenticated yet."""
    request.sign_in_admin()
    return page_response(request, request.context.broker.connections.snapshots(), _connection)


async def close_connection(request: Request) -> Response:
    """Close a connection of a namespace; its client may reconnect."""
    arm = ArmRequest(request)
    return _close(request, arm.caller, arm.namespace.key[0])


async def close_any_connection(request: Request) -> Response:
    """Close a connection of the node; its client may reconnect."""
    return _close(request, request.sign_in_admin(), None)


async def list_audit(request: Request) -> Response:
    """The latest management actions, newest first."""
    request.sign_in_admin()
    return page_response(request, await await_audit_lines(request.context.broker.audit), _audit_line)


def monitoring_routes() -> Routes:
    """Handlers by path and method."""
    return {
        f"{RESOURCE_GROUP}/connections": {"GET": list_all_connections},
        f"{RESOURCE_GROUP}/connections/{{connection}}/close": {"POST": close_any_connection},
        f"{NAMESPACE}/connections": {"GET": list_connections},
        f"{NAMESPACE}/connections/{{connection}}/close": {"POST": close_connection},
        f"{RESOURCE_GROUP}/auditEntries": {"GET": list_audit},
    }


def _close(request: Request, caller: Caller, namespace: str | None) -> Response:
    number, broker = request.names["connection"], request.context.broker
    if not (number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS):
        raise NotFound(f"connections/{number}")
    view = broker.connections.disconnect(int(number), CLOSED_BY_MANAGER, namespace)
    broker.audit.write(request.actor(caller).line("close connection", f"{view.namespace}/connections/{view.number}"))
    return json_response(_connection(view))


# --- JSON ------------------------------------------------------------------------------------------------------------


def _connection(view: ConnectionView) -> Json:
    return {
        "name": str(view.number),
        "type": f"{PROVIDER}/Namespaces/Connections",
        "properties": {
            "namespace": view.namespace,
            "protocol": view.protocol,
            "isSecure": view.is_secure,
            "clientId": view.client,
            "software": view.software,
            "rule": view.rule,
            "remoteAddress": view.peer,
            "openedAt": iso_time(view.opened_ms),
            "idleSeconds": round(view.idle_s, 3),
            "linkCount": len(view.links),
            "links": [_link(link) for link in view.links],
        },
    }


def _link(link: LinkView) -> Json:
    return {
        "role": link.role.value,
        "name": link.name,
        "address": link.address,
        "eventHub": link.hub,
        "consumerGroup": link.group,
        "partition": link.partition,
        "credit": link.credit,
        "position": link.position,
        "lag": link.lag,
        "epoch": link.epoch,
    }


def _audit_line(line: AuditLine) -> Json:
    return {
        "name": line.tracking_id,
        "type": f"{PROVIDER}/AuditEntries",
        "properties": {
            "time": iso_time(line.at_ms),
            "actor": line.actor,
            "remoteAddress": line.peer,
            "action": line.action,
            "target": line.target,
            "outcome": line.outcome,
            "reason": line.reason,
        },
    }
