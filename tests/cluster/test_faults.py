"""One fault at a time on two gateways and three brokers, under load of all protocols: rows of the failure matrix.

After every fault: no acknowledged event is lost, a gateway's own retries duplicate none, every producer's order holds,
each gateway delivers exactly what the brokers have, and all gateways have the same catalog. One cluster for all tests;
each test heals it.
"""

import gc
import signal
import time
from collections.abc import Iterator

import pytest

from cluster.checks import errors_of_a_moving_consumer, leave_a_leader_alone, seconds_until_stolen
from cluster.gateways import get, post_event, put_hub
from cluster.load import Load, create_hub, run_harmed
from cluster.machines import Machines, running_machines
from cluster.running import MARKS, eventually

pytestmark = MARKS
# More than half a minute: in `make torture`.
takes_long = pytest.mark.usefixtures("torture")
CONTROL = "hubmere.control"
# Longer than the session of a broker (6 s), after which the controller elects other leaders.
FROZEN_SECONDS = 12.0
# A gateway may deliver for so long after its last beat; a displaced owner may read until then.
LEASE_SECONDS = 3.0


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(tmp_path_factory.mktemp("faults")) as running:
        yield running
        gc.collect()


def test_gateways_that_are_stopped_in_order_and_started_again_lose_nothing(machines: Machines) -> None:
    """F2 and F16: a rolling upgrade. One gateway always serves, and the stopped one has released its places."""

    def harm(load: Load) -> int:
        for number, gateway in enumerate(machines.gateways):
            gateway.signal(signal.SIGTERM)
            load.await_progress()
            machines.start_gateway(number)
        return len(machines.gateways)

    run_harmed(machines, "rolling-gateways", harm)


@takes_long
def test_a_killed_gateway_is_replaced(machines: Machines) -> None:
    """F1: clients go on elsewhere, and the new process at the same address serves as the old one did."""

    def harm(load: Load) -> int:
        machines.gateways[0].signal(signal.SIGKILL)
        load.await_progress()
        machines.start_gateway(0)
        return 1

    run_harmed(machines, "killed-gateway", harm)


@takes_long
def test_brokers_that_are_restarted_one_by_one_lose_nothing(machines: Machines) -> None:
    """F17: as an upgrade of Kafka does it. Leaders move without a broken request."""

    def harm(load: Load) -> int:
        for number in range(3):
            machines.stop_broker(number)
            load.await_progress()
            machines.start_broker(number)
        return 0

    run_harmed(machines, "rolling-brokers", harm)


@takes_long
def test_a_killed_controller_delays_new_hubs_only(machines: Machines) -> None:
    """F4 and F5: the next controller is elected, and leaders for the partitions of the dead broker."""

    def harm(load: Load) -> int:
        number = machines.controller()
        machines.signal_broker(number, signal.SIGKILL)
        assert eventually(lambda: put_hub(machines.gateways[1].ready, "while-electing")[0] == 200)
        load.await_progress()
        machines.start_broker(number)
        return 0

    run_harmed(machines, "killed-controller", harm)


def test_a_frozen_leader_is_replaced(machines: Machines) -> None:
    """F7: requests get no answer; the numbers of the gateway's batches hold over the change of the leader."""

    def harm(load: Load) -> int:
        number = machines.leader_of(machines.topics[load.hub])
        machines.signal_broker(number, signal.SIGSTOP)
        try:
            time.sleep(FROZEN_SECONDS)
            load.await_progress()
        finally:
            machines.signal_broker(number, signal.SIGCONT)
        machines.await_sync()
        return 0

    run_harmed(machines, "frozen-leader", harm)


@takes_long
def test_two_dead_brokers_refuse_publications_until_one_is_back(machines: Machines) -> None:
    """F6: nothing is acknowledged that one broker alone has. Gateways recover without a restart."""

    def harm(load: Load) -> int:
        for number in (0, 1):
            machines.signal_broker(number, signal.SIGKILL)
        gateway = machines.gateways[0].ready
        assert eventually(lambda: post_event(gateway, load.hub, "x", partition=1)[0] == 503)
        assert eventually(lambda: get(gateway, "/health")[0] == 503)
        machines.brokers.start_broker(machines.broker(0))
        machines.start_broker(1)
        return 0

    run_harmed(machines, "two-dead", harm)


@takes_long
def test_a_leader_without_its_followers_acknowledges_nothing(machines: Machines) -> None:
    """F10: it still answers reads and appends, which its gateways must not trust: a retry may be stored twice."""

    def harm(load: Load) -> int:
        leave_a_leader_alone(machines, CONTROL)
        return 0

    run_harmed(machines, "leader-alone", harm)


def test_management_waits_while_the_leader_of_the_control_log_is_frozen(machines: Machines) -> None:
    """F11: open links go on; new hubs wait, are refused with Retry-After, and are created again afterwards."""
    create_hub(machines, "without-control")
    number = machines.leader_of(CONTROL)
    machines.signal_broker(number, signal.SIGSTOP)
    try:
        status, _, headers = put_hub(machines.gateways[0].ready, "late")
        assert status == 200 or (status == 503 and "retry-after" in headers)
        assert eventually(lambda: put_hub(machines.gateways[0].ready, "late")[0] == 200)
    finally:
        machines.signal_broker(number, signal.SIGCONT)
    machines.await_sync()
    assert eventually(lambda: get(machines.gateways[0].ready, "/health")[0] == 200)


def test_a_place_is_not_granted_while_its_frozen_owner_may_deliver(machines: Machines) -> None:
    """F3: the old owner's gateway cannot be asked; it may deliver until its lease has ended."""
    assert seconds_until_stolen(machines, "stolen", CONTROL) > LEASE_SECONDS


def test_a_consumer_is_not_reset_by_a_gateway_that_is_behind(machines: Machines) -> None:
    """F12: only the leader may say that a position does not exist."""
    assert errors_of_a_moving_consumer(machines, "moving") == []
