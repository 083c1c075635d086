"""Who is connected: numbers, namespaces, limits, and closing the right one."""

import pytest

from hubmere.broker.access import Principal
from hubmere.broker.management.connections import MAX_DESCRIBED, MAX_NAME_CHARACTERS, ConnectionView, Roster, shown
from hubmere.broker.revocation import Judge
from hubmere.model.errors import NotFound


class Connection:
    """A connection of an endpoint, as far as the roster sees one."""

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

    def cut(self, why: str) -> None:
        self.reasons.append(why)

    def review(self, judge: Judge) -> None:
        raise AssertionError("no rule has changed")


def test_connections_are_shown_while_they_are_open() -> None:
    """In the order in which they came, by namespace if that is asked."""
    roster, first, second = Roster(), Connection(), Connection("other")
    roster.add(first, 5)
    roster.add(second, 6)

    everything = list(roster.look())
    roster.drop(first)
    roster.drop(first)

    assert [(view.number, view.opened_ms) for view in everything] == [(1, 5), (2, 6)]
    assert everything[0].label == "connection 1 (a-client from 127.0.0.1)"
    assert [view.namespace for view in roster.look("other")] == ["other"]
    assert list(roster.look("hubmere")) == []
    assert len(roster) == 1


def test_number_is_never_used_again() -> None:
    """Whoever closes number 1 a moment too late closes nobody."""
    roster, gone, later = Roster(), Connection(), Connection()
    roster.add(gone, 0)
    roster.drop(gone)
    roster.add(later, 0)

    with pytest.raises(NotFound):
        roster.cut(1, "late")

    assert later.reasons == []
    assert roster.cut(2, "in time").number == 2
    assert later.reasons == ["in time"]


def test_connection_of_another_namespace_is_not_there() -> None:
    """Who manages one namespace learns nothing of others."""
    roster, connection = Roster(), Connection("other")
    roster.add(connection, 0)

    with pytest.raises(NotFound):
        roster.cut(1, "not yours", "hubmere")

    assert connection.reasons == []


def test_look_is_bounded() -> None:
    """A look at ten thousand connections must not hold the node up."""
    roster = Roster()
    for _ in range(MAX_DESCRIBED + 1):
        roster.add(Connection(), 0)

    assert len(list(roster.look())) == MAX_DESCRIBED
    assert len(roster) == MAX_DESCRIBED + 1


def test_what_clients_say_of_themselves_is_one_bounded_line() -> None:
    """A name with line breaks must not draw a second row."""
    assert shown(" a\r\n b ") == "a b"
    assert len(shown("x" * 1000)) == MAX_NAME_CHARACTERS
