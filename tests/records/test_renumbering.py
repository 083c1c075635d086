"""Records behind those of another batch: offset deltas and time deltas change, everything else stays."""

import pytest

from hubmere.records.header import HEADER_BYTES
from hubmere.records.kernels import Malformed, read_records, renumber_records
from hubmere.records.records import Record, encode_batch


def some_records(count: int, *, size_bytes: int = 10) -> bytes:
    records = [Record(number, 5 + number, b"key", bytes(size_bytes), (("name", b"value"),)) for number in range(count)]
    return bytes(encode_batch(records))


@pytest.mark.parametrize("delta", [0, 63, 64, 8_191, 8_192, 1_000_000])
@pytest.mark.parametrize("delta_ms", [0, 1, -5, 70, -70_000, 1 << 40])
def test_deltas_are_moved_and_the_rest_is_kept(delta: int, delta_ms: int) -> None:
    """The new numbers may take more or fewer bytes than the old ones."""
    batch = some_records(200, size_bytes=300)

    moved = read_records(renumber_records(batch, HEADER_BYTES, delta, delta_ms), 0, 200)

    before = read_records(batch, HEADER_BYTES, 200)
    assert moved == [(time + delta_ms, number + delta, *rest) for time, number, *rest in before]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_records_that_are_cut_short_are_refused(cut: int) -> None:
    """A batch is checked before it is joined; a damaged one must not be read beyond its end."""
    with pytest.raises(Malformed):
        renumber_records(some_records(2)[:-cut], HEADER_BYTES, 0, 0)


@pytest.mark.parametrize("data", [b"\x00", b"\x02\x00", b"\x03\x00", b"\x06\x00\x80\x80", b"\x06\x00\x00\x80", b"\x80"])
def test_broken_numbers_are_refused(data: bytes) -> None:
    """Whatever the bytes are, there is no other error."""
    with pytest.raises(Malformed):
        renumber_records(data, 0, 0, 0)
