"""Known bad builds of a gateway are caught by the checks that whole gateways pass (`test_faults.py`)."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster.checks import errors_of_a_moving_consumer, leave_a_leader_alone, seconds_until_stolen
from cluster.load import Load, create_hub
from cluster.machines import Machines, gateway_process, running_machines
from cluster.running import MARKS
from cluster.test_faults import LEASE_SECONDS

pytestmark = [*MARKS, pytest.mark.usefixtures("torture")]
_INJECTED = Path(__file__).parent / "injected"
# How often a check may let a bad build pass: a busy machine can be slow to show its fault.
_ATTEMPTS = 5


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(tmp_path_factory.mktemp("bad-builds"), gateways=0) as running:
        yield running
        gc.collect()


@contextmanager
def bad_gateways(brokers: Machines, folder: Path, build: str) -> Iterator[Machines]:
    """Two gateways of a bad build, with topics of their own."""
    environment = {"PYTHONPATH": str(_INJECTED), "BAD_BUILD": build}
    with ExitStack() as stack:
        machines = Machines(brokers.brokers, [])
        for number in range(2):
            prefix = f"--cluster-prefix={build}."
            gateway = gateway_process(folder, number, brokers.brokers.bootstrap, prefix, environment=environment)
            stack.callback(gateway.stop)
            gateway.start()
            gateway.wait()
            machines.gateways.append(gateway)
        yield machines


def test_a_stale_end_as_a_refusal_is_caught(brokers: Machines, tmp_path: Path) -> None:
    """The consumer would reset its position, and skip or repeat events."""
    with bad_gateways(brokers, tmp_path, "stale-end") as machines:
        assert errors_of_a_moving_consumer(machines, "moving")


def test_a_claim_that_is_answered_before_the_release_is_caught(brokers: Machines, tmp_path: Path) -> None:
    """Two owners of a partition could read at the same time."""
    with bad_gateways(brokers, tmp_path, "early-claim") as machines:
        control = "early-claim.control"
        taken = (seconds_until_stolen(machines, f"stolen-{number}", control) for number in range(_ATTEMPTS))

        assert any(seconds < LEASE_SECONDS for seconds in taken)


def test_a_retry_without_numbers_is_caught(brokers: Machines, tmp_path: Path) -> None:
    """The leader has the batch already when the gateway sends it again."""
    with bad_gateways(brokers, tmp_path, "no-numbers") as machines:
        create_hub(machines, "alone")
        with Load(machines, "alone") as load:
            leave_a_leader_alone(machines, "no-numbers.control")
            load.await_progress()

            with pytest.raises(AssertionError, match="stored twice"):
                load.finish()
