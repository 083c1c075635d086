"""The packed frames of Fetch responses equal those of the general encoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.endpoints.kafka.fetch.responses import (
    NO_POSITION,
    FetchFrame,
    PartitionAnswer,
    SharedFrame,
    Topics,
    encode_partition,
    to_message,
)
from hubmere.wire.kafka.connection import frame_response
from hubmere.wire.kafka.framing import JOIN_BELOW_BYTES
from hubmere.wire.kafka.messages.fetch import FETCH, FetchResponse

VERSIONS = range(FETCH.versions.low, FETCH.versions.high + 1)
_INT64 = st.integers(-1, 2**63 - 1)
_TOLD = st.builds(
    PartitionAnswer,
    st.integers(0, 2**31 - 1),
    st.sampled_from([0, 1, 3, 74]),
    _INT64,
    _INT64,
    _INT64,
    st.one_of(st.binary(max_size=300), st.just(b"x" * JOIN_BELOW_BYTES)),
    st.sampled_from([None, ()]),
    st.just(NO_POSITION),
)
_TOPICS = st.lists(st.tuples(st.text("ab.é", min_size=1, max_size=150), st.lists(_TOLD, max_size=3)), max_size=3)


def packed(version: int, topics: Topics) -> bytes:
    """The frame of the fast encoder."""
    frame = FetchFrame(version, 7, 50, 9, len(topics))
    for name, parts in topics:
        frame.add_topic(name, len(parts))
        for result in parts:
            frame.add(result)
        frame.end_topic()
    return b"".join(frame.buffers())


@given(version=st.sampled_from(VERSIONS), topics=_TOPICS)
def test_packed_responses_equal_those_of_the_general_encoder(version: int, topics: Topics) -> None:
    """Both encoders must give the same bytes."""
    general = frame_response(FETCH, version, 7, to_message(50, 9, topics))

    assert packed(version, topics) == general


@pytest.mark.parametrize("version", VERSIONS)
def test_cached_part_equals_an_encoded_one(version: int) -> None:
    """The part of a partition without events is encoded once and sent many times."""
    result = PartitionAnswer(3, 0, 20, 18, 5, b"", (), NO_POSITION)

    frame = FetchFrame(version, 7, 50, 9, 1)
    frame.add_topic("orders", 1)
    frame.out += encode_partition(version, result)
    frame.end_topic()

    assert b"".join(frame.buffers()) == packed(version, [("orders", [result])])


def test_large_records_are_not_copied() -> None:
    """There is one copy between disk and socket."""
    records = memoryview(b"x" * JOIN_BELOW_BYTES)
    frame = FetchFrame(11, 7, 0, 0, 1)
    frame.add_topic("orders", 1)

    frame.add(PartitionAnswer(0, 0, 1, 1, 0, records, None, NO_POSITION))

    assert any(buffer is records for buffer in frame.buffers())


_RECORDS = b"some records"
_SHARED = PartitionAnswer(3, 0, 20, 18, 5, _RECORDS, None, NO_POSITION)


@pytest.mark.parametrize("version", VERSIONS)
def test_shared_response_differs_by_its_correlation_id_alone(version: int) -> None:
    """The next reader of a tail gets the frame that was encoded for the first."""
    shared = SharedFrame(version, 0, "orders", _SHARED, frame_response(FETCH, version, 1, _message()))

    assert shared.serves(version, 0, "orders", _SHARED._replace(records=_RECORDS))
    assert shared.with_id(-5) == frame_response(FETCH, version, -5, _message())
    assert shared.with_id(7) == frame_response(FETCH, version, 7, _message())


@pytest.mark.parametrize(
    "other",
    [
        _SHARED._replace(partition=4),
        _SHARED._replace(code=3),
        _SHARED._replace(end=21),
        _SHARED._replace(stable_end=19),
        _SHARED._replace(start=6),
        _SHARED._replace(records=bytes(bytearray(_RECORDS))),
        _SHARED._replace(aborted=()),
    ],
)
def test_other_response_is_not_shared(other: PartitionAnswer) -> None:
    """Every part of an answer counts; other records with the same bytes are of another partition or position."""
    shared = SharedFrame(11, 0, "orders", _SHARED, b"")

    assert not shared.serves(11, 0, "orders", other)
    assert not shared.serves(12, 0, "orders", _SHARED)
    assert not shared.serves(11, 50, "orders", _SHARED)
    assert not shared.serves(11, 0, "returns", _SHARED)


def _message() -> FetchResponse:
    return to_message(0, 0, [("orders", [_SHARED])])
