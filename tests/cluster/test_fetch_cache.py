"""The cache of fetched batches: found by sequence number, limited in bytes, with the aborted ranges of a fetch."""

from hubmere.cluster.engine.cache import COMPACTED_S, FetchCache, FetchedBatches, parse_fetched
from hubmere.records.records import Marker, Record, encode_batch, encode_marker


def a_batch(first: int, count: int = 2, size: int = 10) -> bytes:
    records = [
        Record(sequence_number=first + number, time_ms=5, key=None, value=b"x" * size, headers=())
        for number in range(count)
    ]
    return bytes(encode_batch(records, base_sequence_number=first))


def fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedBatches:
    parsed = parse_fetched(memoryview(b"".join(batches)), aborted)
    assert parsed is not None
    return parsed


def test_read_starts_with_the_batch_that_contains_the_number() -> None:
    """A reader in the middle of a batch gets the whole batch."""
    cache = FetchCache().partition()
    cache.add(fetched(a_batch(10), a_batch(12), a_batch(14)))

    chunk = cache.read(13, 1_000_000)

    assert chunk is not None
    assert (chunk.first_sequence, chunk.next_sequence, bytes(chunk.data)) == (12, 16, a_batch(12) + a_batch(14))


def test_read_returns_at_least_one_batch_and_otherwise_keeps_its_limit() -> None:
    """A batch that is larger than requested is returned whole."""
    cache = FetchCache().partition()
    cache.add(fetched(a_batch(0), a_batch(2)))

    chunk = cache.read(0, 1)

    assert chunk is not None
    assert (chunk.first_sequence, chunk.next_sequence) == (0, 2)


def test_data_that_was_not_fetched_is_missing() -> None:
    """A gap between two fetches is fetched again, never skipped."""
    cache = FetchCache().partition()
    cache.add(fetched(a_batch(0)))
    cache.add(fetched(a_batch(10)))

    assert cache.read(5, 100) is None
    assert cache.read(12, 100) is None


def test_sequence_numbers_that_were_compacted_are_skipped() -> None:
    """Kafka answers a fetch with the next remaining batch: a reader before it must continue there."""
    cache = FetchCache().partition()
    parsed = parse_fetched(memoryview(a_batch(10)), (), 5)
    assert parsed is not None
    cache.add(parsed)

    chunk = cache.read(5, 100)

    assert chunk is not None
    assert (chunk.first_sequence, chunk.next_sequence) == (10, 12)
    assert cache.read(4, 100) is None


def test_incomplete_batch_is_dropped() -> None:
    """Kafka fills a response up to its limit: the last batch may be incomplete."""
    parsed = parse_fetched(memoryview(a_batch(0) + a_batch(2)[:-3]), ())

    assert parsed is not None
    assert parsed.next_sequence == 2
    assert parse_fetched(memoryview(a_batch(0)[:40]), ()) is None


def test_cache_is_limited_over_all_partitions() -> None:
    """The least recently used batches are dropped first."""
    size = len(a_batch(0, size=1_000))
    shared = FetchCache(max_bytes=2 * size)
    one, other = shared.partition(), shared.partition()
    one.add(fetched(a_batch(0, size=1_000)))
    one.add(fetched(a_batch(2, size=1_000)))
    one.read(0, 1)

    other.add(fetched(a_batch(0, size=1_000)))

    assert one.read(0, 1) is not None
    assert one.read(2, 1) is None
    assert shared.size_bytes == 2 * size


def test_aborted_transaction_ends_at_its_marker() -> None:
    """Kafka returns its start; readers skip its events up to the abort marker, and no later ones."""
    marker = bytes(encode_marker(Marker(7, 0, is_commit=False), time_ms=5, base_sequence_number=4))
    cache = FetchCache().partition()
    cache.add(fetched(a_batch(0), a_batch(2), marker, a_batch(5), aborted=((7, 2), (9, 5))))

    ranges = cache.aborted_transactions(0, 7)

    assert ranges == [(7, 2, 4), (9, 5, 6)]


def test_what_follows_the_fetched_batches_is_known_to_be_missing() -> None:
    """It is fetched while a reader is given what is here; nothing is fetched twice."""
    cache = FetchCache().partition()
    cache.add(fetched(a_batch(0), a_batch(2)))
    assert cache.missing_after(1) == 4

    cache.add(fetched(a_batch(4)))

    assert cache.missing_after(1) is None
    assert cache.missing_after(5) == 6
    assert cache.missing_after(9) is None


def test_batches_of_a_compacted_log_expire() -> None:
    """Also those that are read all the time: brokers do not report that they have deleted a record."""
    shared = FetchCache()
    cache = shared.partition()
    cache.expire(1_000.0)
    cache.add(fetched(a_batch(0)))

    cache.expire(1_000.0 + COMPACTED_S / 2)
    before = cache.read(0, 100)
    cache.expire(1_000.0 + COMPACTED_S)

    assert before is not None
    assert cache.read(0, 100) is None
    assert shared.size_bytes == 0
