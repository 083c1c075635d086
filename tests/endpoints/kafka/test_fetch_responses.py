"""The packed frames of Fetch responses, compared with those of the general writer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.endpoints.kafka.fetch.responses import (
    NO_POSITION,
    FetchFrame,
    PartitionAnswer,
    Topics,
    encode_partition,
    to_message,
)
from hubmere.wire.kafka.connection import frame_response
from hubmere.wire.kafka.framing import JOIN_BELOW_BYTES
from hubmere.wire.kafka.messages.fetch import FETCH

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
    """The frame as it is packed."""
    frame = FetchFrame(version, 7, 50, 9, len(topics))
    for name, parts in topics:
        frame.add_topic(name, len(parts))
        for result in parts:
            frame.add(result)
        frame.end_topic()
    return b"".join(frame.buffers())


@given(version=st.sampled_from(VERSIONS), topics=_TOPICS)
def test_packed_answers_are_those_of_the_general_writer(version: int, topics: Topics) -> None:
    """Both encoders must give the same bytes."""
    general = frame_response(FETCH, version, 7, to_message(50, 9, topics))

    assert packed(version, topics) == general


@pytest.mark.parametrize("version", VERSIONS)
def test_part_that_is_kept_ready_is_the_one_that_would_be_packed(version: int) -> None:
    """A partition without events is written once and sent many times."""
    result = PartitionAnswer(3, 0, 20, 18, 5, b"", (), NO_POSITION)

    frame = FetchFrame(version, 7, 50, 9, 1)
    frame.add_topic("orders", 1)
    frame.out += encode_partition(version, result)
    frame.end_topic()

    assert b"".join(frame.buffers()) == packed(version, [("orders", [result])])


def test_large_records_are_not_copied() -> None:
    """Rule 16: one copy between disk and socket."""
    records = memoryview(b"x" * JOIN_BELOW_BYTES)
    frame = FetchFrame(11, 7, 0, 0, 1)
    frame.add_topic("orders", 1)

    frame.add(PartitionAnswer(0, 0, 1, 1, 0, records, None, NO_POSITION))

    assert any(buffer is records for buffer in frame.buffers())
