"""The scan over stored batches: its result, and where it stops."""

import random
from collections.abc import Callable

import pytest

from hubmere.records.header import HEADER_BYTES, read_header, seal, write_header
from hubmere.records.records import Record, encode_batch
from hubmere.records.walk import MAX_WALKED_BYTES, WalkResult, walk_batches, walk_batches_interpreted

NO_END = 2**63 - 1
Walk = Callable[..., WalkResult]


@pytest.fixture(params=[walk_batches, walk_batches_interpreted], ids=["as installed", "interpreted"])
def walk(request: pytest.FixtureRequest) -> Walk:
    made: Walk = request.param
    return made


def a_batch(base: int, count: int = 1, *, body: bytes = b"x", time_ms: int = 1_000, **fields: int) -> bytearray:
    """A stored batch that starts at a sequence number."""
    batch = bytearray(encode_batch([Record(index, time_ms, None, body) for index in range(count)]))
    write_header(batch, read_header(batch)._replace(base_sequence_number=base, **fields))
    seal(batch)
    return batch


def run(walk: Walk, data: bytes, *, start: int = 0, end_before: int = NO_END, is_sparse: bool = False) -> WalkResult:
    """Scan from the beginning of a segment."""
    return walk(data, start, end_before, is_sparse, 0, 0, -1, 0)


def test_scan_returns_a_summary_of_ordinary_batches(walk: Walk) -> None:
    """The summary has sequence numbers, times and the last batch with events."""
    batches = [a_batch(0, 2, time_ms=50), a_batch(2, 3, time_ms=70), a_batch(5, 1, time_ms=60)]

    walked = run(walk, b"".join(batches))

    assert (walked.size_bytes, walked.batches, walked.next_sequence) == (sum(map(len, batches)), 3, 6)
    assert (walked.first_time_ms, walked.max_time_ms, walked.max_time_sequence, walked.newest_ms) == (50, 70, 4, 70)
    assert (walked.last_at, walked.last_size, walked.last_count) == (
        len(batches[0]) + len(batches[1]),
        len(batches[2]),
        1,
    )
    assert (walked.indexed, walked.numbered) == ([], [])


def test_index_has_an_entry_for_every_interval(walk: Walk) -> None:
    """There are more than 4,096 bytes between two entries, as in Kafka."""
    batches = [a_batch(base, body=b"x" * 1_000, time_ms=base) for base in range(12)]

    walked = run(walk, b"".join(batches))

    size = len(batches[0])
    assert [(each.last, each.position) for each in walked.indexed] == [(4, 4 * size), (8, 8 * size)]
    assert [(each.max_time_ms, each.max_time_sequence) for each in walked.indexed] == [(4, 4), (8, 8)]
    assert walked.unindexed_bytes == 4 * size


def test_last_five_batches_of_a_producer_are_returned(walk: Walk) -> None:
    """A log remembers five batches for each producer; a batch of another producer between them starts a new run."""
    ids = [7] * 8 + [8] + [7] * 2
    batches = [
        a_batch(base, producer_id=number, producer_epoch=1, producer_sequence=base) for base, number in enumerate(ids)
    ]

    walked = run(walk, b"".join(batches))

    assert [(each.producer_id, each.epoch, each.first) for each in walked.numbered] == [
        *((7, 1, base) for base in range(3, 8)),
        (8, 1, 8),
        (7, 1, 9),
        (7, 1, 10),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        a_batch(2),
        a_batch(0),
        a_batch(1, magic=1),
        a_batch(1, last_delta=-1),
        a_batch(1, record_count=-1),
        a_batch(1, attributes=0x10),
        a_batch(1, attributes=0x20),
        a_batch(1, length=HEADER_BYTES - 13),
        a_batch(1, length=10_000),
        a_batch(1, body=b"x" * MAX_WALKED_BYTES),
        a_batch(1)[:-1] + b"\xff",
        a_batch(1)[:-1],
        a_batch(1)[: HEADER_BYTES - 1],
    ],
)
def test_scan_stops_before_a_batch_that_is_not_ordinary(walk: Walk, odd: bytearray) -> None:
    """The caller handles it: it is damaged, belongs to a transaction, or is large."""
    first = a_batch(0)

    walked = run(walk, bytes(first + odd))

    assert (walked.size_bytes, walked.batches, walked.next_sequence) == (len(first), 1, 1)


def test_scan_stops_at_a_sequence_number(walk: Walk) -> None:
    """After a failed flush, nothing after the committed end is kept."""
    data = b"".join(a_batch(base, 2) for base in (0, 2, 4))

    assert [run(walk, data, end_before=end).next_sequence for end in (6, 5, 4, 1)] == [6, 4, 4, 0]


def test_sparse_segments_may_have_gaps(walk: Walk) -> None:
    """Compaction leaves gaps; sequence numbers never decrease, and a number beyond the valid range is damage."""
    data = b"".join([a_batch(3), a_batch(9), a_batch(4)])

    assert run(walk, data, is_sparse=True).next_sequence == 10
    assert run(walk, data).batches == 0
    assert run(walk, bytes(a_batch(2**63 - 1, 2)), is_sparse=True).batches == 0


def test_both_implementations_of_the_scan_agree() -> None:
    """For random batches with random damage, cut anywhere, the compiled and the interpreted scan return the same."""
    chance = random.Random(14)
    for _ in range(300):
        data, base = bytearray(), chance.randrange(100)
        start = base
        for _ in range(chance.randrange(40)):
            count = chance.randrange(1, 5)
            number = chance.choice((-1, 1, 2))
            data += a_batch(
                base,
                count,
                body=chance.randbytes(chance.choice((1, 30, 3_000))),
                time_ms=chance.randrange(1_000),
                producer_id=number,
                producer_epoch=chance.randrange(2),
                attributes=chance.choice((0, 0, 0, 0, 0, 0, 0, 8, 0x10)),
            )
            base += count + (chance.randrange(20) == 0)
        if data and chance.randrange(2):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        arguments = (
            bytes(data[: chance.randrange(len(data) + 1)]),
            start,
            chance.choice((NO_END, start + 20)),
            bool(chance.randrange(2)),
            chance.choice((0, 500)),
            chance.randrange(6_000),
            chance.randrange(-1, 1_000),
            start,
        )

        assert walk_batches(*arguments) == walk_batches_interpreted(*arguments)
