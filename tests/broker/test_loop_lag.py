"""Event-loop lag: its histogram, and the longest delay of the last minute."""

from hubmere.broker.monitoring.loop_lag import LAG_BOUNDS_S, LoopLag


def test_histogram_counts_each_delay_up_to_its_bounds() -> None:
    """Prometheus buckets are cumulative: each counts all delays up to its bound."""
    lag = LoopLag()

    for delay_s in (0.0, LAG_BOUNDS_S[0], 0.3, 60.0):
        lag.observe(delay_s, 0.0)

    counts = dict(zip(LAG_BOUNDS_S, lag.cumulative_counts(), strict=True))
    assert counts[LAG_BOUNDS_S[0]] == 2
    assert counts[0.25] == 2
    assert counts[0.5] == 3
    assert counts[LAG_BOUNDS_S[-1]] == 3
    assert lag.count == 4
    assert lag.total_s == 60.301


def test_longest_delay_is_dropped_after_a_minute() -> None:
    """Otherwise the gauge would show the delay at the start of the node for ever."""
    lag = LoopLag()
    lag.observe(0.4, 1.0)
    lag.observe(0.01, 30.0)

    assert lag.longest_s(35.0) == 0.4
    assert lag.longest_s(71.0) == 0.01
    assert lag.longest_s(150.0) == 0.0


def test_longest_delay_covers_all_periods_of_the_minute() -> None:
    """A short delay after a long one must not hide it."""
    lag = LoopLag()
    for second in range(600):
        lag.observe(0.2 if second == 580 else 0.001, float(second))

    assert lag.longest_s(600.0) == 0.2
