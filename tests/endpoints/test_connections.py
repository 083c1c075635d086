"""Connection limits of the node: shares of protocols and addresses, and the reserve."""

import pytest

from hubmere.endpoints.connections import RESERVED, ConnectionLimits


@pytest.fixture
def shared() -> ConnectionLimits:
    """Ten connections; a protocol may use five, and an address seven."""
    return ConnectionLimits(10, protocol_percent=50, address_percent=70)


class Client:
    """A connection in the reserve."""

    def __init__(self, *, is_silent: bool) -> None:
        self.is_silent = is_silent
        self.is_closed = False

    def give_way(self) -> None:
        self.is_closed = True


def _entered(connections: ConnectionLimits, protocol: str, address: str, tries: int) -> int:
    return sum(connections.enter(protocol, address) for _ in range(tries))


def test_one_protocol_cannot_use_the_connections_of_others(shared: ConnectionLimits) -> None:
    """HTTP may use half of all; Kafka still gets connections."""
    assert _entered(shared, "HTTP", "192.0.2.1", 20) == 5

    assert shared.has_room("Kafka", "192.0.2.1")
    assert not shared.has_room("HTTP", "192.0.2.2")


def test_one_address_cannot_use_the_connections_of_others(shared: ConnectionLimits) -> None:
    """An address that uses every protocol still leaves some for others."""
    assert _entered(shared, "HTTP", "192.0.2.1", 20) + _entered(shared, "Kafka", "192.0.2.1", 20) == 7

    assert not shared.has_room("AMQP", "192.0.2.1")
    assert shared.has_room("AMQP", "192.0.2.2")


def test_all_shares_together_stay_within_the_limit(shared: ConnectionLimits) -> None:
    """Shares overlap, but the sum is limited."""
    taken = sum(
        _entered(shared, protocol, f"192.0.2.{host}", 9) for protocol in ("HTTP", "Kafka", "AMQP") for host in range(9)
    )

    assert taken == shared.count == 10


def test_closed_connection_can_be_replaced(shared: ConnectionLimits) -> None:
    """Counters decrease with every end, and nothing is kept of an address without connections."""
    for _ in range(100):
        assert shared.enter("HTTP", "192.0.2.1")
        shared.leave("HTTP", "192.0.2.1")

    assert shared.count == 0
    assert shared.has_room("HTTP", "192.0.2.1")


def test_smallest_node_accepts_one_connection() -> None:
    """A share of one connection is one connection."""
    assert ConnectionLimits(1, protocol_percent=1, address_percent=1).enter("HTTP", "192.0.2.1")


def test_new_connection_replaces_the_oldest_silent_one_of_the_reserve() -> None:
    """Silent clients must not exclude an operator; connections with a request are not closed."""
    connections = ConnectionLimits(1)
    busy = Client(is_silent=False)
    silent = [Client(is_silent=True) for _ in range(RESERVED - 1)]
    for client in (busy, *silent):
        assert connections.enter_reserve(client)

    assert connections.enter_reserve(Client(is_silent=True))

    assert [client.is_closed for client in (busy, *silent)] == [False, True, *[False] * (RESERVED - 2)]


def test_reserve_in_use_is_full() -> None:
    """A connection with a request is not closed for another."""
    connections = ConnectionLimits(1)
    clients = [Client(is_silent=False) for _ in range(RESERVED)]
    assert all(connections.enter_reserve(client) for client in clients)

    assert not connections.enter_reserve(Client(is_silent=True))
    connections.leave_reserve(clients[0])
    assert connections.enter_reserve(Client(is_silent=True))
