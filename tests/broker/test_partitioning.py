"""Publications without a key are distributed evenly."""

from collections import Counter

from hubmere.broker.partitioning import RoundRobin


def test_round_robin_is_even_and_survives_a_growing_count() -> None:
    """Publications without a key are distributed evenly, also after partitions were added."""
    turn = RoundRobin()

    before = Counter(turn.take(4) for _ in range(40))
    after = Counter(turn.take(8) for _ in range(80))

    assert before == {0: 10, 1: 10, 2: 10, 3: 10}
    assert after == dict.fromkeys(range(8), 10)
