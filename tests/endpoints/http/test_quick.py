"""The short way in: a publication that is whole when it is read behaves as one that comes in pieces."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from endpoints.http.harness import HttpNode
from endpoints.http.test_protocol import Raw, _post, _status
from hubmere.endpoints.http.publish.send import CachedRequestHead, DataPlane
from hubmere.model.entity import Status
from hubmere.model.spec import HubSpec
from hubmere.store.files import Files

_PATIENCE_S = 20.0


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


@pytest.fixture
def warm(node: HttpNode) -> Iterator[Raw]:
    """A connection whose next publication may go the short way: one was admitted and shared a batch before."""
    connection = Raw(node)
    connection.send(an_event(node, b"first"))
    assert _status(connection.answer()) == 201
    yield connection
    connection.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the short way said of each publication that was whole."""
    said: list[bool] = []
    original = DataPlane.publish_at_once

    def noted(self: DataPlane, *given: object) -> CachedRequestHead | None:
        left = original(self, *given)  # type: ignore[arg-type]
        said.append(left is not None)
        return left

    monkeypatch.setattr(DataPlane, "publish_at_once", noted)
    return said


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
def test_an_event_is_taken_however_it_arrives(
    node: HttpNode, quick: list[bool], warm: Raw, split: Callable[[bytes], list[bytes]]
) -> None:
    """The same answer, and the same event with its properties."""
    for piece in split(an_event(node, b"second", "Content-Type: text/plain")):
        warm.send(piece)
    answer = warm.answer()

    event = node.stored("orders")[1]
    assert _status(answer) == 201
    assert b"content-length: 0" in answer
    assert event.body == b"second"
    assert {name: typed.value for name, typed in event.properties.items()} == {"Sensor": "a-17"}
    assert node.hub("orders").counters.successful_requests == 2


def test_the_first_event_of_a_client_goes_the_common_way_and_the_next_the_short_one(
    node: HttpNode, quick: list[bool], warm: Raw
) -> None:
    """Who may send is found out once, where refusals are told."""
    for _ in range(2):
        warm.send(an_event(node, b"x"))
        warm.answer()

    assert quick == [False, True, True]


def test_what_a_head_says_counts_for_its_own_event_only(node: HttpNode, quick: list[bool], warm: Raw) -> None:
    """Heads that are the same but for one thing, in turn: nothing is kept from one to the other."""
    heads = (
        ("Sensor: a-17", "Content-Type: text/plain"),
        ("Sensor: a-18", "Content-Type: text/plain"),
        ("SENSOR: a-18", "Content-Type: text/plain"),
        ("SENSOR: a-18", "Content-Type: text/html"),
        ("SENSOR: a-18",),
    )
    requests = [_post(node, f"Content-Length: {size}", *head) + b"x" * size for head in heads for size in (1, 12, 3)]

    for request in requests:
        warm.send(request)
        assert _status(warm.answer()) == 201

    seen = [
        (
            [(name, typed.value) for name, typed in event.properties.items()],
            [typed.value for name, typed in event.system_properties.items() if name == "content-type"],
            len(event.body or b""),
        )
        for event in node.stored("orders")[1:]
    ]
    names = [("Sensor", "a-17"), ("Sensor", "a-18"), *[("SENSOR", "a-18")] * 3]
    types = [["text/plain"]] * 3 + [["text/html"], []]
    assert seen == [([name], kind, size) for name, kind in zip(names, types, strict=True) for size in (1, 12, 3)]
    assert quick[1:] == [True] * len(requests)


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
def test_what_is_not_quite_ordinary_goes_the_common_way(
    node: HttpNode, quick: list[bool], warm: Raw, request_of: Callable[[HttpNode], bytes]
) -> None:
    """And is taken there."""
    warm.send(request_of(node))

    assert _status(warm.answer()) == 201
    assert quick[-1] is False
    assert bodies(node) == [b"first", b"x"]


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda node: an_event(node, b"x", "BrokerProperties: {"), 400),
        (lambda node: an_event(node, b"x" * 1_100_000), 413),
        (lambda node: an_event(node, b"x", path="/orders/messages?timeout=never"), 400),
    ],
    ids=["broken properties", "too large", "broken timeout"],
)
def test_a_refusal_is_told_as_ever_and_the_connection_goes_on(
    node: HttpNode, warm: Raw, request_of: Callable[[HttpNode], bytes], status: int
) -> None:
    """Each is counted once, and leaves no trace."""
    warm.send(request_of(node))
    refused = warm.answer()
    warm.send(an_event(node, b"second"))

    assert _status(refused) == status
    assert b"TrackingId" in refused
    assert _status(warm.answer()) == 201
    assert bodies(node) == [b"first", b"second"]


def test_requests_behind_one_another_are_answered_in_order(node: HttpNode, quick: list[bool], warm: Raw) -> None:
    """The first goes the short way; what waits behind it begins when it is answered."""
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

    warm.send(an_event(node, b"a") + health + an_event(node, b"b") + an_event(node, b"c"))
    answers = [warm.answer() for _ in range(4)]

    assert [_status(answer) for answer in answers] == [201, 200, 201, 201]
    assert b"healthy" in answers[1]
    assert bodies(node) == [b"first", b"a", b"b", b"c"]
    assert True in quick


def test_a_client_that_asks_for_the_end_gets_it(node: HttpNode, warm: Raw) -> None:
    """`Connection: close` is answered in kind."""
    warm.send(an_event(node, b"last", "Connection: close"))
    rest = warm.rest()

    assert _status(rest) == 201
    assert b"connection: close" in rest
    assert bodies(node) == [b"first", b"last"]


def test_an_event_that_the_disk_refuses_is_told(node: HttpNode, disk: Disk, quick: list[bool], warm: Raw) -> None:
    """The answer waits for the group commit: what became of it decides, also behind the short way."""
    disk.fails = True

    warm.send(an_event(node, b"lost"))
    answer = warm.answer()

    assert quick[-1] is True
    assert _status(answer) == 503
    assert b"TrackingId" in answer
    disk.fails = False


def test_a_hub_that_is_shut_refuses_on_an_open_connection(node: HttpNode, warm: Raw) -> None:
    """An admission is as old as the last change of an entity, and no older."""
    spec = HubSpec(partition_count=1, status=Status.SEND_DISABLED)
    node.changed(lambda done: node.broker.manager.update_hub("orders-ns", "orders", spec, node.actor(), done))

    warm.send(an_event(node, b"late"))

    assert _status(warm.answer()) == 403
    assert bodies(node) == [b"first"]


def test_a_client_that_leaves_before_its_answer_disturbs_nobody(
    node: HttpNode, disk: Disk, quick: list[bool], warm: Raw
) -> None:
    """Its event is taken all the same: it was whole."""
    disk.open_gate.clear()
    warm.send(an_event(node, b"parting"))
    node.await_requests_under_way(1)

    warm.close()
    disk.open_gate.set()
    node.await_requests_done()

    with node.client(Authorization=node.sas()) as client:
        assert client.post("/orders/messages", content=b"next").status_code == 201
    assert quick[1] is True
    assert bodies(node) == [b"first", b"parting", b"next"]


def test_a_stopping_node_answers_who_waits_for_the_disk(node: HttpNode, disk: Disk, warm: Raw) -> None:
    """Nobody is left without a word: it may come back to the next node."""
    disk.open_gate.clear()
    warm.send(an_event(node, b"waiting"))
    node.await_requests_under_way(1)

    node.run(node.stop_serving())
    rest = warm.rest()
    disk.open_gate.set()

    assert _status(rest) == 503
    assert b"connection: close" in rest
