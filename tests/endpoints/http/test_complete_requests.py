"""A publish request that arrives in one piece is published without a task, and behaves like any other."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from endpoints.http.harness import HttpNode
from endpoints.http.test_protocol import Raw, _post, _status
from hubmere.endpoints.http.context import Scope
from hubmere.endpoints.http.publish.handler import CachedRequestHead, PublishHandler
from hubmere.endpoints.http.publish.timeouts import OnDone
from hubmere.model.entity import Status
from hubmere.model.spec import HubSpec
from hubmere.store.files import Files

_PATIENCE_S = 120.0


class Disk(Files):
    """A disk whose flushes wait while the test holds them, or fail."""

    def __init__(self) -> None:
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.fails = False
        self.fdatasync = self._fdatasync

    def _fdatasync(self, fd: int) -> None:
        assert self.open_gate.wait(_PATIENCE_S)
        if self.fails:
            raise OSError(5, "the disk is broken")
        os.fdatasync(fd)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.open_gate.set()


@pytest.fixture
def node(tmp_path: Path, disk: Disk) -> Iterator[HttpNode]:
    """A node on a disk that the test can hold, with the hub `orders` of one partition."""
    with HttpNode(data=tmp_path, files=disk) as running:
        running.add_hub("orders", HubSpec(partition_count=1))
        yield running


@contextmanager
def a_connection(node: HttpNode, published: int) -> Iterator[Raw]:
    """A connection that has published some events."""
    connection = Raw(node)
    for number in range(published):
        connection.send(an_event(node, b"event %d" % number))
        assert _status(connection.answer()) == 201
    yield connection
    connection.close()


@pytest.fixture
def warm(node: HttpNode) -> Iterator[Raw]:
    """A connection with a cached head: it has published one event."""
    with a_connection(node, 1) as connection:
        yield connection


@dataclass(frozen=True)
class Used:
    """A connection that has published, and how the head of its next event is handled."""

    connection: Raw
    published: int
    handled: str


@pytest.fixture(params=[(1, "cached"), (2, "again")], ids=["cached head", "remembered head"])
def used(request: pytest.FixtureRequest, node: HttpNode, heads: list[str]) -> Iterator[Used]:
    """With a cached head, and with one that needs no parser."""
    published, handled = request.param
    with a_connection(node, published) as connection:
        yield Used(connection, published, handled)


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the head of each complete request was handled."""
    handled: list[str] = []
    publish, publish_again = PublishHandler.publish, PublishHandler.publish_again

    def spy(
        self: PublishHandler, scope: Scope, body: bytes, on_done: OnDone, cached: CachedRequestHead | None
    ) -> CachedRequestHead | None:
        head = publish(self, scope, body, on_done, cached)
        handled.append("refused" if head is None else "cached" if head is cached else "parsed")
        return head

    def spy_again(
        self: PublishHandler, scope: Scope, body: bytes, on_done: OnDone, head: CachedRequestHead
    ) -> CachedRequestHead | None:
        handled.append("again")
        return publish_again(self, scope, body, on_done, head)

    monkeypatch.setattr(PublishHandler, "publish", spy)
    monkeypatch.setattr(PublishHandler, "publish_again", spy_again)
    return handled


def an_event(node: HttpNode, body: bytes, *headers: str, path: str = "/orders/messages") -> bytes:
    return _post(node, f"Content-Length: {len(body)}", "Sensor: a-17", *headers, path=path) + body


def bodies(node: HttpNode) -> list[bytes | None]:
    return [event.body for event in node.stored("orders")]


def in_two(request: bytes) -> list[bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    return [head + b"\r\n\r\n", body]


def byte_by_byte(request: bytes) -> list[bytes]:
    return [request[at : at + 1] for at in range(len(request))]


@pytest.mark.parametrize("split", [lambda request: [request], in_two, byte_by_byte], ids=["whole", "in two", "bytes"])
def test_event_is_published_for_any_split_of_its_request(
    node: HttpNode, heads: list[str], warm: Raw, split: Callable[[bytes], list[bytes]]
) -> None:
    """The response and the event are the same."""
    for piece in split(an_event(node, b"second", "Content-Type: text/plain")):
        warm.send(piece)
    answer = warm.answer()

    event = node.stored("orders")[1]
    assert _status(answer) == 201
    assert b"content-length: 0" in answer
    assert event.body == b"second"
    assert {name: property_.value for name, property_ in event.properties.items()} == {"Sensor": "a-17"}
    assert node.hub("orders").counters.successful_requests == 2


def test_a_repeated_head_is_authorized_once(node: HttpNode, heads: list[str], warm: Raw) -> None:
    """Devices send the same headers with every event."""
    for _ in range(3):
        warm.send(an_event(node, b"x"))
        warm.answer()

    assert heads == ["parsed", "cached", "again", "again"]


def test_a_head_applies_to_its_own_event_only(node: HttpNode, heads: list[str], warm: Raw) -> None:
    """The heads differ in one header each; nothing carries over from one to the next."""
    variants = (
        ("Sensor: a-17", "Content-Type: text/plain"),
        ("Sensor: a-18", "Content-Type: text/plain"),
        ("SENSOR: a-18", "Content-Type: text/plain"),
        ("SENSOR: a-18", "Content-Type: text/html"),
        ("SENSOR: a-18",),
    )
    requests = [
        _post(node, f"Content-Length: {size}", *headers) + b"x" * size for headers in variants for size in (1, 12, 3)
    ]

    for request in requests:
        warm.send(request)
        assert _status(warm.answer()) == 201

    seen = [
        (
            [(name, property_.value) for name, property_ in event.properties.items()],
            [property_.value for name, property_ in event.system_properties.items() if name == "content-type"],
            len(event.body or b""),
        )
        for event in node.stored("orders")[1:]
    ]
    names = [("Sensor", "a-17"), ("Sensor", "a-18"), *[("SENSOR", "a-18")] * 3]
    types = [["text/plain"]] * 3 + [["text/html"], []]
    assert seen == [([name], kind, size) for name, kind in zip(names, types, strict=True) for size in (1, 12, 3)]
    assert heads[1:] == ["parsed", "cached", "again"] * 5


@pytest.mark.parametrize(
    "request_of",
    [
        lambda node: an_event(node, b"x", 'BrokerProperties: {"PartitionKey": "k"}'),
        lambda node: an_event(node, b'[{"Body": "x"}]', "Content-Type: application/vnd.microsoft.servicebus.json"),
        lambda node: an_event(node, b"x", path="/orders/messages?timeout=7"),
        lambda node: an_event(node, b"x", path="/orders/publishers/dev-1/messages"),
    ],
    ids=["with a key", "batch", "own timeout", "publisher"],
)
def test_every_kind_of_request_is_published(
    node: HttpNode, heads: list[str], warm: Raw, request_of: Callable[[HttpNode], bytes]
) -> None:
    """This includes those that cannot share a batch, and repeated ones with a cached head."""
    for _ in range(2):
        warm.send(request_of(node))
        assert _status(warm.answer()) == 201

    assert heads[1:] == ["parsed", "cached"]
    assert bodies(node) == [b"event 0", b"x", b"x"]


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda node: an_event(node, b"x", "BrokerProperties: {"), 400),
        (lambda node: an_event(node, b"x" * 1_100_000), 413),
        (lambda node: an_event(node, b"x", path="/orders/messages?timeout=never"), 400),
    ],
    ids=["broken properties", "too large", "broken timeout"],
)
def test_connection_stays_open_after_a_refusal(
    node: HttpNode, warm: Raw, request_of: Callable[[HttpNode], bytes], status: int
) -> None:
    """The refused request stores nothing."""
    warm.send(request_of(node))
    refused = warm.answer()
    warm.send(an_event(node, b"second"))

    assert _status(refused) == status
    assert b"TrackingId" in refused
    assert _status(warm.answer()) == 201
    assert bodies(node) == [b"event 0", b"second"]


def test_requests_behind_one_another_are_answered_in_order(node: HttpNode, heads: list[str], warm: Raw) -> None:
    """The first needs no task; those behind it start when it is answered."""
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

    warm.send(an_event(node, b"a") + health + an_event(node, b"b") + an_event(node, b"c"))
    answers = [warm.answer() for _ in range(4)]

    assert [_status(answer) for answer in answers] == [201, 200, 201, 201]
    assert b"healthy" in answers[1]
    assert bodies(node) == [b"event 0", b"a", b"b", b"c"]
    assert "cached" in heads


def test_connection_close_is_answered_and_obeyed(node: HttpNode, warm: Raw) -> None:
    """The response has `Connection: close` too."""
    warm.send(an_event(node, b"last", "Connection: close"))
    rest = warm.rest()

    assert _status(rest) == 201
    assert b"connection: close" in rest
    assert bodies(node) == [b"event 0", b"last"]


def test_an_event_that_cannot_be_written_is_refused(node: HttpNode, disk: Disk, heads: list[str], used: Used) -> None:
    """The response waits for the group commit; the refusal is answered as that of any request."""
    disk.fails = True

    used.connection.send(an_event(node, b"lost"))
    answer = used.connection.answer()

    assert heads[-1] == used.handled
    assert _status(answer) == 503
    assert b"TrackingId" in answer
    disk.fails = False


def test_a_disabled_hub_refuses_on_an_open_connection(node: HttpNode, warm: Raw) -> None:
    """A cached head is dropped when an entity changes."""
    spec = HubSpec(partition_count=1, status=Status.SEND_DISABLED)
    node.changed(lambda done: node.broker.manager.update_hub("orders-ns", "orders", spec, node.actor(), done))

    warm.send(an_event(node, b"late"))

    assert _status(warm.answer()) == 403
    assert bodies(node) == [b"event 0"]


def test_a_client_may_disconnect_before_its_response(node: HttpNode, disk: Disk, heads: list[str], used: Used) -> None:
    """Its event is stored, because the request was complete."""
    disk.open_gate.clear()
    used.connection.send(an_event(node, b"parting"))
    node.await_requests_under_way(1)

    used.connection.close()
    disk.open_gate.set()
    node.await_requests_done()

    with node.client(Authorization=node.sas()) as client:
        assert client.post("/orders/messages", content=b"next").status_code == 201
    assert heads[used.published] == used.handled
    assert bodies(node)[used.published :] == [b"parting", b"next"]


def test_a_stopping_node_answers_pending_publications(node: HttpNode, disk: Disk, heads: list[str], used: Used) -> None:
    """The client learns that it may retry."""
    disk.open_gate.clear()
    used.connection.send(an_event(node, b"waiting"))
    node.await_requests_under_way(1)

    node.run(node.stop_serving())
    rest = used.connection.rest()
    disk.open_gate.set()

    assert heads[-1] == used.handled
    assert _status(rest) == 503
    assert b"connection: close" in rest
