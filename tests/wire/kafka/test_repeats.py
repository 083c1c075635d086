"""Runs of Produce requests: the requests are the same as without runs, for any input and any split of it."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.wire.kafka.connection import (
    BrokenStream,
    ClientConnection,
    Request,
    ServerConnection,
    frame_response,
)
from hubmere.wire.kafka.messages.groups import HeartbeatRequest, HeartbeatResponse
from hubmere.wire.kafka.messages.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from hubmere.wire.kafka.repeats import MAX_REPEATED_BYTES, MAX_RUN, ProduceRun

# The newest classic version and the flexible one.
VERSIONS = (8, 9)


def a_produce(
    *sizes: int, topic: str = "orders", index: int = 0, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """One batch of a given size for each partition from `index` on."""
    parts = tuple(
        ProducePartition(index=index + place, records=bytes([size & 0xFF]) * size) for place, size in enumerate(sizes)
    )
    topics = (ProduceTopic(name=topic, partitions=parts),)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topics=topics)


def bytes_of(requests: Iterable[ProduceRequest | HeartbeatRequest], version: int) -> bytes:
    client = ClientConnection(client_id="sensor")
    for request in requests:
        client.request(request, version if isinstance(request, ProduceRequest) else 4)
    return b"".join(client.data_to_send())


def a_server(*, can_receive_runs: bool = True) -> ServerConnection:
    server = ServerConnection()
    server.can_receive_runs = can_receive_runs
    return server


def content_of(request: Request) -> tuple[int, int, object]:
    return request.api.key, request.correlation_id, request.body


def flattened(server: ServerConnection, requests: list[Request]) -> list[tuple[int, int, object]]:
    """The requests, with every run split into its requests."""
    found = []
    for request in requests:
        singles = server.split_run(request) if isinstance(request.body, ProduceRun) else [request]
        found += [content_of(single) for single in singles]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_repeat_the_first_are_one_run(version: int) -> None:
    """The first one is decoded completely and is the pattern for the others."""
    server = a_server()
    server.receive_data(bytes_of([a_produce(70)], version))

    (run,) = server.receive_data(bytes_of([a_produce(90, index=2), a_produce(300), a_produce(5, index=1)], version))

    body: ProduceRun = run.body
    assert (run.api, run.version, body.topic, body.timeout_ms) == (PRODUCE, version, "orders", 1000)
    assert (body.correlation_ids, body.indexes) == ([0, 1, 2], [2, 0, 1])
    assert body.batches == [
        b"\x5a" * 90,
        b"\x2c" * 300,
        b"\x05" * 5,
    ]
    assert server.in_flight == 4


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "other",
    [
        a_produce(70, acks=1),
        a_produce(70, topic="others"),
        a_produce(70, transactional_id="mine"),
        a_produce(70, 70),
        a_produce(),
        a_produce(0),
        a_produce(MAX_REPEATED_BYTES),
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    ],
    ids=["acks", "topic", "transaction", "two partitions", "none", "empty", "large", "another API"],
)
def test_request_of_another_kind_ends_a_run(version: int, other: ProduceRequest | HeartbeatRequest) -> None:
    """It is decoded completely, and the requests after it follow in order."""
    server = a_server()
    server.receive_data(bytes_of([a_produce(70)], version))

    found = server.receive_data(bytes_of([a_produce(80), other, a_produce(90)], version))

    assert isinstance(found[0].body, ProduceRun)
    assert not isinstance(found[1].body, ProduceRun)
    assert found[1].body == other
    assert [request.correlation_id for request in found] == [0, 1, 2]


requests_of_any_kind = st.lists(
    st.one_of(
        st.builds(
            lambda sizes, topic, index, acks: a_produce(*sizes, topic=topic, index=index, acks=acks),
            st.lists(st.sampled_from([1, 61, 127, 128, 300, 16_383, 16_384]), max_size=2),
            st.sampled_from(["orders", "orders", "ordert"]),
            st.integers(-1, 3),
            st.sampled_from([-1, -1, -1, 0, 1]),
        ),
        st.just(HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    requests=requests_of_any_kind, cuts=st.lists(st.integers(0, 40_000), max_size=4), version=st.sampled_from(VERSIONS)
)
def test_runs_contain_the_same_requests_as_without_runs(
    requests: list[ProduceRequest | HeartbeatRequest], cuts: list[int], version: int
) -> None:
    """This holds for any split of the input and any mix of requests; peeking at the input changes nothing."""
    data = bytes_of(requests, version)
    plain, server = a_server(can_receive_runs=False), a_server()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})

    found = []
    for begin, end in pairwise(places):
        piece = bytearray(data[begin:end])
        if begin % 2:
            server.peek_run(piece)
        found += flattened(server, server.receive_data(piece))

    assert found == [content_of(request) for request in plain.receive_data(data)]
    assert server.in_flight == plain.in_flight


@settings(max_examples=60, deadline=None)
@given(tail=st.binary(max_size=60), cut=st.integers(1, 80), version=st.sampled_from(VERSIONS))
def test_invalid_bytes_after_a_run_close_the_connection_as_without_runs(tail: bytes, cut: int, version: int) -> None:
    """Earlier requests are still reported."""
    good = bytes_of([a_produce(70), a_produce(80), a_produce(90)], version)
    bad = good[: -cut % len(good)] + tail
    outcomes = []
    for can_receive_runs in (False, True):
        server = a_server(can_receive_runs=can_receive_runs)
        found = server.receive_data(bytes_of([a_produce(70)], version))
        try:
            found += server.receive_data(bad)
            outcomes.append((flattened(server, found), ""))
        except BrokenStream as broken:
            outcomes.append((flattened(server, [*found, *broken.complete]), str(broken)))

    assert outcomes[0] == outcomes[1]


def test_answers_to_a_run_wait_for_earlier_answers() -> None:
    """Kafka has one order of answers per connection, also for the requests of a run."""
    server, client = a_server(), ClientConnection(client_id="sensor")
    client.request(a_produce(70), 9)
    server.respond(server.receive_data(b"".join(client.data_to_send()))[0], an_answer(0))
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    client.receive_data(b"".join(server.data_to_send()))
    client.request(heartbeat, 4)
    (first,) = server.receive_data(b"".join(client.data_to_send()))
    client.request(a_produce(70), 9)
    client.request(a_produce(80), 9)
    (run,) = server.receive_data(b"".join(client.data_to_send()))
    frames = b"".join(frame_response(PRODUCE, 9, number, an_answer(number)) for number in run.body.correlation_ids)

    server.respond_frames(run, frames)
    before = server.data_to_send()
    server.respond(first, HeartbeatResponse(error_code=0))
    answers = client.receive_data(b"".join(server.data_to_send()))

    assert before == []
    assert [answer.correlation_id for answer in answers] == [1, 2, 3]
    assert server.in_flight == 0


def an_answer(base_offset: int) -> ProduceResponse:
    part = ProducePartitionResponse(index=0, error_code=0, base_offset=base_offset)
    return ProduceResponse(topics=(ProduceTopicResponse(name="orders", partitions=(part,)),))


def test_requests_of_a_split_run_keep_their_position_in_the_order() -> None:
    """They are answered one by one, before the requests after the run."""
    server = a_server()
    server.respond(server.receive_data(bytes_of([a_produce(70)], 9))[0], an_answer(0))
    server.data_to_send()
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    run, last = server.receive_data(bytes_of([a_produce(70), a_produce(80), heartbeat], 9))

    singles = server.split_run(run)
    server.respond(last, HeartbeatResponse(error_code=0))
    server.respond(singles[1], an_answer(1))
    before = server.data_to_send()
    server.respond(singles[0], an_answer(0))

    (data,) = server.data_to_send()
    assert before == []
    assert [single.body for single in singles] == [a_produce(70), a_produce(80)]
    assert data == b"".join(
        [
            frame_response(PRODUCE, 9, 0, an_answer(0)),
            frame_response(PRODUCE, 9, 1, an_answer(1)),
            frame_response(last.api, 4, 2, HeartbeatResponse(error_code=0)),
        ]
    )


def test_size_of_a_run_is_limited() -> None:
    """Further requests form the next run."""
    server = a_server()
    server.receive_data(bytes_of([a_produce(70)], 9))

    found = server.receive_data(bytes_of([a_produce(70)] * (MAX_RUN + 2), 9))

    assert len(found[0].body) == MAX_RUN
    assert len(flattened(server, found)) == MAX_RUN + 2


def test_requests_are_reported_as_runs_only_if_the_caller_supports_runs() -> None:
    """A caller that handles single requests keeps working."""
    server = a_server(can_receive_runs=False)
    server.receive_data(bytes_of([a_produce(70)], 9))

    found = server.receive_data(bytes_of([a_produce(70)] * 3, 9))

    assert [request.body for request in found] == [a_produce(70)] * 3
