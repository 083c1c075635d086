"""Random faults under load of all protocols, with a printed seed: the long form of the failure matrix.

The variable CLUSTER_SEED repeats a run. `make torture` runs many rounds, `make test-all` a few; CLUSTER_ROUNDS and
CLUSTER_STEALS set their number.
"""

import gc
import os
import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cluster.duel import GROUP, Duel, QuickOwner
from cluster.faults import run_faults
from cluster.gateways import delete_hub, put_group, put_hub
from cluster.load import Load, create_hub
from cluster.machines import Machines, running_machines
from cluster.running import MARKS, eventually

pytestmark = [*MARKS, pytest.mark.timeout(3_600)]
_HUB = "tortured"
_ROUNDS, _LONG_ROUNDS = 3, 25
# So that readers written in Python keep up for minutes.
_PACE_S = 0.01


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(tmp_path_factory.mktemp("random-faults")) as running:
        yield running
        gc.collect()


class Manager(threading.Thread):
    """Creates and deletes hubs through random gateways; refusals do not matter, differences would."""

    def __init__(self, machines: Machines, seed: int) -> None:
        super().__init__(daemon=True)
        self.changes = 0
        self._machines = machines
        self._chance = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.3):
            gateway = self._chance.choice(self._machines.gateways).ready
            name = f"managed-{self._chance.randrange(5)}"
            with suppress(OSError, ValueError):
                change = self._chance.choice((put_hub, delete_hub))
                self.changes += change(gateway, name)[0] == 200

    def stop(self) -> None:
        """End after the request that is under way."""
        self._stopping.set()
        self.join()


def test_random_faults_lose_and_duplicate_nothing(machines: Machines, request: pytest.FixtureRequest) -> None:
    """Also in order, with one exclusive reader at a time, and with equal catalogs."""
    seed = int(os.environ.get("CLUSTER_SEED", random.SystemRandom().randrange(1 << 30)))
    is_long = request.config.getoption("--torture", default=False)
    rounds = int(os.environ.get("CLUSTER_ROUNDS", _LONG_ROUNDS if is_long else _ROUNDS))
    print(f"CLUSTER_SEED={seed}", flush=True)
    create_hub(machines, _HUB)
    assert eventually(lambda: put_group(machines.gateways[0].ready, _HUB, GROUP)[0] == 200)
    manager, duel = Manager(machines, seed), Duel(machines, _HUB, seed)
    with Load(machines, _HUB, pace_s=_PACE_S) as load:
        manager.start()
        duel.start()
        try:
            broken = run_faults(machines, load, seed=seed, rounds=rounds)
            # The last faults are healed: owners must displace each other again.
            before = duel.steals
            assert eventually(lambda: duel.steals > before), "no exclusive reader is served any more"
        finally:
            manager.stop()
            duel.stop()

        load.finish(broken_connections=broken)
        sent_at = {body: at for sender in load.senders for body, at in sender.sent_at.items()}
        acknowledged = sum(len(sender.acknowledged) for sender in load.senders)
        print(
            f"{acknowledged} acknowledged, {duel.steals} steals, {manager.changes} changes of the catalog", flush=True
        )
        assert duel.overlaps(sent_at) == []


def test_readers_that_displace_each_other_never_overlap(machines: Machines, request: pytest.FixtureRequest) -> None:
    """F13: rising epochs on random gateways. The takeover is answered only when the old owner gets nothing more."""
    is_long = request.config.getoption("--torture", default=False)
    steals = int(os.environ.get("CLUSTER_STEALS", 1_000 if is_long else 10))
    hub = "stolen-often"
    create_hub(machines, hub)
    assert eventually(lambda: put_group(machines.gateways[0].ready, hub, GROUP)[0] == 200)
    duel = Duel(machines, hub, steals, owner_seconds=(0.0, 0.05), owner=QuickOwner)
    with Load(machines, hub, pace_s=_PACE_S) as load:
        duel.start()
        try:
            while duel.steals < steals:
                before = duel.steals
                assert eventually(lambda: duel.steals > before), "no exclusive reader is served any more"  # noqa: B023
        finally:
            duel.stop()
        load.finish()

    sent_at = {body: at for sender in load.senders for body, at in sender.sent_at.items()}
    print(f"{len(sent_at)} sent, {duel.steals} steals", flush=True)
    assert duel.overlaps(sent_at) == []
