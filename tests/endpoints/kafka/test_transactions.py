"""Producer ids and transactions over the protocol, and what read_committed consumers see."""

from pathlib import Path
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.records.header import TRANSACTIONAL, read_header, split_batches
from hubmere.records.records import decode_records, read_marker
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from hubmere.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchTopic
from hubmere.wire.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

pytestmark = pytest.mark.usefixtures("either_loop")

Producer = tuple[int, int]


def an_init(transactional_id: str | None = "t", **more: Any) -> InitProducerIdRequest:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    return InitProducerIdRequest(**{**fields, **more})


def start(client: RawClient, version: int = 4, **more: Any) -> Producer:
    """Start a producer with the transactional id `t`."""
    answer = client.call(an_init(**more), version)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def an_enlisting(producer: Producer, *partitions: int, topic: str = "orders") -> AddPartitionsToTxnRequest:
    topics = (AddPartitionsToTxnTopic(name=topic, partitions=partitions or (0,)),)
    number, epoch = producer
    return AddPartitionsToTxnRequest(transactional_id="t", producer_id=number, producer_epoch=epoch, topics=topics)


def an_end(producer: Producer, *, commit: bool = True) -> EndTxnRequest:
    number, epoch = producer
    return EndTxnRequest(transactional_id="t", producer_id=number, producer_epoch=epoch, committed=commit)


def write(client: RawClient, producer: Producer, sequence: int, value: bytes) -> Any:
    number, epoch = producer
    batch = a_batch(
        value, producer_id=number, producer_epoch=epoch, producer_sequence=sequence, attributes=TRANSACTIONAL
    )
    return only(client.call(a_produce(batch, transactional_id="t"), 9))


def values(client: RawClient, *, committed_only: bool) -> list[bytes | None]:
    """The events of the first partition for a read_committed or a read_uncommitted consumer."""
    part = only(client.call(a_fetch(isolation_level=int(committed_only)), 11))
    aborted = {gone.producer_id: gone.first_offset for gone in part.aborted_transactions or ()}
    shown: list[bytes | None] = []
    for batch in split_batches(bytes(part.records)):
        header = read_header(batch)
        if header.is_control:
            aborted.pop(header.producer_id, None)
        elif not (committed_only and header.base_sequence_number >= aborted.get(header.producer_id, 1 << 62)):
            shown += [record.value for record in decode_records(batch)]
    return shown


# --- producer ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_init_producer_id_returns_an_id(client: RawClient, version: int) -> None:
    """Reference 2.4: Java producers request one by default, with the largest timeout."""
    first, second = (client.call(an_init(None, transaction_timeout_ms=2**31 - 1), version) for _ in range(2))

    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert second.producer_id > first.producer_id >= 0


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_invalid_init_producer_id_is_refused_with_its_code(
    client: RawClient, more: dict[str, Any], code: ErrorCode
) -> None:
    """Reference 2.12 and 2.13."""
    assert client.call(an_init(**more), 4).error_code == code


def test_producer_ids_are_new_after_a_restart(tmp_path: Path) -> None:
    """Reference 2.12: a reused id would continue old sequence numbers."""
    seen = []
    for _ in range(2):
        with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
            seen.append(client.sign_in().call(an_init(None), 4).producer_id)

    assert seen[1] > seen[0]


# --- transactions ----------------------------------------------------------------------------------------------------


def test_committed_events_become_visible_together(client: RawClient) -> None:
    """KIP-98: nothing before the marker, everything after it."""
    producer = start(client)
    client.call(an_enlisting(producer), 3)
    write(client, producer, 0, b"a")
    write(client, producer, 1, b"b")
    before = values(client, committed_only=True)

    ended = client.call(an_end(producer), 3)

    assert ended.error_code == ErrorCode.NONE
    assert before == []
    assert values(client, committed_only=True) == [b"a", b"b"]


def test_aborted_events_are_visible_to_read_uncommitted_consumers_only(client: RawClient) -> None:
    """A read_committed consumer gets the ranges to skip; the marker ends them."""
    producer = start(client)
    for sequence, commit in enumerate((False, True)):
        client.call(an_enlisting(producer), 3)
        write(client, producer, sequence, b"%d" % commit)
        client.call(an_end(producer, commit=commit), 3)

    batches = list(split_batches(bytes(only(client.call(a_fetch(), 11)).records)))
    markers = [read_marker(batch) for batch in batches if read_header(batch).is_control]

    assert values(client, committed_only=False) == [b"0", b"1"]
    assert values(client, committed_only=True) == [b"1"]
    assert [marker.is_commit for marker in markers if marker is not None] == [False, True]


def test_open_transaction_holds_back_only_read_committed_consumers(client: RawClient) -> None:
    """Reference 2.8: they read up to the last stable offset, which is also their end."""
    client.call(a_produce(a_batch(b"before")), 9)
    producer = start(client)
    client.call(an_enlisting(producer), 3)
    write(client, producer, 0, b"open")
    client.call(a_produce(a_batch(b"after")), 9)

    part = only(client.call(a_fetch(isolation_level=1), 11))

    assert (part.high_watermark, part.last_stable_offset) == (3, 1)
    assert values(client, committed_only=True) == [b"before"]
    assert values(client, committed_only=False) == [b"before", b"open", b"after"]
    assert [latest(client, isolation) for isolation in (0, 1)] == [3, 1]


def latest(client: RawClient, isolation_level: int) -> int:
    part = ListOffsetsPartition(index=0, timestamp_ms=LATEST_TIMESTAMP)
    topics = (ListOffsetsTopic(name="orders", partitions=(part,)),)
    found = only(client.call(ListOffsetsRequest(isolation_level=isolation_level, topics=topics), 5))
    return int(found.offset)


def test_waiting_read_committed_consumer_is_woken_by_the_marker(node: KafkaNode, client: RawClient) -> None:
    """The events before it do not wake it."""
    producer = start(client)
    client.call(an_enlisting(producer), 3)
    with RawClient(node) as reader:
        reader.sign_in().send(a_fetch(max_wait_ms=200_000, isolation_level=1), 11)
        write(client, producer, 0, b"a")
        client.call(an_end(producer), 3)

        records = bytes(only(reader.answer()).records)

    assert decode_records(next(split_batches(records)))[0].value == b"a"


def test_older_producer_is_fenced_everywhere(client: RawClient) -> None:
    """An old process can neither add partitions, write nor end; its open transaction is aborted."""
    old = start(client)
    client.call(an_enlisting(old), 3)
    write(client, old, 0, b"zombie")
    new = start(client)

    assert new == (old[0], old[1] + 1)
    assert only(client.call(an_enlisting(old), 3)).error_code == ErrorCode.PRODUCER_FENCED
    assert only(client.call(an_enlisting(old), 1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.call(an_end(old), 3).error_code == ErrorCode.PRODUCER_FENCED
    assert client.call(an_end(old), 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(client, old, 1, b"zombie").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.call(an_init(producer_id=old[0], producer_epoch=old[1]), 4).error_code == ErrorCode.PRODUCER_FENCED
    assert values(client, committed_only=True) == []


def test_write_outside_of_the_transaction_is_refused(client: RawClient) -> None:
    """KIP-890: no batch may stay in a partition without a transaction that ends it."""
    producer = start(client)
    client.call(an_enlisting(producer, 1), 3)

    assert write(client, producer, 0, b"x").error_code == ErrorCode.INVALID_TXN_STATE
    assert only(client.call(a_fetch(), 11)).high_watermark == 0


def test_adding_partitions_is_all_or_nothing(client: RawClient) -> None:
    """Reference 2.13: one unknown partition refuses the others too."""
    producer = start(client)

    answer = client.call(an_enlisting(producer, 0, 9), 3)

    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.call(an_end(producer), 3).error_code == ErrorCode.INVALID_TXN_STATE


def a_pending_offset(producer: Producer, offset: int, **more: Any) -> TxnOffsetCommitRequest:
    part = TxnOffsetCommitPartition(index=0, committed_offset=offset, committed_metadata="note")
    fields: dict[str, Any] = {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "topics": (TxnOffsetCommitTopic(name="orders", partitions=(part,)),),
    }
    return TxnOffsetCommitRequest(**{**fields, **more})


def committed(client: RawClient, *, require_stable: bool = False) -> tuple[int, int]:
    topics = (OffsetFetchTopic(name="orders", partition_indexes=(0,)),)
    request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=require_stable)
    part = only(client.call(request, 7))
    return part.committed_offset, part.error_code


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_committed_with_the_events(client: RawClient, commit: bool) -> None:
    """KIP-447: read, transform, write, exactly once; OffsetFetch with require_stable waits for the outcome."""
    number, epoch = producer = start(client)
    client.call(AddOffsetsToTxnRequest(transactional_id="t", producer_id=number, producer_epoch=epoch, group_id="g"), 3)
    pended = only(client.call(a_pending_offset(producer, 5), 3))
    during = (committed(client), committed(client, require_stable=True))

    client.call(an_end(producer, commit=commit), 3)

    assert pended.error_code == ErrorCode.NONE
    assert during == ((-1, ErrorCode.NONE), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert committed(client, require_stable=True) == (5 if commit else -1, ErrorCode.NONE)


@pytest.mark.parametrize("offset", [-1, -2])
def test_negative_offset_is_committed_with_the_events(client: RawClient, offset: int) -> None:
    """Offsets of a transaction follow the rules of OffsetCommit."""
    number, epoch = producer = start(client)
    client.call(AddOffsetsToTxnRequest(transactional_id="t", producer_id=number, producer_epoch=epoch, group_id="g"), 3)

    pended = only(client.call(a_pending_offset(producer, offset), 3))
    client.call(an_end(producer), 3)

    assert pended.error_code == ErrorCode.NONE
    assert committed(client) == (offset, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, ErrorCode.INVALID_TXN_STATE),
        ({"producer_epoch": 7}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_id": 999}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"member_id": "nobody", "generation_id": 3}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_offset_commit_of_a_transaction_is_refused_with_its_code(
    client: RawClient, more: dict[str, Any], code: ErrorCode
) -> None:
    """Reference 2.13."""
    producer = start(client)

    assert only(client.call(a_pending_offset(producer, 5, **more), 3)).error_code == code


def test_transaction_timeout_is_enforced_by_the_timer_of_the_endpoint(client: RawClient) -> None:
    """read_committed consumers continue, and its producer is fenced."""
    producer = start(client, transaction_timeout_ms=300)
    client.call(an_enlisting(producer), 3)
    write(client, producer, 0, b"late")

    part = only(client.call(a_fetch(max_wait_ms=200_000, isolation_level=1), 11))

    assert part.last_stable_offset == 2
    assert client.call(an_end(producer), 3).error_code == ErrorCode.PRODUCER_FENCED


def test_transaction_continues_after_a_restart(tmp_path: Path) -> None:
    """The restarted node ends the transaction with its partitions and events."""
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        producer = start(client.sign_in())
        client.call(an_enlisting(producer), 3)
        write(client, producer, 0, b"kept")

    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        client.sign_in()
        before = values(client, committed_only=True)
        write(client, producer, 1, b"more")
        ended = client.call(an_end(producer), 3)

        assert (before, ended.error_code) == ([], ErrorCode.NONE)
        assert values(client, committed_only=True) == [b"kept", b"more"]


# --- looking at transactions -----------------------------------------------------------------------------------------


def test_transactions_are_listed_and_described(client: RawClient) -> None:
    """KIP-664: kafka-transactions finds hanging transactions in this way."""
    producer = start(client)
    client.call(an_enlisting(producer, 0, 1), 3)

    described = client.call(DescribeTransactionsRequest(transactional_ids=("t", "u")), 0).transaction_states
    listed = [
        client.call(ListTransactionsRequest(state_filters=states, producer_id_filters=ids), 0)
        for states, ids in (((), ()), (("Ongoing",), (producer[0],)), (("Empty", "Odd"), ()))
    ]

    assert (described[0].transaction_state, described[0].topics[0].partitions) == ("Ongoing", (0, 1))
    assert described[1].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert [[one.transactional_id for one in answer.transaction_states] for answer in listed] == [["t"], ["t"], []]
    assert listed[2].unknown_state_filters == ("Odd",)
