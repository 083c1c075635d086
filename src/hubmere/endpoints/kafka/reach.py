"""What one client may do in the namespace that it has signed in to: asked once for each topic, then remembered.

A client that signs in anew gets a new `Reach`, so that whoever kept something of the old one sees it. A hub that was
deleted or made anew is noticed at each use.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from hubmere.broker.access import Principal, Resource
from hubmere.broker.broker import Broker
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.broker.management.connections import LinkView, Role
from hubmere.broker.publish import Publisher
from hubmere.model.entity import Rights
from hubmere.model.errors import ClaimMissing, CredentialRevoked, HubNotFound
from hubmere.model.names import fold
from hubmere.wire.kafka.messages.fetch import FetchPartition

# Topics of which a connection remembers that it may read or write them.
MAX_REMEMBERED_TOPICS: Final = 10_000


class Followed(Protocol):
    """A partition that a client reads, for those who look."""

    @property
    def topic(self) -> str:
        """Of which topic."""

    @property
    def partition(self) -> FetchPartition:
        """Which one, and from where."""


class Reach:
    """Namespace, principal, and the topics that were found to be in reach. Thread rule: the loop's thread only."""

    __slots__ = (
        "_broker",
        "_publishers",
        "_readable",
        "_used",
        "client_quota",
        "namespace",
        "namespace_key",
        "principal",
    )

    def __init__(self, broker: Broker, namespace: LiveNamespace, principal: Principal) -> None:
        self._broker = broker
        self.namespace = namespace
        (self.namespace_key,) = namespace.entity.key
        self.principal = principal
        # Taken in and let out by whoever changes application groups: one for the length of the connection.
        self.client_quota = broker.client_quota_of(namespace, principal)
        self._publishers: dict[str, Publisher] = {}
        self._readable: dict[str, LiveHub] = {}
        # Topics that the client has used: all that a rotated key still opens.
        self._used: set[str] = set()

    @property
    def is_gone(self) -> bool:
        """Whether the namespace is not there any more."""
        return self._broker.namespaces.get(self.namespace_key) is not self.namespace

    def hub(self, name: str, right: Rights) -> LiveHub:
        """The hub of a topic's exact name, for a client that has the right on it; refusals do not tell what exists."""
        namespace = self.namespace
        self._broker.require_kafka(namespace.entity)
        is_sending = bool(right & Rights.SEND)
        self.principal.require(right, Resource.of_hub(namespace.entity.name, name, is_messages=is_sending))
        if self.principal.is_rotated and name not in self._used:
            raise CredentialRevoked(self.principal.rule)
        hub = namespace.hubs.get(fold(name))
        # Topic names differ by case, hub names do not: another spelling is another topic, which is not there.
        if hub is None or hub.entity.name != name:
            raise HubNotFound(namespace.resource(name))
        if len(self._used) < MAX_REMEMBERED_TOPICS:
            self._used.add(name)
        return hub

    def require_open(self, rights: Rights) -> None:
        """Refuse when the client publishes or reads now and may do so no more."""
        for topics, right in ((self._publishers, Rights.SEND), (self._readable, Rights.LISTEN)):
            if topics and not rights.allows(right):
                raise ClaimMissing(right.names[0], f"sb://{self.namespace.entity.name}/{next(iter(topics))}")

    def readable(self, name: str) -> LiveHub:
        """The hub of a topic that the client may read; asked on every fetch, so it is remembered."""
        hub = self._readable.get(name)
        if hub is None or self.namespace.hubs.get(fold(name)) is not hub:
            hub = self.hub(name, Rights.LISTEN)
            if len(self._readable) >= MAX_REMEMBERED_TOPICS:
                self._readable.clear()
            self._readable[name] = hub
        return hub

    def publisher(self, name: str) -> Publisher:
        """The way into a topic that the client may write to; asked on every produce, so it is remembered."""
        publisher = self._publishers.get(name)
        if publisher is None or self.namespace.hubs.get(fold(name)) is not publisher.hub:
            publisher = self._broker.open_publisher(self.hub(name, Rights.SEND), principal=self.principal)
            if len(self._publishers) >= MAX_REMEMBERED_TOPICS:
                self._publishers.clear()
            self._publishers[name] = publisher
        return publisher

    def forget(self) -> None:
        """The client is gone: nothing of it need be remembered."""
        self._publishers.clear()
        self._readable.clear()

    # --- for those who look ---

    def links(self, followed: Iterable[Followed]) -> Iterator[LinkView]:
        """The topics that it has published to, and the partitions that it follows."""
        for topic in self._publishers:
            yield LinkView(role=Role.PUBLISHES, address=topic, hub=topic)
        for place in followed:
            yield self._reading(place.topic, place.partition.index, place.partition.fetch_offset)

    def _reading(self, topic: str, partition: int, offset: int) -> LinkView:
        hub = self._readable.get(topic)
        is_there = hub is not None and 0 <= partition < hub.entity.partition_count
        return LinkView(
            role=Role.READS,
            address=f"{topic}/{partition}",
            hub=topic,
            partition=partition,
            position=offset,
            lag=hub.behind(partition, offset) if hub is not None and is_there else None,
        )
