"""Small requests of many connections in one turn of the loop: written together, and answered like single requests."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_produce, only
from endpoints.kafka.test_application_groups import govern
from endpoints.kafka.test_produce_runs import values_of
from hubmere.broker import RunCoalescer
from hubmere.model.entity import Status, ThrottlingMetric, TimestampType
from hubmere.model.errors import StorageFull
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.records.runs import BatchRun
from hubmere.store.log.writer import LogWriter
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.metadata import MetadataRequest
from node_clock import NodeClock

pytestmark = pytest.mark.usefixtures("either_loop")

CLIENTS = 12
_VERSION = 9


@contextlib.contextmanager
def several(node: KafkaNode, count: int = CLIENTS, string: str | None = None) -> Iterator[list[RawClient]]:
    """Connections that have produced once, so that the layout of their requests is cached."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node, string)).sign_in() for _ in range(count)]
        for client in clients:
            assert only(client.call(a_produce(a_batch(b"first"), partition=1), _VERSION)).error_code == 0
        yield clients


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of batches of each run that was written."""
    sizes: list[int] = []
    append = LogWriter.append_run

    def noted(self: LogWriter, run: BatchRun, *more: object) -> object:
        sizes.append(len(run.sizes))
        return append(self, run, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(LogWriter, "append_run", noted)
    return sizes


def test_requests_of_many_connections_are_one_write(node: KafkaNode, written: list[int]) -> None:
    """Each connection gets the offset of its own batch."""
    with several(node) as clients:
        written.clear()
        with node.held():
            for number, client in enumerate(clients):
                client.send(a_produce(a_batch(*[b"%d" % number] * (1 + number % 3))), _VERSION)
        answers = [only(client.answer()) for client in clients]
        kept = values_of(clients[0])

    assert sum(written) == CLIENTS
    assert len(written) < CLIENTS / 2
    assert {answer.error_code for answer in answers} == {0}
    assert [kept[answer.base_offset] for answer in answers] == [b"%d" % number for number in range(CLIENTS)]
    assert node.hub().counters.incoming_requests == 2 * CLIENTS


def test_a_few_requests_of_each_connection_keep_their_order(node: KafkaNode, written: list[int]) -> None:
    """Several requests in one packet are answered in their order, each with its own offset."""
    with several(node) as clients:
        with node.held():
            for number, client in enumerate(clients):
                for step in range(4):
                    client.engine.request(a_produce(a_batch(b"%d-%d" % (number, step))), _VERSION)
                client.socket.sendall(b"".join(client.engine.data_to_send()))
        answers = [[only(client.answer()) for _ in range(4)] for client in clients]
        kept = values_of(clients[0])

    for number, own in enumerate(answers):
        assert [kept[answer.base_offset] for answer in own] == [b"%d-%d" % (number, step) for step in range(4)]
        assert [answer.base_offset for answer in own] == sorted(answer.base_offset for answer in own)


def test_large_request_keeps_its_order_after_a_small_one(node: KafkaNode) -> None:
    """Both are requests of one connection, in different packets of the same turn."""
    with several(node, 2) as (client, other):
        for number in range(20):
            with node.held():
                client.send(a_produce(a_batch(b"small-%d" % number)), _VERSION)
                other.send(a_produce(a_batch(b"other")), _VERSION)
                client.send(a_produce(a_batch(b"large-%d" % number, b"x" * 20_000)), _VERSION)
                client.send(MetadataRequest(topics=()), 1)
            client.answer(), client.answer(), client.answer(), other.answer()
        own = [value for value in values_of(client) if value and value[:5] in (b"small", b"large")]

    assert own == [b"%s-%d" % (kind, number) for number in range(20) for kind in (b"small", b"large")]


def test_bad_batch_among_many_connections_fails_alone(node: KafkaNode, written: list[int]) -> None:
    """The others of the turn are stored, most of them together."""
    broken = bytearray(a_batch(b"broken"))
    broken[-1] ^= 1
    with several(node, 24) as clients:
        written.clear()
        with node.held():
            for number, client in enumerate(clients):
                client.send(a_produce(bytes(broken) if number == 7 else a_batch(b"%d" % number)), _VERSION)
        answers = [only(client.answer()) for client in clients]
        kept = values_of(clients[0])

    assert [number for number, answer in enumerate(answers) if answer.error_code] == [7]
    assert answers[7].error_code == ErrorCode.CORRUPT_MESSAGE
    assert kept == [b"%d" % number for number in range(24) if number != 7]
    assert max(written) >= 6


def test_unknown_partitions_and_topics_are_refused_only_to_their_clients(node: KafkaNode) -> None:
    """The requests of other clients are not affected."""
    with several(node, 3) as (first, second, third):
        with node.held():
            first.send(a_produce(a_batch(), partition=0), _VERSION)
            second.send(a_produce(a_batch(), partition=9), _VERSION)
            third.send(a_produce(a_batch(), topic="others"), _VERSION)
        codes = [only(client.answer()).error_code for client in (first, second, third)]

    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_connection_that_is_closed_in_the_same_turn_publishes_nothing(node: KafkaNode) -> None:
    """Its rule was deleted between the read and the write; the others of the turn are stored."""
    string = node.add_rule("device", "Send")
    with several(node, 2, string) as revoked, several(node, 2) as others:

        def revoke_all() -> None:
            for connection in list(node.broker.connections.open_connections()):
                if any(principal.rule == "device" for principal in connection.callers()):
                    connection.disconnect("revoked")

        flush = RunCoalescer.flush

        def revoke_first(self: RunCoalescer, now: float, now_ms: int) -> None:
            revoke_all()
            flush(self, now, now_ms)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunCoalescer, "flush", revoke_first)
            with node.held():
                for client in (*revoked, *others):
                    client.send(a_produce(a_batch(b"late")), _VERSION)
            codes = [only(client.answer()).error_code for client in others]
            assert [client.is_closed_by_peer() for client in revoked] == [True, True]

    assert codes == [0, 0]
    assert node.end_of() == 2


def test_a_disabled_hub_refuses_every_request_of_the_turn(node: KafkaNode) -> None:
    """Each request gets the error of a disabled hub."""
    with several(node, 6) as clients:
        hub = node.hub()
        node.call(lambda: setattr(hub, "entity", replace(hub.entity, status=Status.SEND_DISABLED)))
        with node.held():
            for client in clients:
                client.send(a_produce(a_batch()), _VERSION)
        codes = [only(client.answer()).error_code for client in clients]

    assert len(set(codes)) == 1
    assert codes[0] != 0
    assert node.end_of() == 0


def test_full_disk_fails_every_request_of_the_turn(node: KafkaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is acknowledged that is not stored, and later requests are stored again."""
    with several(node, 6) as clients:

        def refuse(self: LogWriter, run: BatchRun, *more: object) -> None:
            raise StorageFull("no space")

        with monkeypatch.context() as patch:
            patch.setattr(LogWriter, "append_run", refuse)
            with node.held():
                for client in clients:
                    client.send(a_produce(a_batch()), _VERSION)
            codes = [only(client.answer()).error_code for client in clients]
        again = [only(client.call(a_produce(a_batch()), _VERSION)).error_code for client in clients]

    assert set(codes) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert set(again) == {0}
    assert node.end_of() == 6


def test_idempotent_producers_of_one_turn_keep_their_sequences(node: KafkaNode, written: list[int]) -> None:
    """A duplicate is recognised, and a gap is refused only to its producer."""
    with several(node, 4) as clients:
        for number, client in enumerate(clients):
            client.call(
                a_produce(a_batch(b"a", producer_id=50 + number, producer_epoch=0, producer_sequence=0)), _VERSION
            )
        written.clear()
        with node.held():
            for number, client in enumerate(clients):
                batch = a_batch(b"b", producer_id=50 + number, producer_epoch=0, producer_sequence=1)
                client.send(a_produce(batch), _VERSION)
        first = [only(client.answer()) for client in clients]
        with node.held():
            for number, client in enumerate(clients):
                sequence = {0: 1, 1: 5}.get(number, 2)
                batch = a_batch(b"c", producer_id=50 + number, producer_epoch=0, producer_sequence=sequence)
                client.send(a_produce(batch), _VERSION)
        second = [only(client.answer()) for client in clients]

    assert [answer.error_code for answer in first] == [0] * 4
    assert max(written) > 1
    assert second[0].base_offset == first[0].base_offset
    assert [answer.error_code for answer in second] == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 0]
    assert node.end_of() == 10


def test_append_time_is_returned_on_an_append_time_hub() -> None:
    """The answer is the same as for a single request."""
    stamped = HubSpec(partition_count=2, timestamp_type=TimestampType.LOG_APPEND)
    created = HubSpec(partition_count=2, timestamp_type=TimestampType.CREATE)
    for spec, is_stamped in ((stamped, True), (created, False)):
        with KafkaNode({"orders": spec}) as node, several(node, 3) as clients:
            with node.held():
                for client in clients:
                    client.send(a_produce(a_batch()), _VERSION)
            times = [only(client.answer()).log_append_time_ms for client in clients]
        assert [time_ms > 0 for time_ms in times] == [is_stamped] * 3


def test_quota_of_one_client_does_not_affect_the_others() -> None:
    """Clients of an application group over its rate are refused, others of the same turn are not."""
    with KafkaNode(book=LimitsBook(profile=Profile.PREMIUM), clock=NodeClock(is_stopped=True)) as node:
        govern(node, "slow", (ThrottlingMetric.INCOMING_MESSAGES, 10))
        string = node.add_rule("slow", "Send")
        with several(node, 2, string) as slow, several(node, 6) as others:
            with node.held():
                for client in (*slow, *others):
                    client.send(a_produce(a_batch(*[b"x"] * 7)), _VERSION)
            codes = [only(client.answer()).error_code for client in (*slow, *others)]

        assert sorted(codes[:2]) == [0, ErrorCode.POLICY_VIOLATION]
        assert codes[2:] == [0] * 6
        assert node.end_of() == 7 * 7
