"""The gateways of a cluster, from the control log and the pulse. Pure.

The control log says which gateways there are, which roles they have, and which ones have died lately; the pulse says
what each one does.
"""

from collections.abc import Sequence
from dataclasses import replace

from hubmere.cluster.control.history import GatewayHistory, SeenGateway
from hubmere.cluster.control.state import ControlState, Member
from hubmere.cluster.pulse.board import PulseBoard
from hubmere.model.monitoring.pulse import Flow, GatewayStatus

# Places of the control log that are roles: one holder in the cluster.
ROLE_PREFIX = "role/"
# The gateway that began first writes the snapshots and decides on auto-inflate.
_FIRST = ("snapshots", "auto-inflate")
# Beats of another gateway since the last one of a silent gateway: at least half a second.
_SILENT_BEATS = 2


def gateway_statuses(
    state: ControlState, board: PulseBoard, now: float, *, session: str | None = None
) -> list[GatewayStatus]:
    """Every gateway that is not declared dead, in the order of their start; `session` is the one that asks."""
    alive = state.alive()
    roles = {member.session: list(_FIRST) if member is alive[0] else [] for member in alive}
    for name, place in sorted(state.places.items()):
        for holder in place.holders if name.startswith(ROLE_PREFIX) else ():
            if holder.session in roles:
                roles[holder.session].append(name.removeprefix(ROLE_PREFIX))
    return [
        _status(member, tuple(roles[member.session]), state.next_offset, board, now, is_self=member.session == session)
        for member in alive
    ]


def silent_sessions(state: ControlState, board: PulseBoard, now: float, *, session: str) -> list[str]:
    """The other gateways that have neither reported nor beaten lately: they are not declared dead yet."""
    silent = (member.session for member in state.alive() if member.silence >= _SILENT_BEATS)
    return [each for each in silent if each != session and board.is_missing(each, now)]


def with_history(
    statuses: Sequence[GatewayStatus], state: ControlState, history: GatewayHistory, now_ms: int
) -> list[GatewayStatus]:
    """The same gateways with the times when they were seen last, and behind them those that have died lately."""
    alive = [_seen(status, history.find(status.session)) for status in statuses]
    return [*alive, *(_lost(seen, now_ms) for seen in history.lost_gateways(state, now_ms))]


def _seen(status: GatewayStatus, seen: SeenGateway | None) -> GatewayStatus:
    if seen is None:
        return status
    return replace(status, last_seen_ms=seen.last_seen_ms, machine=seen.machine)


def _lost(seen: SeenGateway, now_ms: int) -> GatewayStatus:
    return GatewayStatus(
        session=seen.session,
        address=seen.reported_address or seen.address or f"session {seen.session}",
        version=seen.version,
        machine=seen.machine,
        silent_s=max((now_ms - seen.last_seen_ms) / 1000, 0.0),
        last_seen_ms=seen.last_seen_ms,
        is_gone=True,
    )


def _status(
    member: Member, roles: tuple[str, ...], next_offset: int, board: PulseBoard, now: float, *, is_self: bool
) -> GatewayStatus:
    heard = board.find(member.session)
    if heard is None:
        return GatewayStatus(
            session=member.session, address=member.address, version=member.version, roles=roles, is_self=is_self
        )
    pulse = heard.pulse
    flows = [namespace.flow for namespace in pulse.namespaces]
    return GatewayStatus(
        session=member.session,
        address=pulse.address,
        version=pulse.version,
        roles=roles,
        connections=pulse.connections,
        lag=max(next_offset - pulse.applied, 0),
        silent_s=max(now - heard.heard_at, 0.0),
        flow=Flow(*map(sum, zip(*flows, strict=True))),
        is_self=is_self,
    )
