"""The steady clock: it follows small corrections at once, and larger steps only if they last."""

import pytest

from hubmere.model.clock import TOLERANCE_MS, Anchor, SteadyClock

YEARS_MS = 10 * 365 * 24 * 3_600_000
START_MS = 1_700_000_000_000


class Machine:
    """A machine whose clocks are set by the test."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.monotonic_s = self.elapsed_s = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.monotonic_s

    def elapsed(self) -> float:
        return self.elapsed_s

    def run(self, seconds: float) -> None:
        self.wall_ms += round(seconds * 1000)
        self.monotonic_s += seconds
        self.elapsed_s += seconds


def a_clock(machine: Machine, confirm_s: float = 300.0, anchor: Anchor | None = None) -> SteadyClock:
    return SteadyClock(machine, machine.elapsed, confirm_s=confirm_s, anchor=anchor)


def test_small_corrections_are_followed_at_once() -> None:
    """Time servers correct all clocks all the time."""
    machine = Machine()
    clock = a_clock(machine)

    for correction_ms in (300, -200, TOLERANCE_MS // 2, -TOLERANCE_MS // 2):
        machine.run(5)
        machine.wall_ms += correction_ms
        assert clock.now_ms() == machine.wall_ms
        assert clock.step_ms == 0


@pytest.mark.parametrize("step_ms", [YEARS_MS, -YEARS_MS, 3_600_000, -60_000])
def test_temporary_step_has_no_effect(step_ms: int) -> None:
    """Ten years ahead for six seconds must have no effect."""
    machine = Machine()
    clock = a_clock(machine)
    machine.wall_ms += step_ms
    seen = []
    for _ in range(6):
        machine.run(1)
        seen.append(clock.now_ms() - START_MS)
    step_seen_ms = clock.step_ms
    machine.wall_ms -= step_ms
    machine.run(1)

    back_ms = clock.now_ms()

    assert seen == [1_000, 2_000, 3_000, 4_000, 5_000, 6_000]
    assert abs(step_seen_ms - step_ms) < TOLERANCE_MS
    assert (back_ms, clock.step_ms) == (START_MS + 7_000, 0)


def test_lasting_step_is_a_correction() -> None:
    """Machines start with wrong clocks, which are corrected later."""
    machine = Machine()
    clock = a_clock(machine, confirm_s=300)
    machine.wall_ms += YEARS_MS
    clock.now_ms()
    machine.run(299)
    before = clock.now_ms()
    machine.run(2)

    after = clock.now_ms()

    assert before == START_MS + 299_000
    assert (after, clock.confirmed_steps, clock.step_ms) == (machine.wall_ms, 1, 0)


def test_a_clock_that_keeps_jumping_is_never_confirmed() -> None:
    """Only a stable time can be the right one."""
    machine = Machine()
    clock = a_clock(machine, confirm_s=300)
    for number in range(20):
        machine.wall_ms += YEARS_MS if number % 2 else -YEARS_MS // 3
        machine.run(60)
        clock.now_ms()

    assert clock.confirmed_steps == 0
    assert clock.now_ms() == START_MS + 20 * 60_000


def test_time_is_accepted_after_a_suspension() -> None:
    """Time has passed for all other machines."""
    machine = Machine()
    clock = a_clock(machine)
    machine.wall_ms += 7_200_000
    machine.elapsed_s += 7_200

    assert clock.now_ms() == machine.wall_ms
    assert clock.step_ms == 0


def test_step_between_two_runs_is_treated_like_any_other() -> None:
    """A restart must not bypass the check."""
    machine = Machine()
    anchor = a_clock(machine).anchor
    machine.run(60)
    machine.wall_ms += YEARS_MS

    clock = a_clock(machine, anchor=anchor)

    assert clock.now_ms() == START_MS + 60_000
    assert clock.step_ms == YEARS_MS
