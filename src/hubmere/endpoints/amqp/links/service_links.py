"""Links to the service nodes `$cbs` and `$management`: requests on one link, replies on another.

A reply goes to the link that the request names, by its target address or by its name, else to the link from the same
node on the same session (reference: AMQP 2.2). It waits there until the peer has given credit. Replies never leave
their connection, because a client uses the same names on all of its connections.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from hubmere.broker import LinkRole, LinkView
from hubmere.endpoints.amqp.errors import rejection
from hubmere.endpoints.amqp.links.link_addresses import ServiceNode
from hubmere.endpoints.amqp.links.link_handler import LinkHandlerBase, LinkHost
from hubmere.model.errors import InvalidArgument
from hubmere.wire.amqp import Condition, Link, RemoteProtocolError
from hubmere.wire.amqp.codec.message import Annotations, Body, Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import ACCEPTED, DeliveryState, Properties
from hubmere.wire.amqp.codec.types import Value
from hubmere.wire.amqp.signals import DeliveriesReceived, DeliveryOversized

# Requests that a peer may send at once; clients send one at a time, or a few.
REQUEST_CREDIT = 100
# The largest request is a token with an audience: a few KB. Bounds peers that have not proved anything yet.
MAX_REQUEST_BYTES = 65_536
# Replies that wait for credit on one link, and requests on one link that wait for a log.
MAX_HELD_REPLIES = 64

# Sends the reply to one request, once.
Reply = Callable[[Message], None]


class PendingAnswer(Protocol):
    """An answer that waits for a log, or for the keys of an issuer."""

    def cancel(self) -> None:
        """Wait no longer: nobody needs the answer."""


# Answers a request, now or later; returns the wait in the second case.
Answer = Callable[[Message, Reply], PendingAnswer | None]


class ReplyLink(LinkHandlerBase):
    """A link on which the peer receives replies."""

    __slots__ = ("_held", "_replies", "link", "node", "target")

    def __init__(self, link: Link, node: ServiceNode, target: Value, replies: "Replies") -> None:
        self._replies = replies
        self.link = link
        self.node = node
        self.target = target
        self._held: deque[bytes] | None = None

    @property
    def is_full(self) -> bool:
        """Whether too many replies wait for credit."""
        return len(self._held or ()) >= MAX_HELD_REPLIES

    def reply(self, payload: bytes) -> None:
        """Send a reply, now or when there is credit. The caller checks `is_full` first."""
        if not self._held and self.link.transfer_window():
            self.link.send(payload)
        else:
            self._held = self._held or deque()
            self._held.append(payload)

    def on_flow(self) -> None:
        """Send waiting replies; complete a drain if none is left."""
        while self._held and self.link.transfer_window():
            self.link.send(self._held.popleft())
        if self.link.drain and not self._held:
            self.link.complete_drain()

    def on_detached(self) -> None:
        """Send no more replies to this link."""
        self._replies.remove(self)


class Replies:
    """The reply links of one connection."""

    __slots__ = ("_links",)

    def __init__(self) -> None:
        self._links: list[ReplyLink] = []

    def add(self, link: ReplyLink) -> None:
        """Add a link that was attached."""
        self._links.append(link)

    def remove(self, link: ReplyLink) -> None:
        """Remove a link that is gone."""
        self._links.remove(link)

    def find(self, node: ServiceNode, request: Message, request_link: Link) -> ReplyLink | None:
        """The link for the reply to a request."""
        wanted = request.properties.reply_to if request.properties is not None else None
        candidates = [reply_link for reply_link in self._links if reply_link.link.is_attached]
        if wanted is not None:
            for named in ("target", "name"):
                for reply_link in candidates:
                    if wanted == (reply_link.target if named == "target" else reply_link.link.name):
                        return reply_link
        same_node = [reply_link for reply_link in candidates if reply_link.node is node]
        same_session = [reply_link for reply_link in same_node if reply_link.link.session is request_link.session]
        return next(iter(same_session or same_node), None)


class RequestLink(LinkHandlerBase):
    """A link on which the peer sends requests to a service node."""

    __slots__ = ("_answer", "_host", "_link", "_replies", "_waiting", "node")

    def __init__(self, host: LinkHost, link: Link, node: ServiceNode, answer: Answer, replies: Replies) -> None:
        self._host = host
        self._link = link
        # Requests that wait for a log or for keys.
        self._waiting: set[PendingAnswer] = set()
        self.node = node
        self._answer = answer
        self._replies = replies

    def view(self) -> LinkView:
        """Snapshot of this link for monitoring."""
        return LinkView(role=LinkRole.ASKS, name=self._link.name, address=self.node.value, credit=self._link.credit)

    def on_deliveries(self, run: DeliveriesReceived) -> None:
        """Answer each request and settle it."""
        for delivery_id, payload in zip(run.ids, run.payloads, strict=True):
            self._answer_one(delivery_id, payload, run.settled)
        if self._link.is_attached and self._link.credit <= REQUEST_CREDIT // 2:
            self._link.grant(REQUEST_CREDIT)

    def _answer_one(self, delivery_id: int, payload: memoryview | bytes, is_settled: bool) -> None:
        """Settle a request, then send its reply: the service does it in this order."""
        parsed = self._parse(payload)
        if not is_settled:
            self._link.settle(delivery_id, state=ACCEPTED if isinstance(parsed, tuple) else parsed)
            self._link.session.flush_settlements()
        if isinstance(parsed, tuple):
            self._reply_to(*parsed)

    def _reply_to(self, reply_link: ReplyLink, request: Message) -> None:
        """Send the reply, now or when what the request waits for is there."""
        waiting: PendingAnswer | None = None

        def reply(message: Message) -> None:
            if waiting is not None:
                self._waiting.discard(waiting)
                self._host.flush_soon()
            if reply_link.link.is_attached:
                reply_link.reply(write_message(message))

        waiting = self._answer(request, reply)
        if waiting is not None:
            self._waiting.add(waiting)

    def on_detached(self) -> None:
        """The link is gone: requests that wait need no reply."""
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            each.cancel()

    def _parse(self, payload: memoryview | bytes) -> tuple[ReplyLink, Message] | DeliveryState:
        """The request and the link for its reply, or the outcome of a request that cannot be answered."""
        try:
            request = read_message(payload)
        except RemoteProtocolError as error:
            return rejection(error.condition, error.description)
        reply_link = self._replies.find(self.node, request, self._link)
        if reply_link is None:
            return rejection(Condition.NOT_FOUND, "No receiving link is attached for the reply.")
        if reply_link.is_full or len(self._waiting) >= MAX_HELD_REPLIES:
            return rejection(Condition.RESOURCE_LIMIT_EXCEEDED, "Too many replies wait for credit.")
        return reply_link, request

    def on_oversized(self, delivery: DeliveryOversized) -> None:
        """Reject a request that is too large."""
        if not delivery.settled:
            text = f"A request of {delivery.size_bytes} bytes exceeds the limit of {MAX_REQUEST_BYTES} bytes."
            self._link.settle(delivery.delivery_id, state=rejection(Condition.LINK_MESSAGE_SIZE_EXCEEDED, text))


def text_property(request: Message, name: str) -> str:
    """An application property, which must be a string."""
    value = (request.application_properties or {}).get(name)
    if not isinstance(value, str):
        raise InvalidArgument(f"application property '{name}'", value, "a text")
    return value


def reply_to(request: Message, properties: Annotations, body: Body) -> Message:
    """A reply that carries the request's id unchanged, type included."""
    asked = request.properties or Properties()
    correlation = asked.message_id if asked.message_id is not None else asked.correlation_id
    return Message(properties=Properties(correlation_id=correlation), application_properties=properties, body=body)
