"""Throughput units of a namespace over three gateways: simulated, with a clock that the test turns."""

import pytest

from cluster.units import MB, Client, Simulation
from hubmere.broker.quotas.auto_inflate import AutoInflate

SEEDS = range(3)
both_kinds = pytest.mark.parametrize("is_refused", [False, True], ids=["delayed", "refused"])


def a_client(gateway: int, *, is_refused: bool) -> Client:
    """A client that wants all it can get: it tries again much earlier than an SDK does."""
    return Client(gateway, is_refused=is_refused, retry_s=0.05)


def assert_most_of_the_units(simulation: Simulation, began: float) -> None:
    """From the second second on after its first request, a lone client has 90 % of two units in each two seconds."""
    for begin in range(2, 8):
        assert simulation.amount(began + begin, began + begin + 2) >= 0.9 * 2 * 2 * MB
    assert simulation.most_in(10) <= 1.15 * 10 * 2 * MB


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("gateway", [0, 2])
@both_kinds
def test_lone_client_has_most_of_the_units_within_two_seconds(is_refused: bool, gateway: int, seed: int) -> None:
    """It must not matter on which gateway a client is."""
    simulation = Simulation([], capacity=2, seed=seed)
    simulation.run(3.2)
    began = simulation.now
    simulation.clients = [a_client(gateway, is_refused=is_refused)]
    simulation.run(10)

    assert_most_of_the_units(simulation, began)


@pytest.mark.parametrize("seed", SEEDS)
@both_kinds
def test_lone_client_has_most_of_the_units_after_a_client_of_another_gateway_left(is_refused: bool, seed: int) -> None:
    """The share of the other gateway must move, although its client was limited a moment ago."""
    simulation = Simulation([a_client(0, is_refused=is_refused)], capacity=2, seed=seed)
    simulation.run(10 + seed / 7)
    began = simulation.now
    simulation.clients = [a_client(1, is_refused=is_refused)]
    simulation.run(10)

    assert_most_of_the_units(simulation, began)


@pytest.mark.parametrize("seed", SEEDS)
@both_kinds
def test_client_that_stays_has_most_of_the_units_after_another_left(is_refused: bool, seed: int) -> None:
    """Both had half; the one that stays has the whole within two seconds."""
    staying, leaving = a_client(0, is_refused=is_refused), a_client(1, is_refused=is_refused)
    simulation = Simulation([staying, leaving], capacity=2, seed=seed)
    simulation.run(10 + seed / 7)
    left = simulation.now
    simulation.clients = [staying]
    simulation.run(10)

    assert_most_of_the_units(simulation, left)


@pytest.mark.parametrize("seed", SEEDS)
@both_kinds
def test_lone_client_has_most_of_the_units_after_its_gateway_died(is_refused: bool, seed: int) -> None:
    """The dead gateway is silent in the pulse and in the control log, long before it is declared dead."""
    simulation = Simulation([a_client(0, is_refused=is_refused)], capacity=2, seed=seed)
    simulation.run(10 + seed / 7)
    died = simulation.now
    simulation.dead.add(0)
    simulation.clients = [a_client(1, is_refused=is_refused)]
    simulation.run(10)

    assert_most_of_the_units(simulation, died)


def test_refused_client_that_waits_keeps_the_share_of_its_gateway() -> None:
    """An SDK comes again after four seconds; it would never get more than the floor beside a client that does not."""
    simulation = Simulation([Client(0), Client(1, is_refused=True, retry_s=4.0)], capacity=2)
    simulation.run(30)

    # A bucket of half the units lasts for a second: one in five.
    assert simulation.amount(10, 30, 1) >= 0.9 * 20 / 5 * MB


@pytest.mark.parametrize("seed", SEEDS)
@both_kinds
def test_sum_of_all_gateways_stays_within_the_units(is_refused: bool, seed: int) -> None:
    """Three gateways must not give away three times what the namespace has."""
    clients = [Client(number % 3, is_refused=is_refused, retry_s=0.2) for number in range(6)]
    simulation = Simulation(clients, capacity=2, seed=seed)
    simulation.run(25)

    assert simulation.most_in(10) <= 1.15 * 10 * 2 * MB
    assert simulation.amount(5, 25) >= 0.9 * 20 * 2 * MB
    # Gateways with the same demand have the same.
    for gateway in range(3):
        assert simulation.amount(5, 25, gateway) == pytest.approx(20 * 2 * MB / 3, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_that_come_and_go_do_not_exceed_the_units(seed: int) -> None:
    """Shares move all the time then; a share that grows must wait for those that shrink."""
    simulation = Simulation([], capacity=2, seed=seed)
    for _ in range(15):
        simulation.clients = [
            Client(simulation.random.randrange(3), is_refused=simulation.random.random() < 0.3, retry_s=1.0)
            for _ in range(simulation.random.randrange(1, 4))
        ]
        simulation.run(simulation.random.uniform(1, 4))

    assert simulation.most_in(10) <= 1.15 * 10 * 2 * MB


def test_modest_client_keeps_its_rate_beside_a_greedy_one() -> None:
    """Who wants less than an equal part gets what it wants."""
    simulation = Simulation([Client(0), Client(1, limit_per_s=0.3 * MB)], capacity=2)
    simulation.run(20)

    assert simulation.amount(5, 20, 1) >= 0.9 * 15 * 0.3 * MB
    assert simulation.amount(5, 20, 0) >= 0.9 * 15 * 1.7 * MB


def test_newcomer_is_not_delayed_by_the_small_share_of_an_idle_gateway() -> None:
    """A delay is computed with the share that the gateway gets soon, not with the floor that it has now."""
    simulation = Simulation([Client(0)], capacity=2)
    simulation.run(10)
    simulation.clients.append(Client(1, batch_bytes=512 * 1024))
    simulation.run(10)

    assert simulation.amount(13, 15, 1) >= 0.8 * 2 * MB


def test_gateways_have_equal_shares_while_the_pulse_is_lost() -> None:
    """Equal parts are the only shares that need no report and add up to the whole."""
    simulation = Simulation([Client(0), Client(1), Client(2)], capacity=3)
    simulation.run(5)
    simulation.is_pulse_lost = True
    simulation.clients = [Client(0)]
    simulation.run(20)

    assert simulation.amount(15, 25) == pytest.approx(10 * MB, rel=0.05)
    assert simulation.most_in(10) <= 1.15 * 10 * 3 * MB


def test_others_leave_an_equal_part_to_a_gateway_that_is_cut_off_from_the_pulse() -> None:
    """It uses an equal part, because it does not know what the others use."""
    simulation = Simulation([Client(0), Client(1), Client(2)], capacity=3, silent=frozenset({2}))
    simulation.run(25)

    assert simulation.most_in(10) <= 1.15 * 10 * 3 * MB
    assert simulation.amount(5, 25, 2) == pytest.approx(20 * MB, rel=0.05)
    assert simulation.amount(5, 25) >= 0.9 * 20 * 3 * MB


def new_capacities(simulation: Simulation) -> list[int | None]:
    """What auto-inflate of each gateway decides."""
    return [
        AutoInflate(sharing=gateway.sharing).new_capacity(gateway.live, simulation.now)
        for gateway in simulation.gateways
    ]


def test_one_gateway_decides_that_the_units_grow() -> None:
    """Otherwise three gateways would add three units for one reason."""
    simulation = Simulation([Client(1), Client(2)], capacity=2)
    simulation.run(5)

    assert new_capacities(simulation) == [3, None, None]


def test_units_do_not_grow_because_one_gateway_has_a_small_share() -> None:
    """Its share grows first; only if the whole is used up, more units help."""
    simulation = Simulation([Client(0, limit_per_s=0.5 * MB)], capacity=4)
    simulation.run(5)
    simulation.clients.append(Client(1, batch_bytes=256 * 1024, limit_per_s=1.5 * MB))
    simulation.run(10)

    assert new_capacities(simulation) == [None, None, None]
