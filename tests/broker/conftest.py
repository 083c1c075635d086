"""One broker a test."""

from collections.abc import Iterator

import pytest

from broker.builders import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A broker on memory with the hub `orders` of four partitions."""
    made = Bench()
    yield made
    made.close()
