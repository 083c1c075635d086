"""The table from refusals to statuses."""

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

import hubmere.endpoints.http.errors as http_errors
from hubmere.endpoints.http.errors import ROWS, MethodNotAllowed, Tracking, json_error, row_of, xml_error
from hubmere.model.errors import InvalidArgument, LimitReached, NotFound, Refusal, ServerBusy, Unauthorized

# Refusals of the other protocols' own folders never come here.
_PACKAGES = ("hubmere.model", "hubmere.store", "hubmere.broker", "hubmere.endpoints.http")


def _tree(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith(_PACKAGES):
            yield child
            yield from _tree(child)


def _refusals() -> list[type[Refusal]]:
    assert http_errors.MalformedRequest in Refusal.__subclasses__()
    return sorted(_tree(Refusal), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", _refusals(), ids=lambda kind: kind.__name__)
def test_every_refusal_has_a_row(kind: type[Refusal]) -> None:
    """A refusal without a row would be answered as an internal error."""
    row = row_of(kind)

    assert 400 <= row.status <= 599
    assert row.code


def test_no_row_is_for_a_refusal_that_does_not_exist() -> None:
    """A row is deleted together with its refusal."""
    known = set(_refusals())

    assert set(ROWS) <= known


@pytest.mark.parametrize(
    ("kind", "status"),
    [(Unauthorized, 401), (NotFound, 404), (InvalidArgument, 400), (LimitReached, 403), (ServerBusy, 503)],
)
def test_statuses_are_those_of_the_reference(kind: type[Refusal], status: int) -> None:
    """Service 3 and 13."""
    assert row_of(kind).status == status


def test_an_xml_refusal_has_code_detail_and_tracking() -> None:
    """Clients and support look for these parts."""
    tracking = Tracking.begin("ns:orders", 1_700_000_000_000)

    response = xml_error(NotFound("sb://ns/orders"), tracking)

    error = ElementTree.fromstring(response.body)
    detail = error.findtext("Detail") or ""
    assert (error.tag, error.findtext("Code")) == ("Error", "404")
    assert detail.endswith(f"TrackingId:{tracking.id}, SystemTracker:ns:orders, Timestamp:2023-11-14T22:13:20")


def test_markup_and_control_characters_in_a_refusal_stay_text() -> None:
    """A name is the client's text and may contain anything."""
    response = xml_error(NotFound("a<b>&\x00\x1f\ud800"), Tracking.begin("x", 0))

    detail = ElementTree.fromstring(response.body).findtext("Detail") or ""
    assert "a<b>&" in detail


def test_a_json_refusal_is_arms_envelope_with_the_sub_code() -> None:
    """ARM clients read code and message, people the sub-code."""
    response = json_error(LimitReached("event hubs in the namespace", 10), Tracking.begin("x", 0))

    body = json.loads(bytes(response.body))
    assert response.status_code == 409
    assert body["error"]["code"] == "Conflict"
    assert body["error"]["message"].startswith("SubCode=40300. ")


def test_a_busy_node_says_when_to_retry() -> None:
    """The decision of service 13: 503, Retry-After 4 and 50002."""
    response = xml_error(ServerBusy(0.5), Tracking.begin("x", 0))

    assert response.headers["retry-after"] == "4"
    assert b"50002" in response.body


def test_the_refusal_of_a_method_names_the_allowed_ones() -> None:
    """RFC 9110, 15.5.6: a 405 has an Allow header."""
    response = xml_error(MethodNotAllowed("PATCH", "GET, PUT"), Tracking.begin("x", 0))

    assert response.headers["allow"] == "GET, PUT"
