"""A partition key selects the same partition as in Azure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.keys import key_hash, partition_of_key

# Reference: AMQP 4.4 and Kafka 4.4, checked there against the SDKs' own ports of the service's hash.
VECTORS = {
    "7149583486996073602": 12977,
    "FWfAT": -22341,
    "sOdeEAsyQoEuEFPGerWO": -6503,
    "7": -15263,
    "131": 30562,
    "$0cb": 26269,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_key_hash_is_that_of_the_service(key: str, expected: int) -> None:
    """A key must keep its partition when an application moves between Azure and here."""
    assert key_hash(key) == expected


def test_remainder_is_truncated_as_in_the_service() -> None:
    """A floored remainder would select other partitions for keys with a negative hash."""
    assert partition_of_key("FWfAT", 32) == 22341 % 32


@given(st.text(max_size=128), st.integers(1, 1024))
def test_every_key_has_a_partition(key: str, count: int) -> None:
    """Any text is a key; its partition exists and is stable."""
    chosen = partition_of_key(key, count)

    assert 0 <= chosen < count
    assert partition_of_key(key, count) == chosen


def test_keys_with_lengths_around_a_block_have_different_hashes() -> None:
    """The hash handles lengths around its block of 12 bytes differently."""
    hashes = {key_hash("a" * n) for n in range(26)}

    assert len(hashes) == 26
