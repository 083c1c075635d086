"""The durable form of a consumer group: one JSON text, with the text of each unchanged member reused."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from hubmere.broker.coordinator.consumer_group.assignments import Assignment, Topic, TopicPartition
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import ClassicSide, ConsumerMember, MemberState, Subscription
from hubmere.broker.coordinator.membership import GroupProtocol, GroupType


def encode_group(group: ConsumerGroup) -> str:
    """The state of a group that must survive a restart."""
    head = _dump(
        {
            "type": GroupType.CONSUMER,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "topics": [list(topic) for topic in group.topics.values()],
        }
    )
    members = ",".join(_member_text(member) for member in group.members.values())
    return f'{head[:-1]},"members":[{members}]}}'


def decode_group(group: ConsumerGroup, state: Mapping[str, Any], now: float) -> None:
    """Restore a group: every member gets a new session."""
    members = [_decode_member(row, group.config.session_timeout_s, now) for row in state["members"]]
    topics = [Topic(*row) for row in state["topics"]]
    group.restore(members, epoch=state["epoch"], assignment_epoch=state["assignment_epoch"], topics=topics)


# Made once: `json.dumps` with separators makes an encoder for each call.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _dump(value: object) -> str:
    return _ENCODER.encode(value)


def _member_text(member: ConsumerMember) -> str:
    if member.encoded is None:
        member.encoded = _dump(_encode_member(member))
    return member.encoded


def _encode_member(member: ConsumerMember) -> dict[str, Any]:
    subscription, side = member.subscription, member.classic
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "rack": member.rack_id,
        "client": member.client_id,
        "host": member.client_host,
        "rebalance_s": member.rebalance_timeout_s,
        "topics": sorted(subscription.topics),
        "regex": subscription.regex,
        "matched": sorted(subscription.matched),
        "assignor": member.assignor,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state,
        "assigned": _encode_partitions(member.assigned),
        "revoking": _encode_partitions(member.revoking),
        "target": _encode_partitions(member.target),
        "classic": None if side is None else _encode_classic(side),
    }


def _encode_partitions(partitions: Assignment) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found


def _encode_classic(side: ClassicSide) -> dict[str, Any]:
    return {
        "session_s": side.session_timeout_s,
        "protocols": [[protocol.name, b64encode(protocol.metadata).decode()] for protocol in side.protocols],
    }


def _decode_member(row: Mapping[str, Any], session_timeout_s: float, now: float) -> ConsumerMember:
    member = ConsumerMember(row["id"], instance_id=row["instance"])
    member.rack_id, member.client_id, member.client_host = row["rack"], row["client"], row["host"]
    member.rebalance_timeout_s, member.assignor = row["rebalance_s"], row["assignor"]
    member.subscription = Subscription(frozenset(row["topics"]), row["regex"], frozenset(row["matched"]))
    member.epoch, member.previous_epoch, member.state = row["epoch"], row["previous_epoch"], MemberState(row["state"])
    member.assigned, member.revoking = _decode_partitions(row["assigned"]), _decode_partitions(row["revoking"])
    member.target = _decode_partitions(row["target"])
    member.classic = None if row["classic"] is None else _decode_classic(row["classic"])
    member.expires_at = now + (session_timeout_s if member.classic is None else member.classic.session_timeout_s)
    if member.state is MemberState.UNREVOKED and member.classic is None:
        member.revoke_by = now + member.rebalance_timeout_s
    return member


def _decode_partitions(rows: Mapping[str, Iterable[int]]) -> Assignment:
    return frozenset(TopicPartition(topic_id, index) for topic_id, indexes in rows.items() for index in indexes)


def _decode_classic(row: Mapping[str, Any]) -> ClassicSide:
    protocols = tuple(GroupProtocol(name, b64decode(metadata)) for name, metadata in row["protocols"])
    return ClassicSide(protocols=protocols, session_timeout_s=row["session_s"])
