"""How often a group may commit for one partition."""

import pytest

from hubmere.broker.quotas import commit_pace as pace
from hubmere.broker.quotas.commit_pace import MAX_DELAY_SECONDS, CommitPace

PLACE = ("group", "hub", 0)


def test_commits_within_the_rate_never_wait() -> None:
    """Four a second, for as long as one likes."""
    commits = CommitPace()

    delays = [commits.delay([PLACE], 4, 100 + number / 4) for number in range(100)]

    assert delays == [0.0] * 100


def test_more_than_a_second_of_commits_at_once_wait() -> None:
    """A burst of one second is free; then each waits for its turn."""
    commits = CommitPace()

    delays = [commits.delay([PLACE], 4, 100.0) for _ in range(6)]

    assert delays == [0.0, 0.0, 0.0, 0.0, 0.25, 0.5]


def test_a_client_that_waits_for_its_delay_commits_at_the_rate() -> None:
    """A hundred commits of an eager client take as long as the rate says, but for the burst."""
    commits, now = CommitPace(), 100.0

    for _ in range(100):
        now += commits.delay([PLACE], 4, now)

    assert now - 100.0 == pytest.approx((100 - 4) / 4)


def test_the_delay_is_bounded() -> None:
    """Heartbeats come by the same connection."""
    commits = CommitPace()

    assert max(commits.delay([PLACE], 4, 100.0) for _ in range(1000)) == MAX_DELAY_SECONDS


def test_places_do_not_share_their_rate() -> None:
    """Another partition, another hub and another group are counted apart; one request waits for the slowest."""
    commits = CommitPace()
    others = [("group", "hub", 1), ("group", "other", 0), ("other", "hub", 0)]
    for _ in range(4):
        commits.delay([PLACE], 4, 100.0)

    assert commits.delay(others, 4, 100.0) == 0.0
    assert commits.delay([PLACE, *others], 4, 100.0) == 0.25


def test_without_a_rate_nothing_is_remembered() -> None:
    """Tiers without throttling have no cost."""
    commits = CommitPace()

    assert [commits.delay([PLACE], None, 100.0) for _ in range(100)] == [0.0] * 100
    assert len(commits) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries without debt are dropped first, then the oldest."""
    monkeypatch.setattr(pace, "MAX_KEYS", 3)
    commits = CommitPace()

    commits.delay([("g", "hub", number) for number in range(3)], 4, 100.0)
    commits.delay([("g", "hub", 3)], 4, 200.0)
    settled = len(commits)
    commits.delay([("g", "hub", number) for number in range(4, 10)], 4, 200.0)

    assert (settled, len(commits)) == (1, 3)
