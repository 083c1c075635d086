"""Which groups a client may see and use, by the hubs that the group reads.

A credential for the whole namespace may use every group. A credential for one hub may use a group if it covers every
topic that a member subscribes to and every hub for which the group has committed offsets. A group that does not exist
yet has neither. This is checked when a member joins, and again before the response names the other members; after that
the member id is the proof. It is not known what members other than consumers read, so their groups need a credential
for the namespace.
"""

from collections.abc import Iterable
from typing import Final

from hubmere.broker import ClassicGroup, ConsumerGroup, refusals
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.entity import Rights
from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_subscription

_UNKNOWN: Final = None


class GroupAccess:
    """The groups that one caller may use. Created for one request, since rights and hubs change."""

    def __init__(self, session: KafkaSession) -> None:
        self._caller = session.caller
        self._coordinator = session.coordinator
        self._has_namespace = self._caller.covers()
        self._foreign_uids = (
            frozenset[str]()
            if self._has_namespace
            else frozenset(hub.uid for hub in session.namespace.hubs() if not self._caller.covers(hub.name))
        )

    def can_use(self, group_id: str) -> bool:
        """Whether the caller may see and use a group."""
        if not self._caller.principal.rights.allows(Rights.LISTEN):
            return False
        if self._has_namespace:
            return True
        if not self._foreign_uids.isdisjoint(self._coordinator.offsets.hub_uids(group_id)):
            return False
        topics = topics_of(self._coordinator.groups.find(group_id))
        return topics is not _UNKNOWN and all(map(self._caller.covers, topics))

    def may_subscribe(self, protocol_type: str, subscriptions: Iterable[bytes]) -> bool:
        """Whether the caller may read every topic that it is about to subscribe to."""
        if self._has_namespace:
            return True
        topics = _subscribed_topics(protocol_type, subscriptions)
        return topics is not _UNKNOWN and all(map(self._caller.covers, topics))


def require_group(session: KafkaSession, group_id: str) -> None:
    """Refuse a caller that may not see and use a group."""
    if not GroupAccess(session).can_use(group_id):
        raise refusals.GroupForbidden(group_id)


def topics_of(group: ClassicGroup | ConsumerGroup | None) -> frozenset[str] | None:
    """The topics that members of a group subscribe to, in any of their protocols; None if that is not known."""
    if group is None:
        return frozenset()
    return group.subscribed_names() if isinstance(group, ConsumerGroup) else group.subscribed_topics()


def _subscribed_topics(protocol_type: str | None, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return _UNKNOWN
    try:
        return frozenset(topic for data in subscriptions for topic in read_subscription(data).topics)
    except RemoteProtocolError:
        return _UNKNOWN
