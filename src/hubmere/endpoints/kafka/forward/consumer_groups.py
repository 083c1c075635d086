"""Handlers that pass groups of the newer protocol on to the cluster, whose coordinator assigns partitions (KIP-848).

A member names its topics in the heartbeat by which it joins, by name or by a regular expression, and afterwards only if
that changes. The cluster knows the topics under other names and ids:

1. The names that a member asked for are kept as long as its connection is open. Hubs that exist are mapped, and made on
   the cluster; the others are left out.
2. With each heartbeat the names are mapped again, because a hub may have been created or deleted meanwhile. A changed
   result is sent to the cluster.
3. Regular expressions are evaluated here: the cluster's names are not those that they are written for.
4. Partitions are named by topic ids, which are mapped both ways.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.forward.forwarded import FORBIDDEN, ForwardedRequest, forwarded_handler
from hubmere.endpoints.kafka.groups.consumer import refuse_share_group
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    MemberAssignment,
    OwnedPartitions,
    TargetAssignment,
)
from hubmere.wire.kafka.messages.share_groups import SHARE_GROUP_HEARTBEAT

# Members of one connection: a client has one connection to its coordinator, and one member on it.
_MAX_MEMBERS: Final = 100


@dataclass(slots=True)
class Subscription:
    """What a member asked for, and the topics that were last sent to the cluster."""

    names: tuple[str, ...] = ()
    regex: str | None = None
    sent_topics: frozenset[str] | None = None


# --- ConsumerGroupHeartbeat ------------------------------------------------------------------------------------------


async def _heartbeat(forwarded: ForwardedRequest) -> object:
    body: ConsumerGroupHeartbeatRequest = forwarded.body
    if any(map(forwarded.is_foreign, body.subscribed_topic_names or ())):
        return _failed_heartbeat(forwarded, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    known = _subscription(forwarded, body)
    try:
        topics = await _topics_of(forwarded, body.group_id, known)
        is_new = known is not None and topics != known.sent_topics
        if is_new:
            await forwarded.port.provide(sorted(topics))
    except Refusal as refusal:
        return replace(_failed_heartbeat(forwarded, code_of(refusal)), error_message=refusal.text())
    owned = await _to_cluster_ids(forwarded, body.topic_partitions)
    names = tuple(sorted(topics)) if is_new else None
    asked = replace(body, subscribed_topic_names=names, subscribed_topic_regex=None, topic_partitions=owned)
    answer: ConsumerGroupHeartbeatResponse = await forwarded.ask(body.group_id, asked)
    if known is not None and answer.error_code == ErrorCode.NONE:
        # A coordinator that refused has not noted them.
        known.sent_topics = topics
    if answer.assignment is None:
        return answer
    parts = await _to_client_ids(forwarded, answer.assignment.topic_partitions)
    return replace(answer, assignment=TargetAssignment(topic_partitions=parts))


def _subscription(forwarded: ForwardedRequest, body: ConsumerGroupHeartbeatRequest) -> Subscription | None:
    """What a member reads; None if it has joined through another gateway, and the cluster knows it."""
    members: dict[tuple[str, str], Subscription] = forwarded.port.subscriptions_of(forwarded.client)
    key = (body.group_id, body.member_id)
    known = members.get(key)
    if body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None:
        if known is None or body.subscribed_topic_names is not None:
            names = body.subscribed_topic_names or ()
        else:
            names = known.names
        known = Subscription(names, body.subscribed_topic_regex or None)
        if len(members) >= _MAX_MEMBERS:
            members.clear()
        members[key] = known
    return known


async def _topics_of(forwarded: ForwardedRequest, group_id: str, known: Subscription | None) -> frozenset[str]:
    """The cluster's names of what a member reads."""
    if known is None:
        return frozenset()
    hubs = {*known.names, *(await _matches(forwarded, group_id, known.regex) if known.regex else ())}
    return frozenset(_existing(forwarded, hubs))


async def _matches(forwarded: ForwardedRequest, group_id: str, regex: str) -> frozenset[str]:
    groups = forwarded.session.coordinator.groups
    while (found := groups.topics_matching(group_id, regex)) is None:
        await asyncio.sleep(0)
    return frozenset(name for name in found if not forwarded.is_foreign(name))


def _existing(forwarded: ForwardedRequest, hubs: Iterable[str]) -> Iterable[str]:
    for name in hubs:
        try:
            yield forwarded.topic(name)
        except Refusal:
            continue


async def _to_cluster_ids(
    forwarded: ForwardedRequest, owned: tuple[OwnedPartitions, ...] | None
) -> tuple[OwnedPartitions, ...] | None:
    if not owned:
        return owned
    topics = {UUID(hub.entity.topic_id): forwarded.port.topic_of(hub.uid) for hub in forwarded.session.namespace.hubs()}
    wanted = [topics[each.topic_id] for each in owned if each.topic_id in topics]
    await forwarded.port.provide(wanted)
    found = ((each, forwarded.port.topic_id_of(topics.get(each.topic_id, ""))) for each in owned)
    return tuple(replace(each, topic_id=topic_id) for each, topic_id in found if topic_id is not None)


async def _to_client_ids(
    forwarded: ForwardedRequest, owned: tuple[OwnedPartitions, ...]
) -> tuple[OwnedPartitions, ...]:
    ids = await _client_ids(forwarded, (each.topic_id for each in owned))
    return tuple(replace(each, topic_id=ids[each.topic_id]) for each in owned if each.topic_id in ids)


async def _client_ids(forwarded: ForwardedRequest, ids: Iterable[UUID]) -> Mapping[UUID, UUID]:
    """The ids that clients know, of ids of the cluster."""
    hubs = {hub.uid: UUID(hub.entity.topic_id) for hub in forwarded.session.namespace.hubs()}
    topics = await forwarded.port.topics_of_ids(ids)
    uids = ((topic_id, forwarded.port.uid_of(topic)) for topic_id, topic in topics.items())
    return {topic_id: hubs[uid] for topic_id, uid in uids if uid in hubs}


def _failed_heartbeat(_: ForwardedRequest, code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)


# --- ConsumerGroupDescribe -------------------------------------------------------------------------------------------


async def _describe(forwarded: ForwardedRequest) -> object:
    body: ConsumerGroupDescribeRequest = forwarded.body
    found: list[DescribedConsumerGroup] = []
    for group_id in dict.fromkeys(body.group_ids):
        if not forwarded.session.caller.covers():
            found.append(_not_described(group_id, FORBIDDEN))
            continue
        name = forwarded.group(group_id)
        asked = replace(body, group_ids=(name,))
        answer = await forwarded.port.ask_coordinator(forwarded.client, name, asked, forwarded.version)
        found += [await _localize_group(forwarded, group_id, group) for group in answer.groups]
    return ConsumerGroupDescribeResponse(groups=tuple(found))


async def _localize_group(
    forwarded: ForwardedRequest, group_id: str, group: DescribedConsumerGroup
) -> DescribedConsumerGroup:
    named = [part for member in group.members for part in _parts_of(member)]
    ids = await _client_ids(forwarded, {part.topic_id for part in named})

    def assignment(given: MemberAssignment) -> MemberAssignment:
        parts = (
            replace(part, topic_id=ids[part.topic_id], topic_name=forwarded.local_topic(part.topic_name))
            for part in given.topic_partitions
            if part.topic_id in ids
        )
        return MemberAssignment(topic_partitions=tuple(parts))

    members = tuple(
        replace(
            member,
            subscribed_topic_names=tuple(map(forwarded.local_topic, member.subscribed_topic_names)),
            assignment=assignment(member.assignment),
            target_assignment=assignment(member.target_assignment),
        )
        for member in group.members
    )
    return replace(group, group_id=group_id, members=members)


def _parts_of(member: ConsumerGroupMember) -> list[Any]:
    return [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]


def _not_described(group_id: str, code: ErrorCode) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=code,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    CONSUMER_GROUP_HEARTBEAT.key: forwarded_handler(_heartbeat, _failed_heartbeat),
    CONSUMER_GROUP_DESCRIBE.key: forwarded_handler(
        _describe,
        lambda f, code: ConsumerGroupDescribeResponse(
            groups=tuple(_not_described(group, code) for group in f.body.group_ids)
        ),
    ),
    SHARE_GROUP_HEARTBEAT.key: refuse_share_group,
}
