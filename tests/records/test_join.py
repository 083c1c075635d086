"""Batches are joined by compiled code, which gives the same batch as the interpreted form."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records import join
from hubmere.records.header import HEADER_BYTES, UNSEALED, is_intact, read_header, seal, write_header
from hubmere.records.join import join_batches, join_interpreted
from hubmere.records.kernels import Malformed
from hubmere.records.records import Record, decode_records, encode_batch

NOW_MS = 1_700_000_000_000
# Around the sizes from which a length takes another byte.
SIZES = (0, 1, 50, 57, 63, 64, 300, 8_190, 8_200)


def a_batch(rng: Random, sizes: list[int], time_ms: int = NOW_MS) -> bytearray:
    """A batch with one record of each size; times differ by some milliseconds."""
    records = [
        Record(number, time_ms + rng.choice((0, 3, 100, -70)), b"key", rng.randbytes(size), (("name", b"value"),))
        for number, size in enumerate(sizes)
    ]
    return encode_batch(records)


def batches_of(rng: Random, groups: list[list[int]]) -> list[bytearray]:
    return [a_batch(rng, sizes, NOW_MS + rng.choice((0, 0, 1, -1, 9_000))) for sizes in groups]


GROUPS = st.lists(st.lists(st.sampled_from(SIZES), min_size=1, max_size=80), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), GROUPS)
def test_both_forms_give_the_same_batch(rng: Random, groups: list[list[int]]) -> None:
    """A gateway without a compiler must write what others write."""
    batches = batches_of(rng, groups)

    joined, header = join_batches(batches)

    assert joined == join_interpreted(batches)
    assert header == read_header(joined)
    assert header.crc == UNSEALED


def test_joined_batch_has_the_records_of_all_in_order() -> None:
    """Numbers take one, two and three bytes, and every record keeps its time."""
    rng = Random(7)
    batches = batches_of(rng, [[10] * 60, [20] * 5_000, [30] * 6_000])

    joined, header = join_batches(batches)
    seal(joined)

    before = [record for batch in batches for record in decode_records(bytes(batch))]
    after = list(decode_records(bytes(joined)))
    assert is_intact(joined)
    assert header.record_count == len(before) == header.last_delta + 1
    assert [record.sequence_number for record in after] == list(range(len(before)))
    assert [record[1:] for record in after] == [record[1:] for record in before]
    assert header.max_time_ms == max(record.time_ms for record in before)


def test_without_a_compiler_batches_are_joined_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreted form does all of it where nothing was compiled."""
    batches = batches_of(Random(5), [[1, 64], [8_200], [300] * 70])
    expected = join_batches(batches)

    monkeypatch.setattr(join, "join_plain", None)

    assert join_batches(batches) == expected


def test_compiled_form_joins_ordinary_batches() -> None:
    """Otherwise every batch would take the slow way, and no test would notice."""
    batches = batches_of(Random(6), [[1, 64], [8_200], [300] * 70])

    if join.join_plain is not None:
        assert join.join_plain(list(batches)) == join_interpreted(batches)


def test_views_are_joined_without_a_change_of_the_batches() -> None:
    """Batches are views of what was received; a retry may send one of them again."""
    rng = Random(3)
    batches = batches_of(rng, [[5, 70], [9_000]])
    copies = [bytes(batch) for batch in batches]

    joined, _ = join_batches([memoryview(batch) for batch in batches])

    assert joined == join_interpreted(copies)
    assert [bytes(batch) for batch in batches] == copies


@pytest.mark.parametrize("time_ms", [-1, 0, 1 << 61, -(1 << 62)])
def test_impossible_times_have_the_same_outcome(time_ms: int) -> None:
    """Sums that do not fit into 64 bits are left to the interpreted form."""
    rng = Random(1)
    batches = [a_batch(rng, [1, 2]), a_batch(rng, [3])]
    write_header(batches[1], read_header(batches[1])._replace(base_time_ms=time_ms))

    assert join_batches(batches)[0] == join_interpreted(batches)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_records_that_are_cut_short_are_refused(cut: int) -> None:
    """A batch is checked before it is joined; a damaged one must not be read beyond its end."""
    rng = Random(2)

    with pytest.raises(Malformed):
        join_batches([a_batch(rng, [10]), a_batch(rng, [10, 10])[:-cut]])


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), GROUPS, st.integers(0, 200), st.integers(0, 255))
def test_damaged_batches_have_the_same_outcome(rng: Random, groups: list[list[int]], at: int, byte: int) -> None:
    """Whatever the bytes are: the same batch, or the same refusal."""
    batches = batches_of(rng, groups)
    damaged = rng.choice(batches)
    damaged[min(HEADER_BYTES + at, len(damaged) - 1)] = byte

    def outcome_of(join: object) -> bytearray | str:
        try:
            joined = join(batches)  # type: ignore[operator]
        except Malformed as refused:
            return str(refused)
        return joined if isinstance(joined, bytearray) else joined[0]

    assert outcome_of(join_batches) == outcome_of(join_interpreted)
