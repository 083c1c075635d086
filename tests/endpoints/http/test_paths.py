"""Paths become checked segments, and segments find a handler."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.endpoints.http.errors import MalformedRequest, MethodNotAllowed
from hubmere.endpoints.http.paths import RouteTable, split_path

_SEGMENT = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\x7f"), min_size=1, max_size=20
).filter(lambda text: text not in (".", ".."))


@given(st.lists(_SEGMENT, max_size=6))
def test_segments_are_decoded_after_the_split(segments: list[str]) -> None:
    """An encoded slash stays inside its segment."""
    raw = "/" + "/".join(quote(segment, safe="") for segment in segments)

    assert split_path(raw.encode()) == tuple(segments)


@pytest.mark.parametrize(
    "raw", [b"/a/../b", b"/a/%2e%2e/b", b"/./a", b"/a/%2E", b"/a%00b", b"/a%0d%0aX: y", b"/%ff%fe", b"/" + b"a" * 9000]
)
def test_an_ambiguous_path_is_refused(raw: bytes) -> None:
    """Dot segments, control characters, broken encodings and endless paths reach no handler."""
    with pytest.raises(MalformedRequest):
        split_path(raw)


def test_an_encoded_percent_is_not_decoded_twice() -> None:
    """`%252e` is the text `%2e`, not a dot."""
    assert split_path(b"/%252e%252e/a") == ("%2e%2e", "a")


_SHAPES: RouteTable[str] = RouteTable(
    {
        "health": {"GET": "health"},
        "{hub*}/consumerGroups/{group}": {"GET": "group", "PUT": "put group"},
        "{hub*}": {"GET": "hub"},
    }
)


def test_fixed_segments_match_in_any_case_and_names_keep_theirs() -> None:
    """SDKs write `ConsumerGroups` and `consumergroups`."""
    match = _SHAPES.find("PUT", ("Orders", "CONSUMERGROUPS", "Mine"))

    assert match is not None
    assert (match.handler, match.names) == ("put group", {"hub": "Orders", "group": "Mine"})


def test_a_hub_name_may_span_segments() -> None:
    """The official emulator allows slashes in hub names."""
    match = _SHAPES.find("GET", ("a", "b", "consumergroups", "c"))

    assert match is not None
    assert match.names == {"hub": "a/b", "group": "c"}


def test_the_first_matching_route_decides_about_the_method() -> None:
    """Otherwise PUT /health would create a hub of that name."""
    with pytest.raises(MethodNotAllowed) as refusal:
        _SHAPES.find("PUT", ("health",))

    assert refusal.value.allowed == "GET"


def test_a_path_without_a_route_finds_nothing() -> None:
    """This table has no route for the empty path."""
    assert _SHAPES.find("GET", ()) is None


@pytest.mark.parametrize(
    "raw", [b"https://host:5301/orders/messages", b"WSS://host/orders/messages", b"/orders/messages"]
)
def test_a_target_in_absolute_form_means_its_path(raw: bytes) -> None:
    """Java's WebSocket client writes the whole address into the request line (RFC 9112, 3.2.2)."""
    assert split_path(raw) == ("orders", "messages")
