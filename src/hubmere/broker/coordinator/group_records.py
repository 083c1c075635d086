"""The durable form of a classic group: one JSON text with its generation, its members and their assignments."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from hubmere.broker.coordinator.classic_group import ClassicGroup
from hubmere.broker.coordinator.membership import GroupProtocol, JoinRequest, Member


def encode_group(group: ClassicGroup) -> str:
    """The state of a group that must survive a restart; the text of an unchanged join request is reused."""
    head = json.dumps(
        {
            "generation": group.generation,
            "protocol_type": group.protocol_type or "",
            "protocol": group.protocol or "",
            "leader": group.leader or "",
        },
        separators=(",", ":"),
    )
    members = ",".join([_encode_member(member) for member in group.members.values()])
    return f'{head[:-1]},"members":[{members}]}}'


def _encode_member(member: Member) -> str:
    if member.encoded_request is None:
        member.encoded_request = json.dumps(_to_row(member), separators=(",", ":"))
    return f'{member.encoded_request[:-1]},"assignment":"{b64encode(member.assignment).decode()}"}}'


def _to_row(member: Member) -> Mapping[str, Any]:
    request = member.request
    return {
        "id": member.member_id,
        "instance": request.instance_id,
        "client": request.client_id,
        "host": request.client_host,
        "session_s": request.session_timeout_s,
        "rebalance_s": request.rebalance_timeout_s,
        "type": request.protocol_type,
        "protocols": [[protocol.name, b64encode(protocol.metadata).decode()] for protocol in request.protocols],
    }


def decode_group(group: ClassicGroup, state: Mapping[str, Any], now: float) -> None:
    """Restore a group: every member gets a new session."""
    group.restore(
        [_decode_member(row, now) for row in state["members"]],
        generation=state["generation"],
        protocol_type=state["protocol_type"],
        protocol=state["protocol"],
        leader=state["leader"],
    )


def _decode_member(row: Mapping[str, Any], now: float) -> Member:
    request = JoinRequest(
        member_id=row["id"],
        instance_id=row["instance"],
        client_id=row["client"],
        client_host=row["host"],
        session_timeout_s=row["session_s"],
        rebalance_timeout_s=row["rebalance_s"],
        protocol_type=row["type"],
        protocols=tuple(GroupProtocol(name, b64decode(metadata)) for name, metadata in row["protocols"]),
    )
    return Member(row["id"], request, now + request.session_timeout_s, b64decode(row["assignment"]))
