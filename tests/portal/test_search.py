"""Reading pages of a hub, and the live tail."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Anchor, Position
from hubmere.portal import search
from hubmere.portal.search import FoundEvent, Tail
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
def test_position_is_read_as_people_write_it(kind: str, text: str, position: Position) -> None:
    """Numbers and times mean "from here on"; a time without a zone is UTC."""
    assert search.parse_position(kind, text) == position


@given(kind=st.sampled_from(["sequence", "offset", "time"]), text=st.text(max_size=30))
def test_any_text_is_a_position_or_refused(kind: str, text: str) -> None:
    """What a person types never fails in another way."""
    with contextlib.suppress(InvalidArgument):
        position = search.parse_position(kind, text)

        assert position.anchor in (Anchor.SEQUENCE, Anchor.OFFSET, Anchor.TIME)


def test_look_goes_on_where_the_page_ended(harness: PortalHarness) -> None:
    """Pages are without gaps and without repeats."""
    harness.publish(b"0", b"1", b"2")
    harness.publish(b"3", b"4")

    first = search.read_page(harness.a_page_context(), harness.hub.view, 0, Position.first(), limit=2)
    rest = search.read_page(
        harness.a_page_context(), harness.hub.view, 0, Position.sequence(first.next_sequence, inclusive=True)
    )

    assert bodies(first.events) + bodies(rest.events) == [b"0", b"1", b"2", b"3", b"4"]
    assert (first.is_end, rest.is_end) == (False, True)


def test_look_at_an_empty_partition_is_an_empty_end(harness: PortalHarness) -> None:
    """Nothing there is an answer, not a failure."""
    page = search.read_page(harness.a_page_context(), harness.hub.view, 2, Position.first())

    assert (page.events, page.is_end) == ([], True)


def test_tail_shows_what_comes_after_it_began(harness: PortalHarness) -> None:
    """Each event once, from every partition that is followed."""
    harness.publish(b"before")
    tail = Tail(harness.a_page_context(), harness.hub.view, (0, 1))
    tail.start()

    harness.publish(b"a", partition="0")
    harness.publish(b"b", partition="1")
    harness.publish(b"elsewhere", partition="2")
    first = tail.read_new()
    harness.publish(b"c", partition="0")

    assert (bodies(first), bodies(tail.read_new()), bodies(tail.read_new())) == ([b"a", b"b"], [b"c"], [])


def test_tail_skips_what_is_too_fast_and_says_so(harness: PortalHarness) -> None:
    """A page cannot show every event of a flood."""
    tail = Tail(harness.a_page_context(), harness.hub.view, (0,))
    tail.start()

    for _ in range(5):
        harness.publish(*[b"x"] * 50)
    hits = tail.read_new()

    assert (len(hits), tail.skipped) == (search.EVENTS_PER_TURN, 150)
    assert hits[-1].event.sequence == 249
    assert tail.read_new() == []
