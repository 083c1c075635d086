"""Reading events as JSON over HTTP."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from endpoints.http.harness import PATIENCE_S, HttpNode

PATH = "/orders/consumergroups/$Default/partitions/0/messages"


@pytest.fixture
def client(node: HttpNode) -> Iterator[httpx.Client]:
    """A client with every right."""
    with node.client(Authorization=node.sas()) as made:
        yield made


def _publish(client: httpx.Client, *bodies: bytes) -> None:
    for body in bodies:
        client.post("/orders/partitions/0/messages", content=body, headers={"N": "5"}).raise_for_status()


def test_an_event_is_shown_with_its_properties(client: httpx.Client) -> None:
    """The body is a text, and properties have their AMQP types."""
    _publish(client, b"hello")

    shown = client.get(PATH).json()

    event = shown["events"][0]
    assert (event["sequenceNumber"], event["offset"], event["body"], event["bodyEncoding"]) == (
        0,
        "0",
        "hello",
        "utf-8",
    )
    assert event["properties"] == {"N": {"type": "int", "value": 5}}
    assert (shown["nextSequenceNumber"], shown["lastSequenceNumber"]) == (1, 0)


def test_a_binary_body_is_shown_as_base64(client: httpx.Client) -> None:
    """JSON cannot contain bytes."""
    _publish(client, b"\xff\x00")

    event = client.get(PATH).json()["events"][0]

    assert (event["body"], event["bodyEncoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize(
    ("start", "bodies"),
    [
        ("first", ["a", "b", "c"]),
        ("sequence:1", ["b", "c"]),
        ("sequence:3", []),
        ("latest", []),
        ("offset:0", ["a", "b", "c"]),
        ("time:2000-01-01T00:00:00Z", ["a", "b", "c"]),
        ("time:2000-01-01", ["a", "b", "c"]),
        ("time:2999-01-01T00:00:00+02:00", []),
    ],
)
def test_browsing_starts_at_the_given_position(client: httpx.Client, start: str, bodies: list[str]) -> None:
    """Every form of a position is accepted."""
    _publish(client, b"a", b"b", b"c")

    shown = client.get(PATH, params={"from": start}).json()

    assert [event["body"] for event in shown["events"]] == bodies


def test_the_next_page_continues_the_last_one(client: httpx.Client) -> None:
    """`limit` and `nextSequenceNumber` make pages, also inside a batch."""
    batch = '[{"Body":"a"},{"Body":"b"},{"Body":"c"}]'
    client.post(
        "/orders/partitions/0/messages",
        content=batch,
        headers={"Content-Type": "application/vnd.microsoft.servicebus.json"},
    )

    first = client.get(PATH, params={"limit": 2}).json()
    second = client.get(PATH, params={"from": f"sequence:{first['nextSequenceNumber']}"}).json()

    assert [event["body"] for event in first["events"] + second["events"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "query",
    [
        "from=now",
        "from=sequence:x",
        "from=time:yesterday",
        "from=sequence:99",
        "limit=1001",
        "limit=-1",
        "wait=61",
        "from=first:1",
    ],
)
def test_an_invalid_request_is_refused_in_json(client: httpx.Client, query: str) -> None:
    """The 400 names the valid values."""
    response = client.get(f"{PATH}?{query}")

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "BadRequest"


def test_a_request_can_wait_for_the_next_event(node: HttpNode, client: httpx.Client) -> None:
    """Clients that follow a partition need not poll."""
    _publish(client, b"old")
    answers: list[httpx.Response] = []

    with node.client(Authorization=node.sas()) as waiter:
        waiting = threading.Thread(
            target=lambda: answers.append(waiter.get(PATH, params={"from": "sequence:1", "wait": 60}))
        )
        waiting.start()
        node.await_requests_under_way(1)
        _publish(client, b"new")
        waiting.join(PATIENCE_S)

    assert [event["body"] for event in answers[0].json()["events"]] == ["new"]


def test_a_wait_without_events_ends_with_an_empty_page(client: httpx.Client) -> None:
    """The wait has a timeout."""
    shown = client.get(PATH, params={"from": "latest", "wait": 1}).json()

    assert (shown["events"], shown["nextSequenceNumber"]) == ([], 0)


def test_a_waiting_request_is_refused_when_the_node_stops(node: HttpNode) -> None:
    """The client gets 503 and may retry."""
    answers: list[httpx.Response] = []

    with node.client(Authorization=node.sas()) as waiter:
        waiting = threading.Thread(target=lambda: answers.append(waiter.get(PATH, params={"wait": 60})))
        waiting.start()
        node.await_requests_under_way(1)
        node.run(node.stop_serving())
        waiting.join(PATIENCE_S)

    assert answers[0].status_code == 503


def test_browsing_does_not_count_as_a_reader(node: HttpNode, client: httpx.Client) -> None:
    """It works even when the largest number of readers is attached."""
    _publish(client, b"x")

    for _ in range(10):
        assert client.get(PATH).status_code == 200

    assert node.hub("orders").readers.all() == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/orders/consumergroups/none/partitions/0/messages", 404),
        ("/orders/consumergroups/$Default/partitions/9/messages", 400),
        ("/none/consumergroups/$Default/partitions/0/messages", 404),
        ("/orders/messages", 405),
    ],
)
def test_missing_entities_are_not_found(client: httpx.Client, path: str, status: int) -> None:
    """Groups, partitions and hubs must exist; a hub as a whole is not read over HTTP."""
    assert client.get(path).status_code == status


def test_posting_to_the_path_for_browsing_is_refused(client: httpx.Client) -> None:
    """Events cannot be published below a consumer group."""
    assert client.post(PATH, content=b"x").status_code == 405
