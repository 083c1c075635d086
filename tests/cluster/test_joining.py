"""Joining the batches of a gateway: one batch has the records of all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.cluster.engine.joining import (
    MAX_JOINED_BYTES,
    can_join,
    check_own_run,
    join_run,
    may_number,
    unseal,
)
from hubmere.records.header import UNSEALED, read_header, seal, write_header
from hubmere.records.join import join_batches
from hubmere.records.records import Record, decode_records, encode_batch
from hubmere.store.engine import LogConfig

_RECORDS = st.lists(
    st.builds(
        Record,
        sequence_number=st.just(0),
        time_ms=st.integers(min_value=1, max_value=2_000_000_000_000),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        headers=st.just((("h", b"v"),)),
    ),
    min_size=1,
    max_size=5,
)


def an_unsealed_batch(records: list[Record], **more: int) -> bytearray:
    numbered = [record._replace(sequence_number=number) for number, record in enumerate(records)]
    batch = encode_batch(numbered, **more)  # type: ignore[arg-type]
    write_header(batch, read_header(batch)._replace(crc=UNSEALED))
    return batch


@given(st.lists(_RECORDS, min_size=1, max_size=6))
def test_joined_batch_has_the_records_of_all(groups: list[list[Record]]) -> None:
    """Every event keeps its key, body, headers and time, and they stay in order."""
    batches = [an_unsealed_batch(group) for group in groups]
    joined, header = join_batches(batches)
    assert header == read_header(joined)
    seal(joined)

    records = [record for group in groups for record in group]
    assert [record._replace(sequence_number=0) for record in decode_records(joined)] == records
    assert [record.sequence_number for record in decode_records(joined)] == list(range(len(records)))
    assert read_header(joined).max_time_ms == max(record.time_ms for record in records)


def test_batches_of_clients_are_not_joined() -> None:
    """A batch with a checksum or a producer belongs to its client and is sent unchanged."""
    record = Record(sequence_number=0, time_ms=1, key=None, value=b"x", headers=())

    assert can_join(read_header(an_unsealed_batch([record])))
    assert not can_join(read_header(encode_batch([record])))
    numbered = an_unsealed_batch([record], producer_id=7, producer_epoch=0, producer_sequence=0)
    assert not can_join(read_header(numbered))


def a_client_batch(**more: int) -> bytearray:
    batch = encode_batch([Record(sequence_number=0, time_ms=1, key=None, value=b"x", headers=())])
    write_header(batch, read_header(batch)._replace(**more))
    seal(batch)
    return batch


def test_a_batch_of_a_client_without_numbers_may_become_the_gateways_own() -> None:
    """Then it shares requests with others, and a retry does not duplicate it."""
    batch = a_client_batch()
    assert may_number(batch, read_header(batch), LogConfig())

    for given_batch in (batch, memoryview(bytes(batch))):
        own, header = unseal(given_batch, read_header(given_batch))
        assert can_join(header)
        assert header == read_header(own)
        assert [record.value for record in decode_records(bytes(own))] == [b"x"]


@pytest.mark.parametrize(
    ("batch", "config"),
    [
        (a_client_batch(producer_id=7, producer_epoch=0, producer_sequence=3), LogConfig()),
        (a_client_batch(attributes=1), LogConfig()),
        (a_client_batch(record_count=2, last_delta=1), LogConfig()),
        (a_client_batch(), LogConfig(compact=True)),
        (a_client_batch(), LogConfig(append_time=False)),
    ],
    ids=["numbered", "compressed", "broken records", "compacted hub", "times of clients"],
)
def test_a_batch_that_a_leader_may_refuse_is_sent_alone(batch: bytearray, config: LogConfig) -> None:
    """Numbered by its client, or refused for its keys, times or records: others must not be refused with it."""
    assert not may_number(batch, read_header(batch), config)


_ANY_TIME_MS = 2**63 - 1


@given(st.lists(_RECORDS, min_size=1, max_size=6))
def test_run_of_clients_becomes_one_batch(groups: list[list[Record]]) -> None:
    """Small requests that arrive together are appended as one batch, with the events of all in order."""
    batches = [
        encode_batch([record._replace(sequence_number=number) for number, record in enumerate(group)])
        for group in groups
    ]
    data = bytearray(b"".join(batches))

    run = check_own_run(data, [len(batch) for batch in batches], _ANY_TIME_MS, LogConfig())
    assert run is not None
    joined, header = join_run(run)

    assert can_join(header)
    assert header == read_header(joined)
    seal(joined)
    records = [record for group in groups for record in group]
    assert [record._replace(sequence_number=0) for record in decode_records(joined)] == records


@pytest.mark.parametrize(
    ("batch", "config"),
    [
        (a_client_batch(producer_id=7, producer_epoch=0, producer_sequence=3), LogConfig()),
        (a_client_batch(attributes=1), LogConfig()),
        (a_client_batch(attributes=0x10, producer_id=7, producer_epoch=0, producer_sequence=3), LogConfig()),
        (a_client_batch(record_count=2, last_delta=1), LogConfig()),
        (a_client_batch(), LogConfig(compact=True)),
        (a_client_batch(), LogConfig(append_time=False)),
    ],
    ids=["numbered", "compressed", "transactional", "broken records", "compacted hub", "times of clients"],
)
def test_run_with_a_batch_that_a_leader_may_refuse_is_no_run(batch: bytearray, config: LogConfig) -> None:
    """Its batches are appended one by one, each with its own answer."""
    fine = a_client_batch()

    assert check_own_run(fine + batch, [len(fine), len(batch)], _ANY_TIME_MS, config) is None


def test_run_that_is_larger_than_a_joined_batch_is_no_run() -> None:
    """A broker refuses batches above its limit."""
    large = encode_batch(
        [Record(sequence_number=0, time_ms=1, key=None, value=bytes(MAX_JOINED_BYTES // 2), headers=())]
    )

    assert check_own_run(large + large, [len(large)] * 2, _ANY_TIME_MS, LogConfig()) is None
