"""Registry of the node's open connections, for monitoring and for closing one of them.

Endpoints add a connection when it opens and remove it when it closes. Nothing is recorded in between: a snapshot is
taken from the connection itself when monitoring asks for it, so the data path pays nothing. Numbers are never reused,
so "close number 7" cannot hit a later connection.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Protocol

from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.revocation import Judge
from hubmere.broker.read import Reader
from hubmere.model.errors import NotFound

# Connections per listing, at some 10 µs each. A larger node lists the oldest ones and reports the total.
MAX_DESCRIBED = 1000
# Links per connection in a snapshot: the largest hubs have a reader for each of 1,024 partitions.
MAX_LINK_VIEWS = 1024
# Names that clients choose are displayed; longer ones are truncated.
MAX_NAME_CHARACTERS = 200


class LinkRole(StrEnum):
    """Purpose of a link, from the client's side."""

    READS = "reads"
    PUBLISHES = "publishes"
    ASKS = "asks"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """Snapshot of one activity of a connection: an AMQP link, a Kafka topic, an HTTP request.

    `hub` is empty for activities without a hub; numbers are None where the protocol has none.
    """

    role: LinkRole
    address: str
    name: str = ""
    hub: str = ""
    group: str = ""
    partition: int | None = None
    credit: int | None = None
    position: int | None = None
    lag: int | None = None
    epoch: int | None = None
    reader: Reader | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """Snapshot of a connection. `namespace` and `rule` are empty until the client is authenticated."""

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
        """Name of the connection for messages."""
        return f"connection {self.number} ({self.client or self.software or self.protocol} from {self.peer})"


class LiveConnection(Protocol):
    """What an endpoint's connection offers to monitoring. Thread rule: the owner's thread only."""

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """Snapshot of the connection."""

    def callers(self) -> Iterable[Principal]:
        """Authenticated principals; empty for protocols that authenticate each request."""

    def disconnect(self, why: str) -> None:
        """Close the connection as its protocol prescribes, with the reason if the protocol can carry one."""

    def review(self, judge: Judge) -> None:
        """Close what the current rules do not allow; see `broker.access.revocation`."""


class Connections:
    """Every open connection of a node. Thread rule: the owner's thread only."""

    __slots__ = ("_open", "_previous")

    def __init__(self) -> None:
        self._open: dict[LiveConnection, tuple[int, int]] = {}
        self._previous = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: LiveConnection, now_ms: int) -> None:
        """Register a connection that has opened."""
        self._previous += 1
        self._open[connection] = (self._previous, now_ms)

    def remove(self, connection: LiveConnection) -> None:
        """Remove a closed connection; removing it twice is harmless."""
        self._open.pop(connection, None)

    def open_connections(self) -> Iterable[LiveConnection]:
        """Every open connection."""
        return list(self._open)

    def snapshots(self, namespace: str | None = None) -> Iterator[ConnectionView]:
        """Snapshots of the oldest connections of the node, or of one namespace (by its folded name)."""
        oldest = list(islice(self._open.items(), MAX_DESCRIBED))
        described = (connection.view(*entry) for connection, entry in oldest)
        return (view for view in described if namespace in (None, view.namespace))

    def disconnect(self, number: int, why: str, namespace: str | None = None) -> ConnectionView:
        """Close a connection by its number; raises NotFound if it does not exist or belongs to another namespace."""
        for connection, entry in self._open.items():
            if entry[0] == number:
                view = connection.view(*entry)
                if namespace in (None, view.namespace):
                    connection.disconnect(why)
                    return view
        raise NotFound(f"connections/{number}")

    def disconnect_callers(self, is_match: Callable[[Principal], bool], why: str) -> None:
        """Close every connection that has a matching principal."""
        for connection in list(self._open):
            if any(map(is_match, connection.callers())):
                connection.disconnect(why)


def display_text(text: object) -> str:
    """A text chosen by a client, as one line of bounded length."""
    return " ".join(str(text).split())[:MAX_NAME_CHARACTERS]
