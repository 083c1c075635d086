"""Requests to the service nodes and the way back of their replies.

A reply goes to the link that the request names, by its target address or by its name, else to the link from the same
node on the same session (reference: AMQP 2.2); it waits there until the peer has given credit. Replies never leave
their connection: one client uses the same names on all of its own.
"""

from collections import deque
from collections.abc import Callable

from hubmere.broker.management.connections import LinkView, Role
from hubmere.endpoints.amqp.addresses import ServiceNode
from hubmere.endpoints.amqp.errors import rejected
from hubmere.endpoints.amqp.links import QuietPart
from hubmere.model.errors import InvalidArgument
from hubmere.wire.amqp import Condition, Link, RemoteProtocolError
from hubmere.wire.amqp.codec.message import Annotations, Body, Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import ACCEPTED, DeliveryState, Properties
from hubmere.wire.amqp.codec.types import Value
from hubmere.wire.amqp.signals import DeliveriesReceived, DeliveryOversized

# Requests that a peer may have waiting; clients ask one at a time, or a few.
REQUEST_CREDIT = 100
# The largest request is a token with an audience: a few KB. A bound for peers that have proven nothing yet.
MAX_REQUEST_BYTES = 65_536
# Replies that wait for credit on one link.
MAX_HELD_REPLIES = 64

Answer = Callable[[Message], Message]


class ReplyLink(QuietPart):
    """A link on which the peer takes replies."""

    __slots__ = ("_held", "_replies", "link", "node", "target")

    def __init__(self, link: Link, node: ServiceNode, target: Value, replies: "Replies") -> None:
        self._replies = replies
        self.link = link
        self.node = node
        self.target = target
        self._held: deque[bytes] | None = None

    @property
    def is_full(self) -> bool:
        """Whether too many replies wait for credit to take one more."""
        return len(self._held or ()) >= MAX_HELD_REPLIES

    def reply(self, payload: bytes) -> None:
        """Send a reply, now or when there is credit. The caller looks at `is_full` first."""
        if not self._held and self.link.transfer_window():
            self.link.send(payload)
        else:
            self._held = self._held or deque()
            self._held.append(payload)

    def credit_moved(self) -> None:
        """Send what was waiting; a peer that drains is told when nothing is."""
        while self._held and self.link.transfer_window():
            self.link.send(self._held.popleft())
        if self.link.drain and not self._held:
            self.link.complete_drain()

    def closed(self) -> None:
        """No reply finds it any more."""
        self._replies.remove(self)


class Replies:
    """The reply links of one connection."""

    __slots__ = ("_links",)

    def __init__(self) -> None:
        self._links: list[ReplyLink] = []

    def add(self, part: ReplyLink) -> None:
        """A link that takes replies was attached."""
        self._links.append(part)

    def remove(self, part: ReplyLink) -> None:
        """It is gone."""
        self._links.remove(part)

    def find(self, node: ServiceNode, request: Message, asked_on: Link) -> ReplyLink | None:
        """The link for the reply to a request."""
        wanted = request.properties.reply_to if request.properties is not None else None
        candidates = [part for part in self._links if part.link.is_attached]
        if wanted is not None:
            for named in ("target", "name"):
                for part in candidates:
                    if wanted == (part.target if named == "target" else part.link.name):
                        return part
        same_node = [part for part in candidates if part.node is node]
        same_session = [part for part in same_node if part.link.session is asked_on.session]
        return next(iter(same_session or same_node), None)


class RequestLink(QuietPart):
    """A link on which the peer asks a service node."""

    __slots__ = ("_answer", "_link", "_replies", "node")

    def __init__(self, link: Link, node: ServiceNode, answer: Answer, replies: Replies) -> None:
        self._link = link
        self.node = node
        self._answer = answer
        self._replies = replies

    def view(self) -> LinkView:
        """The link as those see it who look at the connection."""
        return LinkView(role=Role.ASKS, name=self._link.name, address=self.node.value, credit=self._link.credit)

    def received(self, run: DeliveriesReceived) -> None:
        """Answer each request and settle it."""
        for delivery_id, payload in zip(run.ids, run.payloads, strict=True):
            self._answer_one(delivery_id, payload, run.settled)
        if self._link.is_attached and self._link.credit <= REQUEST_CREDIT // 2:
            self._link.grant(REQUEST_CREDIT)

    def _answer_one(self, delivery_id: int, payload: memoryview | bytes, is_settled: bool) -> None:
        """Settle a request, then send its reply: the service sends them in this order."""
        taken = self._take(payload)
        if not is_settled:
            self._link.settle(delivery_id, state=ACCEPTED if isinstance(taken, tuple) else taken)
            self._link.session.flush_settlements()
        if isinstance(taken, tuple):
            part, request = taken
            part.reply(write_message(self._answer(request)))

    def _take(self, payload: memoryview | bytes) -> tuple[ReplyLink, Message] | DeliveryState:
        """A request and the link for its reply, or the outcome of one that cannot be answered."""
        try:
            request = read_message(payload)
        except RemoteProtocolError as error:
            return rejected(error.condition, error.description)
        part = self._replies.find(self.node, request, self._link)
        if part is None:
            return rejected(Condition.NOT_FOUND, "No receiving link is attached for the reply.")
        if part.is_full:
            return rejected(Condition.RESOURCE_LIMIT_EXCEEDED, "Too many replies wait for credit.")
        return part, request

    def oversized(self, delivery: DeliveryOversized) -> None:
        """No request is that large."""
        if not delivery.settled:
            text = f"A request of {delivery.size_bytes} bytes exceeds the limit of {MAX_REQUEST_BYTES} bytes."
            self._link.settle(delivery.delivery_id, state=rejected(Condition.LINK_MESSAGE_SIZE_EXCEEDED, text))


def text_property(request: Message, name: str) -> str:
    """An application property that has to be a text."""
    value = (request.application_properties or {}).get(name)
    if not isinstance(value, str):
        raise InvalidArgument(f"application property '{name}'", value, "a text")
    return value


def reply_to(request: Message, properties: Annotations, body: Body) -> Message:
    """A reply that carries the request's id as it came, type included."""
    asked = request.properties or Properties()
    correlation = asked.message_id if asked.message_id is not None else asked.correlation_id
    return Message(properties=Properties(correlation_id=correlation), application_properties=properties, body=body)
