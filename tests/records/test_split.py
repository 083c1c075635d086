"""Batch messages of plain events are split by compiled code, which gives the same records as the kernels."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records import kernels
from hubmere.records.header import HEADER_BYTES
from hubmere.records.split import split_batch, split_plain

# Around the sizes from which lengths take another byte, in AMQP (255) and in records (64, 8192).
SIZES = (0, 1, 20, 57, 58, 63, 64, 250, 251, 255, 256, 1024, 8191, 8192)
KEYS = st.sampled_from([None, b"k", b"key" * 40])


def section(content: bytes, *, is_long: bool) -> bytes:
    """A Data section; a short one holds up to 255 bytes."""
    if is_long or len(content) > 255:
        return b"\x00\x53\x75\xb0" + len(content).to_bytes(4, "big") + content
    return b"\x00\x53\x75\xa0" + bytes((len(content),)) + content


def plain_batch(rng: Random, sizes: list[int]) -> bytes:
    """A batch of events with a body and nothing else; lengths take one byte or four."""
    long = [rng.random() < 0.3 for _ in range(2)]
    return b"".join(section(section(rng.randbytes(size), is_long=long[0]), is_long=long[1]) for size in sizes)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(SIZES), min_size=1, max_size=5), KEYS)
def test_plain_batches_become_the_same_records(rng: Random, sizes: list[int], key: bytes | None) -> None:
    """Consumers of both protocols read them, so the two forms must not differ by a byte."""
    payload = plain_batch(rng, sizes)

    assert split_batch(payload, key, b"", None) == kernels.split_batch(payload, key, b"", None)


def test_large_event_becomes_the_same_record() -> None:
    """Its lengths take four bytes."""
    payload = section(section(bytes(1 << 20), is_long=True), is_long=True)

    assert split_batch(payload, None, b"", None) == kernels.split_batch(payload, None, b"", None)


def test_many_small_events_become_the_same_records() -> None:
    """Their deltas take one to three bytes."""
    payload = section(section(b"x", is_long=False), is_long=False) * 9000

    batch, count = split_batch(payload, None, b"", None)

    assert count == 9000
    assert (batch, count) == kernels.split_batch(payload, None, b"", None)
    assert not any(batch[:HEADER_BYTES])


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(SIZES), min_size=1, max_size=4), KEYS)
def test_damaged_batches_have_the_same_outcome(rng: Random, sizes: list[int], key: bytes | None) -> None:
    """What is not plain is left to the kernels, which accept or refuse it."""
    damaged = bytearray(plain_batch(rng, sizes))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(damaged))
        change = rng.randrange(3)
        if change == 0:
            damaged[at] = rng.choice((0, 0x53, 0x70, 0x75, 0xA0, 0xB0, 0xFF))
        elif change == 1:
            del damaged[at + 1 : at + 1 + rng.randrange(1, 9)]
        else:
            damaged[at:at] = rng.randbytes(2)
    payload = bytes(damaged)

    try:
        expected = kernels.split_batch(payload, key, b"", None)
    except kernels.Malformed as refused:
        with pytest.raises(kernels.Malformed, match=f"^{refused}$"):
            split_batch(payload, key, b"", None)
    else:
        assert split_batch(payload, key, b"", None) == expected


def test_events_with_other_sections_are_left_to_the_kernels() -> None:
    """Only the kernels know annotations and properties."""
    header = b"\x00\x53\x70\xc0\x02\x01\x41"
    plain = section(section(b"body", is_long=False), is_long=False)
    payload = plain + section(header + section(b"body", is_long=False), is_long=False)

    assert split_plain is None or split_plain(payload, kernels.NULL, b"\x00") is None
    assert split_batch(payload, None, b"", None) == kernels.split_batch(payload, None, b"", None)


def test_publisher_annotation_is_stored_with_plain_events() -> None:
    """An annotation that the broker adds is not plain."""
    payload = section(section(b"body", is_long=False), is_long=False)
    added = b"\xa3\x01p\xa1\x01p"

    assert split_batch(payload, None, added, None) == kernels.split_batch(payload, None, added, None)
