"""The interface between a connection and its links.

A `LinkHandler` handles the signals of one link; there are four kinds: `PublishLink` and `ReadLink` on hubs,
`RequestLink` and `ReplyLink` on the two service nodes. `WaitingLink` is a link whose attach is not answered yet.
A `LinkHost` is what a link may use of its connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol

from hubmere.broker import LinkView, Resource, Waiting
from hubmere.endpoints.stream import Wire
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.amqp import Condition, Link
from hubmere.wire.amqp.signals import DeliveriesReceived, DeliveryOversized

if TYPE_CHECKING:
    from hubmere.endpoints.amqp.backpressure import Backpressure


class LinkHandler(Protocol):
    """Handles the signals of one link; kept in the engine's `link.context`."""

    def on_deliveries(self, run: DeliveriesReceived) -> None:
        """Whole deliveries came from the peer."""

    def on_single(self, delivery_id: int, payload: bytes, message_format: int) -> bool:
        """A whole delivery came, and nothing else; False, and nothing has changed, if `on_deliveries` has to handle
        it."""

    def on_oversized(self, delivery: DeliveryOversized) -> None:
        """A delivery was larger than the link allows; the engine has discarded its bytes."""

    def on_flow(self) -> None:
        """The peer's credit or the session's window changed, or the socket accepts more again."""

    def on_detached(self) -> None:
        """The link is gone: release everything. Called exactly once."""


class LinkHost(Protocol):
    """What a link may use of its connection."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def wire(self) -> Wire:
        """The connection's transport."""

    @property
    def backpressure(self) -> "Backpressure":
        """Whether the connection is read, and whether links may write."""

    def flush(self) -> None:
        """Write what the engine has queued."""

    def flush_soon(self) -> None:
        """Write what the engine has queued at the end of this turn, together with what others queue until then."""

    def accept_at_once(self, link: Link, delivery_id: int) -> None:
        """Settle a delivery as accepted, and write that now if nothing else is to be written."""

    def explain(self, refusal: Refusal, entity: str) -> tuple[Condition, str]:
        """Condition and description of a refusal that concerns an entity (`errors.entity_name`)."""

    def links(self) -> Iterator[Link]:
        """Every link of the connection."""


class LinkHandlerBase:
    """A handler for a link on which the peer sends nothing; callbacks do nothing unless overridden."""

    __slots__ = ()

    def on_deliveries(self, run: DeliveriesReceived) -> None:
        """Cannot happen: the engine refuses transfers on links whose receiver is the peer."""
        raise AssertionError(f"{run.link!r} accepts no deliveries")

    def on_single(self, delivery_id: int, payload: bytes, message_format: int) -> bool:
        """Nothing is faster for one delivery."""
        return False

    def on_oversized(self, delivery: DeliveryOversized) -> None:
        """Cannot happen either."""
        raise AssertionError(f"{delivery.link!r} accepts no deliveries")

    def on_flow(self) -> None:
        """Nothing waits for credit."""

    def on_detached(self) -> None:
        """Nothing to release."""


class WaitingLink(LinkHandlerBase):
    """A link whose attach is answered when the log of its partition is open."""

    __slots__ = ("_waiting",)

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def on_detached(self) -> None:
        """The peer, or its connection, is gone: the attach needs no answer."""
        self._waiting.cancel()


class HubLink(LinkHandlerBase, ABC):
    """A link to a hub. It needs a right on a resource, and is detached when the right, the hub or the node goes."""

    __slots__ = ("_host", "_link", "resource")

    right: ClassVar[Rights]

    def __init__(self, host: LinkHost, link: Link, resource: Resource) -> None:
        self._host = host
        self._link = link
        self.resource = resource

    @abstractmethod
    def view(self) -> LinkView:
        """Snapshot of this link for monitoring."""

    @abstractmethod
    def evict(self, refusal: Refusal) -> None:
        """Detach the link for a reason, once every delivery that it accepted is settled."""
