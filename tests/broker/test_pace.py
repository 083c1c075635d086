"""How often a Kafka group may commit offsets for one partition."""

import pytest

from hubmere.broker.quotas import commit_pace as pace
from hubmere.broker.quotas.commit_pace import MAX_DELAY_SECONDS, CommitPace

PLACE = ("group", "hub", 0)


def test_commits_within_the_rate_never_wait() -> None:
    """Four commits a second are allowed for any time."""
    commits = CommitPace()

    delays = [commits.delay([PLACE], 4, 100 + number / 4) for number in range(100)]

    assert delays == [0.0] * 100


def test_burst_of_commits_beyond_one_second_is_delayed() -> None:
    """A burst of one second is free; each further commit is delayed."""
    commits = CommitPace()

    delays = [commits.delay([PLACE], 4, 100.0) for _ in range(6)]

    assert delays == [0.0, 0.0, 0.0, 0.0, 0.25, 0.5]


def test_a_client_that_waits_for_its_delay_commits_at_the_rate() -> None:
    """A hundred commits without pause take as long as the rate allows, apart from the burst."""
    commits, now = CommitPace(), 100.0

    for _ in range(100):
        now += commits.delay([PLACE], 4, now)

    assert now - 100.0 == pytest.approx((100 - 4) / 4)


def test_the_delay_is_bounded() -> None:
    """Heartbeats use the same connection, so a delay must not end the session."""
    commits = CommitPace()

    assert max(commits.delay([PLACE], 4, 100.0) for _ in range(1000)) == MAX_DELAY_SECONDS


def test_rate_applies_to_each_group_hub_and_partition_separately() -> None:
    """A request with several partitions is delayed by the slowest of them."""
    commits = CommitPace()
    others = [("group", "hub", 1), ("group", "other", 0), ("other", "hub", 0)]
    for _ in range(4):
        commits.delay([PLACE], 4, 100.0)

    assert commits.delay(others, 4, 100.0) == 0.0
    assert commits.delay([PLACE, *others], 4, 100.0) == 0.25


def test_no_state_is_kept_without_a_rate() -> None:
    """Tiers without throttling have no cost."""
    commits = CommitPace()

    assert [commits.delay([PLACE], None, 100.0) for _ in range(100)] == [0.0] * 100
    assert len(commits) == 0


def test_number_of_remembered_partitions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries without debt are dropped first, then the oldest."""
    monkeypatch.setattr(pace, "MAX_KEYS", 3)
    commits = CommitPace()

    commits.delay([("g", "hub", number) for number in range(3)], 4, 100.0)
    commits.delay([("g", "hub", 3)], 4, 200.0)
    settled = len(commits)
    commits.delay([("g", "hub", number) for number in range(4, 10)], 4, 200.0)

    assert (settled, len(commits)) == (1, 3)
