"""Joining the batches of a gateway: the same records, in one batch."""

from hypothesis import given
from hypothesis import strategies as st

from hubmere.cluster.engine.joining import can_join, join_batches
from hubmere.records.header import UNSEALED, read_header, seal, write_header
from hubmere.records.records import Record, decode_records, encode_batch

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
def test_a_joined_batch_has_the_records_of_all(groups: list[list[Record]]) -> None:
    """Every event keeps its key, body, headers and time, and they stay in order."""
    joined = join_batches([an_unsealed_batch(group) for group in groups])
    seal(joined)

    records = [record for group in groups for record in group]
    assert [record._replace(sequence_number=0) for record in decode_records(joined)] == records
    assert [record.sequence_number for record in decode_records(joined)] == list(range(len(records)))
    assert read_header(joined).max_time_ms == max(record.time_ms for record in records)


def test_batches_of_clients_are_not_joined() -> None:
    """A batch with a checksum or a producer is its client's: it goes through as it is."""
    record = Record(sequence_number=0, time_ms=1, key=None, value=b"x", headers=())

    assert can_join(an_unsealed_batch([record]))
    assert not can_join(encode_batch([record]))
    assert not can_join(an_unsealed_batch([record], producer_id=7, producer_epoch=0, producer_sequence=0))
