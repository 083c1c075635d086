"""Formatting of numbers, sizes, times and bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.portal import formatting
from hubmere.portal.snippets import snippets
from portal.builders import ADDRESSES


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (1536 * 1024, "1.5 MB"), (2**60, "1024.0 PB")]
)
def test_size_has_the_largest_unit_that_fits(count: int, text: str) -> None:
    """People should not have to count digits."""
    assert formatting.size(count) == text


@pytest.mark.parametrize(("count", "text"), [(0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (12345.6, "12,346")])
def test_rate_has_decimals_where_they_matter(count: float, text: str) -> None:
    """One event in four seconds is not none."""
    assert formatting.rate(count) == text


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(-1, "–"), (0, "1970-01-01 00:00:00.000"), (1_700_000_000_123, "2023-11-14 22:13:20.123")],  # noqa: RUF001
)
def test_timestamp_is_in_utc_to_the_millisecond(at_ms: int, text: str) -> None:
    """Many events share one second."""
    assert formatting.timestamp(at_ms) == text


@given(st.integers(min_value=-1, max_value=2**63 - 1))
def test_any_timestamp_can_be_formatted(at_ms: int) -> None:
    """Kafka producers may send any timestamp."""
    assert formatting.timestamp(at_ms)


@pytest.mark.parametrize(
    ("hours", "text"), [(None, "unlimited"), (1, "1 h"), (24, "1 day"), (168, "7 days"), (25, "25 h")]
)
def test_retention_of_whole_days_is_shown_in_days(hours: int | None, text: str) -> None:
    """Few people recognise 168 hours as a week."""
    assert formatting.hours(hours) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1.0, "0 s ago"), (119.0, "119 s ago"), (120.0, "2 min ago"), (7200.0, "2 h ago"), (200_000.0, "2 days ago")],
)
def test_age_is_shown_in_its_largest_unit(seconds: float, text: str) -> None:
    """The clock of a producer may be ahead."""
    assert formatting.age(seconds) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "(no body)"),
        (b"two\nlines", "two lines"),
        (b"\x00\x01\x02", "(3 B of binary data)"),
        ("é".encode() * 200, "é" * 120 + "…"),
        # The last character is cut in two where the preview ends.
        (("a" + "é" * 300).encode(), "a" + "é" * 119 + "…"),
    ],
)
def test_preview_is_one_line(body: bytes | None, text: str) -> None:
    """A table row has room for one."""
    assert formatting.preview(body) == text


@pytest.mark.parametrize(
    "text",
    ["1\u00a0234,50 €", "全角\u3000スペース", "\U0001f469\u200d\U0001f467", "\ufeff{}", "soft\u00adhyphen", "\t\r\n"],
)
def test_spaces_joiners_and_marks_are_text(text: str) -> None:
    """Python calls them unprintable, but people write them."""
    assert formatting.is_text(text)
    assert "binary" not in formatting.preview(text.encode())


@pytest.mark.parametrize("body", [b"\x00", b"\xff\xfe", b"a\x1b[0m", "é".encode()[:1]])
def test_control_characters_and_invalid_bytes_are_binary(body: bytes) -> None:
    """They would not be visible, or not be what was sent."""
    assert "binary" in formatting.preview(body)


def test_text_of_a_large_body_ends_with_a_whole_character() -> None:
    """A mark for invalid bytes at the end would look like a damaged event."""
    shown = formatting.to_text(("a" + "é" * formatting.MAX_DISPLAYED_BODY_BYTES).encode())

    assert shown.endswith("é")


@given(st.binary(max_size=2000))
def test_any_body_can_be_shown_every_way(body: bytes) -> None:
    """Bodies are whatever clients send."""
    formatting.preview(body)
    shown = formatting.to_json(body)

    assert len(formatting.to_hex(body).splitlines()) == -(-len(body) // 16)
    assert shown is None or shown
    assert len(formatting.to_text(body)) <= len(body)


def test_hex_dump_shows_offset_bytes_and_characters() -> None:
    """This is the usual format of a hex dump."""
    line = formatting.to_hex(b"hubmere\x00")

    assert line.split("  ")[0] == "00000000"
    assert "68 75 62 6d 65 72 65 00" in line
    assert line.endswith("hubmere.")


def test_json_nested_beyond_reason_is_shown_as_text() -> None:
    """The JSON parser has a depth limit; the page must survive it."""
    assert formatting.to_json(b"[" * 60_000) is None


def test_snippets_name_this_node_and_hold_no_secret() -> None:
    """People paste them into source code, where a key must not be."""
    shown = {snippet.title: snippet.code for snippet in snippets(ADDRESSES, "hubmere", "orders")}

    assert list(shown) == ["Python", "JavaScript", "Java", "Kafka", "curl", "Spark"]
    assert all("orders" in code for code in shown.values())
    assert "localhost:9092" in shown["Kafka"]
    assert "http://localhost:8080/orders/messages" in shown["curl"]
    assert not any("SharedAccessKey=" in code for code in shown.values())


def test_python_snippet_is_python() -> None:
    """What is copied must at least compile."""
    for snippet in snippets(ADDRESSES, "hubmere", "orders"):
        if snippet.title in ("Python", "Spark"):
            compile(snippet.code, snippet.title, "exec")


@pytest.mark.parametrize(
    ("top", "is_bytes", "expected"),
    [
        (0.0, False, (1.0, 1.0)),
        (0.4, False, (1.0, 1.0)),
        (9.0, False, (10.0, 5.0)),
        (1000.0, False, (1000.0, 500.0)),
        (25_000.0, False, (30_000.0, 10_000.0)),
        (0.0, True, (1.0, 1.0)),
        (1024.0 * 1024, True, (1024.0 * 1024, 1024.0 * 256)),
        (3.5 * 1024 * 1024, True, (4 * 1024.0 * 1024, 1024.0 * 1024)),
    ],
)
def test_axis_covers_the_value_with_round_ticks(top: float, is_bytes: bool, expected: tuple[float, float]) -> None:
    """Sizes are labelled in units of 1,024, so their ticks are multiples of 1,024 too."""
    assert formatting.value_axis(top, is_bytes=is_bytes)[0] >= top
    assert formatting.value_axis(top, is_bytes=is_bytes) == expected


@pytest.mark.parametrize(("count", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (1000, "1,000 events")])
def test_noun_follows_its_number(count: int, text: str) -> None:
    """A page of one event does not say "1 events"."""
    assert formatting.quantity(count, "event") == text
