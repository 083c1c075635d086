"""A simulation of the rule for exclusive readers on the control log. It also detects three weaker rules."""

import pytest

from cluster.simulation import Rules, Simulation
from hubmere.cluster.control.entries import Claim, Role
from hubmere.cluster.control.lease import ClaimEvent, Lease
from hubmere.cluster.control.state import Outcome

SHORT = range(60)
LONG = range(1_000)


class WithoutTheWait(Lease):
    """A claim is granted as soon as it is read back."""

    def _on_claim(self, claim: Claim | Role, outcome: Outcome, now: float) -> list[ClaimEvent]:
        events = super()._on_claim(claim, outcome, now)
        return [*events, self._grant(claim.id)] if claim.id in self._waiting else events


class WithoutTheLease(Lease):
    """A gateway delivers until it has read that it must stop."""

    def is_held(self, now: float) -> bool:
        return not self.is_gone


class WaitsForTheLastOnly(Lease):
    """A claim waits for the release of the last displaced claim, not for all of them."""

    def _on_claim(self, claim: Claim | Role, outcome: Outcome, now: float) -> list[ClaimEvent]:
        events = super()._on_claim(claim, outcome, now)
        if (waiting := self._waiting.get(claim.id)) is not None:
            assert outcome.claim is not None
            waiting.waits_for = set(outcome.claim.waits_for[-1:])
        return events


def broken_seeds(seeds: range, lease: type[Lease] = Lease) -> list[int]:
    """The schedules in which two gateways deliver at the same time."""
    return [seed for seed in seeds if Simulation(seed, Rules(lease=lease)).run().overlaps]


def test_two_gateways_never_deliver_to_one_exclusive_reader(request: pytest.FixtureRequest) -> None:
    """No event is delivered to an old owner after the attach of the new owner was answered."""
    seeds = LONG if request.config.getoption("--torture", default=False) else SHORT
    runs = [Simulation(seed).run() for seed in seeds]

    assert [seed for seed, run in zip(seeds, runs, strict=True) if run.overlaps] == []
    # Most of the time some reader owns the partition.
    assert sum(run.delivering_steps for run in runs) > len(runs) * 300


@pytest.mark.parametrize("weaker", [WithoutTheWait, WithoutTheLease, WaitsForTheLastOnly])
def test_weaker_rule_is_detected(weaker: type[Lease]) -> None:
    """This shows that the simulation can fail: each part of the rule is needed."""
    assert broken_seeds(SHORT, weaker)
