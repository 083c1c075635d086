"""Who is connected: what every open connection of the node tells of itself when somebody asks.

Endpoints put a connection in when it opens and take it out when it is gone. Nothing is written in between: what a
connection is doing is read from the connection itself, by whoever looks, so that links cost the data path nothing.
Numbers are never used twice, so that "close number 7" cannot hit a connection that came later.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Protocol

from hubmere.broker.access import Principal
from hubmere.broker.read import Subscription
from hubmere.broker.revocation import Judge
from hubmere.model.errors import NotFound

# Connections that one look describes, at some 10 µs each; a node with more shows the first and says how many there are.
MAX_DESCRIBED = 1000
# Links of one connection that are described; the largest hubs have a reader for each of 1,024 partitions.
MAX_LINKS = 1024
# What clients say of themselves is shown to people: names longer than this are cut.
MAX_NAME_CHARACTERS = 200


class Role(StrEnum):
    """What a link is there for, seen from the client."""

    READS = "reads"
    PUBLISHES = "publishes"
    ASKS = "asks"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """One thing that a connection does: a link of AMQP, a topic of Kafka, a request of HTTP.

    `hub` is empty for what concerns no hub; numbers are None where the protocol has none.
    """

    role: Role
    address: str
    name: str = ""
    hub: str = ""
    group: str = ""
    partition: int | None = None
    credit: int | None = None
    position: int | None = None
    lag: int | None = None
    epoch: int | None = None
    reader: Subscription | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """A connection as it is now. `namespace` and `rule` are empty until the client has proven something."""

    number: int
    protocol: str
    client: str
    software: str
    rule: str
    peer: str
    namespace: str
    is_secure: bool
    opened_ms: int
    idle_s: float
    links: tuple[LinkView, ...] = ()

    @property
    def label(self) -> str:
        """How a sentence names the connection."""
        return f"connection {self.number} ({self.client or self.software or self.protocol} from {self.peer})"


class LiveConnection(Protocol):
    """What an endpoint's connection offers to those who look. Thread rule: the owner's thread only."""

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """The connection as it is now."""

    def callers(self) -> Iterable[Principal]:
        """Who it was proven to be, for as long as it is open; none where every request is asked anew."""

    def cut(self, why: str) -> None:
        """Close it in its protocol's way, with a reason where the protocol has a place for one."""

    def review(self, judge: Judge) -> None:
        """End what the rules in force do not allow; see `broker.revocation`."""


class Roster:
    """Every open connection of a node. Thread rule: the owner's thread only."""

    __slots__ = ("_open", "_previous")

    def __init__(self) -> None:
        self._open: dict[LiveConnection, tuple[int, int]] = {}
        self._previous = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: LiveConnection, now_ms: int) -> None:
        """A connection has opened."""
        self._previous += 1
        self._open[connection] = (self._previous, now_ms)

    def drop(self, connection: LiveConnection) -> None:
        """It is gone; dropping twice is harmless."""
        self._open.pop(connection, None)

    def connections(self) -> Iterable[LiveConnection]:
        """Every open connection."""
        return list(self._open)

    def look(self, namespace: str | None = None) -> Iterator[ConnectionView]:
        """The oldest connections as they are now, all of the node or those of one namespace (by its folded name)."""
        oldest = list(islice(self._open.items(), MAX_DESCRIBED))
        described = (connection.view(*entry) for connection, entry in oldest)
        return (view for view in described if namespace in (None, view.namespace))

    def cut(self, number: int, why: str, namespace: str | None = None) -> ConnectionView:
        """Close a connection, which may have to be one of a namespace; raises NotFound when there is none."""
        for connection, entry in self._open.items():
            if entry[0] == number:
                view = connection.view(*entry)
                if namespace in (None, view.namespace):
                    connection.cut(why)
                    return view
        raise NotFound(f"connections/{number}")

    def cut_callers(self, are_meant: Callable[[Principal], bool], why: str) -> None:
        """Close every connection of somebody who is meant."""
        for connection in list(self._open):
            if any(map(are_meant, connection.callers())):
                connection.cut(why)


def shown(text: object) -> str:
    """What a client says of itself, in one line of bounded length."""
    return " ".join(str(text).split())[:MAX_NAME_CHARACTERS]
