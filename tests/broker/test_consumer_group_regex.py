"""Subscriptions by regular expression are evaluated in slices, so that no expression blocks the node."""

import sys

import pytest

from broker.consumer_groups import ConsumerGroupHarness, Topics
from hubmere.broker.coordinator.consumer_group.regex import MAX_KEPT_PATTERNS, SLICE, RegexResolver
from hubmere.broker.coordinator.refusals import InvalidRegex


def many_topics(count: int) -> Topics:
    topics = Topics()
    for number in range(count):
        topics.put(f"{'ab' * 100}-{number:04}", 1)
    return topics


def test_slow_expression_is_evaluated_in_slices() -> None:
    """Each slice does a bounded amount of work, and the final result is complete."""
    topics = many_topics(50)
    resolver = RegexResolver(topics)
    slow = "(.*.*.*a){100}.*"

    slices = 1
    while (matched := resolver.matches("g", slow)) is None:
        resolver.refill()
        slices += 1

    assert (len(matched), slices > 10) == (50, True)
    # The result is known until topics change, without any further work.
    assert resolver.matches("g", slow) == matched


def test_allowance_of_a_turn_is_shared_by_all_expressions() -> None:
    """Many groups with slow expressions together do no more work in a turn than one group."""
    resolver = RegexResolver(many_topics(50))
    assert resolver.matches("g", "(.*.*.*a){100}.*") is None

    assert resolver.matches("g", "x") is None


def test_topics_that_change_during_an_evaluation_restart_it() -> None:
    """The result is that of the current topics."""
    topics = Topics(a=1)
    resolver = RegexResolver(topics)
    assert resolver.matches("g", "a|b") == frozenset({"a"})

    topics.put("b", 1)

    assert resolver.matches("g", "a|b") == frozenset({"a", "b"})


def test_dropped_expression_is_compiled_again() -> None:
    """The number of compiled expressions is limited."""
    resolver = RegexResolver(Topics(a=1))
    for number in range(MAX_KEPT_PATTERNS + 1):
        resolver.require_valid("g", f"a{{{number + 1}}}")
        resolver.refill()

    assert resolver.matches("g", "a{1}") == frozenset({"a"})


def test_pending_evaluation_of_a_group_continues_at_its_deadline() -> None:
    """The member is answered at once without partitions, and gets them when they are known."""
    harness = ConsumerGroupHarness(many_topics(40))
    answer = harness.join("a", regex="(.*.*.*a){50}.*")
    assert (answer.assignment, harness.group.subscribed_names()) == (frozenset(), frozenset())

    steps = 0
    while (deadline := harness.group.next_deadline()) is not None and deadline < harness.now + 1:
        harness.advance(deadline - harness.now)
        steps += 1

    assert (len(harness.group.subscribed_names()), steps > 1) == (40, True)
    assert harness.own("a").assignment == harness.topics.all()


def test_ordinary_expression_is_evaluated_in_one_slice() -> None:
    """A thousand topics and a usual expression need one turn."""
    names = 1000 * len("orders-eu-west-0000")

    assert names * 15 < SLICE


def test_node_without_re2_refuses_expressions_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions by name still work where google-re2 is not installed."""
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(InvalidRegex, match="google-re2"):
        RegexResolver(Topics(a=1)).require_valid("g", "a.*")
