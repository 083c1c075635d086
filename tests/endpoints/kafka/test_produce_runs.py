"""Many small batches in one read: published together, and answered like single requests."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.endpoints.kafka.produce import produce
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.entity import Status, TimestampType
from hubmere.model.errors import StorageFull
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.records.compression import Codec
from hubmere.records.header import split_batches
from hubmere.records.records import decode_records
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from hubmere.wire.kafka.messages.produce import ProduceRequest, ProduceResponse
from node_clock import NodeClock


def send_at_once(client: RawClient, requests: Sequence[Any], version: int = 9) -> None:
    """Send requests in one packet after a first one that sets the pattern."""
    client.call(a_produce(a_batch(b"first"), partition=1), version)
    for request in requests:
        client.engine.request(request, version if isinstance(request, ProduceRequest) else 5)
    client.socket.sendall(b"".join(client.engine.data_to_send()))


def ask_at_once(client: RawClient, requests: Sequence[Any], version: int = 9) -> list[Any]:
    """Send requests in one packet after a first one that sets the pattern; returns the answers in order."""
    send_at_once(client, requests, version)
    return [client.answer() for _ in requests]


def values_of(client: RawClient, partition: int = 0) -> list[bytes | None]:
    """The bodies in a partition."""
    kept = only(client.call(a_fetch(partition=partition), 11)).records
    return [record.value for batch in split_batches(kept) for record in decode_records(batch)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each received run was published as one."""
    seen: list[bool] = []

    def noted(session: KafkaSession, request: Request) -> bool:
        seen.append(take(session, request))
        return seen[-1]

    take = produce.publish_run
    monkeypatch.setattr(produce, "publish_run", noted)
    return seen


@pytest.mark.parametrize("version", [3, 8, 9])
def test_batches_of_a_run_are_numbered_and_answered_in_order(
    node: KafkaNode, client: RawClient, runs: list[bool], version: int
) -> None:
    """Two partitions in turns: each response has its own offset, and the log has all batches."""
    requests = [a_produce(a_batch(*[b"%d" % number] * (1 + number % 3)), partition=number % 2) for number in range(20)]

    answers = [only(answer) for answer in ask_at_once(client, requests, version)]

    kept = {partition: values_of(client, partition) for partition in (0, 1)}
    for number, answer in enumerate(answers):
        assert (answer.index, answer.error_code) == (number % 2, ErrorCode.NONE)
        assert kept[number % 2][answer.base_offset] == b"%d" % number
        assert answer.log_append_time_ms > 0
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    counters = node.hub().counters
    assert runs
    assert all(runs)
    assert (counters.incoming_requests, counters.successful_requests) == (21, 21)
    assert counters.incoming_messages == len(kept[0]) + len(kept[1])


def test_invalid_batch_of_a_run_is_refused_alone(client: RawClient, runs: list[bool]) -> None:
    """The run is split into single requests, and the others are stored."""
    broken = bytearray(a_batch(b"broken"))
    broken[-1] ^= 1
    batches = [a_batch(b"a"), bytes(broken), a_batch(b"b")]

    answers = ask_at_once(client, [a_produce(batch) for batch in batches])

    codes = [only(answer).error_code for answer in answers]
    assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert values_of(client) == [b"a", b"b"]
    assert False in runs


def test_run_of_an_idempotent_producer_is_published_as_one(client: RawClient, runs: list[bool]) -> None:
    """Java's producers are idempotent by default; each duplicate gets its original offset."""
    batches = [
        a_batch(b"%d" % number, producer_id=9, producer_epoch=0, producer_sequence=number) for number in range(8)
    ]
    requests = [a_produce(batch) for batch in batches]

    answers = [only(answer) for answer in ask_at_once(client, requests)]
    was_one = all(runs)
    repeats = [only(answer) for answer in ask_at_once(client, requests[3:])]

    assert was_one
    assert [answer.base_offset for answer in answers] == list(range(8))
    assert [(answer.error_code, answer.base_offset) for answer in repeats] == [(0, number) for number in range(3, 8)]
    assert values_of(client) == [b"%d" % number for number in range(8)]


def test_sequence_numbers_of_an_idempotent_producer_are_checked_in_a_run(client: RawClient, runs: list[bool]) -> None:
    """A duplicate gets its original offset, and a gap is refused."""
    sequences = [0, 1, 1, 3, 2]
    batches = [
        a_batch(b"%d" % number, producer_id=9, producer_epoch=0, producer_sequence=number) for number in sequences
    ]

    answers = [only(answer) for answer in ask_at_once(client, [a_produce(batch) for batch in batches])]
    again = ask_at_once(client, [a_produce(a_batch(b"plain"))])

    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NONE,
    ]
    assert [answer.base_offset for answer in answers] == [0, 1, 1, -1, 2]
    assert only(again[0]).error_code == ErrorCode.NONE
    assert values_of(client) == [b"0", b"1", b"2", b"plain"]
    assert runs[0] is False


@pytest.mark.parametrize("partition", [-1, 2])
def test_unknown_partition_in_a_run_is_refused_alone(client: RawClient, partition: int) -> None:
    """The answer is that of a single request."""
    requests = [a_produce(a_batch(b"a")), a_produce(a_batch(b"b"), partition=partition), a_produce(a_batch(b"c"))]

    answers = [only(answer) for answer in ask_at_once(client, requests)]

    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert values_of(client) == [b"a", b"c"]


def test_other_requests_keep_their_order_between_runs(client: RawClient) -> None:
    """Answers are sent in the order of the requests."""
    requests: list[Any] = [a_produce(a_batch(b"a"))] * 3 + [MetadataRequest(topics=())] + [a_produce(a_batch(b"b"))] * 3

    answers = ask_at_once(client, requests)

    kinds = [type(answer) for answer in answers]
    assert kinds == [ProduceResponse] * 3 + [MetadataResponse] + [ProduceResponse] * 3
    assert [only(answer).base_offset for answer in answers if type(answer) is ProduceResponse] == [0, 1, 2, 3, 4, 5]


def test_timestamp_too_far_ahead_in_a_run_is_refused_alone() -> None:
    """This applies to a hub with CreateTime; the other batches of the run are accepted."""
    spec = HubSpec(partition_count=2, timestamp_type=TimestampType.CREATE)
    with KafkaNode({"orders": spec}) as node, RawClient(node) as client:
        times = [1_600_000_000_000, 9_000_000_000_000, 1_600_000_000_001]
        requests = [a_produce(a_batch(b"x", timestamp_ms=time_ms)) for time_ms in times]

        answers = [only(answer) for answer in ask_at_once(client.sign_in(), requests)]

    assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE]
    assert {answer.log_append_time_ms for answer in answers} == {-1}


def test_a_disabled_hub_refuses_every_request_of_a_run(node: KafkaNode, client: RawClient) -> None:
    """Cached rights of the run are checked again."""
    client.call(a_produce(a_batch(b"a"), partition=1), 9)
    hub = node.hub()
    node.call(lambda: hub.update(replace(hub.entity, status=Status.SEND_DISABLED)))
    for _ in range(3):
        client.engine.request(a_produce(a_batch(b"b")), 9)
    client.socket.sendall(b"".join(client.engine.data_to_send()))

    codes = {only(client.answer()).error_code for _ in range(3)}

    assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_failing_disk_fails_every_request_of_its_partition(
    node: KafkaNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of one partition is refused as a whole; that of the other one is accepted."""
    log = node.call(lambda: node.hub().log(0))

    def full(*_: object) -> None:
        raise StorageFull("No space left on device")

    assert log.runs is not None
    monkeypatch.setattr(type(log), "append_run", _only_for(log, full, type(log.runs).append_run))
    requests = [a_produce(a_batch(b"%d" % number), partition=number % 2) for number in range(6)]

    answers = [only(answer) for answer in ask_at_once(client, requests)]

    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE] * 3
    assert values_of(client, 1) == [b"first", b"1", b"3", b"5"]
    assert node.hub().counters.server_errors == 3


def _only_for(log: object, stand_in: Any, real: Any) -> Any:
    return lambda self, *arguments: stand_in(*arguments) if self is log else real(self, *arguments)


def test_requests_of_a_run_are_throttled_separately() -> None:
    """KIP-219: the request that exceeds the units gets a delay, and later ones are not read before that."""
    book = LimitsBook(profile=Profile.DEVELOPER, overrides={"ingress_events_per_unit": 10})
    clock = NodeClock(is_stopped=True)
    with KafkaNode(book=book, clock=clock) as node, RawClient(node) as client:
        send_at_once(client.sign_in(), [a_produce(a_batch(*[b"x"] * 3)) for _ in range(5)])

        answers = []
        for _ in range(5):
            answers.append(client.answer())
            if answers[-1].throttle_time_ms > 0:
                clock.advance((answers[-1].throttle_time_ms + 1) / 1000)

    delays = [answer.throttle_time_ms for answer in answers]
    assert delays[:2] == [0, 0]
    assert min(delays[3:]) > 0
    assert [only(answer).error_code for answer in answers] == [ErrorCode.NONE] * 5


def test_run_before_an_invalid_frame_is_published(node: KafkaNode, client: RawClient) -> None:
    """Complete requests before it count, as without runs; then the connection is closed."""
    client.call(a_produce(a_batch(b"a")), 9)
    for _ in range(3):
        client.engine.request(a_produce(a_batch(b"b")), 9)
    data = b"".join(client.engine.data_to_send())

    client.socket.sendall(data + struct.pack(">i", -5))
    while not client.is_closed_by_peer():
        pass

    assert node.end_of() == 4


def test_zstd_in_an_old_version_of_produce_is_refused_alone(client: RawClient) -> None:
    """KIP-110: a client of that version could not read it."""
    batches = [a_batch(b"a"), a_batch(b"b", codec=Codec.ZSTD), a_batch(b"c")]

    answers = [only(answer) for answer in ask_at_once(client, [a_produce(batch) for batch in batches], 6)]

    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize("cut", [3, 1_000, 290_000, 299_000])
def test_batch_that_arrives_in_several_reads_is_stored_unchanged(node: KafkaNode, client: RawClient, cut: int) -> None:
    """It is stamped in its receive buffer, without another copy; later bytes are not lost."""
    batch = a_batch(b"x" * 300_000, b"y")
    client.engine.request(a_produce(batch), 9)
    client.engine.request(a_produce(a_batch(b"behind")), 9)
    data = b"".join(client.engine.data_to_send())
    client.socket.sendall(data[:cut])
    with RawClient(node) as other:
        other.sign_in()  # by then the first part has been read
    client.socket.sendall(data[cut:])

    answers = [only(client.answer()) for _ in range(2)]

    kept = only(client.call(a_fetch(), 11)).records
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 2
    assert bytes(kept[61 : len(batch)]) == batch[61:]
    assert values_of(client) == [b"x" * 300_000, b"y", b"behind"]
