"""Reading pages of a hub, and the live tail."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Anchor, Position
from hubmere.portal.events import search
from hubmere.portal.events.search import FoundEvent, Tail
from portal.builders import PortalHarness


def bodies(hits: list[FoundEvent]) -> list[bytes]:
    return [hit.event.body or b"" for hit in hits]


@pytest.mark.parametrize(
    ("kind", "text", "position"),
    [
        ("first", "", Position.first()),
        ("latest", "", Position.latest()),
        ("sequence", " 5 ", Position.sequence(5, inclusive=True)),
        ("offset", "96", Position.offset(96, inclusive=True)),
        ("time", "1970-01-01T00:00:01", Position.time(1000, inclusive=True)),
        ("time", "1970-01-01T01:00:01+01:00", Position.time(1000, inclusive=True)),
    ],
)
def test_positions_are_accepted_in_several_forms(kind: str, text: str, position: Position) -> None:
    """Numbers and times mean "from here on"; a time without a zone is UTC."""
    assert search.parse_position(kind, text) == position


@given(kind=st.sampled_from(["sequence", "offset", "time"]), text=st.text(max_size=30))
def test_any_text_is_a_position_or_refused(kind: str, text: str) -> None:
    """User input never causes another error."""
    with contextlib.suppress(InvalidArgument):
        position = search.parse_position(kind, text)

        assert position.anchor in (Anchor.SEQUENCE, Anchor.OFFSET, Anchor.TIME)


def test_next_page_continues_where_the_last_one_ended(harness: PortalHarness) -> None:
    """Pages have no gaps and no repeats."""
    harness.publish(b"0", b"1", b"2")
    harness.publish(b"3", b"4")

    first = search.read_page(harness.a_page_context(), harness.hub.view, 0, Position.first(), limit=2)
    rest = search.read_page(
        harness.a_page_context(), harness.hub.view, 0, Position.sequence(first.next_sequence, inclusive=True)
    )

    assert bodies(first.events) + bodies(rest.events) == [b"0", b"1", b"2", b"3", b"4"]
    assert (first.is_end, rest.is_end) == (False, True)


def test_empty_partition_has_an_empty_page(harness: PortalHarness) -> None:
    """An empty page is a valid answer."""
    page = search.read_page(harness.a_page_context(), harness.hub.view, 2, Position.first())

    assert (page.events, page.is_end) == ([], True)


def test_tail_shows_events_after_its_start(harness: PortalHarness) -> None:
    """Each event is shown once, from every followed partition."""
    harness.publish(b"before")
    tail = Tail(harness.a_page_context(), harness.hub.view, (0, 1))
    tail.start()

    harness.publish(b"a", partition="0")
    harness.publish(b"b", partition="1")
    harness.publish(b"elsewhere", partition="2")
    first = tail.read_new()
    harness.publish(b"c", partition="0")

    assert (bodies(first), bodies(tail.read_new()), bodies(tail.read_new())) == ([b"a", b"b"], [b"c"], [])


def test_tail_skips_events_that_are_too_fast_and_says_so(harness: PortalHarness) -> None:
    """A page cannot show every event of a flood."""
    tail = Tail(harness.a_page_context(), harness.hub.view, (0,))
    tail.start()

    for _ in range(5):
        harness.publish(*[b"x"] * 50)
    hits = tail.read_new()

    assert (len(hits), tail.skipped) == (search.EVENTS_PER_TURN, 150)
    assert hits[-1].event.sequence == 249
    assert tail.read_new() == []
