"""The state of a cluster, read from its control log and its pulse: gateways, places, brokers. Changes nothing."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from hubmere.cli.output.tables import resource_table
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.pulse.board import PulseBoard
from hubmere.cluster.pulse.gateways import gateway_statuses, with_history
from hubmere.cluster.pulse.topic import PulseTopic
from hubmere.cluster.upstream.connection import Access
from hubmere.cluster.upstream.failures import UpstreamFailure
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.model.monitoring.pulse import GatewayStatus
from hubmere.portal.doctor.gateway_checks import SILENT_SECONDS

# Records at the end of the pulse that are read: several of each gateway, also of a large cluster.
_LAST_REPORTS: Final = 500
_GATEWAY_COLUMNS: Final = (
    ("Gateway", "address"),
    ("Machine", "machine"),
    ("Version", "version"),
    ("State", "state"),
    ("Roles", "roles"),
    ("Connections", "connections"),
    ("Lag", "lag"),
    ("In B/s", "ingressBytesPerSecond"),
    ("Out B/s", "egressBytesPerSecond"),
    ("Last seen", "lastSeen"),
)
_BROKER_COLUMNS: Final = (("Broker", "id"), ("Address", "address"))


class StatusFailed(Exception):
    """The cluster cannot be read; says why."""


def read_status(brokers: Sequence[tuple[str, int]], prefix: str, access: Access) -> dict[str, Any]:
    """Gateways, claims and brokers of a cluster."""
    return asyncio.run(_read(brokers, prefix, access))


async def _read(brokers: Sequence[tuple[str, int]], prefix: str, access: Access) -> dict[str, Any]:
    upstream = Upstream(brokers, access, client_id="hubmere-status")
    topic = f"{prefix}control"
    try:
        await upstream.connect()
        codes = await upstream.refresh((topic,))
        if codes[topic]:
            raise StatusFailed(f"there is no control log {topic}: no gateway has used this prefix")
        control = ControlLog(upstream, topic, replication=1, in_sync=1, now_ms=lambda: int(time.time() * 1000))
        await control.start()
        try:
            pulse = OnePartition(upstream=upstream, topic=f"{prefix}pulse", replication=1, in_sync=1, lane="pulse")
            board = PulseBoard()
            await PulseTopic(pulse, board).read_last(_LAST_REPORTS)
            return _status(upstream, control, board)
        finally:
            await control.abandon()
    except UpstreamFailure as failure:
        raise StatusFailed(str(failure)) from failure
    finally:
        await upstream.close()


def _gateways(control: ControlLog, board: PulseBoard, now_ms: int) -> list[dict[str, Any]]:
    """Each gateway, also those that have died lately; what only the pulse knows is None if it has not reported."""
    silence = {member.session: member.silence for member in control.state.alive()}
    alive = gateway_statuses(control.state, board, 0.0)
    return [
        {
            "session": each.session,
            "address": each.address,
            "machine": each.machine,
            "version": each.version,
            "state": _state(each, now_ms),
            "lastSeen": None if each.last_seen_ms is None else _utc(each.last_seen_ms),
            "roles": list(each.roles),
            "connections": each.connections,
            "lag": each.lag,
            "ingressBytesPerSecond": round(each.flow.ingress_bytes),
            "egressBytesPerSecond": round(each.flow.egress_bytes),
            "silence": silence.get(each.session),
        }
        for each in with_history(alive, control.state, control.history, now_ms)
    ]


def _state(gateway: GatewayStatus, now_ms: int) -> str:
    """Whether a gateway is alive. If the last one has died, nobody is left to declare it dead: then it is silent."""
    if gateway.is_gone:
        return "gone"
    seen_ms = gateway.last_seen_ms
    return "silent" if seen_ms is not None and now_ms - seen_ms > SILENT_SECONDS * 1000 else "alive"


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _status(upstream: Upstream, control: ControlLog, board: PulseBoard) -> dict[str, Any]:
    state = control.state
    return {
        "clusterId": upstream.cluster_id,
        "brokers": [{"id": broker.id, "address": broker.address} for broker in upstream.brokers.values()],
        "gateways": _gateways(control, board, int(time.time() * 1000)),
        "places": sum(len(place.holders) for place in state.places.values()),
        "rows": len(state.rows),
        "roles": {role: each.session for each in gateway_statuses(state, board, 0.0) for role in each.roles},
        "controlLog": {
            "start": control.log_start,
            "end": state.next_offset,
            "length": state.next_offset - control.log_start,
        },
        "snapshot": None if state.snapshot is None else asdict(state.snapshot),
        "digest": state.digest,
    }


def status_table(status: dict[str, Any]) -> str:
    """The status for people: its values, then the gateways and the brokers."""
    values = {name: value for name, value in status.items() if name not in ("gateways", "brokers", "roles")}
    gateways = resource_table(status["gateways"], _GATEWAY_COLUMNS)
    return "\n\n".join((resource_table(values, ()), gateways, resource_table(status["brokers"], _BROKER_COLUMNS)))
