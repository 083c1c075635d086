"""What the links of a connection share: the surface that the connection calls, and the one that it offers them.

Four kinds of links stand behind `LinkPart`: `Inbound` and `Outbound` on hubs, `RequestLink` and `ReplyLink` on the two
service nodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Protocol

from hubmere.broker.access import Resource
from hubmere.broker.management.connections import LinkView
from hubmere.endpoints.stream import Wire
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.amqp import Condition, Link
from hubmere.wire.amqp.signals import DeliveriesReceived, DeliveryOversized


class LinkPart(Protocol):
    """What becomes of a link's signals. Kept in the engine's `link.context`."""

    def received(self, run: DeliveriesReceived) -> None:
        """Whole deliveries came from the peer."""

    def oversized(self, delivery: DeliveryOversized) -> None:
        """A delivery was larger than the link takes; its bytes are gone."""

    def credit_moved(self) -> None:
        """The peer's credit or the session's window moved, or the socket has room again."""

    def closed(self) -> None:
        """The link is gone: free everything. Called exactly once."""


class Host(Protocol):
    """What a link may ask of its connection."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def wire(self) -> Wire:
        """The connection's transport."""

    def flush(self) -> None:
        """Write what the engine has queued."""

    def flush_soon(self) -> None:
        """Write what the engine has queued at the end of this turn, together with what others queue until then."""

    def explain(self, refusal: Refusal, entity: str) -> tuple[Condition, str]:
        """Condition and description of a refusal that concerns an entity (`errors.entity_name`)."""

    def hold(self, size_bytes: int) -> None:
        """Bytes of a publication wait for their commit; the peer is not read while there are too many."""

    def release(self, size_bytes: int) -> None:
        """They wait no longer."""

    def links(self) -> Iterator[Link]:
        """Every link of the connection."""

    @property
    def may_send(self) -> bool:
        """Whether the socket, and the node's memory, have room for more."""

    def retry_when_writable(self, part: LinkPart) -> None:
        """Call `credit_moved` of a part once the socket, or the node's memory, has room again."""


class QuietPart:
    """A part whose peer has nothing to send to it; `closed` and `credit_moved` do nothing unless overridden."""

    __slots__ = ()

    def received(self, run: DeliveriesReceived) -> None:
        """Cannot happen: the engine refuses transfers on links whose receiver is the peer."""
        raise AssertionError(f"{run.link!r} takes no deliveries")

    def oversized(self, delivery: DeliveryOversized) -> None:
        """Cannot happen either."""
        raise AssertionError(f"{delivery.link!r} takes no deliveries")

    def credit_moved(self) -> None:
        """Nothing waits for credit."""

    def closed(self) -> None:
        """Nothing to free."""


class HubPart(QuietPart, ABC):
    """A part on a hub: it stands on a right, and goes when the right, the hub or the node does."""

    __slots__ = ("_host", "_link", "resource")

    right: ClassVar[Rights]

    def __init__(self, host: Host, link: Link, resource: Resource) -> None:
        self._host = host
        self._link = link
        self.resource = resource

    @abstractmethod
    def view(self) -> LinkView:
        """The link as those see it who look at the connection."""

    @abstractmethod
    def evicted(self, refusal: Refusal) -> None:
        """Have the link detached for a reason, as soon as nothing that it took is unsettled."""
