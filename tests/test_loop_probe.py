"""The probe of event-loop lag detects a blocked loop, on both kinds of event loop."""

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from hubmere.broker.monitoring.loop_lag import LoopLag
from hubmere.model.clock import SystemClock
from hubmere.node.runtime.loop_probe import LoopProbe


def a_probe(lag: LoopLag, interval_s: float) -> LoopProbe:
    """A probe with one interval for busy and idle loops."""
    return LoopProbe(lag, SystemClock(), busy_interval_s=interval_s, resting_interval_s=interval_s)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_blocked_loop_is_detected(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The measured delay may be shorter by one interval, in which the block may have begun."""
    lag, blocked_s, interval_s = LoopLag(), 0.2, 0.01

    async def block() -> None:
        probe = a_probe(lag, interval_s)
        probe.start()
        await asyncio.sleep(3 * interval_s)
        time.sleep(blocked_s)
        await asyncio.sleep(3 * interval_s)
        probe.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(block())

    # The loop's timers have a resolution of a millisecond.
    assert lag.longest_s(time.monotonic()) >= blocked_s - interval_s - 0.002


def test_stopped_probe_leaves_no_timer() -> None:
    """A node that is embedded in another loop leaves no timer."""
    lag = LoopLag()

    async def start_and_stop() -> int:
        probe = a_probe(lag, 0.001)
        probe.start()
        probe.stop()
        count = lag.count
        await asyncio.sleep(0.02)
        return lag.count - count

    assert asyncio.run(start_and_stop()) == 0


def test_idle_loop_is_woken_less_often_than_a_busy_one() -> None:
    """The probe costs an idle node almost nothing."""
    lag = LoopLag()

    async def rest() -> None:
        probe = LoopProbe(lag, SystemClock(), busy_interval_s=0.2, resting_interval_s=3600.0)
        probe.start()
        await asyncio.sleep(0.5)
        probe.stop()

    asyncio.run(rest())

    assert lag.count == 1
