"""A publish request with the head of the last one is published without the parser, and behaves like any other."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.http.harness import HttpNode
from endpoints.http.test_complete_requests import (
    Disk,
    a_connection,
    an_event,
    bodies,
    byte_by_byte,
    disk,
    heads,
    in_two,
    node,
)
from endpoints.http.test_protocol import Raw, _status
from hubmere.endpoints.http.server.repeated import remember_head
from hubmere.model.clock import SystemClock
from hubmere.model.entity import Status
from hubmere.model.spec import HubSpec

__all__ = ["disk", "heads", "node"]  # fixtures

HEAD = b"POST /orders/messages HTTP/1.1\r\nHost: h\r\n%b: %b\r\nSensor: a-17\r\n\r\n"


@pytest.fixture
def hot(node: HttpNode, heads: list[str]) -> Iterator[Raw]:
    """A connection with a remembered head: it has published two events."""
    with a_connection(node, 2) as connection:
        yield connection


def a_request(body: bytes, name: bytes = b"Content-Length", form: bytes = b"%d") -> bytes:
    return HEAD % (name, form % len(body)) + body


# --- recognition


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_body_of_a_repeated_head_is_found(first: bytes, second: bytes) -> None:
    """Its length may differ."""
    head = remember_head(a_request(first), len(first))

    assert head is not None
    assert head.body_of(a_request(second)) == second


@given(st.binary(min_size=1, max_size=40), st.data())
def test_anything_else_is_not_a_repeated_request(body: bytes, data: st.DataObject) -> None:
    """One changed, removed or added byte of the head, a piece of a request and two requests go to the parser."""
    request = a_request(body)
    head = remember_head(request, len(body))
    at = data.draw(st.integers(0, len(request) - len(body) - 1))
    other = data.draw(st.binary(min_size=1, max_size=1).filter(lambda byte: byte != request[at : at + 1]))

    assert head is not None
    for changed in (
        request[:at] + other + request[at + 1 :],
        request[:at] + request[at + 1 :],
        request[:at] + other + request[at:],
    ):
        found = head.body_of(changed)
        # A changed digit is found only together with as many bytes.
        assert found is None or changed == HEAD % (b"Content-Length", changed[55:].partition(b"\r")[0]) + found
    assert head.body_of(request[:-1]) is None
    assert head.body_of(request + b"x") is None
    assert head.body_of(request + request) is None


@pytest.mark.parametrize("name", [b"Content-Length", b"content-length", b"CONTENT-LENGTH"])
def test_name_of_the_length_may_have_any_case(name: bytes) -> None:
    """Field names are case-insensitive."""
    head = remember_head(a_request(b"body", name), 4)

    assert head is not None
    assert head.body_of(a_request(b"longer body", name)) == b"longer body"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: a_request(b"body", form=b"%d  "),
        lambda: a_request(b"body", form=b"%09d"),
        lambda: a_request(b"body", name=b"X-Length"),
        lambda: HEAD % (b"Content-Length", b"4\r\nContent-Length: 4") + b"body",
    ],
    ids=["space after it", "many digits", "missing", "twice"],
)
def test_unusual_lengths_are_left_to_the_parser(request_of: Callable[[], bytes]) -> None:
    """Nothing is remembered of them."""
    assert remember_head(request_of(), 4) is None


# --- behaviour


def test_events_of_repeated_requests_are_stored_in_order(node: HttpNode, heads: list[str], hot: Raw) -> None:
    """Each has its own body, the same properties, and its place in the hub's counters."""
    sent = [b"", b"x", b"y" * 1500, b"\r\n\r\n", bytes(range(256)) * 30]
    for body in sent:
        hot.send(an_event(node, body))
        answer = hot.answer()
        assert _status(answer) == 201
        assert b"content-length: 0" in answer

    assert heads == ["parsed", "cached", *["again"] * len(sent)]
    assert bodies(node)[2:] == sent
    assert {property_.value for event in node.stored("orders") for property_ in event.properties.values()} == {"a-17"}
    assert node.hub("orders").counters.successful_requests == 2 + len(sent)


@pytest.mark.parametrize("split", [in_two, byte_by_byte], ids=["in two", "bytes"])
def test_request_in_pieces_is_parsed(
    node: HttpNode, heads: list[str], hot: Raw, split: Callable[[bytes], list[bytes]]
) -> None:
    """The next complete ones are recognized again."""
    for piece in split(an_event(node, b"pieces")):
        hot.send(piece)
    assert _status(hot.answer()) == 201
    for body in (b"a", b"b", b"c"):
        hot.send(an_event(node, body))
        assert _status(hot.answer()) == 201

    assert heads[-1] == "again"
    assert bodies(node)[2:] == [b"pieces", b"a", b"b", b"c"]


def test_requests_of_one_read_are_answered_in_order(node: HttpNode, hot: Raw) -> None:
    """They are parsed, because only one request is answered at a time."""
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

    hot.send(an_event(node, b"a") + an_event(node, b"b") + health + an_event(node, b"c"))

    assert [_status(hot.answer()) for _ in range(4)] == [201, 201, 200, 201]
    assert bodies(node)[2:] == [b"a", b"b", b"c"]


def test_request_waits_for_the_answer_to_the_one_before_it(
    node: HttpNode, disk: Disk, heads: list[str], hot: Raw
) -> None:
    """A client may send the next request before it is answered; the answers keep their order."""
    disk.open_gate.clear()
    hot.send(an_event(node, b"a"))
    node.await_requests_under_way(1)
    hot.send(an_event(node, b"b"))
    hot.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    disk.open_gate.set()

    assert [_status(hot.answer()) for _ in range(3)] == [201, 201, 200]
    assert heads[2] == "again"
    assert bodies(node)[2:] == [b"a", b"b"]


def test_disabled_hub_refuses_a_repeated_request(node: HttpNode, heads: list[str], hot: Raw) -> None:
    """A remembered head is authorized again when an entity changes; the connection stays usable."""

    def set_status(status: Status) -> None:
        spec = HubSpec(partition_count=1, status=status)
        node.changed(lambda done: node.broker.manager.update_hub("orders-ns", "orders", spec, node.actor(), done))

    set_status(Status.SEND_DISABLED)
    hot.send(an_event(node, b"late"))
    refused = hot.answer()
    set_status(Status.ACTIVE)
    for body in (b"a", b"b", b"c"):
        hot.send(an_event(node, body))
        assert _status(hot.answer()) == 201

    assert _status(refused) == 403
    assert b"TrackingId" in refused
    assert heads[2:] == ["again", "parsed", "cached", "again"]
    assert bodies(node)[2:] == [b"a", b"b", b"c"]


def test_expired_token_is_refused_on_a_repeated_request(
    node: HttpNode, heads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token is valid until its time, also on a connection that has used it."""
    token = node.sas(expires_at_s=node.clock.now_ms() // 1000 + 3600)
    request = (
        f"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\nContent-Length: 1\r\n\r\nx"
    ).encode()
    connection = Raw(node)

    def publish() -> int:
        connection.send(request)
        return _status(connection.answer())

    before = [publish() for _ in range(3)]
    later_ms = node.clock.now_ms() + 7_200_000
    monkeypatch.setattr(SystemClock, "now_ms", lambda _self: later_ms)
    after = [publish() for _ in range(2)]
    connection.close()

    assert before == [201, 201, 201]
    assert after == [401, 401]
    assert heads == ["parsed", "cached", "again", "again", "refused"]
    assert len(bodies(node)) == 3
