"""Numbers, sizes, times and bodies as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.portal import texts
from hubmere.portal.snippets import snippets
from portal.builders import ADDRESSES


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (1536 * 1024, "1.5 MB"), (2**60, "1024.0 PB")]
)
def test_size_has_the_largest_unit_that_fits(count: int, text: str) -> None:
    """Nobody counts digits."""
    assert texts.size(count) == text


@pytest.mark.parametrize(("count", "text"), [(0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (12345.6, "12,346")])
def test_rate_has_decimals_where_they_matter(count: float, text: str) -> None:
    """One event in four seconds is not none."""
    assert texts.rate(count) == text


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(-1, "–"), (0, "1970-01-01 00:00:00.000"), (1_700_000_000_123, "2023-11-14 22:13:20.123")],  # noqa: RUF001
)
def test_instant_is_in_utc_to_the_millisecond(at_ms: int, text: str) -> None:
    """Events are told apart by milliseconds."""
    assert texts.instant(at_ms) == text


@given(st.integers(min_value=-1, max_value=2**63 - 1))
def test_any_instant_can_be_shown(at_ms: int) -> None:
    """A Kafka producer may stamp anything."""
    assert texts.instant(at_ms)


@pytest.mark.parametrize(
    ("hours", "text"), [(None, "for ever"), (1, "1 h"), (24, "1 day"), (168, "7 days"), (25, "25 h")]
)
def test_retention_is_told_in_days_where_it_is_some(hours: int | None, text: str) -> None:
    """168 hours is a week to nobody."""
    assert texts.hours(hours) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "(no body)"),
        (b"two\nlines", "two lines"),
        (b"\x00\x01\x02", "(3 B of binary)"),
        ("é".encode() * 200, "é" * 120 + "…"),
    ],
)
def test_preview_is_one_line(body: bytes | None, text: str) -> None:
    """A table row has room for one."""
    assert texts.preview(body) == text


@given(st.binary(max_size=2000))
def test_any_body_can_be_shown_every_way(body: bytes) -> None:
    """Bodies are whatever clients send."""
    texts.preview(body)
    shown = texts.as_json(body)

    assert len(texts.as_hex(body).splitlines()) == -(-len(body) // 16)
    assert shown is None or shown
    assert len(texts.as_text(body)) <= len(body)


def test_hex_shows_place_bytes_and_letters() -> None:
    """As every tool for bytes does."""
    line = texts.as_hex(b"hubmere\x00")

    assert line.split("  ")[0] == "00000000"
    assert "68 75 62 6d 65 72 65 00" in line
    assert line.endswith("hubmere.")


def test_json_nested_beyond_reason_is_shown_as_text() -> None:
    """A body of brackets must not bring a page down."""
    assert texts.as_json(b"[" * 60_000) is None


def test_snippets_name_this_node_and_hold_no_secret() -> None:
    """They are to be copied as they are, into places where a key has no business."""
    shown = {snippet.title: snippet.code for snippet in snippets(ADDRESSES, "hubmere", "orders")}

    assert list(shown) == ["Python", "JavaScript", "Java", "Kafka", "curl", "Spark"]
    assert all("orders" in code for code in shown.values())
    assert "localhost:9092" in shown["Kafka"]
    assert "http://localhost:8080/orders/messages" in shown["curl"]
    assert not any("SharedAccessKey=" in code for code in shown.values())


def test_python_snippet_is_python() -> None:
    """What is copied must at least compile."""
    for snippet in snippets(ADDRESSES, "hubmere", "orders"):
        if snippet.language == "python":
            compile(snippet.code, snippet.title, "exec")
