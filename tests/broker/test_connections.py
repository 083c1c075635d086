"""The registry of open connections: numbers, namespaces, limits, and which connection is disconnected."""

import pytest

from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.revocation import Judge
from hubmere.broker.management.connections import (
    MAX_DESCRIBED,
    MAX_NAME_CHARACTERS,
    Connections,
    ConnectionView,
    display_text,
)
from hubmere.model.errors import NotFound


class Connection:
    """A connection of an endpoint, with the interface that the registry uses."""

    def __init__(self, namespace: str = "hubmere") -> None:
        self.namespace = namespace
        self.reasons: list[str] = []

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        return ConnectionView(
            number=number,
            protocol="AMQP",
            client="a-client",
            software="",
            rule="root",
            peer="127.0.0.1",
            namespace=self.namespace,
            is_secure=False,
            opened_ms=opened_ms,
            idle_s=0.0,
        )

    def callers(self) -> tuple[Principal, ...]:
        return ()

    def disconnect(self, why: str) -> None:
        self.reasons.append(why)

    def review(self, judge: Judge) -> None:
        raise AssertionError("no rule has changed")


def test_connections_are_shown_while_they_are_open() -> None:
    """Snapshots come oldest first, and can be restricted to one namespace."""
    connections, first, second = Connections(), Connection(), Connection("other")
    connections.add(first, 5)
    connections.add(second, 6)

    everything = list(connections.snapshots())
    connections.remove(first)
    connections.remove(first)

    assert [(view.number, view.opened_ms) for view in everything] == [(1, 5), (2, 6)]
    assert everything[0].label == "connection 1 (a-client from 127.0.0.1)"
    assert [view.namespace for view in connections.snapshots("other")] == ["other"]
    assert list(connections.snapshots("hubmere")) == []
    assert len(connections) == 1


def test_number_is_never_used_again() -> None:
    """A request to disconnect number 1 must not close a later connection after the first one has ended."""
    connections, gone, later = Connections(), Connection(), Connection()
    connections.add(gone, 0)
    connections.remove(gone)
    connections.add(later, 0)

    with pytest.raises(NotFound):
        connections.disconnect(1, "late")

    assert later.reasons == []
    assert connections.disconnect(2, "in time").number == 2
    assert later.reasons == ["in time"]


def test_connection_of_another_namespace_is_reported_as_missing() -> None:
    """The manager of one namespace must not learn about others."""
    connections, connection = Connections(), Connection("other")
    connections.add(connection, 0)

    with pytest.raises(NotFound):
        connections.disconnect(1, "not yours", "hubmere")

    assert connection.reasons == []


def test_snapshots_are_bounded() -> None:
    """Listing ten thousand connections must not block the event loop."""
    connections = Connections()
    for _ in range(MAX_DESCRIBED + 1):
        connections.add(Connection(), 0)

    assert len(list(connections.snapshots())) == MAX_DESCRIBED
    assert len(connections) == MAX_DESCRIBED + 1


def test_texts_that_clients_report_are_one_line_of_limited_length() -> None:
    """A client name with line breaks must not look like a second row."""
    assert display_text(" a\r\n b ") == "a b"
    assert len(display_text("x" * 1000)) == MAX_NAME_CHARACTERS
