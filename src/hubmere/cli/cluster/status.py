"""The state of a cluster, read from its control log: gateways, places, brokers. Changes nothing."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.upstream.connection import Access
from hubmere.cluster.upstream.failures import UpstreamFailure
from hubmere.cluster.upstream.upstream import Upstream


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
            return _status(upstream, control)
        finally:
            await control.abandon()
    except UpstreamFailure as failure:
        raise StatusFailed(str(failure)) from failure
    finally:
        await upstream.close()


def _status(upstream: Upstream, control: ControlLog) -> dict[str, Any]:
    state = control.state
    return {
        "clusterId": upstream.cluster_id,
        "brokers": [{"id": broker.id, "address": broker.address} for broker in upstream.brokers.values()],
        "gateways": [
            {"session": member.session, "address": member.address, "version": member.version, "silence": member.silence}
            for member in state.alive()
        ],
        "places": sum(len(place.holders) for place in state.places.values()),
        "rows": len(state.rows),
        # The gateway that began first writes the snapshots.
        "roles": {"snapshots": alive[0].session} if (alive := state.alive()) else {},
        "controlLog": {
            "start": control.log_start,
            "end": state.next_offset,
            "length": state.next_offset - control.log_start,
        },
        "snapshot": None if state.snapshot is None else asdict(state.snapshot),
        "digest": state.digest,
    }
